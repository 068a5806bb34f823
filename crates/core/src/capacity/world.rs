//! A copy of the cluster into which nodes of the offer are put, to see whether a gang is seated then.
//!
//! Invariant: the copy is as before when [`World::seat`] returns.

use std::collections::BTreeMap;

use super::{Offer, candidate::Candidate, offer::NODES};
use crate::gang::{Gang, GangKey, PodKey, Resident, Seat, Snapshot, Topology, seat_alone};

/// What begins the names of nodes that do not exist: no name in Kubernetes begins so.
const NEW: char = '+';
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Gangs are seated at most so often for one answer.
const MOST_TRIALS: u32 = 240;
/// Nodes that are put into all copies for one answer; the work grows with it.
const MOST_NODES: u64 = 400_000;

/// So many nodes of each kind.
pub(super) type Plan = Vec<(usize, u64)>;

/// A cluster with what may be added to it.
#[derive(Clone)]
pub(super) struct World {
    pub(super) snapshot: Snapshot,
    pub(super) room: Room,
    trials: u32,
    nodes: u64,
    /// How many scale-ups have been settled: their nodes keep their names.
    settled: usize,
}

/// A gang that was seated with new nodes.
pub(super) struct Seated {
    /// How many nodes of each kind hold pods of it.
    pub(super) used: Plan,
    /// How many of its pods are on nodes that exist.
    pub(super) on_present: usize,
    seats: Vec<Seat>,
}

impl World {
    pub(super) fn new(snapshot: Snapshot, offer: &Offer) -> Self {
        Self {
            snapshot,
            room: Room::new(offer),
            trials: MOST_TRIALS,
            nodes: MOST_NODES,
            settled: 0,
        }
    }

    /// With as much room as `other` has left of the limits that both have, plus what was added to them.
    pub(super) fn with_use_of(mut self, other: &Self) -> Self {
        self.room.use_as(&other.room);
        self.settled = other.settled;
        self
    }

    /// With less work allowed, for one of many attempts.
    pub(super) fn brief(mut self) -> Self {
        (self.trials, self.nodes) = (MOST_TRIALS / 6, MOST_NODES / 8);
        self
    }

    /// Begins the work on another answer.
    pub(super) fn rewind(&mut self) {
        (self.trials, self.nodes) = (MOST_TRIALS, MOST_NODES);
    }

    /// Whether no more work is allowed for this answer.
    pub(super) fn is_spent(&self) -> bool {
        self.trials == 0 || self.nodes == 0
    }

    /// The levels of the cluster; those that the new nodes show, too, where it has none that the gang names.
    pub(super) fn widen_topology(&mut self, candidates: &[Candidate], gang: &Gang) {
        let level = gang.wish.as_ref().map(crate::spec::Wish::level);
        let is_known = level.is_none_or(|level| {
            level == crate::gang::topology::HOST || self.snapshot.topology.find(level).is_some()
        });
        if is_known && !self.snapshot.topology.levels.is_empty() {
            return;
        }
        let present = self.snapshot.nodes.values().map(|node| &node.labels);
        let new = candidates.iter().map(|own| &own.node.labels);
        let (mut topology, _) = Topology::detect(present.chain(new));
        // Whatever has a label may be named by it.
        if let Some(level) = level.filter(|level| topology.find(level).is_none())
            && candidates
                .iter()
                .any(|own| own.node.labels.contains_key(level))
        {
            let keys: Vec<String> = topology.levels.into_iter().map(|own| own.key).collect();
            let keys = keys.iter().map(String::as_str).chain([level]);
            topology = Topology::of_keys(keys);
        }
        self.snapshot.topology = topology;
    }

