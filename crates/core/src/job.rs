//! The lifecycle of a job: `decide(job, observed, now)`.
//!
//! # Flow
//! An adapter builds an [`Observed`], calls [`decide`], writes the status if it changed (on top of
//! the one it observed, or not at all), sends the events, carries out the actions, and observes
//! again. It decides nothing itself.
//!
//! # Guarantees
//! - The same arguments give the same [`Decision`], byte for byte.
//! - Everything that is remembered is in the status, so an adapter killed between any two steps
//!   and started again continues where it was: a restart and its charge are one write, and whatever
//!   was not carried out is decided again.
//! - A pod carries its attempt; one of an older attempt is removed and never counted.
//! - A gang that restarts in place keeps its pods; they carry the next attempt before a program of it starts. All that must survive
//!   a crash is the barrier in the status.
//! - A job that has ended stays ended. A suspended job has no pods.
//! - Every pass reports what the job waits for ([`Decision::reasons`] is never empty).
//!
//! # Assumptions
//! - One adapter at a time writes the status of a job; a write on top of a status other than the
//!   one observed is refused.
//! - [`Observed::version`] never goes back while an adapter lives, and a new adapter starts with a
//!   view no older than any before it. A view older than the one the status was decided on is not
//!   acted upon.
//!
//! # Caveats
//! - A pod of a dead node is force-deleted after `trainyard.dev/lost-after`. Its
//!   processes may still run there; under gang scope they belong to an attempt that no other rank talks to
//!   any more.

mod action;
mod alone;
mod asked;
mod budget;
mod cause;
mod checkpoint;
mod cleanup;
mod conditions;
mod converge;
mod deadline;
mod elastic;
mod fabric;
mod grouping;
mod in_place;
mod initializer;
mod messages;
mod no_progress;
mod notice;
mod observed;
mod pass;
mod preflight;
mod recover;
mod restart;
mod roster;
mod seating;
mod status;
mod status_delay;
mod success;
mod suspend;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod transport;
mod verdict;

use jiff::Timestamp;

pub use action::{Action, Decision, Event, EventKind, EventReason, GangStep, Removal, Seat};
pub use alone::unjudged_ends;
pub use cause::Cause;
pub use notice::{Notice, NoticeReason};
pub use observed::{
    Autoscaler, Grouping, JudgedEnd, NoNodes, Observed, PreflightRun, Preflights, Refusal,
    ReportedTransports, Seating, SeenFabric, SeenGang, SeenPreflight, SeenStore, SharedInputs,
    Supervised,
};
pub use status::{
    CheckpointRecord, Condition, ConditionStatus, ConditionType, FabricInUse, FailedBy,
    FailedStarts, GangPhase, HeldFailure, Hold, JobRecord, JobStatus, Kept, LastEnd, LastFailure,
    LastRestart, PreflightState, ProgressRecord, RECORD_EVERY, RoleStatus, Spent, Unreadable,
    WithoutProgress, bytes_words, read as read_status, read_train as read_train_status,
    stored_train as stored_train_status, time_words,
};

pub use status_delay::{PROGRESS_EVERY, may_wait};
pub use transport::asks_for_transport;
pub use verdict::{failed_first, failed_programs};

use self::{pass::Pass, roster::Roster};
use crate::{
    barrier::Wish,
    ledger::Phase,
    mutant::{self, Mutant},
    reason::Reason,
    spec::Job,
};
// What an observation and a status are made of.
pub use crate::{
    account::Account,
    index_set::IndexSet,
    pod::{Disruption, Exit, NodeHealth, ObservedPod, PodPhase, PodUid, Wait},
    progress::Progress,
};

/// Decides what is to be done for `job` at `now`, given what is observed.
pub fn decide(job: &Job, observed: &Observed, now: Timestamp) -> Decision {
    let judged = in_place::with_hang(job, observed);
    let observed = judged.as_ref().unwrap_or(observed);
    let mut pass = Pass::new(job, observed, now);
    run_steps(&mut pass);
    seating::leave_queue(&mut pass);
    preflight::end_unneeded(&mut pass);
    let decision = pass.finish();
    // An elastic gang that has some of its seats asks for the rest; it starts meanwhile.
    let has_seats = matches!(observed.seating, Seating::Given(_));
    if observed.status.is_new() && !has_seats && decision.actions.contains(&Action::AskSeats) {
        return seating::ask_first(observed, decision);
    }
    decision
}

/// Whether a job of this status has ended, well or badly.
pub fn has_ended(status: &JobStatus) -> bool {
    conditions::ended(&status.conditions)
}

/// Since when a job of this status runs, where it does.
pub fn runs_since(status: &JobStatus) -> Option<Timestamp> {
    let running = conditions::find(&status.conditions, ConditionType::Running)?;
    conditions::holds(&status.conditions, ConditionType::Running)
        .then_some(running.last_transition_time)
}

