//! A snapshot laid out for counting: nodes in the order of the topology, domains as ranges of them,
//! amounts in flat arrays.
//!
//! Tier 0 is the whole cluster, then come the levels from wide to narrow, and the last tier is the
//! hosts. Nodes lie in such an order that every domain is a range.
//!
//! Invariant: `usable` is what is free without what is reserved, so what a gang that waits has been promised is
//! given to no other gang, and becomes free for it as soon as others end.

mod natural;

use std::{cmp::Ordering, collections::BTreeMap};

use k8s_openapi::api::core::v1::PodAffinityTerm;

use super::{
    Gang, GangKey, Node, Resources, Shape, Snapshot,
    amounts::{Amounts, Need},
};
use crate::resources::{HOST_PORT, PODS};

/// A part of the cluster: a range of nodes.
#[derive(Clone, Debug)]
pub(super) struct Domain<'a> {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Its parts, in the next tier.
    pub(super) parts: (u32, u32),
    /// The value of the label; nodes without one are put together, but are not one place.
    pub(super) name: Option<&'a str>,
}

impl Domain<'_> {
    pub(super) fn nodes(&self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// One pod that takes room: one that runs, or one that was given a seat.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedPod<'a> {
    pub(super) node: u32,
    pub(super) namespace: &'a str,
    pub(super) gang: Option<&'a GangKey>,
    /// The number of the gang, which is compared faster than its key.
    pub(super) number: Option<u32>,
    pub(super) requests: &'a Resources,
    /// How many accelerators these are.
    pub(super) accelerators: i64,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) anti_affinity: &'a [PodAffinityTerm],
    pub(super) leaving: bool,
    /// Whether its gang holds this seat; else it is left from before.
    pub(super) is_held: bool,
}

impl<'a> PlacedPod<'a> {
    /// A pod of `gang` that holds a seat on `node`.
    fn of_gang(gang: &'a Gang, number: u32, shape: &'a Shape, node: u32) -> Self {
        Self {
            node,
            number: Some(number),
            namespace: &gang.key.namespace,
            gang: Some(&gang.key),
            requests: &shape.requests,
            accelerators: shape.requests.accelerators(),
            labels: &shape.labels,
            anti_affinity: &shape.constraints.anti_affinity,
            leaving: false,
            is_held: true,
        }
    }
}

/// The cluster as placement counts it.
#[derive(Debug)]
pub(super) struct NodeTable<'a> {
    pub(super) names: Vec<&'a str>,
    pub(super) nodes: Vec<&'a Node>,
    pub(super) by_name: BTreeMap<&'a str, u32>,
    /// Names of the tiers; the first has none.
    pub(super) tier_names: Vec<&'a str>,
    /// Their label keys; the first and the last have none.
    tier_keys: Vec<&'a str>,
    pub(super) tiers: Vec<Vec<Domain<'a>>>,
    /// The domain of each node, by tier.
    pub(super) domain_of: Vec<Vec<u32>>,
    /// Every resource that a gang asks for.
    pub(super) resources: Vec<&'a str>,
    /// What there is, by node and resource.
    bare: Amounts,
    /// What nothing takes now.
    pub(super) free: Amounts,
    /// What would be free if every gang ended.
    pub(super) emptied: Amounts,
    /// The same without what is reserved.
    pub(super) room: Amounts,
    /// What is free, without what is reserved.
    pub(super) usable: Amounts,
    pub(super) placed_pods: Vec<PlacedPod<'a>>,
    numbers: BTreeMap<&'a GangKey, u32>,
    /// Whether any of them has anti-affinity.
    pub(super) has_objectors: bool,
    /// The tier whose hosts are as good as one.
    pub(super) nvlink: Option<usize>,
}