    /// Seats `gang` as a whole with the nodes of `plan`.
    pub(super) fn seat(
        &mut self,
        gang: &Gang,
        candidates: &[Candidate],
        plan: &Plan,
    ) -> Option<Seated> {
        let nodes: u64 = plan.iter().map(|(_, count)| count).sum();
        if self.trials == 0 || nodes > self.nodes {
            self.nodes = 0;
            return None;
        }
        self.trials -= 1;
        self.nodes -= nodes;
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for (at, count) in plan {
            for number in 0..*count {
                let name = format!("{NEW}{}/{at}/{number}", self.settled);
                let mut node = candidates[*at].node.clone();
                node.labels.insert(HOSTNAME.to_owned(), name.clone());
                self.snapshot.nodes.insert(name.clone(), node);
                names.insert(name, *at);
            }
        }
        let seating = seat_alone(&self.snapshot, gang);
        for name in names.keys() {
            self.snapshot.nodes.remove(name);
        }
        let seats = seating?.seats;
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        let mut on_present = 0;
        for seat in &seats {
            match names.get_key_value(&seat.node) {
                Some((name, at)) => {
                    used.insert(name, *at);
                }
                None => on_present += 1,
            }
        }
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        for at in used.values() {
            *counts.entry(*at).or_default() += 1;
        }
        Some(Seated {
            used: counts.into_iter().collect(),
            on_present,
            seats,
        })
    }

    /// Makes a scale-up part of the cluster: its nodes are there, with the pods of `gang` on them.
    pub(super) fn settle(
        &mut self,
        gang: &Gang,
        candidates: &[Candidate],
        plan: &Plan,
        seated: &Seated,
    ) {
        for (at, count) in plan {
            self.room.take(&candidates[*at], *count);
            for number in 0..*count {
                let name = format!("{NEW}{}/{at}/{number}", self.settled);
                let mut node = candidates[*at].node.clone();
                node.labels.insert(HOSTNAME.to_owned(), name.clone());
                self.snapshot.nodes.insert(name, node);
            }
        }
        self.settled += 1;
        self.hold(gang, &seated.seats);
    }

    /// Gives seats to pods of `gang`.
    pub(super) fn hold(&mut self, gang: &Gang, seats: &[Seat]) {
        let members: BTreeMap<&str, usize> = gang
            .pods
            .iter()
            .map(|pod| (pod.name.as_str(), pod.shape))
            .collect();
        for seat in seats {
            let shape = members.get(seat.pod.as_str());
            let Some(shape) = shape.and_then(|at| gang.shapes.get(*at)) else {
                continue;
            };
            let key = PodKey {
                namespace: gang.key.namespace.clone(),
                name: seat.pod.clone(),
            };
            let resident = Resident {
                node: seat.node.clone(),
                gang: Some(gang.key.clone()),
                requests: shape.requests.clone(),
                priority: gang.priority,
                labels: shape.labels.clone(),
                leaving: false,
                anti_affinity: shape.constraints.anti_affinity.clone(),
                daemon: false,
            };
            self.snapshot.pods.insert(key, resident);
        }
    }

    /// Takes the pods of a gang away that hold no seat by themselves.
    pub(super) fn release(&mut self, gang: &Gang) {
        let is_own = |key: &PodKey, owner: Option<&GangKey>| {
            owner == Some(&gang.key) && !gang.held.contains_key(&key.name)
        };
        self.snapshot
            .pods
            .retain(|key, pod| !is_own(key, pod.gang.as_ref()));
    }
}

/// What is left of the limits of an offer.
#[derive(Clone)]
pub(super) struct Room {
    pools: Vec<BTreeMap<String, i64>>,
    /// What scale-ups of earlier gangs use, by pool and limit.
    taken: Vec<BTreeMap<String, i64>>,
    /// Nodes that they use, by pool and shape.
    taken_nodes: Vec<Vec<u64>>,
    /// Nodes by pool and shape, where they are limited.
    shapes: Vec<Vec<Option<u64>>>,
    /// What a node of each pool and shape counts for, by limit.
    counts: Vec<Vec<BTreeMap<String, i64>>>,
}

