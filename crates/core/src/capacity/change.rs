//! The smallest change of the job, or of the offer, with which a gang fits.
//!
//! The order: fewer changes before more; then what changes only where pods may run (a toleration, a label of `nodeSelector`, the
//! node affinity, the level), then what the administrator changes (a limit), then what changes the training (less CPU, memory or
//! devices of a pod; fewer pods; fewer accelerators of a pod); then the smaller amount; then the better order.
//!
//! Invariant: a change is named only after the gang was seated with it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Toleration;
use serde::Serialize;

use super::{
    Offer, Order, Price, Why, answer::Attempt, offer::NODES, packing::Class, search::Outcome,
    world::World,
};
use crate::{gang::Gang, resources::is_accelerator, spec::Wish};

/// Sets of changes that are tried.
const MOST_TRIED: usize = 6;
/// Sets of changes that are named.
const MOST_NAMED: usize = 3;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "change")]
pub enum Change {
    /// The pods tolerate a taint.
    Tolerate {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
        /// What it does.
        effect: &'static str,
    },
    /// A label of `nodeSelector` is removed.
    Unselect {
        /// The label.
        key: String,
        /// What is asked for.
        value: String,
    },
    /// The required node affinity is removed.
    DropAffinity,
    /// The level is asked for only where it is possible.
    Prefer {
        /// The level.
        level: String,
    },
    /// A limit of a pool is raised.
    RaiseLimit {
        /// The pool.
        pool: String,
        /// The shape, where it is the limit of one.
        #[serde(skip_serializing_if = "Option::is_none")]
        shape: Option<String>,
        /// What is limited; `nodes` for their number.
        resource: String,
        /// The limit now.
        from: i64,
        /// The least with which it fits.
        to: i64,
    },
    /// Every pod asks for less of a resource.
    AskForLess {
        /// The resource.
        resource: String,
        /// What a pod asks for.
        from: i64,
        /// With what it fits.
        to: i64,
    },
    /// The job has fewer pods.
    FewerPods {
        /// How many it has.
        from: usize,
        /// With how many it fits.
        to: usize,
    },
}

/// Changes that together make a gang fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// What to change.
    pub all: Vec<Change>,
    /// The nodes that are added then; none where the nodes that exist are enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
}

/// What a gang is seated on once it was changed.
enum With {
    PresentNodes,
    NewNodes(Order),
}

impl With {
    fn order(self) -> Option<Order> {
        match self {
            Self::PresentNodes => None,
            Self::NewNodes(order) => Some(order),
        }
    }
}

/// A set of changes behind what decides about it.
type Base = (usize, Vec<u8>, Vec<i64>, Vec<Change>);
/// What decides between sets of changes: the smaller, the better.
type Key = (usize, Vec<u8>, Vec<i64>, bool, Price, Vec<Change>);

impl Change {
    fn rank(&self) -> u8 {
        match self {
            Self::Tolerate { .. } => 0,
            Self::Unselect { .. } => 1,
            Self::DropAffinity => 2,
            Self::Prefer { .. } => 3,
            Self::RaiseLimit { .. } => 4,
            Self::AskForLess { resource, .. } if !is_accelerator(resource) => 5,
            Self::FewerPods { .. } => 6,
            Self::AskForLess { .. } => 7,
        }
    }

    fn amount(&self) -> i64 {
        match self {
            Self::RaiseLimit { from, to, .. } => to.saturating_sub(*from),
            Self::AskForLess { from, to, .. } => from.saturating_sub(*to),
            Self::FewerPods { from, to } => {
                i64::try_from(from.saturating_sub(*to)).unwrap_or(i64::MAX)
            }
            _ => 0,
        }
    }

    fn apply(&self, gang: &mut Gang, offer: &mut Offer) {
        match self {
            Self::Tolerate { key, value, effect } => {
                let toleration = Toleration {
                    key: Some(key.clone()),
                    operator: Some("Equal".to_owned()),
                    value: Some(value.clone()),
                    effect: Some((*effect).to_owned()),
                    ..Toleration::default()
                };
                for shape in &mut gang.shapes {
                    shape.constraints.tolerations.push(toleration.clone());
                }
            }
            Self::Unselect { key, value } => {
                for shape in &mut gang.shapes {
                    let selector = &mut shape.constraints.node_selector;
                    if selector.get(key) == Some(value) {
                        selector.remove(key);
                    }
                }
            }
            Self::DropAffinity => {
                for shape in &mut gang.shapes {
                    shape.constraints.node_affinity = None;
                }
            }
            Self::Prefer { level } => gang.wish = Some(Wish::Preferred(level.clone())),
            Self::RaiseLimit {
                pool,
                shape,
                resource,
                to,
                ..
            } => {
                let pools = offer.pools.iter_mut();
                for own in pools.filter(|own| own.name == *pool) {
                    if let Some(shape) = shape {
                        let shapes = own.shapes.iter_mut();
                        for own in shapes.filter(|own| own.name == *shape) {
                            own.at_most = u64::try_from(*to).ok();
                        }
                    } else if let Some(bound) = own.limits.get_mut(resource) {
                        bound.limit = *to;
                    }
                }
            }
            Self::AskForLess { resource, to, .. } => {
                for shape in &mut gang.shapes {
                    if shape.requests.get(resource) > *to {
                        shape.requests.set(resource, *to);
                    }
                }
            }
            Self::FewerPods { to, .. } => *gang = with_fewer(gang, *to),
        }
    }
}

