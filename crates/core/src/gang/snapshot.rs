//! What placement sees of a cluster, frozen: nodes, what runs on them, the levels of its topology.
//!
//! Nodes and pods lie in two maps, so that an adapter keeps a snapshot up to date by putting in and
//! taking out single objects, in whatever order watch events arrive.

mod convert;
mod read;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::PodAffinityTerm, apimachinery::pkg::api::resource::Quantity};

pub use read::NotACluster;

use super::{PreemptionScope, Resources, Topology, node_table::allocatable};
use crate::{
    probe::{NodeRecord, PROBATION},
    resources::is_accelerator,
    spec::{Job, Kind},
};

/// The taint of a node that accepts no pods of gangs, whatever they tolerate.
pub const QUARANTINED: &str = "trainyard.dev/quarantined";

/// The job whose pods a gang is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GangKey {
    /// The kind of the job.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl GangKey {
    /// The key of the gang of `job`.
    pub fn of(job: &Job) -> Self {
        Self {
            kind: job.kind,
            namespace: job.namespace.as_str().to_owned(),
            name: job.name.as_str().to_owned(),
        }
    }
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The levels, from wide to narrow.
    pub topology: Topology,
    /// Inconsistencies of them.
    pub warnings: Vec<String>,
    /// The nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// The pods that have a node and have not ended; one on a node that is not known counts nowhere.
    pub pods: BTreeMap<PodKey, Resident>,
    /// Which gangs may be evicted for gangs of higher priority, as the administrator decided.
    pub preemption: PreemptionScope,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Whether its kubelet responds.
    pub ready: bool,
    /// What its pods may ask for in all.
    pub allocatable: Resources,
    /// What the last preflight found on it.
    pub preflight: Option<Box<NodeRecord>>,
    /// From when on it may be tried again, where it is on probation and has that annotation.
    pub probation_until: Option<Timestamp>,
}

/// A reason against running on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// What it is about.
    pub key: String,
    /// More about it.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// What a taint does to a pod that does not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// It does not get there.
    NoSchedule,
    /// It had better be elsewhere.
    PreferNoSchedule,
    /// It does not get there, and does not stay.
    NoExecute,
}

/// A pod that has a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resident {
    /// The node.
    pub node: String,
    /// The gang that it is part of; none for pods that Trainyard did not make.
    pub gang: Option<GangKey>,
    /// What it asks for.
    pub requests: Resources,
    /// Its priority.
    pub priority: i32,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// Its required pod anti-affinity.
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// Whether a daemon set made it: such a pod is on every node, and never ends.
    pub daemon: bool,
}

impl Snapshot {
    /// The domains that `node` is in, from wide to narrow: the values of its labels, down to the narrowest that it has.
    pub fn domains(&self, node: &str) -> Vec<String> {
        let labels = self.nodes.get(node).map(|node| &node.labels);
        let levels = self.topology.levels.iter();
        let values = levels.map(|level| labels.and_then(|labels| labels.get(&level.key)));
        let mut domains: Vec<String> = values
            .map(|value| value.cloned().unwrap_or_default())
            .collect();
        let known = domains.iter().rposition(|domain| !domain.is_empty());
        domains.truncate(known.map_or(0, |last| last + 1));
        domains
    }

    /// The free accelerators of `node`, as a pod requests them.
    pub fn free_accelerators(&self, node: &str) -> BTreeMap<String, Quantity> {
        let Some(known) = self.nodes.get(node) else {
            return BTreeMap::new();
        };
        let mut taken = Resources::default();
        for pod in self.pods.values().filter(|pod| pod.node == node) {
            taken.add(&pod.requests);
        }
        let all = known.allocatable.iter();
        all.filter(|(name, _)| is_accelerator(name))
            .map(|(name, amount)| (name, amount - taken.get(name)))
            .filter(|(_, left)| *left > 0)
            .map(|(name, left)| (name.to_owned(), Quantity(left.to_string())))
            .collect()
    }
}

impl Node {
    /// Whether a pod that asks for `requests` could run on it if nothing else did.
    pub fn can_run(&self, requests: &Resources) -> bool {
        let mut amounts = requests.iter();
        amounts.all(|(name, amount)| amount <= allocatable(&self.allocatable, name))
    }

    /// Whether it accepts no pods because it was found to be faulty.
    pub fn is_quarantined(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == QUARANTINED)
    }

    /// Whether it is on probation and may be tried again: its time is over, or none is set.
    pub fn may_leave_probation(&self, now: Timestamp) -> bool {
        self.is_on_probation() && self.probation_until.is_none_or(|until| until <= now)
    }

    /// Whether it accepts no pods until it has passed a preflight.
    pub fn is_on_probation(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == PROBATION)
    }
}
