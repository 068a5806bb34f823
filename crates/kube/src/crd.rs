//! The custom resource definitions, made from the types of `core::spec::wire`.
//!
//! Owns everything that an API server gets about the kinds: names, versions, schemas, columns,
//! subresources, and where `MPIJob` is converted. It talks to no cluster; `cargo xtask gen` writes
//! what it returns to `deploy/`.
//!
//! ```text
//! wire types ─reflect─▶ Shape ─schema─▶ schema ─┐
//! contract's names, columns, status ────────────┴─▶ CustomResourceDefinition
//! ```
//!
//! Sentences of the Kubernetes types are left out: they are nine tenths of the size, and
//! `kubectl explain pod.spec` has them. So the definitions also fit `kubectl apply` without
//! `--server-side`.
//!
//! Invariant: what the definitions of the Go operators accept is accepted, and what they keep is
//! kept. The additions are `status.trainyard`, and rules in CEL about what no operator would run.

mod fabric;
mod fields;
mod kubernetes;
mod reflect;
mod rules;
mod schema;
#[cfg(test)]
mod tests;
mod train;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};
use trainyard_core::spec::{Kind, TrainJobSpec, wire};

pub use train::{definitions as train_definitions, runtimes as train_runtimes};

pub(crate) use fabric::{FABRICS, group_and_version as fabric_group_and_version};
use reflect::Shape;

/// The API group of all job kinds.
pub const GROUP: &str = "kubeflow.org";

/// The namespace of the operator by default.
pub const NAMESPACE: &str = "trainyard-system";

/// The Service in front of the webhooks and the metrics.
pub const SERVICE: &str = "trainyard";

/// The path on which `MPIJob` is converted between its versions.
pub const CONVERT_PATH: &str = "/convert";

/// The version in which `MPIJob` is stored.
///
/// It is the one that API discovery prefers, which garbage collection, namespace deletion and a
/// plain `kubectl get` use: none of them needs the webhook.
pub const MPI_STORAGE: Kind = Kind::MpiV1;

/// The kinds, each with all its versions.
const KINDS: &[&[Kind]] = &[
    &[Kind::PyTorch],
    &[Kind::Tf],
    &[Kind::XgBoost],
    &[Kind::Paddle],
    &[Kind::Jax],
    &[Kind::MpiV1, Kind::MpiV2],
];

/// The plural of a kind, as in the path of its API.
pub fn plural(kind: Kind) -> String {
    format!("{}s", singular(kind))
}

/// The singular of a kind, as in the path of its webhook.
pub fn singular(kind: Kind) -> String {
    kind.name().to_lowercase()
}

/// The version part of a kind's `apiVersion`.
pub fn version(kind: Kind) -> &'static str {
    kind.version()
}

/// Every definition with the name of its file.
pub fn definitions() -> Vec<(String, Value)> {
    KINDS
        .iter()
        .filter_map(|versions| versions.first().map(|first| (*first, *versions)))
        .map(|(kind, versions)| {
            let file = format!("{GROUP}_{}.yaml", plural(kind));
            (file, definition(kind, versions))
        })
        .chain([fabric::definition()])
        .collect()
}

fn definition(kind: Kind, versions: &[Kind]) -> Value {
    let plural = plural(kind);
    let mut spec = schema::object(json!({
        "group": GROUP,
        "names": {
            "kind": kind.name(),
            "listKind": format!("{}List", kind.name()),
            "plural": plural,
            "singular": singular(kind),
        },
        "scope": "Namespaced",
        "versions": versions.iter().map(|kind| one_version(*kind)).collect::<Vec<_>>(),
    }));
    if versions.len() > 1 {
        spec.insert("conversion".into(), conversion());
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": spec,
    })
}

/// The operator adds the certificate authority that it issued.
fn conversion() -> Value {
    json!({
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "service": {
                    "name": SERVICE,
                    "namespace": NAMESPACE,
                    "path": CONVERT_PATH,
                    "port": 443,
                },
            },
            "conversionReviewVersions": ["v1"],
        },
    })
}

fn one_version(kind: Kind) -> Value {
    let mut entry = Map::new();
    entry.insert("additionalPrinterColumns".into(), columns(kind));
    let sentence = format!("A {} of Kubeflow, run by Trainyard.", kind.name());
    entry.extend(schema::object(json!({
        "name": version(kind),
        "schema": { "openAPIV3Schema": {
            "description": sentence,
            "properties": {
                "apiVersion": { "type": "string" },
                "kind": { "type": "string" },
                "metadata": { "type": "object" },
                "spec": spec(kind),
                "status": status(kind),
            },
            "type": "object",
        } },
        "served": true,
        "storage": kind != Kind::MpiV2,
        "subresources": subresources(kind),
    })));
    Value::Object(entry)
}

