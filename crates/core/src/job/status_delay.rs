//! Which status may be written a little later.
//!
//! While the pods of a gang come up, its status changes with each of them, and with a thousand jobs at once these writes
//! would be most of the load on the API server. What only counts pods, says what they wait for, or books time is read by
//! people, so it is written at most once in [`PROGRESS_EVERY`]; what a decision rests on is written at once.

use std::time::Duration;

use super::{Decision, JobStatus};

/// How often the status of a job is written where only its progress changed.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Whether the status of `decision` may wait: it differs from `before` only in how far the pods are, and no action or
/// event depends on it.
pub fn may_wait(before: &JobStatus, decision: &Decision) -> bool {
    if !decision.actions.is_empty() || !decision.events.is_empty() {
        return false;
    }
    let mut after = decision.status.clone();
    after.replica_statuses.clone_from(&before.replica_statuses);
    let record = &mut after.trainyard;
    record.waiting.clone_from(&before.trainyard.waiting);
    record.formed = before.trainyard.formed;
    record.seen = before.trainyard.seen;
    record.ledger.clone_from(&before.trainyard.ledger);
    record.progress.clone_from(&before.trainyard.progress);
    if let (Some(after), Some(before)) = (&mut record.checkpoint, &before.trainyard.checkpoint) {
        after.newest.clone_from(&before.newest);
        after.uncommitted = before.uncommitted;
        after.why.clone_from(&before.why);
        after.unreadable_since = before.unreadable_since;
        after.counted_step = before.counted_step;
    }
    after == *before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{
            Action, CheckpointRecord, ConditionType, Decision, EventKind, RoleStatus, conditions,
        },
        reason::{Reason, StoredReason},
        spec::{Kind, Role},
    };

    fn waiting(reason: &Reason) -> JobStatus {
        let mut status = JobStatus::default();
        status.trainyard.attempt = 1;
        status.trainyard.checkpoint = Some(CheckpointRecord::default());
        status.trainyard.waiting = Some(StoredReason::from(reason));
        status
    }

    fn starting(pending: u32) -> Reason {
        Reason::PodsStarting {
            missing: 0,
            wanted: 8,
            pending,
        }
    }

    fn decision(status: JobStatus) -> Decision {
        Decision {
            actions: Vec::new(),
            status,
            events: Vec::new(),
            reasons: Vec::new(),
            wake_at: None,
            gang: None,
        }
    }

    #[test]
    fn only_progress_may_wait() {
        type Change = fn(&mut Decision);
        let cases: [(&str, bool, Change); 10] = [
            ("nothing", true, |_| {}),
            ("counts", true, |decision| {
                let active = RoleStatus {
                    active: 3,
                    ..RoleStatus::default()
                };
                decision
                    .status
                    .replica_statuses
                    .insert(Role::Worker, active);
                decision.status.trainyard.formed = true;
                decision.status.trainyard.seen = 7;
            }),
            ("words", true, |decision| {
                decision.status = waiting(&starting(2));
            }),
            ("another reason", true, |decision| {
                decision.status = waiting(&Reason::LookingForNodes);
            }),
            ("a checkpoint", true, |decision| {
                let checkpoint = decision.status.trainyard.checkpoint.as_mut().unwrap();
                checkpoint.uncommitted = Some(7);
                checkpoint.why = Some("odd".to_owned());
                checkpoint.counted_step = Some(6);
            }),
            ("what an attempt resumes from", false, |decision| {
                let checkpoint = decision.status.trainyard.checkpoint.as_mut().unwrap();
                checkpoint.resume_step = Some(6);
            }),
            ("an attempt", false, |decision| {
                decision.status.trainyard.attempt = 2;
            }),
            ("a condition", false, |decision| {
                let change = (
                    ConditionType::Running,
                    crate::job::ConditionStatus::True,
                    "Running",
                );
                let at = jiff::Timestamp::UNIX_EPOCH;
                let conditions = &mut decision.status.conditions;
                conditions::set(conditions, Kind::PyTorch, change, String::new(), at);
            }),
            ("an action", false, |decision| {
                decision.actions.push(Action::AskSeats);
            }),
            ("an event", false, |decision| {
                decision.events.push(crate::job::Event {
                    kind: EventKind::Normal,
                    reason: "Other".to_owned(),
                    message: String::new(),
                });
            }),
        ];
        let before = waiting(&starting(8));
        for (name, may, change) in cases {
            let mut decision = decision(before.clone());
            change(&mut decision);
            assert_eq!(may_wait(&before, &decision), may, "{name}");
        }
    }
}
