//! Real pods on real nodes: the smoke trainer trains, loses a rank, and goes on.

use std::time::Duration;

use kube::api::{DeleteParams, LogParams};
use serde_json::{Value, json};

use crate::harness::{Frozen, TestNamespace, example, on_real_nodes};

/// The smoke example, with a folder that both nodes have in place of a claim.
fn smoke(fixture: &TestNamespace) -> Value {
    let mut job = example("smoke/pytorchjob.yaml");
    job["metadata"]["annotations"] = json!({"trainyard.dev/lost-after": "5s"});
    for role in ["Master", "Worker"] {
        let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
        pod["nodeSelector"] = json!({"test.trainyard.dev/node": "real"});
        pod["containers"][0]["imagePullPolicy"] = json!("Never");
        if role == "Master" {
            // A folder of the node is made for root, and no group helps.
            pod["securityContext"] = json!({"runAsUser": 0});
            pod["volumes"][0] = json!({"name": "checkpoints", "hostPath": {
                "path": format!("/tmp/{}", fixture.namespace), "type": "DirectoryOrCreate"}});
        }
    }
    job
}

async fn log(fixture: &TestNamespace, pod: &str) -> String {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(fixture.client.clone(), &fixture.namespace);
    pods.logs(pod, &LogParams::default())
        .await
        .unwrap_or_default()
}

#[test]
fn lost_pod_resumes_from_checkpoint() {
    on_real_nodes("smoke", |fixture| async move {
        let operator = fixture.operator().await;
        fixture.put(&smoke(&fixture)).await;
        fixture
            .until("a checkpoint is written", || async {
                log(&fixture, "smoke-master-0")
                    .await
                    .contains("step 150")
                    .then_some(())
            })
            .await;
        fixture
            .pods()
            .delete("smoke-worker-1", &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
        let status = fixture
            .until_condition("PyTorchJob", "smoke", "Succeeded")
            .await;
        assert_eq!(status["trainyard"]["attempt"], 2, "{status:#}");
        assert_eq!(status["trainyard"]["spent"]["platform"], 1, "{status:#}");
        let words = log(&fixture, "smoke-master-0").await;
        assert!(words.contains("resumed"), "{words}");
        operator.stop().await;
    });
}

#[test]
fn oom_kill_and_crash_are_distinguished() {
    on_real_nodes("real-memory", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = smoke(&fixture);
        job["spec"]["runPolicy"]["backoffLimit"] = json!(1);
        job["spec"]["pytorchReplicaSpecs"]
            .as_object_mut()
            .unwrap()
            .remove("Worker");
        let container =
            &mut job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0];
        container["image"] = json!("trainyard.test/tools:test");
        container["command"] = json!(["bash", "-c", "x=xxxxxxxx; while :; do x=$x$x; done"]);
        container["resources"] = json!({"limits": {"memory": "32Mi"}});
        fixture.put(&job).await;
        let status = fixture
            .until_condition("PyTorchJob", "smoke", "Failed")
            .await;
        let failure = &status["trainyard"]["lastFailure"];
        let words = failure["message"].as_str().unwrap();
        assert!(words.contains("ran out of memory"), "{status:#}");
        operator.stop().await;
    });
}

#[test]
fn log_verdict_stops_repeated_failures() {
    on_real_nodes("verdict", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = smoke(&fixture);
        let policy = job["spec"]["runPolicy"].as_object_mut().unwrap();
        policy.remove("backoffLimit");
        policy.remove("activeDeadlineSeconds");
        let roles = job["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap();
        roles.remove("Worker");
        let master = &mut job["spec"]["pytorchReplicaSpecs"]["Master"];
        master["restartPolicy"] = json!("OnFailure");
        let container = &mut master["template"]["spec"]["containers"][0];
        container["image"] = json!("trainyard.test/tools:test");
        let script = "echo 'Traceback (most recent call last):' >&2
            echo '  File \"/app/train.py\", line 7, in main' >&2
            echo \"KeyError: 'rate'\" >&2
            exit 1";
        container["command"] = json!(["bash", "-c", script]);
        fixture.put(&job).await;
        let status = fixture
            .until_condition("PyTorchJob", "smoke", "Failed")
            .await;
        let yard_status = &status["trainyard"];
        assert_eq!(yard_status["attempt"], 2, "{status:#}");
        let verdict = &yard_status["lastFailure"]["verdict"];
        assert_eq!(verdict["label"], "user_code_error", "{status:#}");
        assert_eq!(verdict["attempt"], 2, "{status:#}");
        let conditions = status["conditions"].as_array().unwrap();
        let message = conditions.last().unwrap()["message"].as_str().unwrap();
        assert!(
            message.contains("the same error at the same place"),
            "{message}"
        );
        fixture
            .until("an event has the verdict", || async {
                let events = fixture.events("smoke").await;
                let wanted =
                    |(_, message): &(String, String)| message.contains("Verdict `user_code_error`");
                events.iter().any(wanted).then_some(())
            })
            .await;
        operator.stop().await;
    });
}