/// The gang with `pods` pods: the largest role shrinks, others stay.
fn with_fewer(gang: &Gang, pods: usize) -> Gang {
    let mut fewer = gang.clone();
    let mut counts = vec![0_usize; gang.shapes.len()];
    for pod in &gang.pods {
        if let Some(count) = counts.get_mut(pod.shape) {
            *count += 1;
        }
    }
    let largest = (0..counts.len()).max_by_key(|at| counts[*at]).unwrap_or(0);
    let mut surplus = gang.pods.len().saturating_sub(pods).min(counts[largest]);
    let mut at = fewer.pods.len();
    while surplus > 0 && at > 0 {
        at -= 1;
        if fewer.pods[at].shape == largest {
            fewer.pods.remove(at);
            surplus -= 1;
        }
    }
    fewer.minimum = fewer.pods.len();
    fewer
}

/// The changes with which `gang` fits, the smallest first.
pub(super) fn changes(world: &World, gang: &Gang, offer: &Offer) -> Vec<Changes> {
    if !gang.held.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<Changes> = Vec::new();
    for base in bases(world, gang, offer).into_iter().take(MOST_TRIED) {
        if let Some(with) = fits(world, gang, offer, &base) {
            let order = with.order();
            found.push(Changes { all: base, order });
            continue;
        }
        for more in beyond(world, gang, offer, &base) {
            let mut all = base.clone();
            all.extend(more);
            if let Some(with) = fits(world, gang, offer, &all) {
                let order = with.order();
                found.push(Changes { all, order });
            }
        }
    }
    found.retain(|own| !own.all.is_empty());
    found.sort_by_cached_key(key);
    found.dedup_by(|a, b| a.all == b.all);
    found.truncate(MOST_NAMED);
    found
}

fn key(changes: &Changes) -> Key {
    let mut ranks: Vec<u8> = changes.all.iter().map(Change::rank).collect();
    ranks.sort_unstable_by(|a, b| b.cmp(a));
    let amounts = changes.all.iter().map(Change::amount).collect();
    let price = changes.order.as_ref().and_then(|own| own.price_per_hour);
    (
        ranks.len(),
        ranks,
        amounts,
        price.is_none(),
        price.unwrap_or_default(),
        changes.all.clone(),
    )
}

/// Whether the gang fits with the changes, and with which nodes. Nothing is known then about what was not known before.
fn fits(world: &World, gang: &Gang, offer: &Offer, changes: &[Change]) -> Option<With> {
    let (gang, offer) = applied(gang, offer, changes);
    let mut world = World::new(world.snapshot.clone(), &offer)
        .with_use_of(world)
        .brief();
    if world.seat(&gang, &[], &Vec::new()).is_some() {
        return Some(With::PresentNodes);
    }
    let attempt = Attempt::new(&mut world, &gang, &offer);
    match attempt.run(&mut world) {
        Outcome::Found(found) => {
            let is_sure = found
                .plan
                .iter()
                .all(|(at, _)| attempt.candidates[*at].unknown.is_empty());
            is_sure.then(|| With::NewNodes(attempt.order(&found, gang.pods.len())))
        }
        _ => None,
    }
}

fn applied(gang: &Gang, offer: &Offer, changes: &[Change]) -> (Gang, Offer) {
    let (mut gang, mut offer) = (gang.clone(), offer.clone());
    for change in changes {
        change.apply(&mut gang, &mut offer);
    }
    (gang, offer)
}

/// For the classes that no node could hold: what would let them onto one. One empty set where there is no such class.
fn bases(world: &World, gang: &Gang, offer: &Offer) -> Vec<Vec<Change>> {
    let mut world = world.clone();
    let attempt = Attempt::new(&mut world, gang, offer);
    let is_free = |class: &Class| {
        let mut kinds = attempt.candidates.iter();
        class.fits_now >= class.pods
            || kinds.any(|own| own.shape.is_some() && own.obstacles(&class.shape).is_empty())
    };
    let mut all: Vec<Vec<Change>> = vec![Vec::new()];
    for class in attempt.classes.iter().filter(|class| !is_free(class)) {
        let mut own: BTreeSet<Base> = BTreeSet::new();
        for candidate in attempt.candidates.iter().filter(|own| own.shape.is_some()) {
            let why = candidate.obstacles(&class.shape);
            let Some(changes) = why.iter().map(change_for).collect::<Option<Vec<Change>>>() else {
                continue;
            };
            let ranks = changes.iter().map(Change::rank).collect();
            let amounts = changes.iter().map(Change::amount).collect();
            own.insert((changes.len(), ranks, amounts, changes));
        }
        let mut next: Vec<Vec<Change>> = Vec::new();
        for base in &all {
            for (.., changes) in own.iter().take(MOST_TRIED) {
                let mut both = base.clone();
                both.extend(changes.iter().filter(|own| !base.contains(own)).cloned());
                next.push(both);
            }
        }
        next.sort_by_key(Vec::len);
        next.truncate(MOST_TRIED);
        all = next;
    }
    all
}