impl<'a> NodeTable<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, gangs: &'a [Gang]) -> Self {
        let order = Order::new(snapshot);
        let mut table = Self {
            by_name: (0..)
                .zip(&order.names)
                .map(|(at, name)| (*name, at))
                .collect(),
            tier_names: std::iter::once("cluster")
                .chain(
                    snapshot
                        .topology
                        .levels
                        .iter()
                        .map(|level| level.name.as_str()),
                )
                .chain([super::topology::HOST])
                .collect(),
            tier_keys: std::iter::once("")
                .chain(
                    snapshot
                        .topology
                        .levels
                        .iter()
                        .map(|level| level.key.as_str()),
                )
                .chain(["kubernetes.io/hostname"])
                .collect(),
            tiers: order.tiers(),
            domain_of: Vec::new(),
            names: order.names,
            nodes: order.nodes,
            resources: asked_for(gangs),
            bare: Amounts::default(),
            free: Amounts::default(),
            emptied: Amounts::default(),
            room: Amounts::default(),
            usable: Amounts::default(),
            placed_pods: Vec::new(),
            numbers: BTreeMap::new(),
            has_objectors: false,
            nvlink: snapshot.topology.nvlink().map(|level| level + 1),
        };
        table.domain_of = table
            .tiers
            .iter()
            .map(|domains| {
                let mut of_node = vec![0; table.names.len()];
                for (at, domain) in (0..).zip(domains) {
                    of_node[domain.nodes()].fill(at);
                }
                of_node
            })
            .collect();
        table.count(snapshot, gangs);
        table
    }

    /// Fills in what is free.
    fn count(&mut self, snapshot: &'a Snapshot, gangs: &'a [Gang]) {
        let resources = &self.resources;
        let left = self.nodes.iter().flat_map(|node| {
            let amounts = resources.iter();
            amounts.map(|name| allocatable(&node.allocatable, name))
        });
        self.free = Amounts::new(left.collect(), self.resources.len());
        self.bare.clone_from(&self.free);
        self.room.clone_from(&self.free);
        let held: BTreeMap<(&str, &str), &str> = gangs
            .iter()
            .flat_map(|gang| {
                let seats = gang.held.iter();
                seats
                    .map(|(pod, node)| ((gang.key.namespace.as_str(), pod.as_str()), node.as_str()))
            })
            .collect();
        for (key, resident) in &snapshot.pods {
            let Some(node) = self.by_name.get(resident.node.as_str()).copied() else {
                continue;
            };
            let number = resident.gang.as_ref().map(|key| self.number(key));
            self.placed_pods.push(PlacedPod {
                node,
                number,
                namespace: &key.namespace,
                gang: resident.gang.as_ref(),
                requests: &resident.requests,
                accelerators: resident.requests.accelerators(),
                labels: &resident.labels,
                anti_affinity: &resident.anti_affinity,
                leaving: resident.leaving,
                is_held: held.get(&(key.namespace.as_str(), key.name.as_str()))
                    == Some(&resident.node.as_str()),
            });
        }
        for gang in gangs {
            let number = self.number(&gang.key);
            self.placed_pods.extend(self.unseen(snapshot, gang, number));
        }
        self.has_objectors = self
            .placed_pods
            .iter()
            .any(|placed| !placed.anti_affinity.is_empty());
        let mut placed_pods = std::mem::take(&mut self.placed_pods);
        for placed in &placed_pods {
            let need = self.need(placed.requests);
            self.free.take(placed.node, &need);
            if placed.gang.is_none() && !placed.leaving {
                self.room.take(placed.node, &need);
            }
        }
        std::mem::swap(&mut self.placed_pods, &mut placed_pods);
        self.usable.clone_from(&self.free);
        self.emptied.clone_from(&self.room);
    }

    /// The pods of `gang` that hold a seat and are not seen on their node yet.
    fn unseen(&self, snapshot: &'a Snapshot, gang: &'a Gang, number: u32) -> Vec<PlacedPod<'a>> {
        let mut unseen = Vec::new();
        for pod in &gang.pods {
            let Some(node) = gang.held.get(&pod.name) else {
                continue;
            };
            let key = super::PodKey {
                namespace: gang.key.namespace.clone(),
                name: pod.name.clone(),
            };
            let seen = snapshot.pods.get(&key).map(|resident| &resident.node);
            if let (Some(at), true) = (self.by_name.get(node.as_str()), seen != Some(node)) {
                unseen.push(PlacedPod::of_gang(
                    gang,
                    number,
                    &gang.shapes[pod.shape],
                    *at,
                ));
            }
        }
        unseen
    }

    /// The number of a gang.
    pub(super) fn number(&mut self, gang: &'a GangKey) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(gang).or_insert(next)
    }

    /// Counts a pod of `gang` that was given a seat on `node`.
    pub(super) fn add_placed_pod(&mut self, gang: &'a Gang, shape: &'a Shape, node: u32) {
        self.has_objectors |= !shape.constraints.anti_affinity.is_empty();
        let number = self.number(&gang.key);
        self.placed_pods
            .push(PlacedPod::of_gang(gang, number, shape, node));
    }

    /// The amounts of `requests` that any gang asks for.
    pub(super) fn need(&self, requests: &Resources) -> Need {
        requests
            .iter()
            .filter(|(_, amount)| *amount > 0)
            .filter_map(|(name, amount)| {
                let at = self.resources.binary_search(&name).ok()?;
                Some((at, amount))
            })
            .collect()
    }

    /// How many pods of `need` fit on `node` if nothing at all runs there.
    pub(super) fn fits_when_bare(&self, node: usize, need: &Need) -> u32 {
        match need.as_slice() {
            [] => 0,
            _ => self.bare.fits(node, need),
        }
    }

    /// Gives a seat on `node` to a pod of `need`.
    pub(super) fn take(&mut self, node: u32, need: &Need) {
        self.free.take(node, need);
        self.usable.take(node, need);
    }

    /// Keeps room on `node` for a pod of `need` that has to wait.
    pub(super) fn reserve(&mut self, node: u32, need: &Need) {
        self.room.take(node, need);
        self.usable.take(node, need);
    }

    /// Levels between two nodes: 0 on the same host, 1 under the same narrowest domain, and so on.
    pub(super) fn hops(&self, a: u32, b: u32) -> u32 {
        let (a, b) = (a as usize, b as usize);
        let last = self.tiers.len() - 1;
        for tier in (0..=last).rev() {
            let domain = self.domain_of[tier][a];
            if domain == self.domain_of[tier][b] && self.is_one_place(tier, domain) {
                return u32::try_from(last - tier).unwrap_or(u32::MAX);
            }
        }
        u32::try_from(last).unwrap_or(u32::MAX)
    }

    /// Whether the nodes of a domain are together, and not only all without the label.
    pub(super) fn is_one_place(&self, tier: usize, domain: u32) -> bool {
        tier == 0 || self.tiers[tier][domain as usize].name.is_some()
    }

    /// Whether the nodes of a domain are together, and in a domain of tier `top` that has a name.
    pub(super) fn is_within(&self, tier: usize, domain: u32, top: usize) -> bool {
        let first = self.tiers[tier][domain as usize].start as usize;
        let above = self.domain_of[top].get(first).copied().unwrap_or(0);
        self.is_one_place(tier, domain) && self.is_one_place(top, above)
    }

    /// The tier that is called `name`, or whose label key it is.
    pub(super) fn find_tier(&self, name: &str) -> Option<usize> {
        let by_key = self.tier_keys.iter().position(|key| *key == name);
        let by_name = self.tier_names.iter().position(|own| *own == name);
        by_name.or(by_key).filter(|tier| *tier > 0)
    }

    /// The tier of hosts.
    pub(super) fn host_tier(&self) -> usize {
        self.tiers.len() - 1
    }
}

