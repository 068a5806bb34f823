//! A decision is settled: looking again changes nothing until it said that it would.

use jiff::{SignedDuration, Timestamp};

use super::{Pass, Verdict, ensure};
use crate::Decide;

const SETTLED: &str = "a second look changes nothing";

/// Decides again on the same view and the status just decided, as late as `wake_at` allows. A
/// timer that `wake_at` forgets shows here: nothing may change before it.
pub(crate) fn check_second_look(pass: &Pass<'_>, decide: Decide) -> Verdict {
    let latest = match pass.decision.wake_at {
        Some(wake_at) => before(wake_at),
        None => pass.now + SignedDuration::from_hours(24 * 365),
    };
    let mut observed = pass.observed.clone();
    observed.status = pass.decision.status.clone();
    // The order in which pods are listed says nothing.
    observed.pods.reverse();
    for now in [pass.now, latest.max(pass.now)] {
        let second = decide(pass.job, &observed, now);
        ensure!(
            SETTLED,
            second.status == pass.decision.status,
            "at {now} the status went from {:?} to {:?}",
            pass.decision.status,
            second.status
        );
        ensure!(
            SETTLED,
            second.events.is_empty(),
            "at {now} it emits {:?}",
            second.events
        );
        for action in &second.actions {
            ensure!(
                SETTLED,
                pass.decision.actions.contains(action),
                "at {now} it adds {action:?} to {:?}",
                pass.decision.actions
            );
        }
    }
    Ok(())
}

fn before(time: Timestamp) -> Timestamp {
    time - SignedDuration::from_millis(1)
}
