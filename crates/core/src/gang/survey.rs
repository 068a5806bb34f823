//! The cluster as people look at it: a tree of domains, with what is free and who holds the rest.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::{
    Constraints, Gang, GangKey, Snapshot,
    eligible::Bar,
    node_table::{Domain, NodeTable},
};
use crate::{probe::NodeRecord, resources::CPU};

/// A domain with all that lies in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Area {
    /// The name of its level; `cluster` for the whole.
    pub level: String,
    /// Its own name; none where nodes have no label for the level, and for the whole.
    pub name: Option<String>,
    /// How many nodes are in it.
    pub nodes: usize,
    /// Its accelerators.
    pub accelerators: Tally,
    /// The domains of the next level.
    pub areas: Vec<Area>,
    /// The nodes, where there is no further level.
    pub hosts: Vec<Host>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Why it accepts no pods, or only some; none for a node without restrictions.
    pub state: Option<String>,
    /// What the last preflight found on it, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preflight: Option<NodeRecord>,
    /// From when on it may come back, where it is on probation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probation_until: Option<Timestamp>,
    /// Its accelerators.
    pub accelerators: Tally,
    /// Free thousandths of its CPUs, and all of them.
    pub cpu: (i64, i64),
    /// Who holds accelerators of it, most first.
    pub holders: Vec<Held>,
}

/// What a gang holds of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The gang, as namespace and name.
    pub gang: String,
    /// How many accelerators.
    pub accelerators: i64,
}

/// Accelerators, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All.
    pub total: i64,
    /// Those that a gang may be given.
    pub free: i64,
    /// Those that gangs hold.
    pub held: i64,
    /// Those that pods outside any gang hold.
    pub foreign: i64,
    /// Free ones on nodes that accept no pods.
    pub out: i64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.total += other.total;
        self.free += other.free;
        self.held += other.held;
        self.foreign += other.foreign;
        self.out += other.out;
    }
}

/// The tree of the cluster.
pub fn survey(snapshot: &Snapshot) -> Area {
    let gangs: [Gang; 0] = [];
    let table = NodeTable::new(snapshot, &gangs);
    let hosts = hosts(&table);
    area(&table, &hosts, 0, &table.tiers[0][0])
}

fn area(table: &NodeTable<'_>, hosts: &[Host], tier: usize, domain: &Domain<'_>) -> Area {
    let mut area = Area {
        level: table.tier_names[tier].to_owned(),
        name: domain.name.map(str::to_owned),
        nodes: domain.nodes().len(),
        accelerators: Tally::default(),
        areas: Vec::new(),
        hosts: Vec::new(),
    };
    for host in &hosts[domain.nodes()] {
        area.accelerators.add(host.accelerators);
    }
    if tier + 1 == table.host_tier() {
        area.hosts = hosts[domain.nodes()].to_vec();
    } else {
        let (first, end) = domain.parts;
        let parts = &table.tiers[tier + 1][first as usize..end as usize];
        area.areas = parts
            .iter()
            .map(|part| self::area(table, hosts, tier + 1, part))
            .collect();
    }
    area
}

fn hosts(table: &NodeTable<'_>) -> Vec<Host> {
    let mut holders: Vec<BTreeMap<Option<&GangKey>, i64>> =
        vec![BTreeMap::new(); table.nodes.len()];
    let mut cpu: Vec<i64> = vec![0; table.nodes.len()];
    for placed in &table.placed_pods {
        let at = placed.node as usize;
        *holders[at].entry(placed.gang).or_default() += placed.requests.accelerators();
        cpu[at] += placed.requests.get(CPU);
    }
    let unconstrained = Constraints::default();
    let mut hosts = Vec::with_capacity(table.nodes.len());
    for (at, (name, node)) in table.names.iter().zip(&table.nodes).enumerate() {
        let bar = Bar::find(name, node, &unconstrained);
        let total = node.allocatable.accelerators();
        let foreign = holders[at].get(&None).copied().unwrap_or(0);
        let held: i64 = holders[at]
            .iter()
            .filter_map(|(key, n)| key.map(|_| *n))
            .sum();
        let rest = (total - held - foreign).max(0);
        // A taint keeps only some away.
        let is_out = matches!(
            bar,
            Some(Bar::NotReady | Bar::Quarantined | Bar::Probation | Bar::Cordoned)
        );
        let mut named: Vec<Held> = holders[at]
            .iter()
            .filter(|(_, accelerators)| **accelerators > 0)
            .filter_map(|(key, accelerators)| {
                Some(Held {
                    gang: key.as_ref()?.to_string(),
                    accelerators: *accelerators,
                })
            })
            .collect();
        named.sort_by_key(|held| std::cmp::Reverse(held.accelerators));
        let cpus = node.allocatable.get(CPU);
        hosts.push(Host {
            name: (*name).to_owned(),
            state: bar.map(|bar| bar.state()),
            preflight: node.preflight.as_deref().cloned(),
            probation_until: node.probation_until.filter(|_| node.is_on_probation()),
            accelerators: Tally {
                total,
                free: if is_out { 0 } else { rest },
                held,
                foreign,
                out: if is_out { rest } else { 0 },
            },
            cpu: ((cpus - cpu[at]).max(0), cpus),
            holders: named,
        });
    }
    hosts
}
