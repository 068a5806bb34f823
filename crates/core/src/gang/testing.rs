//! Clusters and gangs in few words, for the tests of this module.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Gang, GangKey, Member, Node, Placement, PodKey, Resident, Resources, Shape, Snapshot};
use crate::{
    resources::{CPU, PODS},
    spec::{Kind, Parallelism, Role, Wish},
};

pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const BLOCK: &str = "cloud.provider.com/topology-block";
pub(crate) const RACK: &str = "cloud.provider.com/topology-rack";

pub(crate) fn amounts(amounts: &[(&str, i64)]) -> Resources {
    amounts
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), *amount))
        .collect()
}

/// A node of `gpus` GPUs.
pub(crate) fn node(labels: &[(&str, &str)], gpus: i64) -> Node {
    Node {
        labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
        allocatable: amounts(&[(GPU, gpus), (CPU, 96_000), (PODS, 110)]),
        ..Node::default()
    }
}

/// `blocks` blocks of `racks` racks of `hosts` hosts of 8 GPUs, named `b0r1h2`.
pub(crate) fn cluster(blocks: usize, racks: usize, hosts: usize) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for block in 0..blocks {
        for rack in 0..racks {
            for host in 0..hosts {
                let (block, rack) = (format!("b{block}"), format!("b{block}r{rack}"));
                let own = node(&[(BLOCK, &block), (RACK, &rack)], 8);
                snapshot.nodes.insert(format!("{rack}h{host}"), own);
            }
        }
    }
    snapshot.detect_topology();
    snapshot
}

pub(crate) fn key(name: &str) -> GangKey {
    GangKey {
        kind: Kind::PyTorch,
        namespace: "team".to_owned(),
        name: name.to_owned(),
    }
}

pub(crate) fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A gang of `pods` workers with `gpus` GPUs each.
pub(crate) fn gang(name: &str, pods: usize, gpus: i64) -> Gang {
    Gang {
        key: key(name),
        created: time(0),
        priority: 0,
        claim: 0,
        admitted: true,
        classes: BTreeSet::new(),
        shapes: vec![Shape {
            requests: amounts(&[(GPU, gpus), (CPU, 1_000), (PODS, 1)]),
            ranks: u32::try_from(gpus).unwrap().max(1),
            labels: [("job".to_owned(), name.to_owned())].into(),
            ..Shape::default()
        }],
        pods: (0..pods)
            .map(|at| Member {
                name: format!("{name}-worker-{at}"),
                role: Role::Worker,
                shape: 0,
            })
            .collect(),
        minimum: pods,
        parallelism: None,
        wish: None,
        held: BTreeMap::new(),
        remembered: BTreeMap::new(),
        reserved: BTreeMap::new(),
        preempts: false,
        never_preempts: false,
        leaving: false,
        safe_at: None,
        runs_since: None,
    }
}

impl Gang {
    pub(crate) fn wishing(mut self, wish: &str) -> Self {
        self.wish = Some(Wish::parse(wish).unwrap());
        self
    }

    pub(crate) fn parallel(mut self, axes: &str) -> Self {
        self.parallelism = Some(Parallelism::parse(axes).unwrap());
        self
    }

    pub(crate) fn priority(mut self, priority: i32) -> Self {
        (self.priority, self.claim) = (priority, priority);
        self
    }

    pub(crate) fn created(mut self, second: i64) -> Self {
        self.created = time(second);
        self
    }
}

/// Puts a pod on a node: of `gang`, or of no gang where that is empty.
pub(crate) fn occupy(snapshot: &mut Snapshot, node: &str, gang: &str, gpus: i64) {
    let name = format!("{gang}-{node}-{}", snapshot.pods.len());
    snapshot.pods.insert(
        PodKey {
            namespace: "team".to_owned(),
            name,
        },
        Resident {
            node: node.to_owned(),
            gang: (!gang.is_empty()).then(|| key(gang)),
            requests: amounts(&[(GPU, gpus), (PODS, 1)]),
            ..Resident::default()
        },
    );
}

/// The nodes of a gang's pods, in the order of ranks; empty where it was refused.
pub(crate) fn nodes(placement: &Placement, name: &str) -> Vec<String> {
    let seating = placement.seated.get(&key(name));
    seating
        .into_iter()
        .flat_map(|seating| seating.seats.iter().map(|seat| seat.node.clone()))
        .collect()
}

pub(crate) fn why(placement: &Placement, name: &str) -> String {
    let refusal = placement.refused.get(&key(name));
    refusal
        .map(|refusal| refusal.message.clone())
        .unwrap_or_default()
}
