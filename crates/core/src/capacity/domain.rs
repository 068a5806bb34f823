//! Gangs that want one domain, and new nodes of which nobody says in which domain they come.

use std::collections::BTreeSet;

use super::{
    Answer, Offer, Unknown,
    answer::Attempt,
    candidate::Candidate,
    search::{Found, Outcome},
    world::World,
};
use crate::{
    gang::{Gang, topology::HOST},
    spec::Wish,
};

/// Whether the gang fits if new nodes come in one domain of the level that it asks for, which nobody says. `wanted` is the number of
/// pods that the job has.
pub(super) fn may_fit_in_domain(
    world: &mut World,
    gang: &Gang,
    wanted: usize,
    offer: &Offer,
) -> Option<Answer> {
    let Some(Wish::Required(level)) = &gang.wish else {
        return None;
    };
    if level == HOST {
        return None;
    }
    let mut relaxed = gang.clone();
    relaxed.wish = None;
    let mut attempt = Attempt::new(world, &relaxed, offer);
    let key = world.snapshot.topology.find(level);
    let key = key.map_or(level, |at| &world.snapshot.topology.levels[at].key);
    let key = key.clone();
    let is_open = |own: &Candidate| own.shape.is_some() && !own.node.labels.contains_key(&key);
    let mut open: Vec<usize> = Vec::new();
    for own in attempt.candidates.iter().filter(|own| is_open(own)) {
        let mut shapes = gang.shapes.iter();
        if shapes.any(|shape| own.obstacles(shape).is_empty()) && world.room.of(own) > 0 {
            open.push(own.pool);
        }
    }
    open.dedup();
    if open.is_empty() {
        return None;
    }
    let domains = |pools: &mut dyn Iterator<Item = usize>| -> Vec<Unknown> {
        let unknown = pools.map(|at| Unknown::Domain {
            pool: offer.pools[at].name.clone(),
            level: level.clone(),
        });
        unknown.collect()
    };
    let first = match attempt.run(world) {
        Outcome::Nothing => return None,
        Outcome::Undecided => None,
        Outcome::Found(found) => Some(found),
    };
    let uses_open = |attempt: &Attempt<'_>, found: &Found| {
        let mut kinds = found.plan.iter();
        kinds.any(|(at, _)| is_open(&attempt.candidates[*at]))
    };
    let mut found = first.filter(|found| uses_open(&attempt, found));
    if found.is_none() {
        // The cheapest nodes are not the only ones.
        attempt.candidates.retain(is_open);
        world.rewind();
        if let Outcome::Found(own) = attempt.run(world) {
            found = Some(own);
        }
    }
    let Some(found) = found else {
        // Some of the nodes may come into a domain that has others.
        return Some(Answer::MayFit {
            unknown: domains(&mut open.into_iter()),
            order: None,
        });
    };
    let kinds = found.plan.iter().map(|(at, _)| &attempt.candidates[*at]);
    let pools: BTreeSet<usize> = kinds
        .filter(|own| is_open(own))
        .map(|own| own.pool)
        .collect();
    let mut unknown = attempt.unknown(&found);
    unknown.extend(domains(&mut pools.into_iter()));
    Some(Answer::MayFit {
        unknown,
        order: Some(attempt.order(&found, wanted)),
    })
}
