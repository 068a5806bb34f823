//! What must have come about some time after the chaos.

use trainyard_core::job;

use super::World;
use crate::{
    fleet::jobs::StoredJob,
    violation::{Verdict, ensure},
};

const FIT: &str = "every fit node leaves probation";
const BLAMED: &str = "every node that a job blamed is tried";
const RETURNS: &str = "an evicted gang gets nodes again";
const STARTS: &str = "every job that fits has started and ended";
const REASON: &str = "a job that cannot start says why and holds nothing";

/// All nodes are fit by now.
pub(super) fn no_node_is_on_probation(world: &World) -> Verdict {
    let mut nodes = world.nodes.iter();
    let left = nodes.find(|(_, node)| node.node.is_on_probation());
    ensure!(
        FIT,
        left.is_none(),
        "{:?} is on probation",
        left.map(|(name, _)| name)
    );
    Ok(())
}

/// No node in use waits for a trial.
pub(super) fn blamed_nodes_were_tried(world: &World) -> Verdict {
    let blamed = world
        .leader
        .map(|number| &world.operators[number].facts.blamed);
    ensure!(
        BLAMED,
        blamed.is_some_and(|blamed| blamed.iter().all(|name| !world.nodes.contains_key(name))),
        "{blamed:?} wait"
    );
    Ok(())
}

/// Whether a job is to run: it wants to, it can, and it has not ended.
fn is_to_run(world: &World, job: &StoredJob) -> bool {
    !job::has_ended(&job.status)
        && !job.being_deleted
        && !job.job.run_policy.suspend
        && world.fits(job)
}

/// A gang that had to leave has come back, unless its job ended.
pub(super) fn evicted_gangs_returned(world: &World) -> Verdict {
    for key in &world.facts.evicted {
        let job = world.jobs.get(key).filter(|job| is_to_run(world, job));
        ensure!(
            RETURNS,
            job.is_none(),
            "{key}: {:?}",
            job.and_then(|job| job.status.trainyard.waiting.as_ref())
        );
    }
    Ok(())
}

/// Pods do not fail any more, so a job that can start ends.
pub(super) fn jobs_that_fit_have_ended(world: &World) -> Verdict {
    for (key, job) in &world.jobs {
        ensure!(
            STARTS,
            !is_to_run(world, job) && !job.being_deleted,
            "{key}: {:?}",
            job.status.trainyard.waiting
        );
    }
    Ok(())
}

/// The others wait: with a reason, and without a pod that could take anything.
pub(super) fn others_wait_for_a_reason(world: &World) -> Verdict {
    for (key, job) in &world.jobs {
        if job::has_ended(&job.status) {
            continue;
        }
        let waiting = job.status.trainyard.waiting.as_ref();
        let holds = world
            .pods
            .values()
            .any(|pod| pod.owner == job.uid && !pod.shown.gated);
        ensure!(
            REASON,
            waiting.is_some_and(|reason| !reason.message.is_empty()) && !holds,
            "{key}: {waiting:?}, holds something: {holds}"
        );
    }
    Ok(())
}