#[test]
fn wrong_transport_ends_the_attempt_early() {
    on_real_nodes("transport", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = smoke(&fixture);
        job["metadata"]["annotations"] = json!({"trainyard.dev/require-transport": "NET/IB"});
        let roles = job["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap();
        roles.remove("Worker");
        let pod = &mut job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
        pod["terminationGracePeriodSeconds"] = json!(1);
        let container = &mut pod["containers"][0];
        container["image"] = json!("trainyard.test/tools:test");
        let line = "node-1:42:99 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/Socket/0";
        container["command"] = json!(["bash", "-c", format!("echo '{line}'; sleep 1000")]);
        fixture.put(&job).await;
        let status = fixture
            .until_condition("PyTorchJob", "smoke", "Failed")
            .await;
        let mut conditions = status["conditions"].as_array().unwrap().iter();
        let condition = conditions.find(|condition| condition["type"] == "TransportVerified");
        let condition = condition.unwrap();
        assert_eq!(condition["status"], "False", "{status:#}");
        assert_eq!(
            condition["reason"], "PyTorchJobTransportMismatch",
            "{status:#}"
        );
        let tests = &status["trainyard"];
        assert_eq!(tests["attempt"], 2, "{status:#}");
        assert_eq!(tests["spent"]["platform"], 2, "{status:#}");
        let verdict = &tests["lastFailure"]["verdict"];
        assert_eq!(verdict["label"], "socket_fallback", "{status:#}");
        operator.stop().await;
    });
}

#[test]
fn stopped_kubelet_moves_the_gang() {
    on_real_nodes("kubelet", |fixture| async move {
        let operator = fixture.operator().await;
        let mut job = smoke(&fixture);
        // One rank on each node, as the scheduler likes it; placement would bring them together. And longer
        // than the node takes to be noticed.
        job["metadata"]["annotations"]["trainyard.dev/gang"] = json!("off");
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(1);
        for (role, node) in [("Master", "node-a"), ("Worker", "node-b")] {
            let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
            pod["affinity"] = json!({"nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference":
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In",
                        "values": [node]}]}}]}});
            let command = pod["containers"][0]["command"].as_array_mut().unwrap();
            command.retain(|word| !word.as_str().unwrap().starts_with("--epochs"));
            command.push(json!("--epochs=120"));
        }
        fixture.put(&job).await;
        fixture.until_running(2, 1).await;
        let pods = fixture.pod_map().await;
        assert_eq!(
            pods["smoke-worker-0"]["spec"]["nodeName"], "node-b",
            "{pods:#?}"
        );
        let kubelet = Frozen::new("kubelet-b");
        let status = fixture
            .until_status_within(
                Duration::from_mins(3),
                "PyTorchJob",
                "smoke",
                "the second attempt runs elsewhere",
                |status| status["trainyard"]["attempt"] == 2,
            )
            .await;
        assert_eq!(
            status["trainyard"]["spent"]["infrastructure"], 1,
            "{status:#}"
        );
        // The scheduler may not know yet that the node is gone, and choose it once more.
        fixture
            .until_status_within(
                Duration::from_mins(4),
                "PyTorchJob",
                "smoke",
                "all pods run elsewhere",
                |status| {
                    let active = |role: &str| status["replicaStatuses"][role]["active"] == 1;
                    active("Master") && active("Worker")
                },
            )
            .await;
        let pods = fixture.pod_map().await;
        assert_eq!(
            pods["smoke-worker-0"]["spec"]["nodeName"], "node-a",
            "{pods:#?}"
        );
        drop(kubelet);
        operator.stop().await;
    });
}
