//! What [`place`](super::place) answers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{GangKey, Member, Refusal, ask::Ask, node_table::NodeTable, seat::Seats};
use crate::spec::Wish;

/// Everything that was decided about the gangs that want seats.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// The gangs that get seats now.
    pub seated: BTreeMap<GangKey, Seating>,
    /// The gangs that get none, with the reason.
    pub refused: BTreeMap<GangKey, Refusal>,
    /// The other gangs that the sentence and the changes of each refusal name, for whoever may not show all names.
    pub named: BTreeMap<GangKey, BTreeSet<GangKey>>,
    /// The seats that are reserved for waiting gangs. To be passed as [`Gang::reserved`](super::Gang) the
    /// next time.
    pub reservations: BTreeMap<GangKey, Vec<Seat>>,
    /// The gangs to evict so that another can start, by their own key.
    pub victims: BTreeMap<GangKey, Eviction>,
    /// The gangs that wait because [`PreemptionScope`](super::PreemptionScope) keeps them from evicting others.
    pub out_of_scope: BTreeSet<GangKey>,
    /// Inconsistencies of the topology of the cluster.
    pub warnings: Vec<String>,
}

/// The place of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seat {
    /// The pod.
    pub pod: String,
    /// The node.
    pub node: String,
}

/// The seats that a gang gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seating {
    /// A seat for each pod that had none, in the order of ranks.
    pub seats: Vec<Seat>,
    /// How many pods get none, because the minimum is enough.
    pub unseated: usize,
    /// The narrowest domain that holds all ranks; none where only the whole cluster does.
    pub domain: Option<Place>,
    /// How many domains of each level hold ranks, from wide to narrow, hosts last.
    pub spans: Vec<Span>,
    /// Levels between ranks that talk, weighted by how much: the less, the better.
    pub cost: u64,
    /// What was asked for and could not be had.
    pub warnings: Vec<String>,
}

/// How many domains of a level hold ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The name of the level.
    pub level: String,
    /// How many of its domains.
    pub domains: usize,
}

/// One domain of the topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The name of the level.
    pub level: String,
    /// The name of the domain.
    pub name: String,
}

/// The eviction of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// The gang it is evicted for, as namespace and name.
    pub beneficiary: String,
    /// The work that is lost: seconds since its last checkpoint times its accelerators.
    pub price_seconds: i64,
    /// The price in a sentence.
    pub message: String,
}

impl Seating {
    pub(super) fn new(table: &NodeTable<'_>, ask: &Ask<'_>, seats: &Seats) -> Self {
        let ranks: Vec<usize> = ask
            .traffic
            .nested
            .iter()
            .filter_map(|pod| seats[*pod as usize])
            .map(|node| node as usize)
            .collect();
        let spans: Vec<Span> = (1..=table.host_tier())
            .map(|tier| {
                let mut domains: Vec<u32> = ranks
                    .iter()
                    .map(|node| table.domain_of[tier][*node])
                    .collect();
                domains.sort_unstable();
                domains.dedup();
                Span {
                    level: table.tier_names[tier].to_owned(),
                    domains: domains.len(),
                }
            })
            .collect();
        let narrowest = (1..=table.host_tier()).rev().find(|tier| {
            spans[tier - 1].domains == 1 && named_domain(table, *tier, &ranks).is_some()
        });
        let domain = narrowest.and_then(|tier| {
            Some(Place {
                level: table.tier_names[tier].to_owned(),
                name: named_domain(table, tier, &ranks)?.to_owned(),
            })
        });
        let mut warnings = ask.warnings.clone();
        if let Some(wish @ Wish::Preferred(level)) = &ask.gang.wish
            && let Some(tier) = table.find_tier(level)
            && narrowest.is_none_or(|found| found < tier)
        {
            let name = table.tier_names[tier];
            warnings.push(format!(
                "`{wish}` was not possible: the ranks are in {} {}",
                spans[tier - 1].domains,
                super::topology::plural(name)
            ));
        }
        Self {
            seats: seats_of(table, ask, seats),
            unseated: unseated(ask, seats),
            domain,
            spans,
            cost: ask.traffic.cost(table, seats),
            warnings,
        }
    }
}

/// Pods that get no seat. One that holds a seat on a node that this view does not show has it all the same.
fn unseated(ask: &Ask<'_>, seats: &Seats) -> usize {
    let wanting = |pod: &Member| !ask.gang.held.contains_key(&pod.name);
    let pairs = ask.gang.pods.iter().zip(seats);
    pairs
        .filter(|(pod, seat)| seat.is_none() && wanting(pod))
        .count()
}

/// The name of the domain of `tier` that the first of `nodes` is in.
fn named_domain<'a>(table: &NodeTable<'a>, tier: usize, nodes: &[usize]) -> Option<&'a str> {
    let domain = table.domain_of[tier][*nodes.first()?];
    table.tiers[tier][domain as usize].name
}

/// The seats with names, without those that the gang holds already.
pub(super) fn seats_of(table: &NodeTable<'_>, ask: &Ask<'_>, seats: &Seats) -> Vec<Seat> {
    ask.gang
        .pods
        .iter()
        .zip(seats)
        .filter(|(pod, _)| !ask.gang.held.contains_key(&pod.name))
        .filter_map(|(pod, node)| {
            Some(Seat {
                pod: pod.name.clone(),
                node: table.names[(*node)? as usize].to_owned(),
            })
        })
        .collect()
}
