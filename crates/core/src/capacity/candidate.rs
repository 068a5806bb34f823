//! The nodes that a pool could add for one gang: shapes with their labels decided.

use std::collections::{BTreeMap, BTreeSet};

use super::{NodeShape, Offer, Pool, Unknown, Why};
use crate::{
    gang::{Constraints, Gang, Node, Shape, TaintEffect, Topology},
    resources::{PODS, is_host_port},
    spec::Wish,
};

/// Ways to decide the labels of one shape that are tried.
const MOST_WAYS: usize = 64;
/// Labels that a provider sets: where a file does not name them, a node may have them all the same.
const BY_PROVIDER: [&str; 6] = [
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "karpenter.sh/capacity-type",
    "node.kubernetes.io/instance-type",
];

/// One kind of node that could be added.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The place of its pool in the offer.
    pub(super) pool: usize,
    /// The place of its shape in the pool; none for a shape that is not known.
    pub(super) shape: Option<usize>,
    /// Such a node, when it is empty.
    pub(super) node: Node,
    /// The labels that were decided for it.
    pub(super) chosen: BTreeMap<String, String>,
    /// What is assumed about it.
    pub(super) unknown: Vec<Unknown>,
}

/// Every kind of node of `offer` that differs for `gang`, and whether some were left out.
pub(super) fn candidates(
    offer: &Offer,
    gang: &Gang,
    topology: &Topology,
) -> (Vec<Candidate>, bool) {
    let mentioned = Mentioned::new(gang, topology);
    let mut candidates = Vec::new();
    let mut left_out = false;
    for (at, pool) in offer.pools.iter().enumerate() {
        for (number, shape) in pool.shapes.iter().enumerate() {
            left_out |= add(&mut candidates, (at, Some(number)), pool, shape, &mentioned);
        }
        if pool.has_unknown_shapes {
            let shape = NodeShape::default();
            left_out |= add(&mut candidates, (at, None), pool, &shape, &mentioned);
        }
    }
    (candidates, left_out)
}

/// The labels that decide where a gang may be, with the values that it names.
struct Mentioned {
    values: BTreeMap<String, BTreeSet<String>>,
}

impl Mentioned {
    fn new(gang: &Gang, topology: &Topology) -> Self {
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for Shape { constraints, .. } in &gang.shapes {
            for (key, value) in &constraints.node_selector {
                values.entry(key.clone()).or_default().insert(value.clone());
            }
            let terms = constraints.node_affinity.iter();
            for term in terms.flat_map(|own| &own.node_selector_terms) {
                for own in term.match_expressions.iter().flatten() {
                    let named = values.entry(own.key.clone()).or_default();
                    if own.operator == "In" {
                        named.extend(own.values.iter().flatten().cloned());
                    }
                }
            }
            let spread = constraints.spread.iter().map(|own| &own.topology_key);
            let near = constraints.affinity.iter().map(|own| &own.topology_key);
            let apart = constraints
                .anti_affinity
                .iter()
                .map(|own| &own.topology_key);
            for key in spread.chain(near).chain(apart) {
                values.entry(key.clone()).or_default();
            }
        }
        if let Some(Wish::Required(level)) = &gang.wish {
            let narrowest = topology.find(level).map_or(0, |at| at + 1);
            for level in topology.levels.iter().take(narrowest) {
                values.entry(level.key.clone()).or_default();
            }
        }
        Self { values }
    }
}

