//! What must hold, whatever goes wrong.
//!
//! Each invariant is a function of its own with a name that a person understands. It looks at the
//! truth of the world (what was born, ran and ended), never at what the decider says about itself
//! alone.

mod attempts;
mod budget;
mod conditions;
mod ends;
mod foreign;
mod in_vain;
mod leaks;
mod ledger;
mod preflight;
mod seats;
mod second_look;
mod suspension;
mod terminal;
mod transport;
mod truth;
mod verdicts;

use jiff::Timestamp;
use trainyard_core::{
    job::{ConditionStatus, ConditionType, Decision, JobStatus, Observed},
    spec::Job,
};

pub(crate) use budget::replaced;
pub(crate) use ends::ending;
pub(crate) use second_look::check_second_look;

use super::World;
use crate::violation::{Verdict, ensure};

/// One pass: what was seen and what was decided.
pub(crate) struct Pass<'a> {
    pub(crate) job: &'a Job,
    pub(crate) observed: &'a Observed,
    pub(crate) decision: &'a Decision,
    pub(crate) now: Timestamp,
}

/// Everything that must hold of a decision, whether or not it comes to be.
pub(crate) fn check_pass(pass: &Pass<'_>, world: &World) -> Verdict {
    ends::says_why(pass)?;
    ends::wakes_later(pass)?;
    if foreign::is_foreign(pass.job) {
        return foreign::untouched(pass);
    }
    attempts::counted_apart(pass, world)?;
    attempts::actions_fit_the_view(pass)?;
    attempts::gang_is_whole(pass)?;
    seats::only_given_ones(pass)?;
    preflight::only_fit_nodes(pass, world)?;
    terminal::creates_nothing(pass)?;
    suspension::creates_nothing(pass)?;
    budget::spent_up_means_over(pass)?;
    transport::wrong_ends_the_attempt(pass)?;
    in_vain::ends_in_time(pass)?;
    in_vain::ends_for_a_reason(pass)?;
    in_vain::stops_without_progress(pass)?;
    verdicts::fatal_is_fatal(pass)?;
    verdicts::done_is_done(pass, world)?;
    verdicts::nodes_are_given_time(pass)?;
    leaks::policy_keeps(pass)?;
    truth::running_ran(pass, world)?;
    truth::degraded_lacks_workers(pass)?;
    Ok(())
}

/// Everything that must hold between a status and the one written over it.
pub(crate) fn check_write(
    job: &Job,
    before: &JobStatus,
    after: &JobStatus,
    world: &World,
) -> Verdict {
    budget::never_shrinks(before, after)?;
    budget::within_limits(after, world)?;
    budget::paid_once(job, before, after, world)?;
    terminal::stays(before, after)?;
    conditions::well_formed(after)?;
    conditions::clock_is_kept(before, after)?;
    ledger::adds_up(before, after, world)?;
    truth::success_happened(job, before, after, world)?;
    truth::failure_happened(job, before, after, world)?;
    Ok(())
}

/// Everything that must hold once a pass has written and is about to act.
pub(crate) fn check_actions(world: &World) -> Verdict {
    budget::replaced_is_paid(world)
}

/// Everything that must hold when nothing happens any more.
pub(crate) fn check_settled(world: &World) -> Verdict {
    suspension::leaves_nothing(world)?;
    seats::are_not_kept_in_vain(world)?;
    preflight::no_gang_waits(world)?;
    leaks::nothing_left(world)?;
    ends::ends_or_explains(world)?;
    truth::counts_are_current(world)?;
    Ok(())
}

/// Whether `status` says that condition.
pub(crate) fn says(status: &JobStatus, kind: ConditionType) -> bool {
    status
        .conditions
        .iter()
        .any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
}

/// Whether the job has ended.
pub(crate) fn is_terminal(status: &JobStatus) -> bool {
    says(status, ConditionType::Succeeded) || says(status, ConditionType::Failed)
}
