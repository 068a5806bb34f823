//! Attempts are kept apart.

use std::collections::BTreeSet;

use trainyard_core::{
    job::{Action, ConditionType, ObservedPod, PodPhase, RoleStatus},
    spec::RestartScope,
};

use super::{Pass, Verdict, ensure, says};
use crate::world::World;

const COUNTED: &str = "pods of different attempts are never counted together";
const FITS: &str = "actions fit the view they were decided on";
const WHOLE: &str = "a gang never mixes attempts";

/// Every number in `replicaStatuses` that grows is borne out by pods of the status' own attempt.
pub(super) fn counted_apart(pass: &Pass<'_>, world: &World) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    let attempt = after.trainyard.attempt;
    let same_attempt = before.trainyard.attempt == attempt;
    let nothing = RoleStatus::default();
    for (role, now) in &after.replica_statuses {
        let old = before.replica_statuses.get(role).filter(|_| same_attempt);
        let old = old.unwrap_or(&nothing);
        let shown = |wanted: fn(&ObservedPod) -> bool| {
            let pods = pass.observed.pods.iter();
            pods.filter(|pod| pod.slot.role == *role && pod.attempt == attempt && wanted(pod))
                .count()
        };
        let running = shown(|pod| pod.phase == PodPhase::Running);
        ensure!(
            COUNTED,
            now.active <= old.active || now.active as usize <= running,
            "{role} has {} active, but attempt {attempt} has {running} that run in the view",
            now.active
        );
        let failed = shown(|pod| pod.phase == PodPhase::Failed || pod.deleted_at.is_some());
        ensure!(
            COUNTED,
            now.failed <= old.failed || now.failed as usize <= failed,
            "{role} has {} failed, but attempt {attempt} has {failed} that did in the view",
            now.failed
        );
        let births = world.cluster.births.iter();
        let done: BTreeSet<u32> = births
            .filter(|birth| birth.slot.role == *role && birth.attempt == attempt && birth.succeeded)
            .map(|birth| birth.slot.index)
            .collect();
        // With the success of the job, what still ran counts as succeeded.
        let done = done.len() + usize::from(says(after, ConditionType::Succeeded)) * running;
        ensure!(
            COUNTED,
            now.succeeded <= old.succeeded || now.succeeded as usize <= done,
            "{role} has {} succeeded, but attempt {attempt} has {done} that did",
            now.succeeded
        );
    }
    Ok(())
}

/// An action names what the view shows: a free slot to create in, an incarnation to delete.
pub(super) fn actions_fit_the_view(pass: &Pass<'_>) -> Verdict {
    let mut created = Vec::new();
    for action in &pass.decision.actions {
        match action {
            Action::CreatePod { slot, attempt, .. } => {
                let taken = pass.observed.pods.iter().find(|pod| pod.slot == *slot);
                ensure!(
                    FITS,
                    taken.is_none(),
                    "creates {slot} while {:?} is there",
                    taken.map(|pod| &pod.uid)
                );
                ensure!(FITS, !created.contains(slot), "creates {slot} twice");
                created.push(*slot);
                ensure!(
                    FITS,
                    *attempt == pass.decision.status.trainyard.attempt,
                    "creates {slot} for attempt {attempt}, the status is at {}",
                    pass.decision.status.trainyard.attempt
                );
                ensure!(
                    FITS,
                    slot.index < pass.job.role_replicas(slot.role),
                    "creates {slot}, but the role has {} replicas",
                    pass.job.role_replicas(slot.role)
                );
            }
            Action::DeletePod { slot, uid, .. } => {
                let seen = pass
                    .observed
                    .pods
                    .iter()
                    .any(|pod| pod.slot == *slot && pod.uid == *uid);
                ensure!(
                    FITS,
                    seen,
                    "deletes {uid} in {slot}, which the view does not show"
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// No pod of the next attempt is made while one of an earlier attempt is there.
pub(super) fn gang_is_whole(pass: &Pass<'_>) -> Verdict {
    if pass.job.restart_scope() != RestartScope::Gang {
        return Ok(());
    }
    for action in &pass.decision.actions {
        let Action::CreatePod { slot, attempt, .. } = action else {
            continue;
        };
        let older = pass.observed.pods.iter().find(|pod| pod.attempt < *attempt);
        ensure!(
            WHOLE,
            older.is_none(),
            "creates {slot} of attempt {attempt} while {:?} is there",
            older.map(|pod| (&pod.uid, pod.attempt))
        );
    }
    Ok(())
}
