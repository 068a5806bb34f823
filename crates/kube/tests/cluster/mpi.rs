//! A real `mpirun` on real nodes, whose ranks the agent starts, or ssh.

use kube::api::{DeleteParams, LogParams};
use serde_json::{Value, json};

use crate::harness::{TestNamespace, holds, on_real_nodes};

/// The binary alone, as it is deployed.
const AGENT_IMAGE: &str = "trainyard.test/trainyard:test";

/// An `MPIJob` of three workers whose ranks run `line`, as `user`.
fn mpi(api_version: &str, user: u32, line: &str) -> Value {
    mpi_with(api_version, user, line, |_| {})
}

/// The same, changed as its user would have written it.
fn mpi_with(api_version: &str, user: u32, line: &str, change: impl FnOnce(&mut Value)) -> Value {
    // Without a command of its own the worker of v1 would sleep, that of v2beta1 serve ssh.
    let role = |replicas: u32, command: Option<Value>| {
        let mut container = json!({
            "name": "mpi",
            "image": "trainyard.test/tools:test",
            "imagePullPolicy": "Never",
            "env": [{"name": "HOME", "value": "/tmp"}],
        });
        if let Some(command) = command {
            container["command"] = command;
        }
        json!({
            "replicas": replicas,
            "restartPolicy": "Never",
            "template": {"spec": {
                "nodeSelector": {"test.trainyard.dev/node": "real"},
                "automountServiceAccountToken": false,
                "securityContext": {"runAsUser": user},
                "containers": [container],
            }},
        })
    };
    let mpirun = json!([
        "mpirun",
        "--allow-run-as-root",
        "-np",
        "3",
        "sh",
        "-c",
        line
    ]);
    let mut job = json!({
        "apiVersion": api_version,
        "kind": "MPIJob",
        "metadata": {"name": "ranks"},
        "spec": {"mpiReplicaSpecs": {
            "Launcher": role(1, Some(mpirun)),
            "Worker": role(3, None),
        }},
    });
    change(&mut job);
    // As the API server stores it: there is no webhook here to convert it.
    trainyard_kube::convert::convert(&job, "kubeflow.org/v1").unwrap()
}

/// The log of the one pod of the launcher that is left.
async fn launcher_log(fixture: &TestNamespace) -> String {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let all = fixture.pod_map().await;
    let name = all.keys().find(|name| name.contains("launcher")).unwrap();
    pods.logs(name, &LogParams::default()).await.unwrap()
}

async fn until_ended(fixture: &TestNamespace) -> Value {
    fixture
        .until_status("MPIJob", "ranks", "the job has ended", |status| {
            ["Succeeded", "Failed"].iter().any(|end| holds(status, end))
        })
        .await
}

fn ranks_run(name: &'static str, api_version: &'static str, user: u32) {
    on_real_nodes(name, move |fixture| async move {
        let operator = fixture
            .operator_with(|options| options.cluster.agent_image = Some(AGENT_IMAGE.to_owned()))
            .await;
        let line = "echo rank $OMPI_COMM_WORLD_RANK on $(hostname) as $(id -u)";
        fixture.put(&mpi(api_version, user, line)).await;
        let status = until_ended(&fixture).await;
        let log = launcher_log(&fixture).await;
        assert!(holds(&status, "Succeeded"), "{status:#}\n{log}");
        let mut lines: Vec<&str> = log
            .lines()
            .filter(|line| line.starts_with("rank"))
            .collect();
        lines.sort_unstable();
        let want = [0, 1, 2].map(|rank| format!("rank {rank} on ranks-worker-{rank} as {user}"));
        assert_eq!(lines, want, "{log}");
        // The launcher has no rights, and there are no keys of ssh.
        for kind in ["Role", "RoleBinding"] {
            let rbac = fixture.api("rbac.authorization.k8s.io", "v1", kind);
            let there = rbac.get_opt("ranks-launcher").await.unwrap();
            assert!(there.is_none(), "{kind}: {there:?}");
        }
        let keys = fixture.api("", "v1", "Secret").get_opt("ranks-ssh").await;
        assert!(keys.unwrap().is_none());
        operator.stop().await;
    });
}

#[test]
fn ranks_of_v1_are_started_by_the_agent() {
    ranks_run("agent-v1", "kubeflow.org/v1", 0);
}

#[test]
fn agent_starts_v2beta1_ranks_as_ordinary_user() {
    ranks_run("agent-v2", "kubeflow.org/v2beta1", 1000);
}

#[test]
fn ranks_of_v2beta1_are_started_by_ssh() {
    on_real_nodes("ssh", |fixture| async move {
        let operator = fixture.operator().await;
        // Images for the MPI Operator bring keys of the server, trust those of others, and do not mind
        // that anyone may write to the folder of a mounted Secret.
        let serve = "ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/key && exec /usr/sbin/sshd -De \
                     -f /dev/null -h /etc/ssh/key -o StrictModes=no";
        let trust = "echo StrictHostKeyChecking no >/etc/ssh/ssh_config && exec \"$@\"";
        let line = "echo rank $OMPI_COMM_WORLD_RANK on $(hostname)";
        let job = mpi_with("kubeflow.org/v2beta1", 0, line, |job| {
            // The names of workers resolve only once they are ready.
            job["spec"]["launcherCreationPolicy"] = json!("WaitForWorkersReady");
            let roles = &mut job["spec"]["mpiReplicaSpecs"];
            let launcher = &mut roles["Launcher"]["template"]["spec"]["containers"][0];
            let mpirun = launcher["command"].take();
            launcher["command"] = json!(["sh", "-c", trust, "sh"]);
            launcher["args"] = mpirun;
            let worker = &mut roles["Worker"]["template"]["spec"]["containers"][0];
            worker["command"] = json!(["sh", "-c", serve]);
            worker["readinessProbe"] = json!({"tcpSocket": {"port": 22}, "periodSeconds": 1});
        });
        fixture.put(&job).await;
        let status = until_ended(&fixture).await;
        let log = launcher_log(&fixture).await;
        assert!(holds(&status, "Succeeded"), "{status:#}\n{log}");
        for rank in 0..3 {
            let said = format!("rank {rank} on ranks-worker-{rank}");
            assert!(log.contains(&said), "{log}");
        }
        operator.stop().await;
    });
}

#[test]
fn lost_worker_restarts_the_ranks() {
    on_real_nodes("agent-again", |fixture| async move {
        let operator = fixture
            .operator_with(|options| options.cluster.agent_image = Some(AGENT_IMAGE.to_owned()))
            .await;
        let line = "test $TRAINYARD_ATTEMPT -gt 1 || sleep 600; echo attempt $TRAINYARD_ATTEMPT";
        fixture.put(&mpi("kubeflow.org/v2beta1", 0, line)).await;
        fixture.until_running(4, 1).await;
        fixture
            .pods()
            .delete("ranks-worker-1", &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
        let status = until_ended(&fixture).await;
        let log = launcher_log(&fixture).await;
        assert!(holds(&status, "Succeeded"), "{status:#}\n{log}");
        assert_eq!(status["trainyard"]["attempt"], 2, "{status:#}");
        assert_eq!(log.matches("attempt 2").count(), 3, "{log}");
        operator.stop().await;
    });
}