impl Room {
    fn new(offer: &Offer) -> Self {
        let pools = offer.pools.iter().map(|pool| {
            let limits = pool.limits.iter();
            limits
                .map(|(name, bound)| (name.clone(), bound.left()))
                .collect()
        });
        let shapes = offer.pools.iter().map(|pool| {
            let shapes = pool.shapes.iter();
            shapes.map(|shape| shape.at_most).collect()
        });
        let counts = offer.pools.iter().map(|pool| {
            let shapes = pool.shapes.iter().map(|shape| {
                let limits = pool.limits.keys();
                limits
                    .map(|name| (name.clone(), shape.counts_for(name)))
                    .collect()
            });
            shapes.collect()
        });
        let nodes = offer.pools.iter().map(|pool| vec![0; pool.shapes.len()]);
        Self {
            pools: pools.collect(),
            taken: vec![BTreeMap::new(); offer.pools.len()],
            taken_nodes: nodes.collect(),
            shapes: shapes.collect(),
            counts: counts.collect(),
        }
    }

    /// Takes what `other` has given, too.
    fn use_as(&mut self, other: &Self) {
        for (at, taken) in other.taken.iter().enumerate() {
            for (name, amount) in taken {
                if let Some(left) = self.pools[at].get_mut(name) {
                    *left = left.saturating_sub(*amount).max(0);
                }
            }
        }
        for (at, nodes) in other.taken_nodes.iter().enumerate() {
            for (shape, nodes) in nodes.iter().enumerate() {
                if let Some(left) = &mut self.shapes[at][shape] {
                    *left = left.saturating_sub(*nodes);
                }
            }
        }
        self.taken.clone_from(&other.taken);
        self.taken_nodes.clone_from(&other.taken_nodes);
    }

    /// How many nodes of `candidate` may be added.
    pub(super) fn of(&self, candidate: &Candidate) -> u64 {
        let Some(shape) = candidate.shape else {
            let nodes = self.pools[candidate.pool].get(NODES).copied();
            return nodes.map_or(u64::MAX, |nodes| u64::try_from(nodes).unwrap_or(0));
        };
        let own = self.shapes[candidate.pool][shape].unwrap_or(u64::MAX);
        let pool = &self.pools[candidate.pool];
        let limits = self.counts[candidate.pool][shape]
            .iter()
            .filter(|(_, each)| **each > 0)
            .filter_map(|(name, each)| u64::try_from(pool.get(name)? / each).ok());
        limits.min().unwrap_or(u64::MAX).min(own)
    }

    /// Returns the room of `nodes` nodes that were taken last.
    pub(super) fn untake(&mut self, candidate: &Candidate, nodes: u64) {
        let Some(shape) = candidate.shape else {
            return;
        };
        if let Some(left) = &mut self.shapes[candidate.pool][shape] {
            *left = left.saturating_add(nodes);
        }
        let given = &mut self.taken_nodes[candidate.pool][shape];
        *given = given.saturating_sub(nodes);
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        for (name, each) in &self.counts[candidate.pool][shape] {
            let amount = each.saturating_mul(nodes);
            if let Some(taken) = self.taken[candidate.pool].get_mut(name) {
                *taken = taken.saturating_sub(amount);
            }
            if let Some(left) = self.pools[candidate.pool].get_mut(name) {
                *left = left.saturating_add(amount);
            }
        }
    }

    /// What is left of the limit on `resource` of the pool.
    pub(super) fn left(&self, pool: usize, resource: &str) -> Option<i64> {
        self.pools[pool].get(resource).copied()
    }

    /// Uses the room of `nodes` nodes.
    pub(super) fn take(&mut self, candidate: &Candidate, nodes: u64) {
        let Some(shape) = candidate.shape else {
            return;
        };
        if let Some(left) = &mut self.shapes[candidate.pool][shape] {
            *left = left.saturating_sub(nodes);
        }
        let given = &mut self.taken_nodes[candidate.pool][shape];
        *given = given.saturating_add(nodes);
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        for (name, each) in &self.counts[candidate.pool][shape] {
            let taken = self.taken[candidate.pool].entry(name.clone()).or_default();
            *taken = taken.saturating_add(each.saturating_mul(nodes));
            if let Some(left) = self.pools[candidate.pool].get_mut(name) {
                *left = left.saturating_sub(each.saturating_mul(nodes)).max(0);
            }
        }
    }
}
