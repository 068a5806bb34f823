//! `trainyard.dev/restart`: one new attempt of the whole gang because the user asks for it.
//!
//! The request is a text, and the status remembers the last one that was answered. So a request is
//! answered once, however often it is repeated, and an operator that is killed in between neither loses nor
//! doubles it.
//!
//! Invariant: a restart that was asked for is charged to no account.

use super::{ConditionType, EventKind, EventReason, messages, mutant, pass::Pass};

/// Begins the next attempt where one is asked for and not yet begun.
pub(super) fn restart(pass: &mut Pass<'_>) {
    let asked = pass.job.settings.restart.is_some()
        && pass.job.settings.restart != pass.status.trainyard.restart;
    if !asked || mutant::is(mutant::Mutant::IgnoresRestart) {
        return;
    }
    pass.next_attempt();
    // The user has seen what failed.
    pass.status.trainyard.quick_failures = 0;
    if let Some(stuck) = &mut pass.status.trainyard.without_progress {
        stuck.attempts = 0;
    }
    let message = messages::asked_to_restart(pass.job);
    pass.hold(ConditionType::Restarting, message.clone());
    pass.emit(EventKind::Normal, EventReason::Restarting, message);
}
