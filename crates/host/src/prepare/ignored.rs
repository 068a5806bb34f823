//! What a pod template states and one machine does not honour.
//!
//! Owns the list of fields that mean something here; every other field of a template is reported once,
//! so that nobody waits for a probe that never runs. Images have a note of their own.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use trainyard_core::spec::Job;

/// Fields of a pod that are honoured, or true of every pod here.
const POD: &[&str] = &[
    "containers",
    "dnsPolicy",
    "hostNetwork",
    "initContainers",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "volumes",
];
/// Fields of a container that are honoured, or come with its image.
const CONTAINER: &[&str] = &[
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "name",
    "ports",
    "resources",
    "restartPolicy",
    "volumeMounts",
    "workingDir",
];
/// Resources whose limits are honoured, or said to be ignored by a note of their own.
const RESOURCES: &[&str] = &["cpu", "memory", "nvidia.com/gpu"];

/// One sentence that names every field of `job` that is ignored, where there are any.
pub(super) fn note(job: &Job) -> Option<String> {
    let mut ignored = BTreeSet::new();
    for role in job.roles.values() {
        // A template that cannot be written again has been read, so this does not happen.
        let template = serde_json::to_value(&role.template.spec).unwrap_or_default();
        if let Value::Object(pod) = &template {
            look_at_pod(pod, &mut ignored);
        }
    }
    let fields: Vec<String> = ignored.iter().map(|field| format!("`{field}`")).collect();
    (!fields.is_empty()).then(|| {
        format!(
            "these pod template fields are ignored: {}",
            fields.join(", ")
        )
    })
}

fn look_at_pod(pod: &Map<String, Value>, ignored: &mut BTreeSet<String>) {
    keep_unknown(pod, POD, ignored);
    for list in ["initContainers", "containers"] {
        let containers = pod.get(list).and_then(Value::as_array);
        for container in containers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
        {
            keep_unknown(container, CONTAINER, ignored);
            let limits = container
                .get("resources")
                .and_then(|resources| resources.get("limits"));
            for (resource, _) in limits.and_then(Value::as_object).into_iter().flatten() {
                if !RESOURCES.contains(&resource.as_str()) {
                    ignored.insert(format!("resources.limits[{resource}]"));
                }
            }
        }
    }
}

fn keep_unknown(object: &Map<String, Value>, known: &[&str], ignored: &mut BTreeSet<String>) {
    let stated = object.iter().filter(|(_, value)| !is_empty(value));
    ignored.extend(
        stated
            .filter(|(field, _)| !known.contains(&field.as_str()))
            .map(|(field, _)| field.clone()),
    );
}

/// Whether a field says nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_honoured_is_named_once() {
        let pod = json!({
            "containers": [
                {"name": "a", "command": ["x"], "livenessProbe": {"exec": {"command": ["y"]}},
                 "securityContext": {}, "resources": {"limits": {"cpu": 1, "rdma/hca": 1}}},
                {"name": "b", "livenessProbe": {"httpGet": {"port": 80}}, "tty": false},
            ],
            "initContainers": [{"name": "c", "startupProbe": {"tcpSocket": {"port": 1}}}],
            "securityContext": {"runAsUser": 1000}, "tolerations": [], "hostNetwork": true,
            "nodeSelector": {"gpu": "h100"}, "restartPolicy": "Never",
        });
        let mut ignored = BTreeSet::new();
        look_at_pod(pod.as_object().unwrap(), &mut ignored);
        let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
        assert_eq!(
            ignored,
            [
                "livenessProbe",
                "nodeSelector",
                "resources.limits[rdma/hca]",
                "securityContext",
                "startupProbe"
            ]
        );
    }
}
