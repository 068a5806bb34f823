//! What the wait queue of an operator holds.

use std::{collections::BTreeMap, time::Duration};

use trainyard_core::gang::PodKey;

use super::World;
use crate::{
    fleet::{coverage::Mark, draw::GPU},
    violation::{Verdict, ensure},
};

const TWICE: &str = "no GPU is given to two gangs";
const PART: &str = "a gang that waits too long holds no nodes";
const EVICTED: &str = "nobody is evicted for a gang that does not wait";
const GONE: &str = "a job that is gone holds no nodes";

/// The pods on a node, and the pods that are to go there, ask for no more GPUs than it has.
pub(super) fn no_gpu_is_assigned_twice(world: &World, number: usize) -> Verdict {
    let operator = &world.operators[number];
    let snapshot = operator.fleet.queue.snapshot();
    let mut taken: BTreeMap<&str, i64> = BTreeMap::new();
    // What somebody else took meanwhile is not the queue's.
    for resident in snapshot.pods.values().filter(|pod| pod.gang.is_some()) {
        *taken.entry(&resident.node).or_default() += resident.requests.get(GPU);
    }
    for holding in operator.fleet.queue.holdings() {
        for (pod, node) in holding.assigned {
            let name = PodKey {
                namespace: holding.key.namespace.clone(),
                name: pod.clone(),
            };
            let resident = snapshot.pods.get(&name);
            if resident.is_none_or(|resident| resident.node != *node) {
                *taken.entry(node).or_default() += holding.requests(pod).get(GPU);
            }
        }
    }
    for (name, gpus) in taken {
        let known = snapshot.nodes.get(name);
        let most = known.map_or(i64::MAX, |node| node.allocatable.get(GPU));
        ensure!(TWICE, gpus <= most, "{gpus} of {most} GPUs of `{name}`");
    }
    Ok(())
}

/// A gang without enough nodes holds those that it has no longer than it may take to start.
pub(super) fn nobody_holds_a_part_for_long(world: &World, number: usize) -> Verdict {
    let now = world.timestamp();
    let operator = &world.operators[number];
    let pods = &operator.fleet.queue.snapshot().pods;
    for holding in operator.fleet.queue.holdings() {
        let Some(since) = holding.waits_since else {
            continue;
        };
        let Some(view) = operator.view.jobs.get(holding.key) else {
            continue;
        };
        let runs = pods
            .values()
            .any(|pod| pod.gang.as_ref() == Some(holding.key));
        let minimum = view.minimum();
        let is_part = !holding.assigned.is_empty() && holding.assigned.len() < minimum;
        let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        ensure!(
            PART,
            runs || !is_part || waited <= view.job.settings.start_within,
            "{} waits for {waited:?} with {:?}",
            holding.key,
            holding.assigned
        );
    }
    Ok(())
}

/// A gang has to leave only as long as the one that it leaves for waits.
pub(super) fn evictions_have_a_beneficiary(world: &World, number: usize) -> Verdict {
    let queue = &world.operators[number].fleet.queue;
    for victim in queue.holdings() {
        let Some(eviction) = victim.evicted else {
            continue;
        };
        let mut others = queue.holdings();
        let waits = others.any(|other| {
            other.waits_since.is_some() && other.key.to_string() == eviction.beneficiary
        });
        ensure!(
            EVICTED,
            waits,
            "{} is evicted for `{}`",
            victim.key,
            eviction.beneficiary
        );
    }
    Ok(())
}

/// Nodes of a job that does not exist are free.
pub(super) fn jobs_that_are_gone_hold_nothing(world: &World, number: usize) -> Verdict {
    let operator = &world.operators[number];
    for holding in operator.fleet.queue.holdings() {
        let exists = operator.view.jobs.contains_key(holding.key);
        let is_noticed =
            !operator.due.contains(holding.key) && !operator.busy.contains_key(holding.key);
        ensure!(
            GONE,
            exists || !is_noticed || holding.assigned.is_empty(),
            "{} holds {:?}",
            holding.key,
            holding.assigned
        );
    }
    Ok(())
}

/// Remembers who is evicted, and for whom.
pub(super) fn note_evictions(world: &mut World, number: usize) {
    let holdings = world.operators[number].fleet.queue.holdings();
    let evicted: Vec<_> = holdings
        .filter_map(|holding| {
            let eviction = holding.evicted?;
            Some((holding.key.clone(), eviction.beneficiary.clone()))
        })
        .collect();
    for (key, beneficiary) in evicted {
        if world.facts.evicted.insert(key) {
            world.coverage.mark(Mark::Evicted);
            world.disturb_eviction(&beneficiary);
        }
    }
}