/// What a node has of a resource. Every port is there once, and a node that states no bound on its pods has
/// none.
pub(super) fn allocatable(own: &Resources, name: &str) -> i64 {
    match own.get(name) {
        0 if name.starts_with(HOST_PORT) => 1,
        0 if name == PODS => i64::from(u32::MAX),
        amount => amount,
    }
}

/// Every resource that a pod without a seat asks for, in order.
fn asked_for(gangs: &[Gang]) -> Vec<&str> {
    let shapes = gangs.iter().flat_map(|gang| &gang.shapes);
    let mut names: Vec<&str> = Vec::new();
    for shape in shapes {
        for (name, _) in shape.requests.iter() {
            if let Err(at) = names.binary_search(&name) {
                names.insert(at, name);
            }
        }
    }
    names
}

/// The nodes in the order of the topology.
struct Order<'a> {
    names: Vec<&'a str>,
    nodes: Vec<&'a Node>,
    /// The label values of each node, from wide to narrow.
    paths: Vec<Vec<Option<&'a str>>>,
}

impl<'a> Order<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let levels = &snapshot.topology.levels;
        let mut entries: Vec<(Vec<Option<&'a str>>, &'a str, &'a Node)> = snapshot
            .nodes
            .iter()
            .map(|(name, node)| {
                let value = |key: &String| node.labels.get(key).map(String::as_str);
                let path = levels.iter().map(|level| value(&level.key)).collect();
                (path, name.as_str(), node)
            })
            .collect();
        entries.sort_by(|a, b| path_order(&a.0, &b.0).then_with(|| natural::compare(a.1, b.1)));
        let mut order = Self {
            names: Vec::with_capacity(entries.len()),
            nodes: Vec::with_capacity(entries.len()),
            paths: Vec::with_capacity(entries.len()),
        };
        for (path, name, node) in entries {
            order.paths.push(path);
            order.names.push(name);
            order.nodes.push(node);
        }
        order
    }

    /// The domains of every tier.
    fn tiers(&self) -> Vec<Vec<Domain<'a>>> {
        let depth = self.paths.first().map_or(0, Vec::len);
        let count = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let domain = |start, name| Domain {
            start,
            end: count,
            parts: (0, 0),
            name,
        };
        let mut tiers: Vec<Vec<Domain<'a>>> = vec![vec![domain(0, None)]];
        for level in 0..depth {
            let mut domains: Vec<Domain<'a>> = Vec::new();
            for (at, path) in (0..count).zip(&self.paths) {
                let same = at
                    .checked_sub(1)
                    .is_some_and(|before| self.paths[before as usize][..=level] == path[..=level]);
                if !same {
                    if let Some(last) = domains.last_mut() {
                        last.end = at;
                    }
                    domains.push(domain(at, path[level]));
                }
            }
            tiers.push(domains);
        }
        tiers.push(
            (0..count)
                .zip(&self.names)
                .map(|(at, name)| Domain {
                    start: at,
                    end: at + 1,
                    parts: (0, 0),
                    name: Some(*name),
                })
                .collect(),
        );
        for tier in 0..=depth {
            let (upper, lower) = tiers.split_at_mut(tier + 1);
            let mut part = 0;
            for domain in &mut upper[tier] {
                let first = part;
                while lower[0].get(part).is_some_and(|p| p.end <= domain.end) {
                    part += 1;
                }
                let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
                domain.parts = (narrow(first), narrow(part));
            }
        }
        tiers
    }
}

fn path_order(a: &[Option<&str>], b: &[Option<&str>]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        let order = match (a, b) {
            (Some(a), Some(b)) => natural::compare(a, b),
            // Nodes without a label come last.
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
