//! A gang starts whole or not at all, on nodes that may have it, and no GPU is used twice.

use std::{collections::BTreeMap, time::Duration};

use trainyard_core::job::{self, Action, PodPhase, Seat, Seating};

use super::{Operator, Pass, World};
use crate::{
    fleet::{nodes::StoredNode, pods::StoredPod},
    violation::{Verdict, ensure},
};

const USED: &str = "no GPU is used twice";
const PROMISED: &str = "no GPU is assigned to two pods";
const WHOLE: &str = "a gang starts whole or not at all";
const PART: &str = "a gang that runs only in part is given up";
const OPEN: &str = "no pod is assigned to a node that is closed";
const AVOID: &str = "a node that did not serve a gang is not given to it again soon";

/// A node that did not serve is avoided for this long.
const AVOIDED_FOR: Duration = Duration::from_mins(5);
/// For how long an operator may be away or see nothing, in milliseconds.
const SLACK: i64 = 240_000;

/// The nodes that a decision assigns to pods.
fn assigned<'a>(pass: &'a Pass<'_>) -> impl Iterator<Item = &'a String> {
    pass.decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::CreatePod {
                seat: Seat::Node(node),
                ..
            }
            | Action::SeatPod { node, .. } => Some(node),
            _ => None,
        })
}

/// No pod starts before as many have a node as the gang needs.
pub(super) fn start_whole(pass: &Pass<'_>) -> Verdict {
    let opens = |action: &Action| {
        matches!(
            action,
            Action::CreatePod {
                seat: Seat::Open,
                ..
            }
        )
    };
    ensure!(
        WHOLE,
        !pass.decision.actions.iter().any(opens),
        "{} creates pods that may go anywhere",
        pass.key
    );
    if assigned(pass).next().is_none() {
        return Ok(());
    }
    let minimum = pass.view.minimum();
    let record = &pass.decision.status.trainyard;
    let has_node = |slot| match &pass.observed.seating {
        Seating::Given(seats) => seats.contains_key(&slot) || record.has_succeeded(slot),
        _ => false,
    };
    let ready = pass.view.job.slots().filter(|slot| has_node(*slot)).count();
    ensure!(
        WHOLE,
        ready >= minimum,
        "{} starts pods when {ready} of at least {minimum} have nodes",
        pass.key
    );
    Ok(())
}

/// Pods are assigned only to nodes that are known to be open.
pub(super) fn go_to_open_nodes(pass: &Pass<'_>, operator: &Operator) -> Verdict {
    for name in assigned(pass) {
        let node = operator.fleet.queue.snapshot().nodes.get(name);
        let is_open =
            node.is_some_and(|node| node.ready && !node.unschedulable && !node.is_on_probation());
        ensure!(OPEN, is_open, "{} goes to `{name}`: {node:?}", pass.key);
    }
    Ok(())
}

/// A gang is not assigned a node again that did not serve it a short time ago.
pub(super) fn avoid_nodes_that_did_not_serve(pass: &Pass<'_>, operator: &Operator) -> Verdict {
    let Some(avoided) = operator.facts.avoided.get(pass.key) else {
        return Ok(());
    };
    for name in assigned(pass) {
        let until = avoided.get(name).map(|since| *since + AVOIDED_FOR);
        ensure!(
            AVOID,
            until.is_none_or(|until| until <= pass.now),
            "{} goes to `{name}`, which it avoids until {until:?}",
            pass.key
        );
    }
    Ok(())
}

/// The pods that are bound to a node use no more GPUs than it has.
pub(super) fn no_gpu_is_used_twice(world: &World) -> Verdict {
    for (name, node) in &world.nodes {
        let used = world.used_gpus(name);
        ensure!(
            USED,
            used <= node.gpus(),
            "{used} of {} GPUs of `{name}` are used",
            node.gpus()
        );
    }
    Ok(())
}

/// The pods that are bound or assigned to a node ask for no more GPUs than it has.
pub(super) fn no_gpu_is_promised_twice(world: &World) -> Verdict {
    let mut promised: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in world
        .pods
        .values()
        .filter(|pod| !pod.has_ended() && !pod.is_foreign())
    {
        let node = pod.shown.node.as_ref().or(pod.tied.as_ref());
        if let Some(node) = node.filter(|_| is_kept(world, pod)) {
            *promised.entry(node).or_default() += pod.gpus();
        }
    }
    for (name, gpus) in promised {
        let most = world.nodes.get(name).map_or(i64::MAX, StoredNode::gpus);
        ensure!(
            PROMISED,
            gpus <= most,
            "{gpus} of {most} GPUs of `{name}` are assigned"
        );
    }
    Ok(())
}

/// Whether an assignment still counts: the pod is bound, or waits and is of an attempt that has not given its nodes back.
fn is_kept(world: &World, pod: &StoredPod) -> bool {
    let job = world.jobs.get(&pod.job).filter(|job| job.uid == pod.owner);
    let is_released = job.is_none_or(|job| {
        let record = &job.status.trainyard;
        pod.shown.attempt <= record.released
            || job::has_ended(&job.status)
            || job.job.run_policy.suspend
    });
    pod.shown.node.is_some() || !is_released && pod.shown.deleted_at.is_none()
}

/// A gang of which only a part runs gives its nodes back after its start limit.
pub(super) fn partial_gangs_are_given_up(world: &mut World) -> Verdict {
    let now = world.now;
    let mut partial = BTreeMap::new();
    for (key, job) in &world.jobs {
        let record = &job.status.trainyard;
        let is_over = job::has_ended(&job.status) || job.being_deleted;
        if record.gang.has_run() || is_over || job.job.run_policy.suspend {
            continue;
        }
        let pods = world.pods.values().filter(|pod| {
            pod.owner == job.uid
                && pod.shown.attempt == record.attempt
                && pod.shown.deleted_at.is_none()
        });
        let (mut started, mut run) = (0, 0);
        for pod in pods {
            started += usize::from(!pod.shown.gated);
            let counts = matches!(pod.shown.phase, PodPhase::Running | PodPhase::Succeeded);
            run += usize::from(counts);
        }
        let minimum = job.minimum();
        if started == 0 || run >= minimum {
            continue;
        }
        let id = (job.uid.clone(), record.attempt);
        let since = world.facts.partial.get(&id).copied().unwrap_or(now);
        let limit = i64::try_from(job.job.settings.start_within.as_millis()).unwrap_or(i64::MAX);
        ensure!(
            PART,
            now - since <= limit + SLACK,
            "{run} of {minimum} pods of {key} run for {} ms",
            now - since
        );
        partial.insert(id, since);
    }
    world.facts.partial = partial;
    Ok(())
}
