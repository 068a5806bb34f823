//! What a tenant can make nodes look like: neither empty where his pods run, nor full where none of them does.

use super::*;

const PODS: &str = "/api/v1/pods";

/// A pod of `evil` that asks for all GPUs of a node.
fn pod(labels: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "evil", "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
        "status": {"phase": "Pending"},
    })
}

fn add_pod(server: &Server, pod: Value) {
    server.add("/api/v1/namespaces/evil/pods", pod);
}

fn plain(server: &Server, namespace: &str, name: &str) {
    add(server, (namespace, name), &json!({}), &json!({}));
}

/// Whether the pod of `team-a/honest` runs; while it waits for a node it is gated.
fn honest_starts(world: &World) -> bool {
    let pod = world.get(PODS, "team-a", "honest-worker-0");
    pod.is_some_and(|pod| text(&pod, "/status/phase") == "Running")
}

#[tokio::test(start_paused = true)]
async fn pods_take_room_whatever_their_labels_are() {
    let cases = [
        ("none", json!({})),
        (
            "an unknown operator",
            json!({"training.kubeflow.org/operator-name": "x", "training.kubeflow.org/job-name": "j"}),
        ),
        (
            "no job",
            json!({"training.kubeflow.org/operator-name": "pytorchjob-controller"}),
        ),
        (
            "a job that is not there",
            json!({"training.kubeflow.org/operator-name": "tfjob-controller", "training.kubeflow.org/job-name": "j"}),
        ),
    ];
    for (name, labels) in cases {
        let server = Server::new();
        server.add_nodes(1);
        add_pod(&server, pod(&labels, &json!({})));
        let operator = server.operator(Options::default());
        plain(&server, "team-a", "honest");
        tokio::time::sleep(Duration::from_mins(1)).await;
        server.see(|world| assert!(!honest_starts(world), "{name}: its only node is full"));
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_job_keeps_no_node() {
    let server = Server::new();
    server.add_nodes(1);
    let labels = json!({"training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "no-such-job"});
    let mut forged = pod(&labels, &json!({"trainyard.dev/seat": "node-0"}));
    // No scheduler will ever bind it.
    forged["spec"]["schedulerName"] = "nobody".into();
    forged["status"]["reason"] = "Held".into();
    add_pod(&server, forged);
    let operator = server.operator(Options::default());
    plain(&server, "team-a", "honest");
    server.wait("the job starts", honest_starts).await;
    operator.stop().await;
}