/// When the newest complete checkpoint of a job of this status was saved, where one was seen.
pub fn saved_at(status: &JobStatus) -> Option<Timestamp> {
    let record = status.trainyard.checkpoint.as_ref()?;
    record.newest.as_ref()?.saved_at
}

/// How many failures `account` of `job` bears before the job fails; `None` is without bound.
pub fn budget_limit(job: &Job, account: Account) -> Option<u32> {
    budget::limit(job, account)
}

/// The steps of one pass. Each either settles the pass or leaves it to the next.
fn run_steps(pass: &mut Pass<'_>) {
    if managed_elsewhere(pass) {
        return;
    }
    in_place::drop_outdated(pass);
    if pass.observed.being_deleted {
        in_place::stand_by(pass, Wish::Delete);
        return cleanup::being_deleted(pass);
    }
    if conditions::ended(&pass.status.conditions) && !mutant::is(Mutant::RestartsAfterEnd) {
        in_place::stand_by(pass, Wish::Fail);
        return cleanup::ended(pass);
    }
    if stale_view(pass) {
        return;
    }
    pass.note_created();
    pass.book_first_step();
    checkpoint::note(pass);
    if pass.job.run_policy.suspend && !mutant::is(Mutant::CreatesWhileSuspended) {
        in_place::stand_by(pass, Wish::Suspend);
        return suspend::suspend(pass);
    }
    suspend::resume(pass);
    pass.start();

    // What this attempt has come to.
    let before = pass.status.trainyard.attempt;
    let roster = Roster::new(pass.job, pass.observed, &pass.status.trainyard);
    pass.remember(&roster);
    transport::report(pass);
    if success::succeeded(
        pass.job,
        &pass.status.replica_statuses,
        &pass.status.trainyard.succeeded,
    ) {
        in_place::stand_by(pass, Wish::Fail);
        return cleanup::succeed(pass);
    }
    if deadline::passed(pass) {
        in_place::stand_by(pass, Wish::Fail);
        return cleanup::fail(pass, messages::deadline(pass.job));
    }
    let recovered = if pass.status.trainyard.barrier.is_some() {
        in_place::proceed(pass, &roster)
    } else {
        let recovered = recover::recover(pass, &roster).and_then(|()| transport::enforce(pass));
        let record = &pass.status.trainyard;
        if record.attempt != before || record.barrier.is_some() {
            // What the coordinator has to say is about the attempt that ends here: Go of it must not follow.
            pass.gang = None;
        }
        recovered
    };
    if let Err(fails) = recovered {
        return cleanup::fail(pass, fails);
    }

    // What the attempt, this or the next, needs now.
    let record = &pass.status.trainyard;
    let roster = if record.attempt == before {
        roster
    } else {
        Roster::new(pass.job, pass.observed, record)
    };
    pass.count(&roster);
    if pass.status.trainyard.barrier.is_some() {
        // Pods are created and deleted as the barrier needs it.
        transport::report(pass);
        return pass.spend_time_on(Phase::Restarting);
    }
    if in_place::is_held(pass) {
        // Nothing is created or deleted in a gang that people look at.
        transport::report(pass);
        return pass.spend_time_on(Phase::Restarting);
    }
    converge::converge(pass, &roster);
    elastic::report(pass, &roster);
    transport::report(pass);
    pass.account_time(&roster);
}

/// A job of another controller is not touched.
fn managed_elsewhere(pass: &mut Pass<'_>) -> bool {
    let Some(manager) = pass.job.run_policy.managed_by.as_deref() else {
        return false;
    };
    if manager == pass.job.kind.own_manager() || mutant::is(Mutant::TouchesForeignJobs) {
        return false;
    }
    let manager = manager.to_owned();
    pass.say(Reason::ManagedElsewhere { manager });
    true
}

/// A view older than the one the status was decided on, or a status older than the pods, is not
/// acted upon: either would take what was already done for undone.
fn stale_view(pass: &mut Pass<'_>) -> bool {
    if mutant::is(Mutant::ActsOnStaleView) {
        return false;
    }
    let record = &pass.status.trainyard;
    let ahead = pass.observed.pods.iter().map(|pod| pod.attempt).max();
    let reason = if pass.observed.version < record.seen {
        Reason::OldView {
            version: pass.observed.version,
            decided_on: record.seen,
        }
    } else if let Some(pods_attempt) = ahead.filter(|ahead| *ahead > record.attempt) {
        Reason::OldStatus {
            attempt: record.attempt,
            pods_attempt,
        }
    } else {
        return false;
    };
    pass.say(reason);
    pass.wake_in(pass::STALE_RETRY);
    true
}
