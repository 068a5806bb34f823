//! What the doctor's verdict changes about a failure: who pays, whether it is tried again, and where.
//!
//! Invariant: a verdict is only about what a program did, and never about a pod that was removed;
//! without a verdict, and for a job that asks for old behaviour, the exit code decides.

use super::{
    Account, Action, LastFailure, Observed, ObservedPod, PodPhase, Progress, Seating, SeenGang,
    alone,
    cause::{Cause, Failure, was_killed},
    conditions, mutant,
    pass::Pass,
    recover, restart,
};
use crate::{
    barrier::EndedMember,
    diagnose::{Confidence, Depth, End, Known, Retry, VerdictSummary},
    reason::{InVain, Reason},
    spec::{Job, OnNan, RestartScope},
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

/// The label of a loss that stays NaN or infinite.
pub(super) const NAN_LOSS: &str = "nan_loss";

/// The pod about whose log the doctor is to be asked: the first of the attempt that runs whose program failed by
/// itself, and before all others one that the kernel killed for its memory. None where no verdict would change anything.
pub fn failed_first<'a>(job: &Job, observed: &'a Observed) -> Option<&'a ObservedPod> {
    let status = &observed.status;
    if is_over(job, observed) || job.restart_scope() != RestartScope::Gang {
        return None;
    }
    let own = |pod: &&ObservedPod| {
        let by_itself = pod.disruption.is_none() && pod.deleted_at.is_none();
        pod.attempt == status.trainyard.attempt && by_itself
    };
    let failed = observed.pods.iter().filter(own);
    let failed = failed.filter(|pod| pod.phase == PodPhase::Failed && pod.exit.is_some());
    let first = failed.min_by_key(|pod| {
        let at = pod.exit.and_then(|exit| exit.at);
        let memory = pod.exit.is_some_and(|exit| exit.out_of_memory);
        let killed = pod.exit.is_some_and(|exit| was_killed(exit.code));
        (!memory, at.is_none(), at, !killed, pod.slot)
    });
    // A program that ended under its supervisor, in a pod that still runs.
    first.or_else(|| {
        if status.trainyard.barrier.is_some() {
            return None;
        }
        let programs = failed_programs(observed).into_iter();
        let programs = programs.filter(|(pod, _)| own(pod));
        // The same that `headline` takes for the explanation: nothing is known of their times.
        let first = programs
            .min_by_key(|(pod, ended)| (!was_killed(ended.exit.container_code()), pod.slot));
        first.map(|(pod, _)| pod)
    })
}

/// The programs of the current attempt that ended by themselves, and not with 0, under their supervisors: each with its pod, which is the one that
/// holds its place in the gang.
pub fn failed_programs(observed: &Observed) -> Vec<(&ObservedPod, &EndedMember)> {
    let SeenGang::Here(gang) = &observed.gang else {
        return Vec::new();
    };
    let attempt = observed.status.trainyard.attempt;
    let ended = gang.coordinator.ended().iter();
    let failed = ended.filter(|it| it.attempt == attempt && it.exit.container_code() != 0);
    let pods = failed.filter_map(|ended| {
        let mut pods = observed.pods.iter();
        let pod = pods.find(|pod| pod.uid == ended.uid)?;
        (pod.slot == ended.slot && pod.attempt == attempt).then_some((pod, ended))
    });
    pods.collect()
}

impl LastFailure {
    /// What it keeps of the end of its pod, which may be gone.
    pub fn known_end(&self) -> Option<Known> {
        let end = match self.cause? {
            Cause::Exited {
                code,
                out_of_memory,
            } => End::of_exit(code, out_of_memory),
            Cause::NodeLost => End::NodeDeleted,
            Cause::Disrupted { .. }
            | Cause::Deleted
            | Cause::Vanished
            | Cause::NoExitCode
            | Cause::NotTraining => {
                return None;
            }
        };
        Some(Known {
            pod: self.pod.clone(),
            rank: None,
            node: None,
            end,
            at: None,
            memory_limit: None,
            on_purpose: None,
        })
    }
}

/// Whether no failure of the job is answered any more.
pub(super) fn is_over(job: &Job, observed: &Observed) -> bool {
    conditions::ended(&observed.status.conditions)
        || observed.being_deleted
        || job.run_policy.suspend
}

/// What the doctor says about `failure`.
pub(super) fn about<'a>(pass: &Pass<'a>, failure: &Failure) -> Option<&'a VerdictSummary> {
    let verdict = match pass.job.restart_scope() {
        RestartScope::Gang => pass.observed.verdict.as_ref()?,
        RestartScope::Pod => alone::verdict_of(pass, failure.slot)?,
    };
    let ended_itself = matches!(
        failure.cause,
        Cause::Exited { .. } | Cause::NoExitCode | Cause::NotTraining
    );
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
    (sure && pass.job.settings.compat.is_empty()).then_some(verdict)
}

/// Why the job fails, where a retry does not help and its user set no limit on retries: after two
/// equal failures of which the second came no further; at once where a user waits for the outcome and the attempt
/// never trained.
pub(super) fn in_vain(pass: &Pass<'_>, failure: &Failure) -> Option<Reason> {
    if let Some(verdict) = stops_for_nan(pass, failure) {
        return Some(retry_does_not_help(pass.job, InVain::Verdict, verdict));
    }
    if has_own_limit(pass.job) {
        return None;
    }
    let verdict = hopeless(pass, failure)?;
    let shown_by = match same_before(pass, verdict) {
        Some(last)
            if !came_further(pass, last, verdict) && !mutant::is(mutant::Mutant::RetriesInVain) =>
        {
            InVain::Attempts {
                first: last.attempt,
                second: verdict.attempt,
                same_place: verdict.place.is_some(),
            }
        }
        _ if pass.observed.attended && step(pass).is_none() => InVain::Verdict,
        _ => return None,
    };
    Some(retry_does_not_help(pass.job, shown_by, verdict))
}

