//! What nodes that exist show about nodes that could be added.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::file::{INSTANCE_TYPE, ZONE};
use crate::{
    capacity::NodeShape,
    gang::{Node, Snapshot, Taint},
    probe::PROBATION,
};

const HOSTNAME: &str = "kubernetes.io/hostname";
const REGION: &str = "topology.kubernetes.io/region";
/// Taints of one node at one time, by the beginnings of their keys.
const PASSING: [&str; 6] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/",
];
/// Before so many nodes have come, a time is an accident.
const FEWEST_TIMES: usize = 3;
/// Times of one shape that are kept.
const MOST_TIMES: usize = 1_000;

/// The nodes of a cluster, as examples.
pub(super) struct Seen<'a> {
    cluster: &'a Snapshot,
}

impl<'a> Seen<'a> {
    pub(super) fn new(cluster: &'a Snapshot) -> Self {
        Self { cluster }
    }

    /// The values of the label `key`.
    pub(super) fn values(&self, key: &str) -> Vec<&'a str> {
        let nodes = self.cluster.nodes.values();
        let mut values: Vec<&str> = nodes
            .filter_map(|node| node.labels.get(key).map(String::as_str))
            .collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// The shapes of the nodes with the label `key` of this value, one for each instance type.
    pub(super) fn shapes(&self, key: &str, value: &str) -> Vec<NodeShape> {
        let mut by_type: BTreeMap<&str, NodeShape> = BTreeMap::new();
        let nodes = self.cluster.nodes.values().filter(|node| {
            let own = node.labels.get(key).map(String::as_str);
            // One that is starting reports no resources yet.
            own == Some(value) && node.allocatable.iter().next().is_some()
        });
        for node in nodes {
            let name = node.labels.get(INSTANCE_TYPE).map_or(value, String::as_str);
            match by_type.get_mut(name) {
                None => {
                    by_type.insert(name, self.shape(name, node));
                }
                Some(shape) => {
                    // What two nodes of a type differ in is not a property of the type.
                    shape
                        .labels
                        .retain(|key, value| node.labels.get(key) == Some(value));
                    let least = shape.allocatable.iter().map(|(name, amount)| {
                        let amount = amount.min(node.allocatable.get(name));
                        (name.to_owned(), amount)
                    });
                    shape.allocatable = least.collect();
                }
            }
        }
        by_type.into_values().collect()
    }

    fn shape(&self, name: &str, node: &Node) -> NodeShape {
        let mut labels = node.labels.clone();
        labels.remove(HOSTNAME);
        // The next node is in another rack, or in none: only what is wide stays.
        for level in &self.cluster.topology.levels {
            if level.key != ZONE && level.key != REGION {
                labels.remove(&level.key);
            }
        }
        NodeShape {
            name: name.to_owned(),
            labels,
            taints: lasting(&node.taints),
            allocatable: node.allocatable.clone(),
            ..NodeShape::default()
        }
    }
}

/// The taints that the next node has, too.
fn lasting(taints: &[Taint]) -> Vec<Taint> {
    let is_passing = |taint: &Taint| {
        let key = taint.key.as_str();
        key == PROBATION
            || key == crate::gang::QUARANTINED
            || PASSING.iter().any(|begin| key.starts_with(begin))
    };
    let taints = taints.iter().filter(|taint| !is_passing(taint));
    taints.cloned().collect()
}

/// How long nodes took from being asked for to being ready, by pool and instance type.
#[derive(Default)]
pub(super) struct Times(BTreeMap<(String, String), Vec<u64>>);

impl Times {
    /// Adds the time of a `NodeClaim` that became a node.
    pub(super) fn add(&mut self, claim: &Value) {
        let label = |key: &str| {
            let labels = claim.pointer("/metadata/labels");
            labels.and_then(|labels| labels.get(key)?.as_str())
        };
        let (Some(pool), Some(kind)) = (label("karpenter.sh/nodepool"), label(INSTANCE_TYPE))
        else {
            return;
        };
        let created = time(claim.pointer("/metadata/creationTimestamp"));
        let conditions = claim.pointer("/status/conditions");
        let conditions = conditions.and_then(Value::as_array);
        let ready = conditions.into_iter().flatten().find(|condition| {
            condition.get("type").and_then(Value::as_str) == Some("Initialized")
                && condition.get("status").and_then(Value::as_str) == Some("True")
        });
        let ready = ready.and_then(|condition| time(condition.get("lastTransitionTime")));
        let seconds = created.zip(ready).and_then(|(created, ready)| {
            let seconds = ready.duration_since(created).as_secs();
            u64::try_from(seconds).ok()
        });
        if let Some(seconds) = seconds {
            let times = self
                .0
                .entry((pool.to_owned(), kind.to_owned()))
                .or_default();
            if times.len() < MOST_TIMES {
                times.push(seconds);
            }
        }
    }

    /// The median, where enough nodes came.
    pub(super) fn median(&self, pool: &str, kind: &str) -> Option<u64> {
        let mut times = self.0.get(&(pool.to_owned(), kind.to_owned()))?.clone();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).copied();
        middle.filter(|_| times.len() >= FEWEST_TIMES)
    }
}

fn time(value: Option<&Value>) -> Option<Timestamp> {
    value?.as_str()?.parse().ok()
}
