//! What no choice of nodes can exceed: the proof that a gang does not fit.
//!
//! Invariant: everything here is counted too high, never too low.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Offer,
    candidate::Candidate,
    packing::Class,
    search::Search,
    world::{Plan, Room, World},
};
use crate::{
    gang::{Gang, Resources},
    resources::is_host_port,
    spec::Wish,
};

/// How much the pods that ask for something ask for, and how much nodes can have for them.
struct Count<'c> {
    /// Of one pod of each class.
    asks: Vec<u64>,
    /// Of a node of the offer.
    has: &'c dyn Fn(&Candidate) -> u64,
    /// Of all nodes that exist.
    present: u64,
}

/// How many pods the limits of the pool hold, if all nodes were of this kind.
pub(super) fn pods_of_limits(
    offer: &Offer,
    room: &Room,
    candidate: &Candidate,
    class: &Class,
) -> i64 {
    let Some(shape) = candidate.shape(offer) else {
        return 0;
    };
    let each = candidate.holds(&class.shape);
    let limits = candidate.pool(offer).limits.keys().filter_map(|name| {
        within(
            room.left(candidate.pool, name)?,
            shape.counts_for(name),
            each,
        )
    });
    let least = limits.min().unwrap_or(u64::MAX);
    i64::try_from(least).unwrap_or(i64::MAX)
}

/// How much of something nodes have of which each has `each` and counts `counts` in a limit with `left` left; none where they do
/// not count.
fn within(left: i64, counts: i64, each: u64) -> Option<u64> {
    let (left, counts) = (i128::from(left.max(0)), i128::from(counts));
    let amount = (counts > 0).then(|| left * i128::from(each) / counts)?;
    Some(u64::try_from(amount).unwrap_or(u64::MAX))
}

/// Whether the limits of all pools together leave too little for a class, however nodes are mixed.
pub(super) fn is_out_of_room(search: &Search<'_>, world: &World) -> bool {
    (0..search.classes.len()).any(|only| {
        let class = &search.classes[only];
        let asks = (0..search.classes.len()).map(|at| u64::from(at == only));
        let has = |own: &Candidate| {
            let is_free = own.obstacles(&class.shape).is_empty();
            if is_free { own.holds(&class.shape) } else { 0 }
        };
        let count = Count {
            asks: asks.collect(),
            has: &has,
            present: class.fits_now,
        };
        count.is_short(search, &world.room)
    })
}

/// Whether all classes together ask for more of a resource than all nodes could have.
pub(super) fn is_short_of(search: &Search<'_>, world: &World) -> bool {
    if search.classes.len() < 2 {
        return false;
    }
    let resources: BTreeSet<&str> = search
        .classes
        .iter()
        .flat_map(|class| class.shape.requests.iter())
        .map(|(name, _)| name)
        .filter(|name| !is_host_port(name))
        .collect();
    let mut used: BTreeMap<&str, Resources> = BTreeMap::new();
    for pod in world.snapshot.pods.values() {
        used.entry(&pod.node).or_default().add(&pod.requests);
    }
    resources.into_iter().any(|resource| {
        let amount = |amount: i64| u64::try_from(amount).unwrap_or(0);
        let asking: Vec<&Class> = search
            .classes
            .iter()
            .filter(|class| class.shape.requests.get(resource) > 0)
            .collect();
        let asks = search.classes.iter();
        let asks = asks.map(|class| amount(class.shape.requests.get(resource)));
        let has = |own: &Candidate| {
            let is_free = |class: &&Class| own.obstacles(&class.shape).is_empty();
            let is_useful = asking.iter().any(is_free);
            if is_useful {
                amount(own.has(resource))
            } else {
                0
            }
        };
        let mut present = 0_u64;
        for (name, node) in &world.snapshot.nodes {
            let has = match node.allocatable.get(resource) {
                // What a node does not state may be unlimited.
                0 if resource == crate::resources::PODS => i64::from(u32::MAX),
                has => has,
            };
            let taken = used.get(name.as_str()).map_or(0, |used| used.get(resource));
            let admits = |class: &&Class| class.shape.constraints.admits(name, node);
            if has > taken && asking.iter().any(admits) {
                present = present.saturating_add(amount(has.saturating_sub(taken)));
            }
        }
        let count = Count {
            asks: asks.collect(),
            has: &has,
            present,
        };
        count.is_short(search, &world.room)
    })
}

