//! What may change without a change of the job or of the offer: gangs end, nodes that boot arrive, cordons are lifted.
//!
//! A gang never fits only if it fits in none of these futures. Nodes of a pool that has a limit are treated as nodes that could be
//! added: when they are empty the autoscaler removes them, and their room in the limit is free again.
//!
//! Invariant: a future has at least the room that there really will be.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Bound, NodeShape, Offer, Pool, Source, Unknown,
    answer::{Attempt, start_with_fewer},
    offer::NODES,
    read::lasting,
    search::Outcome,
    world::World,
};
use crate::gang::{Gang, Node, Resources, Snapshot, Taint};

const HOSTNAME: &str = "kubernetes.io/hostname";
/// Kinds of nodes that exist and are treated as nodes that could be added.
const MOST_KINDS: usize = 1_000;

/// What equal nodes have in common: their labels, and what is free on them.
type Kind = (BTreeMap<String, String>, Resources);

/// What has changed beside that all other gangs have ended.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Change {
    /// Nodes that are counted in a limit and do not exist yet have arrived.
    arrivals: bool,
    /// Nodes are ready, and not cordoned, quarantined or on probation.
    states: bool,
    /// Pods that Trainyard did not make have ended, but for those of daemon sets.
    pods: bool,
}

const ALL: Change = Change {
    arrivals: true,
    states: true,
    pods: true,
};

/// What a future decides.
pub(super) enum Future {
    /// It fits in none.
    Never,
    /// It fits once all other gangs have ended.
    OthersEnd,
    /// It fits if these change, too.
    May(Vec<Unknown>),
}

/// Whether `gang`, which is elastic down to its minimum, fits in a future. The world of `snapshot` has its own pods only where they
/// hold seats.
pub(super) fn of(snapshot: &Snapshot, gang: &Gang, offer: &Offer) -> Future {
    let last = try_in(snapshot, gang, offer, ALL);
    let is_mutual = gang.shapes.iter().any(|own| own.constraints.are_mutual());
    if matches!(last, Try::Fails) && !is_mutual {
        return Future::Never;
    }
    if matches!(try_in(snapshot, gang, offer, Change::default()), Try::Fits) {
        return Future::OthersEnd;
    }
    if !matches!(last, Try::Fits)
        && let Some(unknown) = with_other_pods(snapshot, gang, offer)
    {
        return Future::May(unknown);
    }
    match last {
        Try::Fails => return Future::Never,
        Try::Undecided => return Future::May(vec![Unknown::Search]),
        Try::Fits | Try::Open => {}
    }
    let arrivals = || arriving(snapshot, offer);
    let states = || {
        vec![Unknown::Nodes {
            nodes: unusable(snapshot),
        }]
    };
    let one = |change: fn(&mut Change)| {
        let mut only = Change::default();
        change(&mut only);
        matches!(try_in(snapshot, gang, offer, only), Try::Fits)
    };
    if one(|own| own.arrivals = true) {
        return Future::May(arrivals());
    }
    if one(|own| own.states = true) {
        return Future::May(states());
    }
    if one(|own| own.pods = true) {
        return Future::May(vec![Unknown::Pods]);
    }
    let mut all = arrivals();
    if unusable(snapshot) > 0 {
        all.extend(states());
    }
    if snapshot.pods.values().any(is_foreign) {
        all.push(Unknown::Pods);
    }
    if all.is_empty() {
        all.push(Unknown::Search);
    }
    Future::May(all)
}

enum Try {
    Fits,
    Fails,
    /// Nodes of unknown size could be added.
    Open,
    Undecided,
}

/// What becomes of the nodes of a pool that has more than its limit allows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    /// They stay, and nothing is added.
    Stays,
    /// Those above the limit go.
    Goes,
    /// They stay, and their room is free: more than there can be.
    Both,
}

fn try_in(snapshot: &Snapshot, gang: &Gang, offer: &Offer, change: Change) -> Try {
    let excessive = offer.pools.iter().filter(|pool| is_excessive(pool));
    match excessive.count() {
        0 => try_with(snapshot, gang, offer, change, Excess::Goes),
        1 => {
            let first = try_with(snapshot, gang, offer, change, Excess::Stays);
            let second = || try_with(snapshot, gang, offer, change, Excess::Goes);
            match first {
                Try::Fails => second(),
                Try::Fits => first,
                first => match second() {
                    Try::Fails => first,
                    second => second,
                },
            }
        }
        _ => try_with(snapshot, gang, offer, change, Excess::Both),
    }
}

fn is_excessive(pool: &Pool) -> bool {
    let mut limits = pool.limits.values();
    !pool.members.is_empty() && limits.any(|bound| bound.used > bound.limit)
}

