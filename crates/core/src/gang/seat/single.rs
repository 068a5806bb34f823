//! Seating pod after pod, for gangs in which the seat of one pod changes where another may be.

use super::{Room, Seats};
use crate::gang::{ask::Ask, mutual::Mutual, node_table::NodeTable};

/// Domains of one tier that are tried.
const TRIED: usize = 16;

/// Seats for all pods, each as near to the one before it as its constraints let it.
pub(super) fn one_by_one(room: &mut Room<'_, '_>, ask: &Ask<'_>) -> Option<Seats> {
    let table = room.table;
    let start: Seats = vec![None; ask.gang.pods.len()];
    for tier in (ask.top..=table.host_tier()).rev() {
        let mut tried = 0;
        for (at, domain) in (0..).zip(&table.tiers[tier]) {
            if !table.is_within(tier, at, ask.top) || !holds(room, ask, domain.nodes()) {
                continue;
            }
            if let Some(seats) = fill(room, ask, domain.nodes(), &start) {
                return Some(seats);
            }
            tried += 1;
            if tried == TRIED {
                break;
            }
        }
    }
    None
}

/// Whether the nodes have room for each shape by itself.
fn holds(room: &Room<'_, '_>, ask: &Ask<'_>, nodes: std::ops::Range<usize>) -> bool {
    ask.by_shape().iter().all(|group| {
        let mut missing = group.pods.len();
        for node in nodes.clone() {
            if missing == 0 || !group.holds_ranks {
                return true;
            }
            if group.eligible[node] {
                missing = missing.saturating_sub(room.fits(node, &group.need) as usize);
            }
        }
        missing == 0
    })
}

/// Seats every pod that `start` has no seat for; pods with ranks stay among `nodes`.
pub(super) fn fill(
    room: &mut Room<'_, '_>,
    ask: &Ask<'_>,
    nodes: std::ops::Range<usize>,
    start: &Seats,
) -> Option<Seats> {
    let table = room.table;
    let mut mutual = Mutual::new(table, ask.gang);
    for (pod, node) in (0..).zip(start) {
        if let Some(node) = node {
            mutual.add(ask.shape(pod), *node as usize);
        }
    }
    let mut seats = start.clone();
    let mut given = vec![None; seats.len()];
    let mut last = start.iter().flatten().next().copied();
    let order: Vec<u32> = ask
        .by_shape()
        .iter()
        .flat_map(|group| group.pods.clone())
        .collect();
    let groups = Together::new(table, ask);
    for pod in order {
        if seats[pod as usize].is_some() {
            last = seats[pod as usize];
            continue;
        }
        let shape = ask.shape(pod);
        let holds_ranks = ask.gang.shapes[shape].ranks > 0;
        let range = if holds_ranks {
            nodes.clone()
        } else {
            0..table.nodes.len()
        };
        let range = groups.narrow(table, pod, &seats, range);
        let wanted = groups.wanted(pod, &seats);
        let found = range
            .filter(|node| {
                ask.eligible[shape][*node]
                    && room.fits(*node, &ask.needs[shape]) >= wanted
                    && mutual.allows(shape, *node)
            })
            .min_by_key(|node| {
                let node = u32::try_from(*node).unwrap_or(u32::MAX);
                (last.map_or(0, |last| table.hops(last, node)), node)
            });
        let Some(node) = found else {
            room.release_all(ask, &given);
            return None;
        };
        mutual.add(shape, node);
        let node = u32::try_from(node).unwrap_or(u32::MAX);
        room.take(node, &ask.needs[shape]);
        seats[pod as usize] = Some(node);
        given[pod as usize] = Some(node);
        last = Some(node);
    }
    room.release_all(ask, &given);
    Some(seats)
}

/// Which pods have to lie together, and in what.
pub(super) struct Together {
    /// The tier of the domain that holds a group; none where pods are free.
    tier: Option<usize>,
    is_host: bool,
    /// The other pods of each pod's group.
    groups: Vec<Vec<u32>>,
}

impl Together {
    pub(super) fn new(table: &NodeTable<'_>, ask: &Ask<'_>) -> Self {
        let size = ask.traffic.tensor_group as usize;
        let mut groups = vec![Vec::new(); ask.gang.pods.len()];
        let tier = (1..=table.host_tier()).rev().find(|tier| {
            size > 1
                && ask
                    .grains
                    .iter()
                    .any(|way| way[*tier] == ask.traffic.tensor_group)
        });
        if tier.is_some() {
            for group in ask.traffic.nested.chunks(size) {
                for pod in group {
                    groups[*pod as usize] = group.to_vec();
                }
            }
        }
        Self {
            is_host: tier == Some(table.host_tier()),
            tier,
            groups,
        }
    }

    /// The part of `range` that the pod's group is in already.
    pub(super) fn narrow(
        &self,
        table: &NodeTable<'_>,
        pod: u32,
        seats: &Seats,
        range: std::ops::Range<usize>,
    ) -> std::ops::Range<usize> {
        let mut group = self.groups[pod as usize].iter();
        let seated = group.find_map(|other| seats[*other as usize]);
        match (self.tier, seated) {
            (Some(tier), Some(node)) => {
                let domain = table.domain_of[tier][node as usize];
                table.tiers[tier][domain as usize].nodes()
            }
            _ => range,
        }
    }

    /// How many pods the node must have room for: where groups lie on one host, all that are missing.
    pub(super) fn wanted(&self, pod: u32, seats: &Seats) -> u32 {
        if !self.is_host {
            return 1;
        }
        let group = &self.groups[pod as usize];
        let missing = group
            .iter()
            .filter(|other| seats[**other as usize].is_none());
        u32::try_from(missing.count()).unwrap_or(u32::MAX).max(1)
    }
}
