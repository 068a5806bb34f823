//! What only a real kubelet, a real admission or a lease can make, explained.

use serde_json::json;
use trainyard_kube::{crd, rights};

use crate::{
    job,
    namespace::{TestNamespace, kubectl_in, on_cluster, on_real_nodes},
    on_nodes, template,
};

#[test]
fn what_a_kubelet_cannot_do_is_explained() {
    on_real_nodes("kubelet", |fixture| {
        let _operator = fixture.operator();
        let mut mount = on_nodes("mount", "true");
        template(&mut mount)["spec"]["volumes"] =
            json!([{"name": "keys", "secret": {"secretName": "vault"}}]);
        template(&mut mount)["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "keys", "mountPath": "/keys"}]);
        let mut crash = on_nodes("loops", "echo no luck; exit 3");
        crash["metadata"]["annotations"] = json!({"trainyard.dev/restart-scope": "pod"});
        crash["spec"]["runPolicy"] = json!({"cleanPodPolicy": "None"});
        crash["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = json!("Always");
        crash["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(1);
        fixture.put(&mount);
        fixture.put(&crash);
        let answer = fixture.until_cause("mount", "VolumeMount");
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(
            sentence.contains("cannot be mounted: the secret `vault` does not exist"),
            "{answer:#}"
        );
        let answer = fixture.until_cause("loops", "CrashLoop");
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(sentence.contains("loops-worker-0"), "{answer:#}");
        assert!(answer.to_string().contains("exit code 3"), "{answer:#}");
    });
}

#[test]
fn what_the_pod_standard_forbids_is_explained() {
    on_cluster("standard", |fixture| {
        let enforce = "pod-security.kubernetes.io/enforce=restricted";
        fixture.kubectl(&["label", "namespace", &fixture.namespace, enforce]);
        let _operator = fixture.operator();
        fixture.put(&job("root"));
        let answer = fixture.until_cause("root", "PodSecurity");
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(sentence.contains("restricted"), "{answer:#}");
        assert!(answer.to_string().contains("runAsNonRoot"), "{answer:#}");
    });
}

/// Writes the lease of an operator that renewed it at `renewed` for `seconds`.
fn put_lease(fixture: &TestNamespace, namespace: &str, renewed: &str, seconds: u32) {
    fixture.apply(&json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace}}));
    fixture.apply(
        &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": rights::LEASE, "namespace": namespace},
        "spec": {"holderIdentity": "somebody", "renewTime": renewed,
            "leaseDurationSeconds": seconds}}),
    );
}

#[test]
fn operator_lease_shows_whether_one_runs() {
    on_cluster("lease", |fixture| {
        fixture.put(&job("waits"));
        put_lease(fixture, crd::NAMESPACE, "2026-01-01T00:00:00.000000Z", 15);
        let answer = fixture.until_cause("waits", "NoOperator");
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(sentence.contains("has expired"), "{answer:#}");
        assert!(answer.to_string().contains("somebody"), "{answer:#}");
        // That of the job's own namespace speaks for it before the other.
        let long_ago = "2026-01-01T00:00:00.000000Z";
        put_lease(fixture, &fixture.namespace, long_ago, u32::MAX / 2);
        let answer = fixture.until_answer("waits", |answer| {
            let sentence = answer["sentence"].as_str().unwrap();
            sentence.contains("the running operator has not processed this job")
        });
        assert_eq!(answer["cause"], "NoOperator", "{answer:#}");
        let own = format!("kubectl -n {} logs", fixture.namespace);
        assert!(answer.to_string().contains(&own), "{answer:#}");
        kubectl_in(crd::NAMESPACE, &["delete", "lease", rights::LEASE]);
    });
}
