//! The operator as users have it: pods of a Deployment on real nodes, under its own account.

use serde_json::{Value, json};

use crate::{
    hooks,
    namespace::{TestNamespace, alone_on_real_nodes, example, kubectl, kubectl_in},
};

/// The chart.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/trainyard");
/// The kustomization for a whole cluster, and its namespace.
const BASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kustomize/base");
const BASE_NAMESPACE: &str = "trainyard-system";

/// The smoke example as a short job of two ranks.
fn smoke(name: &str) -> Value {
    let mut job = example("smoke/pytorchjob.yaml");
    job["metadata"]["name"] = json!(name);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(1);
    for role in ["Master", "Worker"] {
        let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
        pod["nodeSelector"] = json!({"test.trainyard.dev/node": "real"});
        let command = pod["containers"][0]["command"].as_array_mut().unwrap();
        command.retain(|word| !word.as_str().unwrap().starts_with("--step-delay"));
        if role == "Master" {
            // No claim can be bound here.
            pod["volumes"][0] = json!({"name": "checkpoints", "emptyDir": {}});
        }
    }
    job
}

/// A real `mpirun` of the newer form, whose ranks the operator's own image starts.
fn mpi(name: &str) -> Value {
    let role = |replicas: u32, command: Value| {
        json!({"replicas": replicas, "restartPolicy": "Never", "template": {"spec": {
            "nodeSelector": {"test.trainyard.dev/node": "real"},
            "containers": [{"name": "mpi", "image": "trainyard.test/tools:test",
                "command": command, "env": [{"name": "HOME", "value": "/tmp"}]}]}}})
    };
    let line = json!(["mpirun", "--allow-run-as-root", "-np", "2", "hostname"]);
    json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": {
            "Launcher": role(1, line), "Worker": role(2, json!(["/usr/sbin/sshd", "-De"]))}}})
}

/// Waits until both replicas are ready: they have seen the cluster, and the API server trusts them.
fn until_ready(namespace: &str) {
    kubectl_in(
        namespace,
        &[
            "rollout",
            "status",
            "deployment/trainyard",
            "--timeout=120s",
        ],
    );
}

fn until_succeeded(fixture: &TestNamespace, name: &str) {
    let status = fixture.until_status(name, |status| {
        status["state"] == "Succeeded" || status["state"] == "Failed"
    });
    assert_eq!(status["state"], "Succeeded", "{status:#}");
}

/// Installs the chart into the namespace, under the restricted standard, with further `settings`.
pub(crate) fn install_chart(fixture: &TestNamespace, settings: &[&str]) {
    fixture.kubectl(&[
        "label",
        "namespace",
        &fixture.namespace,
        "pod-security.kubernetes.io/enforce=restricted",
    ]);
    let words = [
        "install",
        "trainyard",
        CHART,
        "--set=nodeSelector.test\\.trainyard\\.dev/node=real",
        // The suite has installed the definitions before.
        "--take-ownership",
        "--wait",
        "--timeout=2m",
    ];
    fixture.helm(&[&words, settings].concat());
}

/// Removes what the chart installed, without the definitions.
pub(crate) fn uninstall_chart(fixture: &TestNamespace) {
    fixture.helm(&["uninstall", "trainyard", "--wait", "--timeout=1m"]);
}

/// Asks for a job until the webhooks that it needs are asked.
fn put_at_last(fixture: &TestNamespace, job: &Value) {
    fixture.wait("the job is taken", || {
        (fixture.try_put(job, &[]).code == Some(0)).then_some(())
    });
}

#[test]
fn installed_chart_runs_jobs_and_fails_over() {
    alone_on_real_nodes("helm", |fixture| {
        let _hooks = hooks::alone(fixture);
        install_chart(fixture, &["--set=gangs.enabled=true"]);
        // Jobs belong to people, in a namespace without restrictions.
        let people = fixture.beside("people");
        put_at_last(&people, &smoke("first"));
        until_succeeded(&people, "first");
        let words = "jsonpath={.spec.containers[0].command}";
        let words = people.kubectl(&["get", "pod", "first-master-0", "-o", words]);
        assert!(words.contains("\"supervise\""), "{words}");
        put_at_last(&people, &mpi("ranks"));
        until_succeeded(&people, "ranks");
        let pods = people.kubectl(&["get", "pods", "-o", "name"]);
        let launcher = pods.lines().find(|name| name.contains("launcher")).unwrap();
        let log = people.kubectl(&["logs", launcher]);
        for rank in 0..2 {
            assert!(log.contains(&format!("ranks-worker-{rank}")), "{log}");
        }

        let holder = [
            "get",
            "lease",
            "trainyard",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ];
        let identity = fixture.kubectl(&holder);
        let leader = identity.split('_').next().unwrap();
        fixture.kubectl(&["delete", "pod", leader, "--grace-period=0", "--force"]);
        put_at_last(&people, &smoke("second"));
        until_succeeded(&people, "second");
        assert_ne!(
            fixture.kubectl(&holder),
            identity,
            "another replica is the leader"
        );
        let metrics = fixture.kubectl(&[
            "get",
            "--raw",
            &format!(
                "/api/v1/namespaces/{}/services/trainyard:metrics/proxy/metrics",
                fixture.namespace
            ),
        ]);
        assert!(metrics.contains("trainyard_leader"), "{metrics}");

        uninstall_chart(fixture);
        let left = people.kubectl(&["get", "pytorchjobs", "-o", "name"]);
        assert_eq!(left.lines().count(), 2, "{left}");
        let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
        let left = fixture.kubectl(&["get", kinds, "-o", "name"]);
        assert!(!left.contains("trainyard"), "{left}");
        people.clear();
    });
}

#[test]
fn an_applied_kustomization_runs_jobs() {
    alone_on_real_nodes("kustomized", |fixture| {
        let _hooks = hooks::alone(fixture);
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--kustomize",
            BASE,
        ];
        kubectl(&apply);
        // The simulated nodes have no images.
        let select = json!({"spec": {"template": {"spec": {
            "nodeSelector": {"test.trainyard.dev/node": "real"}}}}});
        kubectl_in(
            BASE_NAMESPACE,
            &[
                "patch",
                "deployment",
                "trainyard",
                &format!("--patch={select}"),
            ],
        );
        until_ready(BASE_NAMESPACE);
        put_at_last(fixture, &smoke("smoke"));
        until_succeeded(fixture, "smoke");
        put_at_last(fixture, &mpi("ranks"));
        until_succeeded(fixture, "ranks");
        // The definitions stay: all jobs of all tests would go with them.
        hooks::remove(fixture);
        kubectl_in(BASE_NAMESPACE, &["delete", "namespace", BASE_NAMESPACE]);
    });
}