fn add(
    candidates: &mut Vec<Candidate>,
    (at, number): (usize, Option<usize>),
    pool: &Pool,
    shape: &NodeShape,
    mentioned: &Mentioned,
) -> bool {
    let mut labels = shape.labels.clone();
    labels.extend(pool.labels.clone());
    let mut taints = pool.taints.clone();
    for taint in &shape.taints {
        if !taints.contains(taint) {
            taints.push(taint.clone());
        }
    }
    let mut first = Candidate {
        pool: at,
        shape: number,
        node: Node {
            labels,
            taints,
            ready: true,
            allocatable: shape.allocatable.clone(),
            ..Node::default()
        },
        chosen: BTreeMap::new(),
        unknown: Vec::new(),
    };
    let mut choices = pool.choices.clone();
    for (key, values) in &shape.choices {
        // The type of a node may be had in some of the zones of its pool.
        let own = choices.entry(key.clone()).or_insert_with(|| values.clone());
        own.retain(|value| values.contains(value));
    }
    if choices.values().any(Vec::is_empty) {
        return false;
    }
    let mut ways = Vec::new();
    for (key, values) in choices {
        if values.len() == 1 || !mentioned.values.contains_key(&key) {
            let value = values.first().cloned().unwrap_or_default();
            first.node.labels.insert(key.clone(), value.clone());
            if values.len() == 1 {
                first.chosen.insert(key, value);
            }
        } else {
            ways.push((key, values, false));
        }
    }
    for (key, values) in &mentioned.values {
        let is_stated = first.node.labels.contains_key(key) || ways.iter().any(|way| way.0 == *key);
        let excluded = pool.open_labels.get(key);
        let is_open = excluded.is_some();
        let may_be = number.is_none() || is_open || is_by_provider(key);
        let values = values.iter().filter(|value| {
            let is_excluded = excluded.is_some_and(|excluded| excluded.contains(*value));
            !is_excluded
        });
        let values: Vec<String> = values.cloned().collect();
        if !is_stated && may_be && !values.is_empty() {
            ways.push((key.clone(), values, !is_open));
        }
    }
    let mut all = vec![first];
    let mut left_out = false;
    for (key, values, is_unknown) in ways {
        let mut next = Vec::new();
        for candidate in &all {
            for value in &values {
                if next.len() == MOST_WAYS {
                    left_out = true;
                    break;
                }
                let mut candidate = candidate.clone();
                candidate.node.labels.insert(key.clone(), value.clone());
                candidate.chosen.insert(key.clone(), value.clone());
                if is_unknown && number.is_some() {
                    candidate.unknown.push(Unknown::Label {
                        pool: pool.name.clone(),
                        key: key.clone(),
                        value: value.clone(),
                    });
                }
                next.push(candidate);
            }
        }
        all = next;
    }
    candidates.extend(all);
    left_out
}

fn is_by_provider(key: &str) -> bool {
    BY_PROVIDER.contains(&key) || key.starts_with("karpenter.")
}

impl Candidate {
    /// What keeps one pod of `shape` from such a node when it is empty.
    pub(super) fn obstacles(&self, shape: &Shape) -> Vec<Why> {
        let mut why = self.bars(&shape.constraints);
        if self.shape.is_none() {
            return why;
        }
        for (resource, asks) in shape.requests.iter() {
            let has = self.has(resource);
            if asks > has {
                let resource = resource.to_owned();
                why.push(Why::TooSmall {
                    resource,
                    asks,
                    has,
                });
            }
        }
        why
    }

    fn bars(&self, constraints: &Constraints) -> Vec<Why> {
        let taints = constraints.untolerated(&self.node).map(|taint| Why::Taint {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: match taint.effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            },
        });
        let mut why: Vec<Why> = taints.collect();
        for (key, value) in &constraints.node_selector {
            let has = self.node.labels.get(key);
            if has != Some(value) {
                why.push(Why::Selector {
                    key: key.clone(),
                    value: value.clone(),
                    has: has.cloned(),
                });
            }
        }
        if !constraints.affinity_admits("", &self.node) {
            why.push(Why::Affinity);
        }
        why
    }

    /// What an empty node has of `resource`.
    pub(super) fn has(&self, resource: &str) -> i64 {
        match self.node.allocatable.get(resource) {
            0 if resource == PODS => i64::from(u32::MAX),
            0 if is_host_port(resource) => 1,
            amount => amount,
        }
    }

    /// How many pods of `shape` an empty node holds, if nothing keeps them away.
    pub(super) fn holds(&self, shape: &Shape) -> u64 {
        let fits = shape
            .requests
            .iter()
            .filter(|(_, asks)| *asks > 0)
            .map(|(resource, asks)| self.has(resource).max(0) / asks);
        let least = fits.min().unwrap_or(i64::from(u32::MAX));
        u64::try_from(least).unwrap_or(0)
    }
}
