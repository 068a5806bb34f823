//! An attempt whose ranks talk over something else than the job requires is not left running.

use trainyard_core::{job::ConditionType, reason::Code};

use super::{Pass, Verdict, ensure, is_terminal, says};
use crate::world::transport::WRONG;

const ENDED: &str = "an attempt over another transport than is required ends";
const GOES_ON: &str = "an attempt over the required transport is not ended for it";

/// What a pass sees of transports decides about the attempt, and nothing else of them does.
pub(super) fn wrong_ends_the_attempt(pass: &Pass<'_>) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    let mismatch = |event: &trainyard_core::job::Event| event.reason.ends_with("TransportMismatch");
    let ended_for_it = pass.decision.events.iter().any(mismatch);
    let told = pass.observed.transports.as_ref();
    let told = told.filter(|told| told.attempt == before.trainyard.attempt);
    let wrong = told.is_some_and(|told| {
        let mut ranks = told.ranks.iter();
        ranks.any(|rank| rank.transports.iter().any(|name| name == WRONG))
    });
    ensure!(GOES_ON, wrong || !ended_for_it, "nothing wrong was told");
    let unread = pass
        .decision
        .reasons
        .iter()
        .any(|reason| reason.code == Code::StaleView);
    let over = is_terminal(after)
        || unread
        || pass.job.run_policy.suspend
        || pass.observed.being_deleted
        || says(before, ConditionType::Suspended);
    ensure!(
        ENDED,
        !wrong || over || after.trainyard.attempt > before.trainyard.attempt,
        "attempt {} goes on",
        after.trainyard.attempt
    );
    Ok(())
}