/// The columns of the contract come first, in its order; ours follow. The state is the type of the last condition whatever its
/// status, as the contract has it. `v2beta1` has the column that `kubectl` shows where a definition names none.
fn columns(kind: Kind) -> Value {
    let column = |name: &str, path: &str, form: &str| json!({ "jsonPath": path, "name": name, "type": form });
    let state = column("State", ".status.conditions[-1:].type", "string");
    let age = column("Age", ".metadata.creationTimestamp", "date");
    let mut columns = match kind {
        Kind::MpiV2 => vec![age],
        Kind::MpiV1 => vec![age, state],
        _ => vec![state, age],
    };
    let progress = |name: &str, field: &str, form: &str| {
        column(name, &format!(".status.trainyard.progress.{field}"), form)
    };
    columns.push(progress("Step", "step", "integer"));
    columns.push(progress("Loss", "loss", "string"));
    // A date is shown as an age.
    columns.push(progress("Last-Step", "lastStepAt", "date"));
    let newest = ".status.trainyard.checkpoint.newest";
    columns.push(column("Checkpoint", &format!("{newest}.step"), "integer"));
    columns.push(column("Last-Save", &format!("{newest}.savedAt"), "date"));
    Value::Array(columns)
}

fn subresources(kind: Kind) -> Value {
    match kind {
        Kind::PyTorch | Kind::Paddle | Kind::Jax => json!({
            "scale": {
                "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
                "specReplicasPath": format!(".spec.{}.Worker.replicas", kind.replica_map()),
                "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            },
            "status": {},
        }),
        _ => json!({ "status": {} }),
    }
}

fn spec(kind: Kind) -> Value {
    let shape = spec_shape(kind);
    let mut spec = Map::new();
    spec.insert("description".into(), json!("The desired state."));
    spec.extend(schema::of(&shape, version(kind)));
    spec.insert("required".into(), json!([kind.replica_map()]));
    rules::add(kind, &mut spec);
    Value::Object(spec)
}

fn spec_shape(kind: Kind) -> Shape {
    let shape = match kind {
        Kind::PyTorch => reflect::shape::<wire::PyTorchJobSpec>(),
        Kind::Tf => reflect::shape::<wire::TfJobSpec>(),
        Kind::MpiV1 => reflect::shape::<wire::MpiJobV1Spec>(),
        Kind::MpiV2 => reflect::shape::<wire::MpiJobV2Spec>(),
        Kind::XgBoost => reflect::shape::<wire::XgBoostJobSpec>(),
        Kind::Paddle => reflect::shape::<wire::PaddleJobSpec>(),
        Kind::Jax => reflect::shape::<wire::JaxJobSpec>(),
        Kind::Train => reflect::shape::<TrainJobSpec>(),
    };
    shape.expect("every wire type reads itself in words that have a shape; tested for each kind")
}

fn status(kind: Kind) -> Value {
    let time = || json!({ "format": "date-time", "type": "string" });
    let count = || json!({ "format": "int32", "type": "integer" });
    let selector = reflect::shape::<LabelSelector>()
        .expect("a label selector is made of text, lists and maps");
    let mut condition_status = schema::object(json!({ "type": "string" }));
    let mut conditions = schema::object(json!({ "type": "array" }));
    if kind == Kind::MpiV2 {
        condition_status.insert("enum".into(), json!(["True", "False", "Unknown"]));
        conditions.insert("x-kubernetes-list-map-keys".into(), json!(["type"]));
        conditions.insert("x-kubernetes-list-type".into(), json!("map"));
    }
    conditions.insert(
        "items".into(),
        json!({
            "properties": {
                "lastTransitionTime": time(),
                "lastUpdateTime": time(),
                "message": { "type": "string" },
                "reason": { "type": "string" },
                "status": condition_status,
                "type": { "type": "string" },
            },
            "required": ["status", "type"],
            "type": "object",
        }),
    );
    json!({
        "description": "The observed state.",
        "properties": {
            "completionTime": time(),
            "conditions": conditions,
            "lastReconcileTime": time(),
            "replicaStatuses": {
                "additionalProperties": {
                    "properties": {
                        "active": count(),
                        "failed": count(),
                        "labelSelector": schema::of(&selector, version(kind)),
                        "selector": { "type": "string" },
                        "succeeded": count(),
                    },
                    "type": "object",
                },
                "type": "object",
            },
            "startTime": time(),
            "trainyard": {
                "description": "The job record of Trainyard: attempts, budgets, reasons.",
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
            },
        },
        "type": "object",
    })
}
