//! Terminal means terminal.

use trainyard_core::job::{Action, ConditionType, JobStatus};

use super::{Pass, Verdict, ensure, is_terminal, says};

const STAYS: &str = "terminal stays terminal";

/// What has ended stays as it ended.
pub(super) fn stays(before: &JobStatus, after: &JobStatus) -> Verdict {
    if is_terminal(after) {
        ensure!(
            STAYS,
            after.completion_time.is_some(),
            "it has ended and no time says when"
        );
    } else {
        ensure!(
            STAYS,
            after.completion_time.is_none(),
            "it continues and has a completion time"
        );
    }
    if !is_terminal(before) {
        return Ok(());
    }
    for kind in [ConditionType::Succeeded, ConditionType::Failed] {
        ensure!(
            STAYS,
            says(before, kind) == says(after, kind),
            "{} was {} and is {}",
            kind.name(),
            says(before, kind),
            says(after, kind)
        );
    }
    ensure!(
        STAYS,
        before.completion_time == after.completion_time,
        "completion time went from {:?} to {:?}",
        before.completion_time,
        after.completion_time
    );
    ensure!(
        STAYS,
        before.trainyard.attempt == after.trainyard.attempt
            && before.trainyard.spent == after.trainyard.spent,
        "an ended job pays or tries again"
    );
    Ok(())
}

/// A job that has ended creates nothing, even if its pods were deleted.
pub(super) fn creates_nothing(pass: &Pass<'_>) -> Verdict {
    if !is_terminal(&pass.decision.status) && !pass.observed.being_deleted {
        return Ok(());
    }
    let created = pass.decision.actions.iter().find(|action| {
        matches!(
            action,
            Action::CreatePod { .. }
                | Action::CreateService(_)
                | Action::ApplyShared(_)
                | Action::ApplyAutoscaler
                | Action::ApplyGroup
        )
    });
    ensure!(
        STAYS,
        created.is_none(),
        "the job has ended or is being deleted, and {created:?} is decided"
    );
    Ok(())
}
