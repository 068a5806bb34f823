//! What nodes that exist show about nodes that could be added.
//!
//! A node that is starting, and one that does not respond, is no example. What nodes of one type differ in is not a property of
//! the type: it stays unknown.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::file::INSTANCE_TYPE;
use crate::{
    capacity::{Best, NodeShape},
    gang::{Node, Resources, Snapshot, Taint},
    probe::PROBATION,
    resources::{CPU, MEMORY, PODS},
};

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
/// What follows the last `/` of labels that say which node it is, or where it stands.
const OF_ONE_NODE: [&str; 8] = [
    "hostname",
    "host",
    "instance-id",
    "node-id",
    "provider-id",
    "machine",
    "zone",
    "zone-id",
];
/// Before so many nodes have come, a time is an accident.
const FEWEST_TIMES: usize = 3;
/// Times of one shape that are kept.
const MOST_TIMES: usize = 1_000;

/// The nodes of a cluster, as examples.
pub(super) struct Seen<'a> {
    cluster: &'a Snapshot,
    /// What daemon sets take of each node.
    daemons: BTreeMap<&'a str, Resources>,
    /// The nodes by label and value, for the labels that were asked for.
    by_label: BTreeMap<&'static str, BTreeMap<&'a str, Vec<&'a str>>>,
}

impl<'a> Seen<'a> {
    /// `keys` are the labels by which pools are known.
    pub(super) fn new(cluster: &'a Snapshot, keys: impl IntoIterator<Item = &'static str>) -> Self {
        let mut daemons: BTreeMap<&str, Resources> = BTreeMap::new();
        for pod in cluster.pods.values().filter(|pod| pod.daemon) {
            daemons.entry(&pod.node).or_default().add(&pod.requests);
        }
        let mut by_label: BTreeMap<&'static str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
        for key in keys {
            let own = by_label.entry(key).or_default();
            for (name, node) in &cluster.nodes {
                if let Some(value) = node.labels.get(key) {
                    own.entry(value).or_default().push(name);
                }
            }
        }
        Self {
            cluster,
            daemons,
            by_label,
        }
    }

    /// The values of the label `key`, each with the names of its nodes.
    pub(super) fn values(&self, key: &str) -> impl Iterator<Item = (&'a str, &[&'a str])> {
        let values = self.by_label.get(key).into_iter().flatten();
        values.map(|(value, nodes)| (*value, nodes.as_slice()))
    }

    /// The nodes with the label `key` of this value.
    pub(super) fn members(&self, key: &str, value: &str) -> &[&'a str] {
        let values = self.by_label.get(key);
        let nodes = values.and_then(|values| values.get(value));
        nodes.map(Vec::as_slice).unwrap_or_default()
    }

    /// The shapes of the nodes of these names, one for each instance type; without a type they are called `name`.
    pub(super) fn shapes(&self, name: &str, members: &[&str]) -> Vec<NodeShape> {
        let mut by_type: BTreeMap<&str, Vec<(&str, &Node)>> = BTreeMap::new();
        for member in members {
            let Some((member, node)) = self.cluster.nodes.get_key_value(*member) else {
                continue;
            };
            if is_example(node) {
                let kind = node.labels.get(INSTANCE_TYPE).map_or(name, String::as_str);
                by_type.entry(kind).or_default().push((member, node));
            }
        }
        let shapes = by_type.into_iter();
        shapes.map(|(kind, own)| self.shape(kind, &own)).collect()
    }

    fn shape(&self, name: &str, nodes: &[(&str, &Node)]) -> NodeShape {
        // The same amounts on most nodes are those of the type; else those of the largest node.
        let mut amounts: BTreeMap<Resources, usize> = BTreeMap::new();
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        let mut unsure_labels: BTreeSet<String> = BTreeSet::new();
        let mut taints: Vec<Taint> = Vec::new();
        let mut best = Best::default();
        for (at, (member, node)) in nodes.iter().enumerate() {
            let free = self.free(member, node);
            best.allocatable.raise(&free);
            *amounts.entry(free).or_default() += 1;
            let own = lasting(&node.taints);
            if at == 0 {
                labels.clone_from(&node.labels);
                best.taints.clone_from(&own);
            }
            unsure_labels.extend(differing(&labels, &node.labels));
            best.taints.retain(|taint| own.contains(taint));
            taints.extend(
                own.into_iter()
                    .filter(|taint| !taints.contains(taint))
                    .collect::<Vec<_>>(),
            );
        }
        let is_of_one = |key: &String, value: &String| {
            let last = key.rsplit('/').next().unwrap_or_default();
            let is_topology = key.contains("topology") && key != REGION;
            is_topology
                || OF_ONE_NODE.contains(&last)
                || nodes.iter().any(|(member, _)| member == value)
                || self
                    .cluster
                    .topology
                    .levels
                    .iter()
                    .any(|level| level.key == *key && *key != REGION)
        };
        let dropped: Vec<String> = labels
            .iter()
            .filter(|(key, value)| is_of_one(key, value))
            .map(|(key, _)| key.clone())
            .collect();
        labels.retain(|key, _| !dropped.contains(key) && !unsure_labels.contains(key));
        // A name is never shared; a zone or rack may be.
        unsure_labels.extend(
            dropped
                .into_iter()
                .filter(|key| !key.ends_with("/hostname")),
        );
        let size = |own: &Resources| (own.accelerators(), own.get(MEMORY), own.get(CPU));
        let common = amounts
            .into_iter()
            .max_by_key(|(own, count)| (*count, size(own)));
        let allocatable = common.map(|(own, _)| own).unwrap_or_default();
        let is_alike = best.allocatable == allocatable && best.taints.len() == taints.len();
        let capacity = nodes
            .iter()
            .fold(Resources::default(), |mut sum, (_, node)| {
                sum.raise(&node.allocatable);
                sum
            });
        NodeShape {
            name: name.to_owned(),
            labels,
            unsure_labels,
            taints,
            allocatable,
            capacity,
            best: (!is_alike).then_some(best),
            ..NodeShape::default()
        }
    }

    /// What daemon sets leave of a node.
    fn free(&self, name: &str, node: &Node) -> Resources {
        let taken = self.daemons.get(name);
        let left = node.allocatable.iter().map(|(resource, amount)| {
            let taken = taken.map_or(0, |taken| taken.get(resource));
            (resource.to_owned(), amount.saturating_sub(taken).max(0))
        });
        left.collect()
    }
}

/// The labels that not both have with the same value.
fn differing(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<String> {
    let ours = a.iter().filter(|(key, value)| b.get(*key) != Some(value));
    let theirs = b.iter().filter(|(key, _)| !a.contains_key(*key));
    let keys = ours.chain(theirs).map(|(key, _)| key.clone());
    keys.collect()
}

/// Whether other nodes come like this one: it is up, and all that it will have is on it.
fn is_example(node: &Node) -> bool {
    let label = |key: &str| node.labels.contains_key(key);
    let is_starting = label("karpenter.sh/registered") && !label("karpenter.sh/initialized");
    let has_more_than_pods = node.allocatable.iter().any(|(name, _)| name != PODS);
    node.ready && !is_starting && has_more_than_pods
}

/// The taints that the next node has, too.
pub(in crate::capacity) fn lasting(taints: &[Taint]) -> Vec<Taint> {
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
