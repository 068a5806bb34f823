//! The list of conditions is well formed.

use trainyard_core::job::{ConditionStatus, ConditionType, JobStatus};

use super::{Verdict, ensure, is_terminal, says};

const CLOCK: &str = "the clock of the job starts once, and again at a resume";
const FORMED: &str = "conditions are well formed";

/// Users read the last entry as the state, and scripts look entries up by type.
pub(super) fn well_formed(status: &JobStatus) -> Verdict {
    let conditions = &status.conditions;
    for (at, condition) in conditions.iter().enumerate() {
        let twice = conditions[..at]
            .iter()
            .any(|other| other.kind == condition.kind);
        ensure!(FORMED, !twice, "{} is there twice", condition.kind.name());
        ensure!(
            FORMED,
            condition.last_transition_time <= condition.last_update_time,
            "{} changed after it was written",
            condition.kind.name()
        );
    }
    if let Some(first) = conditions.first() {
        ensure!(
            FORMED,
            conditions
                .iter()
                .any(|condition| condition.kind == ConditionType::Created),
            "the list begins with {} and has no Created",
            first.kind.name()
        );
    }
    if let Some(last) = conditions.last() {
        ensure!(
            FORMED,
            !matches!(
                last.kind,
                ConditionType::Degraded | ConditionType::TransportVerified
            ),
            "{} is the last",
            last.kind.name()
        );
        if is_terminal(status) {
            ensure!(
                FORMED,
                matches!(last.kind, ConditionType::Succeeded | ConditionType::Failed)
                    && last.status == ConditionStatus::True,
                "the job has ended and {} is the last",
                last.kind.name()
            );
        }
    }
    let running = says(status, ConditionType::Running);
    ensure!(
        FORMED,
        !(running && is_terminal(status)),
        "it has ended and runs"
    );
    ensure!(
        FORMED,
        !(running && says(status, ConditionType::Suspended)),
        "it is suspended and runs"
    );
    let both = conditions
        .iter()
        .any(|condition| condition.kind == ConditionType::Running)
        && conditions
            .iter()
            .any(|condition| condition.kind == ConditionType::Restarting)
        && running;
    ensure!(FORMED, !both, "it runs and restarts");
    ensure!(
        FORMED,
        !(says(status, ConditionType::Succeeded) && says(status, ConditionType::Failed)),
        "it has succeeded and failed"
    );
    Ok(())
}

/// `startTime`, from which the deadline counts, only changes when a suspension ends.
pub(super) fn clock_is_kept(before: &JobStatus, after: &JobStatus) -> Verdict {
    let resumed = says(before, ConditionType::Suspended) && !says(after, ConditionType::Suspended);
    ensure!(
        CLOCK,
        before.start_time.is_none() || resumed || before.start_time == after.start_time,
        "it started at {:?} and at {:?}",
        before.start_time,
        after.start_time
    );
    Ok(())
}
