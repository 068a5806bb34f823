//! Every job ends, or says what it waits for.

use trainyard_core::{
    job::{ConditionType, FailedBy, PodPhase, Wait},
    reason::Code,
};

use super::{Pass, Verdict, ensure, foreign, is_terminal, says};
use crate::{coverage::Mark, world::World};

const WHY: &str = "every pass gives a reason";
const WAKES: &str = "a wake-up is in the future";
const ENDS: &str = "every job ends or reports what it waits for";
const LOOP: &str = "no hot loop";
const ASKED: &str = "a restart that is asked for is begun";

/// A quiet world needs no more passes than this for one job: each of its pods starts, becomes
/// ready and ends a few times.
const QUIET_PASSES: u64 = 1_500;

/// Every pass has a reason.
pub(super) fn says_why(pass: &Pass<'_>) -> Verdict {
    ensure!(
        WHY,
        !pass.decision.reasons.is_empty(),
        "the pass gives no reason"
    );
    Ok(())
}

/// A wake-up in the past or now is a loop.
pub(super) fn wakes_later(pass: &Pass<'_>) -> Verdict {
    if let Some(wake_at) = pass.decision.wake_at {
        ensure!(
            WAKES,
            wake_at > pass.now,
            "wakes at {wake_at}, it is {}",
            pass.now
        );
    }
    Ok(())
}

/// When all is quiet, the job is over or waits for something that is true.
pub(super) fn ends_or_explains(world: &World) -> Verdict {
    let passes = world.controllers.passes - world.controllers.passes_before_quiet;
    ensure!(
        LOOP,
        passes <= QUIET_PASSES,
        "{passes} passes in a quiet world"
    );
    if !world.stored.exists
        || is_terminal(&world.stored.status)
        || foreign::is_foreign(&world.stored.job)
    {
        return Ok(());
    }
    ensure!(
        ENDS,
        !world.controllers.last_reasons.is_empty(),
        "nothing happens and no pass gave a reason"
    );
    if world.stored.being_deleted {
        return Ok(());
    }
    let (asked, begun) = (
        &world.stored.job.settings.restart,
        &world.stored.status.trainyard.restart,
    );
    ensure!(
        ASKED,
        asked.is_none() || asked == begun || world.stored.job.run_policy.suspend,
        "{asked:?} is asked for, {begun:?} is the last that was begun"
    );
    for reason in &world.controllers.last_reasons {
        let phase = |wanted: PodPhase| {
            world
                .cluster
                .pods
                .iter()
                .any(|pod| pod.shown.phase == wanted)
        };
        let holds = match reason.code() {
            Code::Suspended => world.stored.job.run_policy.suspend,
            Code::WaitingForSeats => phase(PodPhase::Pending) || world.is_queued_without_seats(),
            Code::WaitingForPods | Code::WaitingForWorkers => {
                phase(PodPhase::Pending)
                    || phase(PodPhase::Running)
                    || world.is_queued_without_seats()
            }
            Code::Training | Code::Degraded => phase(PodPhase::Running),
            Code::Refused => world
                .cluster
                .pods
                .iter()
                .any(|pod| matches!(pod.shown.wait, Some(Wait::PullFailed(_)))),
            Code::NothingToRun => world
                .stored
                .job
                .roles
                .values()
                .any(|spec| spec.replicas == 0),
            // These pass: a quiet world has no such thing left to wait for.
            _ => false,
        };
        ensure!(
            ENDS,
            holds,
            "nothing happens any more, and the job says {:?}: {}",
            reason.code(),
            reason
        );
    }
    Ok(())
}

/// How the life of the job ended.
pub(crate) fn ending(world: &World) -> Mark {
    let status = &world.stored.status;
    if foreign::is_foreign(&world.stored.job) {
        return Mark::EndForeign;
    }
    if !world.stored.exists || world.stored.being_deleted {
        return if world.deleted_by_user() {
            Mark::EndDeleted
        } else {
            Mark::EndTtl
        };
    }
    if says(status, ConditionType::Succeeded) {
        return Mark::EndSucceeded;
    }
    if says(status, ConditionType::Failed) {
        return if status.trainyard.failed_by == Some(FailedBy::DeadlineExceeded) {
            Mark::EndDeadline
        } else {
            Mark::EndFailed
        };
    }
    if world.stored.job.run_policy.suspend {
        Mark::EndSuspended
    } else if says(status, ConditionType::Running) {
        Mark::EndRuns
    } else {
        Mark::EndWaits
    }
}
