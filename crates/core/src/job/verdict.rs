//! What the doctor's verdict changes about a failure: who pays, whether it is tried again, and where.
//!
//! Invariant: a verdict speaks only about what a program did, and never about a pod that was taken away;
//! without a verdict, and for a job that asks for old behaviour, all is as the exit code says.

use super::{
    Account, Action, Observed, ObservedPod, PodPhase, Seating,
    cause::{Cause, Failure},
    conditions,
    pass::Pass,
    restart,
};
use crate::{
    diagnose::{Confidence, Depth, Retry, VerdictSummary},
    spec::{Job, RestartScope},
};

/// Parts of the names of exceptions about something outside the program, which may be there the next time.
const PASSING: [&str; 7] = [
    "Connection",
    "HTTP",
    "Network",
    "SSL",
    "Timeout",
    "Throttl",
    "Unavailable",
];

/// The pod about whose log the doctor is to be asked: the first of the attempt that runs whose program failed by
/// itself. None where no verdict would change anything.
pub fn failed_first<'a>(job: &Job, observed: &'a Observed) -> Option<&'a ObservedPod> {
    let status = &observed.status;
    let over = conditions::ended(&status.conditions)
        || observed.being_deleted
        || job.run_policy.suspend
        || job.restart_scope() != RestartScope::Gang;
    if over {
        return None;
    }
    let failed = observed.pods.iter().filter(|pod| {
        let by_itself = pod.disruption.is_none() && pod.deleted_at.is_none();
        pod.attempt == status.trainyard.attempt
            && pod.phase == PodPhase::Failed
            && by_itself
            && pod.exit.is_some()
    });
    failed.min_by_key(|pod| {
        let at = pod.exit.and_then(|exit| exit.at);
        (at.is_none(), at, pod.slot)
    })
}

/// What the doctor says about `failure`.
pub(super) fn about<'a>(pass: &Pass<'a>, failure: &Failure) -> Option<&'a VerdictSummary> {
    let verdict = pass.observed.verdict.as_ref()?;
    let ended_itself = matches!(failure.cause, Cause::Exited { .. } | Cause::NoExitCode);
    let of_this_attempt = verdict.attempt == pass.status.trainyard.attempt;
    (ended_itself && of_this_attempt).then_some(verdict)
}

/// Who pays for `failure`: whom the doctor names, where it is sure enough.
pub(super) fn account(pass: &Pass<'_>, failure: &Failure) -> Account {
    deciding(pass, failure).map_or(failure.cause.account(), |verdict| verdict.account)
}

/// The verdict on `failure`, where it is one to act upon.
fn deciding<'a>(pass: &Pass<'a>, failure: &Failure) -> Option<&'a VerdictSummary> {
    let verdict = about(pass, failure)?;
    let enough = match failure.cause {
        // The kernel's own word.
        Cause::Exited {
            out_of_memory: true,
            ..
        } => return None,
        Cause::Exited { code, .. } if code < restart::RETRYABLE => Confidence::High,
        // A signal alone says nothing about who sent it.
        _ => Confidence::Medium,
    };
    let sure = verdict.depth == Depth::Cause && verdict.confidence >= enough;
    (sure && pass.job.knobs.compat.is_empty()).then_some(verdict)
}

/// The sentence with which the job fails, where the program has made the same mistake at the same place
/// as in the attempt before, and came no further.
pub(super) fn repeated(pass: &Pass<'_>, failure: &Failure) -> Option<String> {
    let verdict = deciding(pass, failure)?;
    let last = pass.status.trainyard.last_failure.as_ref()?;
    let before = last.verdict.as_ref()?;
    let place = verdict.place.as_deref()?;
    let exception = place.split(" at ").next().unwrap_or_default();
    let may_pass = PASSING.iter().any(|part| exception.contains(part));
    let in_vain = !may_pass
        && verdict.account == Account::User
        && verdict.retry == Retry::DoesNotHelp
        && verdict.confidence == Confidence::High;
    let same = before.label == verdict.label && before.place.as_deref() == Some(place);
    let in_a_row = last.attempt.checked_add(1) == Some(verdict.attempt);
    let further = step(pass).is_some_and(|step| last.step.is_some_and(|before| step > before));
    (in_vain && same && in_a_row && !further).then(|| {
        format!(
            "Job {} has failed because attempts {} and {} ended with the same error at the same place: {}",
            pass.job.name, last.attempt, verdict.attempt, verdict.sentence
        )
    })
}

/// The furthest step of this attempt, where it told any.
pub(super) fn step(pass: &Pass<'_>) -> Option<u64> {
    let progress = pass.observed.progress?;
    (progress.attempt == pass.status.trainyard.attempt).then_some(progress.step)
}

/// Gives the seats of the gang back where the doctor blames a node of theirs, so that the next attempt goes
/// elsewhere.
pub(super) fn avoid_node(pass: &mut Pass<'_>, failure: &Failure) {
    let Some(verdict) = deciding(pass, failure) else {
        return;
    };
    let Seating::Given(seats) = &pass.observed.seating else {
        return;
    };
    let blamed = |node: &&String| seats.values().any(|seat| seat == *node);
    let node = verdict.nodes.iter().find(blamed).cloned();
    if verdict.account == Account::Infrastructure
        && let Some(node) = node
    {
        let why = format!("node `{node}` is avoided: {}", verdict.sentence);
        let avoid = vec![node];
        pass.actions.push(Action::GiveSeatsBack { why, avoid });
    }
}
