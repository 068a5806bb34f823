//! Attempts are kept apart.

use trainyard_core::{
    job::{Action, ConditionType, PodPhase},
    spec::RestartScope,
};

use super::{Pass, Verdict, ensure, says};
use crate::world::World;

const COUNTED: &str = "pods of different attempts are never counted together";
const FITS: &str = "actions fit the view they were decided on";
const WHOLE: &str = "a gang never mixes attempts";

/// Every number in `replicaStatuses` is borne out by pods of the status' own attempt.
pub(super) fn counted_apart(pass: &Pass<'_>, world: &World) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    let attempt = after.trainyard.attempt;
    if before.replica_statuses == after.replica_statuses && before.trainyard.attempt == attempt {
        return Ok(());
    }
    for (role, counts) in &after.replica_statuses {
        let of_attempt = || {
            pass.observed
                .pods
                .iter()
                .filter(|pod| pod.slot.role == *role && pod.attempt == attempt)
        };
        let running = of_attempt()
            .filter(|pod| matches!(pod.phase, PodPhase::Running | PodPhase::Unknown))
            .count();
        let unended = of_attempt()
            .filter(|pod| pod.phase != PodPhase::Succeeded)
            .count();
        let succeeded: std::collections::BTreeSet<u32> = world
            .births
            .iter()
            .filter(|birth| birth.slot.role == *role && birth.attempt == attempt && birth.succeeded)
            .map(|birth| birth.slot.index)
            .collect();
        let ended = says(after, ConditionType::Succeeded);
        let may_succeed = succeeded.len()
            + if ended {
                running + counts_before(pass, *role)
            } else {
                0
            };
        ensure!(
            COUNTED,
            counts.active as usize <= running,
            "{role} has {} active, but attempt {attempt} has {running} that run in the view",
            counts.active
        );
        ensure!(
            COUNTED,
            counts.succeeded as usize <= may_succeed,
            "{role} has {} succeeded, but attempt {attempt} has {may_succeed} that did",
            counts.succeeded
        );
        ensure!(
            COUNTED,
            (counts.active + counts.failed) as usize <= unended,
            "{role} has {} active and {} failed, but attempt {attempt} has {unended} such pods in the view",
            counts.active,
            counts.failed
        );
    }
    Ok(())
}

fn counts_before(pass: &Pass<'_>, role: trainyard_core::spec::Role) -> usize {
    let before = pass.observed.status.replica_statuses.get(&role);
    before.map_or(0, |counts| counts.active as usize)
}

/// An action names what the view shows: a free slot to create in, an incarnation to delete.
pub(super) fn actions_fit_the_view(pass: &Pass<'_>) -> Verdict {
    let mut created = Vec::new();
    for action in &pass.decision.actions {
        match action {
            Action::CreatePod { slot, attempt } => {
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
        let Action::CreatePod { slot, attempt } = action else {
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
