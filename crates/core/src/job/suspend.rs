//! `runPolicy.suspend`: a suspended job has no pods, and starts a new attempt when it is resumed.

use super::{
    ConditionStatus, ConditionType, EventKind, EventReason, conditions, messages, mutant,
    pass::Pass,
};
use crate::{ledger::Phase, reason::Reason};

/// Deletes every pod and Service, and sets the condition.
pub(super) fn suspend(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    super::cleanup::remove_everything(pass);
    pass.status.trainyard.barrier = None;
    for status in pass.status.replica_statuses.values_mut() {
        status.active = 0;
    }
    if !pass.holds(ConditionType::Suspended) {
        let message = messages::suspended(pass.job);
        let conditions = &mut pass.status.conditions;
        conditions::suspend_running(conditions, pass.job.kind, message, pass.stamp);
        conditions::set_degraded(&mut pass.status.conditions, pass.job.kind, None, pass.stamp);
        pass.hold(ConditionType::Suspended, messages::suspended(pass.job));
        pass.emit(
            EventKind::Normal,
            EventReason::Suspended,
            messages::suspended(pass.job),
        );
    }
    pass.spend_time_on(Phase::Suspended);
    let terminating = observed.pods.len();
    pass.say(Reason::Suspended { terminating });
}

/// Resumes a suspended job: its clock starts again, and so does the gang.
pub(super) fn resume(pass: &mut Pass<'_>) {
    if !pass.holds(ConditionType::Suspended) {
        return;
    }
    pass.set(
        ConditionType::Suspended,
        ConditionStatus::False,
        "Resumed",
        messages::resumed(pass.job),
    );
    pass.emit(
        EventKind::Normal,
        EventReason::Resumed,
        messages::resumed(pass.job),
    );
    pass.status.start_time = Some(pass.stamp);
    pass.status.trainyard.quick_failures = 0;
    if pass.status.trainyard.attempt > 0 && !mutant::is(mutant::Mutant::ResumesOldAttempt) {
        pass.next_attempt();
    }
}
