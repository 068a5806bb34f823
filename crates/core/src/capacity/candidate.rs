//! The nodes that a pool could add for one gang: shapes with their labels decided.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use super::{NodeShape, Offer, Pool, Unknown, Why};
use crate::{
    gang::{Constraints, Gang, Node, Shape, Taint, TaintEffect, Topology},
    resources::{CPU, MEMORY, PODS, is_host_port},
    spec::Wish,
};

/// Ways to decide the labels of one shape that are tried.
const MOST_WAYS: usize = 64;
/// Kinds of nodes that are looked at for one gang, beside one for each shape.
const MOST_KINDS: usize = 4_096;
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Stands for a value that nobody names.
const ANY: &str = "(any)";
/// What a node has of a resource that its description leaves open: more than any pod asks for, and sums of it are far from overflow.
const PLENTY: i64 = i64::MAX / 16;
/// What every node has of, and a description may leave out.
const ON_EVERY_NODE: [&str; 3] = [CPU, MEMORY, "ephemeral-storage"];
/// Labels that a provider sets: where a description does not name them, a node may have them all the same.
const BY_PROVIDER: [&str; 2] = ["kubernetes.io/arch", "kubernetes.io/os"];
/// What begins the names of such labels.
const PREFIXES_BY_PROVIDER: [&str; 21] = [
    "karpenter.",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "beta.kubernetes.io/",
    "feature.node.kubernetes.io/",
    "nvidia.com/",
    "network.topology.nvidia.com/",
    "amd.com/",
    "gpu.intel.com/",
    "habana.ai/",
    "cloud.google.com/",
    "topology.gke.io/",
    "eks.amazonaws.com/",
    "k8s.amazonaws.com/",
    "topology.k8s.aws/",
    "alpha.eksctl.io/",
    "kubernetes.azure.com/",
    "oci.oraclecloud.com/",
    "ib.coreweave.cloud/",
    "node.coreweave.cloud/",
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
        let first = candidates.len();
        for (number, shape) in pool.shapes.iter().enumerate() {
            left_out |= add(&mut candidates, (at, Some(number)), pool, shape, &mentioned);
        }
        if pool.has_unknown_shapes {
            let shape = NodeShape::default();
            left_out |= add(&mut candidates, (at, None), pool, &shape, &mentioned);
        }
        mind_least_values(pool, gang, &mut candidates[first..]);
    }
    (candidates, left_out)
}

/// Karpenter adds no node unless enough values of a label are left to choose from; not all that are left are known here.
fn mind_least_values(pool: &Pool, gang: &Gang, own: &mut [Candidate]) {
    for (key, least) in &pool.min_values {
        let is_useful = |own: &&Candidate| {
            own.shape.is_some()
                && gang
                    .shapes
                    .iter()
                    .any(|shape| own.obstacles(shape).is_empty())
        };
        let mut values: BTreeSet<&String> = BTreeSet::new();
        for candidate in own.iter().filter(is_useful) {
            let shape = candidate.shape.and_then(|at| pool.shapes.get(at));
            let choices = shape.and_then(|shape| shape.choices.get(key));
            values.extend(choices.or(pool.choices.get(key)).into_iter().flatten());
            values.extend(candidate.node.labels.get(key));
        }
        if (values.len() as u64) < *least {
            for candidate in own.iter_mut() {
                candidate.unknown.push(Unknown::MinValues {
                    pool: pool.name.clone(),
                    key: key.clone(),
                    least: *least,
                });
            }
        }
    }
}

/// The labels that decide where a gang may be, with what it asks of each.
struct Mentioned<'g> {
    keys: BTreeMap<String, Asked>,
    /// What its pods ask for of what every node has.
    resources: Vec<&'static str>,
    gang: &'g Gang,
}

/// What is asked of one label.
#[derive(Default)]
struct Asked {
    /// Values with which it is met.
    values: BTreeSet<String>,
    /// Whether other values are met, too.
    is_any: bool,
    /// Whether it is met without the label.
    is_absent: bool,
    /// Whether pods are spread over its domains, kept apart by them or together in one.
    is_mutual: bool,
}