fn try_with(
    snapshot: &Snapshot,
    gang: &Gang,
    offer: &Offer,
    change: Change,
    excess: Excess,
) -> Try {
    let (snapshot, offer) = future(snapshot, gang, offer, change, excess);
    let mut world = World::new(snapshot, &offer);
    let mut least = gang.clone();
    least.minimum = least.pods.len();
    if world.seat(&least, &[], &Vec::new()).is_some() {
        return Try::Fits;
    }
    let attempt = Attempt::new(&mut world, gang, &offer);
    match attempt.run(&mut world) {
        Outcome::Found(_) => Try::Fits,
        outcome => {
            if start_with_fewer(&mut world, gang, &offer).is_some() {
                Try::Fits
            } else if !attempt.unknown_shapes(&world).is_empty() {
                Try::Open
            } else if matches!(outcome, Outcome::Nothing) {
                Try::Fails
            } else {
                Try::Undecided
            }
        }
    }
}

/// Whether it fits where nothing is asked of the place of other pods: such pods may come, and nodes may be in the domains that are
/// asked for, unless their labels are stated.
fn with_other_pods(snapshot: &Snapshot, gang: &Gang, offer: &Offer) -> Option<Vec<Unknown>> {
    let mut free = gang.clone();
    let mut unknown: BTreeSet<Unknown> = BTreeSet::new();
    let is_stated = |pool: &Pool, key: &str| {
        let has =
            |shape: &NodeShape| shape.labels.contains_key(key) || shape.choices.contains_key(key);
        pool.labels.contains_key(key)
            || pool.choices.contains_key(key)
            || !pool.shapes.is_empty() && pool.shapes.iter().all(has)
    };
    let mut open = |key: &str| {
        let pools = offer.pools.iter().filter(|pool| !is_stated(pool, key));
        let before = unknown.len();
        if key != HOSTNAME {
            unknown.extend(pools.map(|pool| Unknown::Key {
                pool: pool.name.clone(),
                key: key.to_owned(),
            }));
        }
        unknown.len() > before
    };
    let mut is_near_others = false;
    for shape in &mut free.shapes {
        let constraints = &mut shape.constraints;
        constraints.spread.retain(|own| !open(&own.topology_key));
        constraints
            .anti_affinity
            .retain(|own| !open(&own.topology_key));
        for own in std::mem::take(&mut constraints.affinity) {
            is_near_others |= !open(&own.topology_key);
        }
    }
    if is_near_others {
        unknown.insert(Unknown::OtherPods);
    }
    if unknown.is_empty() {
        return None;
    }
    let fails = matches!(try_in(snapshot, &free, offer, ALL), Try::Fails);
    (!fails).then(|| unknown.into_iter().collect())
}

/// The cluster once all other gangs have ended, with what `change` adds, and what could be added to it.
fn future(
    snapshot: &Snapshot,
    gang: &Gang,
    offer: &Offer,
    change: Change,
    excess: Excess,
) -> (Snapshot, Offer) {
    let (mut snapshot, mut offer) = (snapshot.clone(), offer.clone());
    snapshot.pods.retain(|key, pod| match &pod.gang {
        Some(own) => *own == gang.key && gang.held.contains_key(&key.name),
        None => pod.daemon || !change.pods,
    });
    if change.states {
        for node in snapshot.nodes.values_mut() {
            node.ready = true;
            node.unschedulable = false;
            node.taints = lasting(&node.taints);
        }
    }
    let mut used: BTreeMap<String, Resources> = BTreeMap::new();
    let mut held: BTreeSet<String> = BTreeSet::new();
    for pod in snapshot.pods.values() {
        if pod.daemon {
            used.entry(pod.node.clone()).or_default().add(&pod.requests);
        } else {
            held.insert(pod.node.clone());
        }
    }
    let names_nodes = names_nodes(gang);
    for pool in &mut offer.pools {
        let is_excessive = is_excessive(pool);
        if pool.limits.is_empty() || is_excessive && excess == Excess::Stays {
            continue;
        }
        let keeps_nodes = names_nodes || is_excessive && excess == Excess::Both;
        release(pool, &mut snapshot, (&held, &used), change, keeps_nodes);
    }
    (snapshot, offer)
}

