//! The roles of people, as the Kubeflow platform names them.

use serde_json::{Value, json};

use super::plurals;
use crate::crd::GROUP;

/// The rules of people: name of the `ClusterRole`, its labels, its rules; the names and labels are
/// those of the Kubeflow platform.
pub fn user_roles() -> Vec<Value> {
    let label = |name: &str| format!("rbac.authorization.kubeflow.org/aggregate-to-{name}");
    let role = |name: &str, labels: &[&str], rules: Value| {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|name| (label(name), json!("true")))
            .collect();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": name, "labels": labels },
            "rules": rules,
        })
    };
    let kinds =
        |verbs: &[&str]| json!({ "apiGroups": [GROUP], "resources": plurals(), "verbs": verbs });
    let status: Vec<String> = plurals()
        .iter()
        .map(|name| format!("{name}/status"))
        .collect();
    let status = json!({ "apiGroups": [GROUP], "resources": status, "verbs": ["get"] });
    let queues = json!({
        "apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": ["get", "list"],
    });
    let mut admin = role("kubeflow-training-admin", &["kubeflow-admin"], json!([]));
    admin["aggregationRule"] = json!({
        "clusterRoleSelectors": [{ "matchLabels": { label("kubeflow-training-admin"): "true" } }],
    });
    let edit = json!([
        kinds(&["create", "delete", "get", "list", "patch", "update", "watch"]),
        status,
        queues,
        {
            "apiGroups": [""],
            "resources": ["persistentvolumeclaims"],
            "verbs": ["create", "delete", "get", "list", "watch"],
        },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch"] },
    ]);
    let view = json!([kinds(&["get", "list", "watch"]), status, queues]);
    vec![
        admin,
        role(
            "kubeflow-training-edit",
            &["kubeflow-edit", "kubeflow-training-admin"],
            edit,
        ),
        role("kubeflow-training-view", &["kubeflow-view"], view),
    ]
}