/// The change that removes one obstacle.
fn change_for(why: &Why) -> Option<Change> {
    match why {
        Why::Taint { key, value, effect } => Some(Change::Tolerate {
            key: key.clone(),
            value: value.clone(),
            effect,
        }),
        Why::Selector { key, value, .. } => Some(Change::Unselect {
            key: key.clone(),
            value: value.clone(),
        }),
        Why::Affinity => Some(Change::DropAffinity),
        Why::TooSmall {
            resource,
            asks,
            has,
        } => {
            // A job for accelerators is another job without them.
            let is_other = is_accelerator(resource) && *has <= 0;
            (!is_other).then(|| Change::AskForLess {
                resource: resource.clone(),
                from: *asks,
                to: (*has).max(0),
            })
        }
        _ => None,
    }
}

/// What may help beside `base`: another level, higher limits, fewer pods.
fn beyond(world: &World, gang: &Gang, offer: &Offer, base: &[Change]) -> Vec<Vec<Change>> {
    let mut more = Vec::new();
    let mut level = Vec::new();
    if let Some(Wish::Required(own)) = &gang.wish {
        level.push(Change::Prefer { level: own.clone() });
        more.push(level.clone());
    }
    for with in [Vec::new(), level] {
        let base: Vec<Change> = base.iter().chain(&with).cloned().collect();
        if let Some(raised) = raised(world, gang, offer, &base) {
            more.push(with.into_iter().chain(raised).collect());
            break;
        }
    }
    if let Some(fewer) = fewer(world, gang, offer, base) {
        more.push(vec![fewer]);
    }
    more
}

/// The limits that must be raised, and to what; none where limits are not what is in the way.
fn raised(world: &World, gang: &Gang, offer: &Offer, base: &[Change]) -> Option<Vec<Change>> {
    let mut free = offer.clone();
    for pool in &mut free.pools {
        pool.limits.clear();
        pool.shapes
            .iter_mut()
            .for_each(|shape| shape.at_most = None);
    }
    let order = fits(world, gang, &free, base)?.order()?;
    let mut changes = Vec::new();
    for (at, pool) in offer.pools.iter().enumerate() {
        let parts = order.parts.iter().filter(|part| part.pool == pool.name);
        let parts: Vec<_> = parts
            .filter_map(|part| {
                let shape = pool.shapes.iter().position(|own| own.name == part.shape)?;
                Some((shape, i64::try_from(part.nodes).unwrap_or(i64::MAX)))
            })
            .collect();
        for (name, bound) in &pool.limits {
            let needs = parts.iter().fold(0_i64, |sum, (shape, nodes)| {
                let counts = pool.shapes[*shape].counts_for(name);
                sum.saturating_add(counts.saturating_mul(*nodes))
            });
            let left = world.room.left(at, name).unwrap_or(bound.left());
            if needs > left {
                changes.push(Change::RaiseLimit {
                    pool: pool.name.clone(),
                    shape: None,
                    resource: name.clone(),
                    from: bound.limit,
                    // More may be used than the limit says.
                    to: bound.limit.max(bound.used).saturating_add(needs - left),
                });
            }
        }
        for (shape, nodes) in &parts {
            let own = &pool.shapes[*shape];
            if let Some(most) = own.at_most.and_then(|most| i64::try_from(most).ok())
                && *nodes > most
            {
                changes.push(Change::RaiseLimit {
                    pool: pool.name.clone(),
                    shape: Some(own.name.clone()),
                    resource: NODES.to_owned(),
                    from: most,
                    to: *nodes,
                });
            }
        }
    }
    (!changes.is_empty()).then_some(changes)
}

/// The most pods with which the gang fits.
fn fewer(world: &World, gang: &Gang, offer: &Offer, base: &[Change]) -> Option<Change> {
    let from = gang.pods.len();
    let with = |to: usize| {
        let change = Change::FewerPods { from, to };
        let changes: Vec<Change> = base.iter().cloned().chain([change.clone()]).collect();
        fits(world, gang, offer, &changes).map(|_| change)
    };
    let (mut low, mut high) = (1, from);
    let mut best = None;
    while low < high {
        let middle = usize::midpoint(low, high);
        match with(middle) {
            Some(change) => {
                best = Some(change);
                low = middle + 1;
            }
            None => high = middle,
        }
    }
    best
}
