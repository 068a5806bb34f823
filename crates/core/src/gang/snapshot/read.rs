//! A cluster from objects as they stand in a file: nodes, pods, and lists of them.

use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use serde_json::Value;
use thiserror::Error;

use super::Snapshot;

/// Why objects do not describe a cluster.
#[derive(Debug, Error)]
pub enum NotACluster {
    /// There is no node among them.
    #[error("it contains no object of kind Node")]
    NoNode,
    /// An object is not what it says.
    #[error("{kind} `{name}` cannot be read")]
    Object {
        /// What it says it is.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

impl Snapshot {
    /// The cluster that these objects describe. Lists are taken apart; objects that are neither nodes nor pods
    /// are passed over.
    pub fn of_values(values: impl IntoIterator<Item = Value>) -> Result<Self, NotACluster> {
        let mut nodes: Vec<KubeNode> = Vec::new();
        let mut pods: Vec<Pod> = Vec::new();
        for value in values {
            take(value, &mut nodes, &mut pods)?;
        }
        if nodes.is_empty() {
            return Err(NotACluster::NoNode);
        }
        Ok(Self::of(&nodes, &pods))
    }
}

fn take(
    mut value: Value,
    nodes: &mut Vec<KubeNode>,
    pods: &mut Vec<Pod>,
) -> Result<(), NotACluster> {
    let kind = value
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match kind {
        "List" | "NodeList" | "PodList" => {
            let of_items = match kind {
                "NodeList" => Some("Node"),
                "PodList" => Some("Pod"),
                _ => None,
            };
            let items = value.get_mut("items").map(Value::take);
            let Some(Value::Array(items)) = items else {
                return Ok(());
            };
            for mut item in items {
                // The items of a typed list need not say what they are.
                if let (Some(kind), Some(fields)) = (of_items, item.as_object_mut()) {
                    fields.insert("kind".to_owned(), kind.into());
                    fields.insert("apiVersion".to_owned(), "v1".into());
                }
                take(item, nodes, pods)?;
            }
        }
        "Node" => nodes.push(read("Node", value)?),
        "Pod" => pods.push(read("Pod", value)?),
        _ => {}
    }
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(
    kind: &'static str,
    value: Value,
) -> Result<T, NotACluster> {
    let name = value["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    serde_json::from_value(value).map_err(|source| NotACluster::Object { kind, name, source })
}