impl<'g> Mentioned<'g> {
    fn new(gang: &'g Gang, topology: &Topology) -> Self {
        let mut keys: BTreeMap<String, Asked> = BTreeMap::new();
        for Shape { constraints, .. } in &gang.shapes {
            for (key, value) in &constraints.node_selector {
                let asked = keys.entry(key.clone()).or_default();
                asked.values.insert(value.clone());
            }
            let terms = constraints.node_affinity.iter();
            for term in terms.flat_map(|own| &own.node_selector_terms) {
                for own in term.match_expressions.iter().flatten() {
                    keys.entry(own.key.clone()).or_default().add(own);
                }
            }
            let spread = constraints.spread.iter().map(|own| &own.topology_key);
            let near = constraints.affinity.iter().map(|own| &own.topology_key);
            let apart = constraints
                .anti_affinity
                .iter()
                .map(|own| &own.topology_key);
            for key in spread.chain(near).chain(apart) {
                keys.entry(key.clone()).or_default().is_mutual |= key != HOSTNAME;
            }
        }
        if let Some(Wish::Required(level)) = &gang.wish {
            let narrowest = topology.find(level).map_or(0, |at| at + 1);
            for level in topology.levels.iter().take(narrowest) {
                keys.entry(level.key.clone()).or_default();
            }
        }
        let asks = |resource: &&str| {
            let mut shapes = gang.shapes.iter();
            shapes.any(|shape| shape.requests.get(resource) > 0)
        };
        Self {
            keys,
            resources: ON_EVERY_NODE.into_iter().filter(asks).collect(),
            gang,
        }
    }

    /// Whether a pod of the gang may be on such a node, whatever labels it has.
    fn may_hold(&self, candidate: &Candidate) -> bool {
        self.gang.shapes.iter().any(|shape| {
            let why = candidate.obstacles(shape);
            why.iter()
                .all(|why| matches!(why, Why::Selector { .. } | Why::Affinity))
        })
    }
}

impl Asked {
    fn add(&mut self, own: &NodeSelectorRequirement) {
        let values = own.values.iter().flatten();
        let number = || -> Option<i64> { own.values.as_ref()?.first()?.parse().ok() };
        match own.operator.as_str() {
            "In" => self.values.extend(values.cloned()),
            "Exists" => self.is_any = true,
            "NotIn" => (self.is_any, self.is_absent) = (true, true),
            "DoesNotExist" => self.is_absent = true,
            "Gt" => self
                .values
                .extend(number().map(|n| n.saturating_add(1).to_string())),
            "Lt" => self
                .values
                .extend(number().map(|n| n.saturating_sub(1).to_string())),
            _ => {}
        }
    }

    /// The values that decide, none for a node without the label.
    fn options(&self, excluded: Option<&BTreeSet<String>>) -> Vec<Option<String>> {
        let values = self.values.iter();
        let values = values.filter(|value| !excluded.is_some_and(|own| own.contains(*value)));
        let mut options: Vec<Option<String>> = values.cloned().map(Some).collect();
        if self.is_any {
            options.push(Some(ANY.to_owned()));
        }
        if self.is_absent {
            options.push(None);
        }
        options
    }
}

/// One label that is decided in several ways.
struct Way {
    key: String,
    options: Vec<Option<String>>,
    is_unknown: bool,
}

