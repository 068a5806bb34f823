//! The definitions of `TrainJob` and its runtimes, and the built-in runtimes as objects.
//!
//! They are apart from the others and installed where they are asked for: on a cluster with Kubeflow Trainer there are definitions of these
//! names already. What goes into pods is accepted and kept as it is; `core` checks it with its runtime.
//!
//! Invariant: what the definitions of Kubeflow Trainer accept is accepted, and what they keep is kept. The addition is `status.trainyard`.

use serde_json::{Value, json};
use trainyard_core::spec::{BUNDLED, Kind, runtime_from_text};

use super::columns;

/// Longest name in a reference.
const NAME_CHARS: u32 = 253;

/// The definitions, each with the name of its file.
pub fn definitions() -> Vec<(String, Value)> {
    let runtime = |kind: &str, scope: &str| {
        let sentence = format!("A {kind}: what the pods of a TrainJob are made from.");
        let mut version = version(&sentence, &runtime_spec(), None);
        version["schema"]["openAPIV3Schema"]["required"] = json!(["spec"]);
        definition(kind, scope, &version)
    };
    vec![
        definition(Kind::Train.name(), "Namespaced", &job_version()),
        runtime("TrainingRuntime", "Namespaced"),
        runtime("ClusterTrainingRuntime", "Cluster"),
    ]
}

/// The built-in runtimes, for those who list the runtimes of a cluster.
pub fn runtimes() -> Vec<Value> {
    let texts = BUNDLED.into_iter().map(|(_, text)| text);
    texts.filter_map(runtime_from_text).collect()
}

fn definition(kind: &str, scope: &str, version: &Value) -> (String, Value) {
    let group = Kind::Train.group();
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": singular,
            },
            "scope": scope,
            "versions": [version],
        },
    });
    (format!("{group}_{plural}.yaml"), definition)
}

fn version(sentence: &str, spec: &Value, status: Option<Value>) -> Value {
    let mut properties = json!({
        "apiVersion": text(),
        "kind": text(),
        "metadata": { "type": "object" },
        "spec": spec,
    });
    if let Some(status) = status {
        properties["status"] = status;
    }
    json!({
        "name": Kind::Train.version(),
        "schema": { "openAPIV3Schema": {
            "description": sentence,
            "properties": properties,
            "type": "object",
        } },
        "served": true,
        "storage": true,
    })
}

fn job_version() -> Value {
    let sentence = "A TrainJob of Kubeflow Trainer, run by Trainyard.";
    let mut version = version(sentence, &job_spec(), Some(job_status()));
    version["additionalPrinterColumns"] = columns(Kind::Train);
    version["subresources"] = json!({ "status": {} });
    version
}

fn text() -> Value {
    json!({ "type": "string" })
}

