//! A status only reports what was true.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use trainyard_core::{
    job::{ConditionType, JobStatus, PodPhase},
    spec::{Framework, Job, Kind, Role, TfSuccess},
};

use super::{Pass, Verdict, ensure, foreign::is_foreign, is_terminal, says};
use crate::world::World;

const RAN: &str = "Running is only said of what ran";
const SUCCEEDED: &str = "Succeeded is only said of what succeeded";
const DEGRADED: &str = "Degraded is only said of an elastic job that lacks workers";
const CURRENT: &str = "a status at rest reports the present state";
const FAILED: &str = "Failed is only said after a failure";

/// The role that decides whether the job runs.
fn deciding(job: &Job) -> Role {
    let declared = |role| job.roles.contains_key(&role);
    match job.kind {
        Kind::MpiV1 | Kind::MpiV2 => Role::Launcher,
        Kind::XgBoost => Role::Master,
        _ => [Role::Chief, Role::Master]
            .into_iter()
            .find(|role| declared(*role))
            .unwrap_or(Role::Worker),
    }
}

/// A pod of the deciding role and of this attempt has run.
pub(super) fn running_ran(pass: &Pass<'_>, world: &World) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    if !says(after, ConditionType::Running)
        || (says(before, ConditionType::Running)
            && before.trainyard.attempt == after.trainyard.attempt)
    {
        return Ok(());
    }
    let (role, attempt) = (deciding(pass.job), after.trainyard.attempt);
    let ran = world
        .cluster
        .births
        .iter()
        .any(|birth| birth.ran && birth.attempt == attempt && birth.slot.role == role);
    ensure!(RAN, ran, "no {role} of attempt {attempt} has run");
    Ok(())
}

/// An elastic job has fewer workers than it wants.
pub(super) fn degraded_lacks_workers(pass: &Pass<'_>) -> Verdict {
    let after = &pass.decision.status;
    if !says(after, ConditionType::Degraded) || *after == pass.observed.status {
        return Ok(());
    }
    ensure!(
        DEGRADED,
        pass.job.elastic().is_some(),
        "the job is not elastic"
    );
    let workers = after.replica_statuses.get(&Role::Worker);
    let active = workers.map_or(0, |counts| counts.active);
    let wanted = pass.job.role_replicas(Role::Worker);
    ensure!(
        DEGRADED,
        active < wanted,
        "{active} of {wanted} workers run"
    );
    Ok(())
}

/// The pods that the kind asks for ended well, all in one attempt.
pub(super) fn success_happened(
    job: &Job,
    before: &JobStatus,
    after: &JobStatus,
    world: &World,
) -> Verdict {
    if !says(after, ConditionType::Succeeded) || says(before, ConditionType::Succeeded) {
        return Ok(());
    }
    let attempt = after.trainyard.attempt;
    let role = deciding(job);
    let done: BTreeSet<u32> = world
        .cluster
        .births
        .iter()
        .filter(|birth| birth.succeeded && birth.attempt == attempt && birth.slot.role == role)
        .map(|birth| birth.slot.index)
        .collect();
    let wanted = job.role_replicas(role);
    let all = wanted > 0 && (0..wanted).all(|index| done.contains(&index));
    let enough = match &job.framework {
        Framework::PyTorch(pytorch) if role == Role::Worker => {
            all || (pytorch.elastic.is_some() && !done.is_empty())
        }
        Framework::Tf(tf) if role == Role::Worker => {
            all || (tf.success == TfSuccess::Default && done.contains(&0))
        }
        _ => all,
    };
    ensure!(
        SUCCEEDED,
        enough,
        "of {wanted} {role} pods of attempt {attempt} only {done:?} ended well"
    );
    Ok(())
}

/// Something went wrong, or the time was up.
pub(super) fn failure_happened(
    job: &Job,
    before: &JobStatus,
    after: &JobStatus,
    world: &World,
) -> Verdict {
    if !says(after, ConditionType::Failed) || says(before, ConditionType::Failed) {
        return Ok(());
    }
    let troubled = world
        .cluster
        .births
        .iter()
        .any(|birth| birth.troubled && birth.attempt <= after.trainyard.attempt);
    let restarted = world.cluster.births.iter().any(|birth| birth.restarts > 0);
    let late = match (
        job.run_policy.active_deadline_seconds,
        before.start_time.or(after.start_time),
    ) {
        (Some(deadline), Some(start)) => {
            let deadline = SignedDuration::from_secs(i64::try_from(deadline).unwrap_or(i64::MAX));
            world.timestamp().duration_since(start) >= deadline
        }
        _ => false,
    };
    // The launcher of an MPIJob cannot start without a worker that has ended, however well.
    let ended_early = job.kind.is_mpi()
        && world.cluster.births.iter().any(|birth| {
            birth.succeeded
                && birth.slot.role == Role::Worker
                && birth.attempt == after.trainyard.attempt
        });
    ensure!(
        FAILED,
        troubled || restarted || late || ended_early || !world.cluster.evicted.is_empty(),
        "no pod had trouble and no deadline has passed"
    );
    Ok(())
}

/// When all is quiet, a job that continues counts the pods that exist. `Running` may outlast the
/// pods it was said of, as the contract has it; `waiting` then says what is missing.
pub(super) fn counts_are_current(world: &World) -> Verdict {
    let (job, status) = (&world.stored.job, &world.stored.status);
    if !world.stored.exists
        || world.stored.being_deleted
        || is_terminal(status)
        || job.run_policy.suspend
        || is_foreign(job)
    {
        return Ok(());
    }
    let running = |role: Role| {
        let pods = world.cluster.pods.iter().map(|pod| &pod.shown);
        pods.filter(|pod| pod.slot.role == role && pod.phase == PodPhase::Running)
            .count()
    };
    for (role, counts) in &status.replica_statuses {
        ensure!(
            CURRENT,
            counts.active as usize == running(*role),
            "{role} has {} active, and {} run",
            counts.active,
            running(*role)
        );
    }
    Ok(())
}
