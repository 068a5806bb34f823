//! `runPolicy.activeDeadlineSeconds`, timed: the pass at the deadline is asked for.

use std::time::Duration;

use super::{mutant, pass::Pass};

/// Whether the job was active for as long as it may be; asks to be woken when it will have been.
pub(super) fn passed(pass: &mut Pass<'_>) -> bool {
    let (Some(seconds), Some(start)) = (
        pass.job.run_policy.active_deadline_seconds,
        pass.status.start_time,
    ) else {
        return false;
    };
    // A deadline beyond the end of time is none.
    let Ok(at) = start.checked_add(Duration::from_secs(seconds)) else {
        return false;
    };
    if pass.now >= at {
        return true;
    }
    if !mutant::is(mutant::Mutant::SleepsThroughDeadline) {
        pass.wake(at);
    }
    false
}
