//! Jobs to try, and what their status says.

use serde_json::{Value, json};
use trainyard_core::spec::read;

/// The job of an example.
pub(crate) fn example(file: &str) -> Value {
    let path = format!("{}/../../examples/{file}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let file = read(&bytes).unwrap();
    let mut documents = file.documents.iter();
    let document = documents.find(|document| document.job_kind().is_some());
    document.unwrap().tree.to_json()
}

/// Whether `condition` is True in `status`.
pub(crate) fn holds(status: &Value, condition: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|one| one["type"] == condition && one["status"] == "True")
    })
}

/// A `PyTorchJob` of `workers` workers and a master. `annotations` go to each pod.
pub(crate) fn pytorch(name: &str, workers: u32, annotations: &Value) -> Value {
    let role = |replicas: u32| {
        json!({
            "replicas": replicas,
            "restartPolicy": "OnFailure",
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "nodeSelector": {"test.trainyard.dev/node": "simulated"},
                    "containers": [{"name": "pytorch", "image": "test", "command": ["train"]}],
                },
            },
        })
    };
    let mut roles = json!({"Master": role(1)});
    if workers > 0 {
        roles["Worker"] = role(workers);
    }
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles},
    })
}

/// Pods that end with `code` after `after`.
pub(crate) fn ends(code: u32, after: &str) -> Value {
    json!({"test.trainyard.dev/exit-code": code.to_string(), "test.trainyard.dev/exit-after": after})
}