fn add(
    candidates: &mut Vec<Candidate>,
    (at, number): (usize, Option<usize>),
    pool: &Pool,
    shape: &NodeShape,
    mentioned: &Mentioned<'_>,
) -> bool {
    let mut first = Candidate {
        pool: at,
        shape: number,
        node: Node {
            labels: shape.labels.clone(),
            taints: shape.taints.clone(),
            ready: true,
            allocatable: shape.allocatable.clone(),
            ..Node::default()
        },
        chosen: BTreeMap::new(),
        unknown: Vec::new(),
    };
    if shape.is_present {
        candidates.push(first);
        return false;
    }
    first.node.labels.extend(pool.labels.clone());
    first.node.taints = joined(&pool.taints, &shape.taints);
    if number.is_some() {
        leave_open(&mut first, pool, shape, &mentioned.resources);
    }
    let mut choices = pool.choices.clone();
    for (key, values) in &shape.choices {
        // The type of a node may be had in some of the zones of its pool.
        let own = choices.entry(key.clone()).or_insert_with(|| values.clone());
        own.retain(|value| values.contains(value));
    }
    if choices.values().any(Vec::is_empty) {
        return false;
    }
    let mut ways: Vec<Way> = Vec::new();
    for (key, values) in choices {
        let asked = mentioned.keys.get(&key);
        if let (Some(_), true) = (asked, values.len() > 1) {
            let options = values.into_iter().map(Some).collect();
            let is_unknown = false;
            ways.push(Way {
                key,
                options,
                is_unknown,
            });
        } else {
            let value = values.first().cloned().unwrap_or_default();
            first.node.labels.insert(key.clone(), value.clone());
            if values.len() == 1 {
                first.chosen.insert(key, value);
            }
        }
    }
    for (key, asked) in &mentioned.keys {
        let is_stated =
            first.node.labels.contains_key(key) || ways.iter().any(|way| way.key == *key);
        let excluded = pool.open_labels.get(key);
        let is_open = excluded.is_some();
        let is_unsure = is_by_provider(key) || shape.unsure_labels.contains(key);
        let options = asked.options(excluded);
        if !is_stated && is_unsure && asked.is_mutual && options.is_empty() && number.is_some() {
            let (pool, key) = (pool.name.clone(), key.clone());
            first.unknown.push(Unknown::Key { pool, key });
        }
        if !is_stated && (number.is_none() || is_open || is_unsure) && !options.is_empty() {
            ways.push(Way {
                key: key.clone(),
                options,
                is_unknown: !is_open,
            });
        }
    }
    let mut all = vec![first];
    if let Some(best) = &shape.best {
        let mut better = all[0].clone();
        better.node.allocatable.raise(&best.allocatable);
        better.node.taints = joined(&pool.taints, &best.taints);
        better.unknown.push(Unknown::Size {
            pool: pool.name.clone(),
            shape: shape.name.clone(),
        });
        all.push(better);
    }
    // What holds no pod differs for nothing.
    let is_useful = all.iter().any(|own| mentioned.may_hold(own));
    let mut left_out = false;
    for way in ways {
        let mut next = Vec::new();
        let most = if !is_useful || candidates.len() >= MOST_KINDS {
            all.len()
        } else {
            MOST_WAYS
        };
        for option in &way.options {
            for candidate in &all {
                if next.len() >= most {
                    left_out |= is_useful;
                    break;
                }
                next.push(candidate.with(&way, option.as_ref(), pool, number.is_some()));
            }
        }
        all = next;
    }
    candidates.extend(all);
    left_out
}

fn joined(a: &[Taint], b: &[Taint]) -> Vec<Taint> {
    let more = b.iter().filter(|taint| !a.contains(taint));
    a.iter().chain(more).cloned().collect()
}

/// Assumes that there is enough of what every node has, where the description does not say how much.
fn leave_open(own: &mut Candidate, pool: &Pool, shape: &NodeShape, resources: &[&'static str]) {
    for resource in resources {
        let is_stated = shape.allocatable.get(resource) != 0 || shape.capacity.get(resource) != 0;
        if !is_stated {
            own.node.allocatable.set(resource, PLENTY);
            own.unknown.push(Unknown::Resource {
                pool: pool.name.clone(),
                shape: shape.name.clone(),
                resource: (*resource).to_owned(),
            });
        }
    }
}

pub(super) fn is_by_provider(key: &str) -> bool {
    BY_PROVIDER.contains(&key)
        || PREFIXES_BY_PROVIDER
            .iter()
            .any(|begin| key.starts_with(begin))
}

impl Candidate {
    /// Such a node with a label decided.
    fn with(&self, way: &Way, option: Option<&String>, pool: &Pool, has_shape: bool) -> Self {
        let mut own = self.clone();
        let is_named = option.is_some_and(|value| value != ANY);
        if let Some(value) = option {
            own.node.labels.insert(way.key.clone(), value.clone());
            if is_named {
                own.chosen.insert(way.key.clone(), value.clone());
            }
        }
        if way.is_unknown && has_shape {
            let (pool, key) = (pool.name.clone(), way.key.clone());
            own.unknown.push(match option {
                Some(value) if is_named => Unknown::Label {
                    pool,
                    key,
                    value: value.clone(),
                },
                _ => Unknown::Key { pool, key },
            });
        }
        own
    }

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