/// The verdict on `failure`, where the loss stays NaN and the job is to end for that.
fn stops_for_nan<'a>(pass: &Pass<'a>, failure: &Failure) -> Option<&'a VerdictSummary> {
    let stops = pass.job.settings.on_nan == OnNan::Stop;
    deciding(pass, failure).filter(|verdict| stops && verdict.label == NAN_LOSS)
}

/// Why a job ends for `verdict`.
pub(super) fn retry_does_not_help(job: &Job, shown_by: InVain, verdict: &VerdictSummary) -> Reason {
    Reason::RetryDoesNotHelp {
        job: job.name.to_string(),
        shown_by,
        error: verdict.sentence.clone(),
        next: verdict.next.clone(),
    }
}

/// Whether the user said how often, or for how long, the job is tried.
pub(super) fn has_own_limit(job: &Job) -> bool {
    let policy = &job.run_policy;
    policy.backoff_limit.is_some()
        || policy.active_deadline_seconds.is_some()
        || job.settings.budget.user.is_some()
}

/// The verdict on `failure`, where it is the program's own and a retry does not help.
pub(super) fn hopeless<'a>(pass: &Pass<'a>, failure: &Failure) -> Option<&'a VerdictSummary> {
    let verdict = if failure.cause.is_out_of_memory() {
        // The log explains the kernel's word; it does not replace it.
        about(pass, failure)
            .filter(|verdict| verdict.label == "host_oom_killed")
            .filter(|_| pass.job.settings.compat.is_empty())
    } else {
        deciding(pass, failure)
    }?;
    let in_vain = verdict.account == Account::User
        && verdict.retry == Retry::DoesNotHelp
        && verdict.confidence == Confidence::High
        && verdict.depth == Depth::Cause;
    (in_vain && !may_pass(verdict)).then_some(verdict)
}

/// Whether the program failed over something outside of it, which may be there the next time.
fn may_pass(verdict: &VerdictSummary) -> bool {
    if verdict.label != "user_code_error" {
        return false;
    }
    let line = || match &verdict.place {
        Some(place) => place.as_str(),
        None => verdict.signature.as_deref().unwrap_or_default(),
    };
    let exception = verdict.exception.as_deref().unwrap_or_else(line);
    PASSING.iter().any(|part| exception.contains(part))
}

/// The failure of the attempt before, where it was the same.
fn same_before<'a>(pass: &'a Pass<'_>, verdict: &VerdictSummary) -> Option<&'a LastFailure> {
    let last = pass.status.trainyard.last_failure.as_ref()?;
    let in_a_row = last.attempt.checked_add(1) == Some(verdict.attempt);
    let before = last.verdict.as_ref()?;
    (in_a_row && verdict.is_same_failure(before)).then_some(last)
}

/// Whether this attempt came further than the one before, or may have: where no step is known and no place in the
/// program says that it is the same one, a long attempt may have.
fn came_further(pass: &Pass<'_>, last: &LastFailure, verdict: &VerdictSummary) -> bool {
    match step(pass).zip(last.step) {
        Some((step, before)) => step > before,
        None => verdict.place.is_none() && recover::ran_steadily(pass),
    }
}

/// The first of the attempts in a row that ended as this one does, where there are several.
pub(super) fn same_since(pass: &Pass<'_>, failure: &Failure) -> Option<u32> {
    let verdict = about(pass, failure)?;
    let last = same_before(pass, verdict)?;
    Some(last.since_attempt.unwrap_or(last.attempt))
}

/// The furthest step of this attempt, where it reported any.
pub(super) fn step(pass: &Pass<'_>) -> Option<u64> {
    progress(pass).map(|progress| progress.step)
}

/// What the attempt reported of its training.
pub(super) fn progress(pass: &Pass<'_>) -> Option<Progress> {
    let progress = pass.observed.progress?;
    (progress.attempt == pass.status.trainyard.attempt).then_some(progress)
}

/// The node of the gang that the doctor blames, where the gang could run elsewhere.
pub(super) fn blamed_node(pass: &Pass<'_>, failure: &Failure) -> Option<String> {
    let verdict = deciding(pass, failure)?;
    let Seating::Given(seats) = &pass.observed.seating else {
        return None;
    };
    let blamed = |node: &&String| seats.values().any(|seat| seat == *node);
    let infrastructure = verdict.account == Account::Infrastructure;
    let node = verdict.nodes.iter().find(blamed);
    node.filter(|_| infrastructure).cloned()
}

/// Releases the seats of the gang where the doctor blames one of its nodes, so that the next attempt runs
/// elsewhere.
pub(super) fn avoid_node(pass: &mut Pass<'_>, failure: &Failure) {
    if let Some(verdict) = deciding(pass, failure)
        && let Some(node) = blamed_node(pass, failure)
    {
        let why = format!("avoiding node `{node}`: {}", verdict.sentence);
        let avoid = vec![node];
        pass.actions.push(Action::ReleaseSeats { why, avoid });
    }
}
