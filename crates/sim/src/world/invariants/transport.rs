//! An attempt whose ranks use another transport than the job requires does not continue.

use trainyard_core::{
    job::{ConditionType, Event, EventReason},
    reason::Code,
};

use super::{Pass, Verdict, ensure, is_terminal, says};
use crate::world::transport::WRONG;

const ENDED: &str = "an attempt over another transport than is required ends";
const CONTINUES: &str = "an attempt over the required transport is not ended for it";

/// What a pass sees of transports decides about the attempt, and nothing else of them does.
pub(super) fn wrong_ends_the_attempt(pass: &Pass<'_>) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    let mismatch = |event: &Event| EventReason::TransportMismatch.is(&event.reason);
    let ended_for_it = pass.decision.events.iter().any(mismatch);
    let reported = pass.observed.transports.as_ref();
    let reported = reported.filter(|reported| reported.attempt == before.trainyard.attempt);
    let wrong = reported.is_some_and(|reported| {
        let mut ranks = reported.ranks.iter();
        ranks.any(|rank| rank.transports.iter().any(|name| name == WRONG))
    });
    ensure!(
        CONTINUES,
        wrong || !ended_for_it,
        "no wrong transport was reported"
    );
    let unread = pass
        .decision
        .reasons
        .iter()
        .any(|reason| reason.code() == Code::StaleView);
    let over = is_terminal(after)
        || unread
        || pass.job.run_policy.suspend
        || pass.observed.being_deleted
        || says(before, ConditionType::Suspended);
    ensure!(
        ENDED,
        !wrong || over || after.trainyard.attempt > before.trainyard.attempt,
        "attempt {} continues",
        after.trainyard.attempt
    );
    Ok(())
}