/// An object of which everything is kept.
fn open(sentence: &str) -> Value {
    json!({
        "description": sentence,
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn fixed(mut schema: Value, field: &str) -> Value {
    schema["x-kubernetes-validations"] = json!([{
        "message": format!("TY147: `{field}` cannot be changed once the job is created"),
        "rule": "self == oldSelf",
    }]);
    schema
}

fn job_spec() -> Value {
    let name = |default: Option<&str>| {
        let mut schema = json!({ "type": "string", "maxLength": NAME_CHARS });
        if let Some(default) = default {
            schema["default"] = json!(default);
        }
        schema
    };
    let reference = json!({
        "description": "The runtime that the pods are made from.",
        "properties": {
            "apiGroup": name(Some(Kind::Train.group())),
            "kind": name(Some("ClusterTrainingRuntime")),
            "name": { "type": "string", "minLength": 1, "maxLength": NAME_CHARS },
        },
        "required": ["name"],
        "type": "object",
    });
    let mut manager = name(Some(Kind::Train.own_manager()));
    manager["description"] = json!("The controller that runs the job.");
    let mut patch = open("A change of the runtime by one party.");
    patch["properties"] =
        json!({ "manager": { "type": "string", "minLength": 1, "maxLength": 316 } });
    patch["required"] = json!(["manager"]);
    json!({
        "description": "The desired state.",
        "properties": {
            "activeDeadlineSeconds": { "description": "Seconds after which the job fails.", "format": "int64", "minimum": 1, "type": "integer" },
            "annotations": { "additionalProperties": text(), "type": "object" },
            "initializer": open("What is fetched before the training."),
            "labels": { "additionalProperties": text(), "type": "object" },
            "managedBy": fixed(manager, "managedBy"),
            "podSpecOverrides": { "items": open("Replaced by `runtimePatches`."), "type": "array" },
            "podTemplateOverrides": { "items": open("Replaced by `runtimePatches`."), "type": "array" },
            "runtimePatches": {
                "description": "Changes of the runtime, by the party that makes them.",
                "items": patch,
                "maxItems": 16,
                "type": "array",
                "x-kubernetes-list-map-keys": ["manager"],
                "x-kubernetes-list-type": "map",
            },
            "runtimeRef": fixed(reference, "runtimeRef"),
            "suspend": { "default": false, "description": "Whether the job must have no pods.", "type": "boolean" },
            "trainer": open("What trains."),
        },
        "required": ["runtimeRef"],
        "type": "object",
    })
}

fn job_status() -> Value {
    let count = || json!({ "format": "int32", "minimum": 0, "type": "integer" });
    let counts = ["active", "failed", "ready", "succeeded", "suspended"];
    let mut of_job: serde_json::Map<String, Value> = counts
        .iter()
        .map(|key| ((*key).to_owned(), count()))
        .collect();
    of_job.insert("name".to_owned(), text());
    json!({
        "description": "The observed state.",
        "properties": {
            "conditions": {
                "items": {
                    "properties": {
                        "lastTransitionTime": { "format": "date-time", "type": "string" },
                        "message": text(),
                        "observedGeneration": { "format": "int64", "type": "integer" },
                        "reason": text(),
                        "status": { "enum": ["True", "False", "Unknown"], "type": "string" },
                        "type": text(),
                    },
                    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
                    "type": "object",
                },
                "maxItems": 8,
                "type": "array",
                "x-kubernetes-list-map-keys": ["type"],
                "x-kubernetes-list-type": "map",
            },
            "jobsStatus": {
                "items": {
                    "properties": of_job,
                    "required": ["active", "failed", "name", "ready", "succeeded", "suspended"],
                    "type": "object",
                },
                "maxItems": 100,
                "type": "array",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-list-type": "map",
            },
            "trainerStatus": open("What the program reported."),
            "trainyard": open("The job record of Trainyard: attempts, budgets, reasons, conditions."),
        },
        "type": "object",
    })
}

fn runtime_spec() -> Value {
    json!({
        "description": "What the pods are made from.",
        "properties": {
            "mlPolicy": open("How nodes find each other."),
            "podGroupPolicy": open("How pods are scheduled together."),
            "template": {
                "description": "A JobSet.",
                "properties": {
                    "metadata": open("Labels and annotations of all pods."),
                    "spec": open("The jobs of the JobSet."),
                },
                "type": "object",
            },
        },
        "required": ["template"],
        "type": "object",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_runtimes_are_objects_of_their_kind() {
        let all = runtimes();
        assert_eq!(all.len(), BUNDLED.len());
        for (runtime, (name, _)) in all.iter().zip(BUNDLED) {
            assert_eq!(runtime["kind"], "ClusterTrainingRuntime", "{name}");
            assert_eq!(runtime["metadata"]["name"], name);
        }
    }

    #[test]
    fn record_of_the_job_is_kept() {
        let (file, definition) = &definitions()[0];
        assert_eq!(file, "trainer.kubeflow.org_trainjobs.yaml");
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let record = definition.pointer(&format!("{status}/trainyard"));
        let keeps = record.and_then(|it| it.get("x-kubernetes-preserve-unknown-fields"));
        assert_eq!(keeps, Some(&json!(true)));
        assert_eq!(
            definition.pointer("/spec/versions/0/subresources/status"),
            Some(&json!({}))
        );
        let column = definition.pointer("/spec/versions/0/additionalPrinterColumns/0/jsonPath");
        assert_eq!(column, Some(&json!(".status.conditions[-1:].type")));
    }
}