/// Frees the room that empty nodes of `pool` take of its limits, and makes them nodes that could be added.
fn release(
    pool: &mut Pool,
    snapshot: &mut Snapshot,
    (held, daemons): (&BTreeSet<String>, &BTreeMap<String, Resources>),
    change: Change,
    keeps_nodes: bool,
) {
    let members = pool.members.iter();
    let members: Vec<(&String, &Node)> = members
        .filter_map(|name| Some((name, snapshot.nodes.get(name)?)))
        .collect();
    // Nodes that nobody can tell from others are there, unless the autoscaler says otherwise.
    let is_blind = members.is_empty() && pool.source == Source::ClusterAutoscaler;
    let starting = pool.starting.max(0);
    let is_empty = |name: &String| !held.contains(name);
    for (resource, bound) in &mut pool.limits {
        let counts = |node: &Node| match resource.as_str() {
            NODES => 1,
            name => node.allocatable.get(name),
        };
        let sum = |only_held: bool| {
            let own = members
                .iter()
                .filter(|(name, _)| !only_held || !is_empty(name));
            own.fold(0_i64, |sum, (_, node)| sum.saturating_add(counts(node)))
        };
        let least = members.iter().map(|(_, node)| counts(node)).min();
        let mut rest = bound.used.saturating_sub(sum(false)).max(0);
        let mut stays = sum(true);
        if is_blind {
            (stays, rest) = (bound.used.saturating_sub(starting), starting);
        }
        // A limit counts the capacity of nodes, which is a little more than what their pods may ask for.
        if least.is_some_and(|least| rest < least) {
            rest = 0;
        }
        *bound = Bound {
            limit: bound.limit,
            used: if change.arrivals {
                stays
            } else {
                stays.saturating_add(rest)
            },
        };
    }
    let mut kinds: BTreeMap<Kind, (Vec<Taint>, Vec<String>)> = BTreeMap::new();
    for (name, node) in members.iter().filter(|(name, _)| is_empty(name)) {
        let mut labels = node.labels.clone();
        labels.remove(HOSTNAME);
        let taken = daemons.get(name.as_str());
        let free = node.allocatable.iter().map(|(resource, amount)| {
            let taken = taken.map_or(0, |taken| taken.get(resource));
            (resource.to_owned(), amount.saturating_sub(taken).max(0))
        });
        let kind = (labels, free.collect());
        let own = kinds.entry(kind).or_default();
        own.1.push((*name).clone());
        // Equal nodes with several taints are counted with those of the fewest.
        if own.1.len() == 1 || node.taints.len() < own.0.len() {
            own.0.clone_from(&node.taints);
        }
    }
    // Too many kinds to try each, or asked for by name: then they stay, beside the room that they leave.
    if keeps_nodes || kinds.len() > MOST_KINDS {
        return;
    }
    for (number, ((labels, allocatable), (taints, names))) in kinds.into_iter().enumerate() {
        let mut count = 0;
        for name in names {
            let node = snapshot.nodes.remove(&name);
            count += u64::from(node.is_some_and(|node| node.ready && !node.unschedulable));
        }
        pool.shapes.push(NodeShape {
            name: format!("node {number}"),
            labels,
            taints,
            capacity: allocatable.clone(),
            allocatable,
            at_most: Some(count),
            is_present: true,
            ..NodeShape::default()
        });
    }
}

/// Whether the gang asks for nodes by name.
fn names_nodes(gang: &Gang) -> bool {
    gang.shapes.iter().any(|shape| {
        let constraints = &shape.constraints;
        let terms = constraints.node_affinity.iter();
        let mut terms = terms.flat_map(|own| &own.node_selector_terms);
        constraints.node_selector.contains_key(HOSTNAME)
            || terms.any(|term| {
                let mut keys = term.match_expressions.iter().flatten();
                term.match_fields.is_some() || keys.any(|own| own.key == HOSTNAME)
            })
    })
}

/// The pools that count nodes which do not exist yet.
fn arriving(snapshot: &Snapshot, offer: &Offer) -> Vec<Unknown> {
    let pools = offer.pools.iter().filter(|pool| {
        pool.limits.iter().any(|(resource, bound)| {
            let members = pool
                .members
                .iter()
                .filter_map(|name| snapshot.nodes.get(name));
            let there = members.fold(0_i64, |sum, node| {
                sum.saturating_add(match resource.as_str() {
                    NODES => 1,
                    name => node.allocatable.get(name),
                })
            });
            let is_blind =
                members_of(pool, snapshot) == 0 && pool.source == Source::ClusterAutoscaler;
            if is_blind {
                pool.starting > 0
            } else {
                bound.used > there
            }
        })
    });
    let unknown = pools.map(|pool| Unknown::Arriving {
        pool: pool.name.clone(),
    });
    unknown.collect()
}

fn members_of(pool: &Pool, snapshot: &Snapshot) -> usize {
    let members = pool.members.iter();
    members
        .filter(|name| snapshot.nodes.contains_key(*name))
        .count()
}

/// Nodes that accept no pods at present.
fn unusable(snapshot: &Snapshot) -> usize {
    let nodes = snapshot.nodes.values().filter(|node| {
        !node.ready || node.unschedulable || lasting(&node.taints).len() < node.taints.len()
    });
    nodes.count()
}

fn is_foreign(pod: &crate::gang::Resident) -> bool {
    pod.gang.is_none() && !pod.daemon
}