impl Count<'_> {
    fn is_short(&self, search: &Search<'_>, room: &Room) -> bool {
        let needed = search.classes.iter().zip(&self.asks);
        let needed = needed.fold(0_u128, |sum, (class, asks)| {
            sum.saturating_add(u128::from(class.pods) * u128::from(*asks))
        });
        let mut all = u128::from(self.present);
        let mut pools: BTreeMap<usize, Vec<&Candidate>> = BTreeMap::new();
        for (_, own) in search.known() {
            pools.entry(own.pool).or_default().push(own);
        }
        for own in pools.values() {
            if all >= needed {
                break;
            }
            all = all.saturating_add(u128::from(self.of_pool(search.offer, room, own)));
        }
        all < needed
    }

    /// The most that a pool can add: each limit alone, as if only the best kind for it were added.
    fn of_pool(&self, offer: &Offer, room: &Room, kinds: &[&Candidate]) -> u64 {
        let useful: Vec<(&Candidate, u64)> = kinds
            .iter()
            .map(|own| (*own, (self.has)(own)))
            .filter(|(_, has)| *has > 0)
            .collect();
        // Kinds that differ only in labels have one limit together.
        let mut by_shape: BTreeMap<Option<usize>, u64> = BTreeMap::new();
        for (own, has) in &useful {
            let most = by_shape.entry(own.shape).or_default();
            *most = (*most).max(room.of(own).saturating_mul(*has));
        }
        let by_nodes = by_shape
            .values()
            .fold(0_u64, |sum, own| sum.saturating_add(*own));
        let Some((first, _)) = useful.first() else {
            return 0;
        };
        let limits = first.pool(offer).limits.keys().filter_map(|name| {
            let left = room.left(first.pool, name)?;
            let each = useful.iter().map(|(own, has)| {
                let counts = own.shape(offer).map_or(0, |shape| shape.counts_for(name));
                within(left, counts, *has).unwrap_or(u64::MAX)
            });
            each.max()
        });
        limits.min().unwrap_or(u64::MAX).min(by_nodes)
    }
}

/// Whether `plan`, which has all nodes that could be of use, holds not even the pods of one class alone: without other classes, and
/// without what pods ask of each other, seats of equal pods are counted, not tried.
pub(super) fn is_too_little(search: &Search<'_>, world: &mut World, plan: &Plan) -> bool {
    search.classes.iter().any(|class| {
        let alone = alone(search.gang, class);
        let has_failed = world.seat(&alone, search.candidates, plan).is_none();
        has_failed && !world.is_spent()
    })
}

/// The pods of `class` as a gang of their own.
fn alone(gang: &Gang, class: &Class) -> Gang {
    // That pods keep apart is counted, too: another node never hurts. Not so where they ask for one domain beside.
    let keeps_apart = !matches!(gang.wish, Some(Wish::Required(_)));
    let mut own = gang.clone();
    for shape in &mut own.shapes {
        let constraints = &mut shape.constraints;
        constraints.spread.clear();
        constraints.affinity.clear();
        if !keeps_apart {
            constraints.anti_affinity.clear();
        }
    }
    own.pods.retain(|pod| {
        let shape = gang.shapes.get(pod.shape);
        let is_of_class = shape.is_some_and(|shape| {
            shape.requests == class.shape.requests && shape.constraints == class.shape.constraints
        });
        is_of_class && !gang.held.contains_key(&pod.name)
    });
    own.minimum = own.pods.len();
    own.held.clear();
    own.remembered.clear();
    own.reserved.clear();
    own.parallelism = None;
    own
}
