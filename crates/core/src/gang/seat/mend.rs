//! Seats for the missing pods of a gang that was seated before: the old ones where they are free, and else
//! the nearest to its other pods.

use super::{Room, Seats, outward, single::Together};
use crate::gang::{ask::Ask, mutual::Mutual, node_table::NodeTable};

/// Seats for all pods, those that hold theirs included.
pub(super) fn mend(room: &mut Room<'_, '_>, ask: &Ask<'_>) -> Option<Seats> {
    let table = room.table;
    // A pod beyond those that are asked for may hold a seat: an elastic gang loses any of its pods.
    let held = named(table, ask, ask.gang.pods.len(), |name| {
        ask.gang.held.get(name)
    });
    let old = named(table, ask, ask.count, |name| ask.gang.remembered.get(name));
    let mut mutual = ask.is_mutual.then(|| Mutual::new(table, ask.gang));
    let mut work = Work {
        together: Together::new(table, ask),
        seats: held.clone(),
        given: vec![None; held.len()],
        home: home(table, ask, &held, &old),
    };
    for (pod, node) in (0..).zip(&held) {
        if let (Some(node), Some(mutual)) = (node, &mut mutual) {
            mutual.add(ask.shape(pod), *node as usize);
        }
    }
    let missing: Vec<u32> = ask
        .by_shape()
        .iter()
        .flat_map(|group| group.pods.clone())
        .filter(|pod| held[*pod as usize].is_none())
        .collect();
    for pod in &missing {
        if let Some(node) = old[*pod as usize] {
            work.try_seat(room, ask, &mut mutual, *pod, node as usize, 1);
        }
    }
    let mut all = true;
    for pod in missing {
        if work.seats[pod as usize].is_none() {
            all &= work.nearest(room, ask, &mut mutual, pod);
        }
    }
    room.release_all(ask, &work.given);
    all.then_some(work.seats)
}

/// Whether every pod has the seat that it had before.
pub(super) fn is_as_before(table: &NodeTable<'_>, ask: &Ask<'_>, seats: &Seats) -> bool {
    let old = named(table, ask, ask.count, |name| ask.gang.remembered.get(name));
    seats
        .iter()
        .zip(&old)
        .all(|(seat, old)| seat.is_none() || seat == old)
}

struct Work {
    together: Together,
    seats: Seats,
    given: Seats,
    /// The nodes that its ranks have to stay on.
    home: std::ops::Range<usize>,
}

impl Work {
    /// Seats `pod` on `node` where it may be there and `wanted` pods fit.
    fn try_seat(
        &mut self,
        room: &mut Room<'_, '_>,
        ask: &Ask<'_>,
        mutual: &mut Option<Mutual>,
        pod: u32,
        node: usize,
        wanted: u32,
    ) -> bool {
        let shape = ask.shape(pod);
        let holds_ranks = ask.gang.shapes[shape].ranks > 0;
        let group = self
            .together
            .narrow(room.table, pod, &self.seats, 0..room.table.nodes.len());
        let may = ask.eligible[shape][node]
            && (!holds_ranks || self.home.contains(&node))
            && group.contains(&node)
            && room.fits(node, &ask.needs[shape]) >= wanted
            && mutual
                .as_ref()
                .is_none_or(|mutual| mutual.allows(shape, node));
        if may {
            if let Some(mutual) = mutual {
                mutual.add(shape, node);
            }
            let node = u32::try_from(node).unwrap_or(u32::MAX);
            room.take(node, &ask.needs[shape]);
            self.seats[pod as usize] = Some(node);
            self.given[pod as usize] = Some(node);
        }
        may
    }

    /// Seats `pod` as near as possible to the pod before or behind it that has a seat.
    fn nearest(
        &mut self,
        room: &mut Room<'_, '_>,
        ask: &Ask<'_>,
        mutual: &mut Option<Mutual>,
        pod: u32,
    ) -> bool {
        let at = pod as usize;
        let before = self.seats[..at].iter().rev().flatten().next();
        let behind = self.seats[at..].iter().flatten().next();
        let Some(anchor) = before.or(behind).copied() else {
            return false;
        };
        let wanted = self.together.wanted(pod, &self.seats);
        outward(room.table, anchor, 0)
            .any(|node| self.try_seat(room, ask, mutual, pod, node, wanted))
    }
}

/// The nodes that a map gives the first `count` pods.
fn named<'g>(
    table: &NodeTable<'_>,
    ask: &Ask<'g>,
    count: usize,
    node_of: impl Fn(&str) -> Option<&'g String>,
) -> Seats {
    let pods = ask.gang.pods.iter().enumerate();
    pods.map(|(at, pod)| {
        let node = node_of(&pod.name).filter(|_| at < count)?;
        table.by_name.get(node.as_str()).copied()
    })
    .collect()
}

/// The nodes that the ranks have to stay on: the domain of those that have a seat, or had one.
fn home(table: &NodeTable<'_>, ask: &Ask<'_>, held: &Seats, old: &Seats) -> std::ops::Range<usize> {
    let holds_ranks = |pod: &usize| ask.gang.shapes[ask.gang.pods[*pod].shape].ranks > 0;
    let mut known = (0..held.len()).filter(holds_ranks);
    let node = known
        .clone()
        .find_map(|pod| held[pod])
        .or_else(|| known.find_map(|pod| old[pod]));
    match node {
        Some(node) if ask.top > 0 => {
            let domain = table.domain_of[ask.top][node as usize];
            if !table.is_one_place(ask.top, domain) {
                return 0..0;
            }
            table.tiers[ask.top][domain as usize].nodes()
        }
        _ => 0..table.nodes.len(),
    }
}
