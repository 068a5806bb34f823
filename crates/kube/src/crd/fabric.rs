//! The definition of `Fabric`: cluster-scoped, for whoever runs the platform.

use serde_json::{Map, Value, json};
use trainyard_core::fabric::{API_VERSION, FabricSpec, KIND};

use super::{
    reflect::{self, Shape},
    schema,
};

/// Group and version of a fabric.
pub(crate) fn group_and_version() -> (&'static str, &'static str) {
    API_VERSION.split_once('/').unwrap_or_default()
}

/// The resource, as in the path of its API.
pub(crate) const FABRICS: &str = "fabrics";

/// The definition with the name of its file.
pub(super) fn definition() -> (String, Value) {
    let (group, version) = group_and_version();
    let mut spec = Map::new();
    spec.insert("description".into(), json!("What the fabric is."));
    spec.extend(schema::of(&shape(), version));
    let column =
        |name: &str, path: &str| json!({ "jsonPath": path, "name": name, "type": "string" });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{FABRICS}.{group}") },
        "spec": {
            "group": group,
            "names": {
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": FABRICS,
                "singular": KIND.to_lowercase(),
            },
            "scope": "Cluster",
            "versions": [{
                "additionalPrinterColumns": [
                    column("Interface", ".spec.interface"),
                    column("Attachments", ".spec.attachments"),
                    column("Transport", ".spec.expects.transport"),
                    { "jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date" },
                ],
                "name": version,
                "schema": { "openAPIV3Schema": {
                    "description": "A network for gradient traffic. Jobs name it with trainyard.dev/fabric.",
                    "properties": {
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": spec,
                    },
                    "required": ["spec"],
                    "type": "object",
                } },
                "served": true,
                "storage": true,
            }],
        },
    });
    (format!("{group}_{FABRICS}.yaml"), definition)
}

pub(super) fn shape() -> Shape {
    reflect::shape::<FabricSpec>().expect("a fabric is made of text, numbers, lists and maps")
}
