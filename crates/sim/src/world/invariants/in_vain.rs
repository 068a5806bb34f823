//! A failure that a retry does not help is retried once, and not forever.

use trainyard_core::{
    job::{Account, Cause, ConditionType, JobRecord, JobStatus, LastEnd},
    reason::{Code, InVain, Reason},
    spec::{Job, Limit, RestartScope},
};

use super::{Pass, Verdict, budget::limit, ensure, is_terminal, says};

const ENDS: &str = "two equal failures that a retry does not help end a job without a limit";
const REASON: &str = "a job ends early only for two equal failures and without a limit of its own";

const PROGRESS: &str =
    "attempts in a row without a later step end a job, and nothing else does for them";

/// What ran for so long may have come further.
const LONG_SECONDS: i64 = 600;

/// Whether the job follows the rule: its user stated no limit, and did not ask for old behaviour.
fn follows(job: &Job) -> bool {
    job.run_policy.backoff_limit.is_none()
        && job.run_policy.active_deadline_seconds.is_none()
        && job.settings.budget.user.is_none()
        && job.settings.compat.is_empty()
}

/// No retry follows the second of two equal failures.
pub(super) fn ends_in_time(pass: &Pass<'_>) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    if !follows(pass.job) || is_terminal(after) || pass.job.run_policy.suspend {
        return Ok(());
    }
    match pass.job.restart_scope() {
        RestartScope::Gang => gang_ends(pass, before, after),
        RestartScope::Pod => pods_end(before, after),
    }
}

fn gang_ends(pass: &Pass<'_>, before: &JobStatus, after: &JobStatus) -> Verdict {
    let (old, new) = (&before.trainyard, &after.trainyard);
    // The program failed, its user paid, and the next attempt begins.
    let retries = new.attempt == old.attempt + 1 && new.spent.user == old.spent.user + 1;
    let (Some(first), Some(second)) = (&old.last_failure, &new.last_failure) else {
        return Ok(());
    };
    let (Some(one), Some(other)) = (&first.verdict, &second.verdict) else {
        return Ok(());
    };
    let in_a_row = first.attempt + 1 == second.attempt && second.attempt == old.attempt;
    let hopeless = other.retry == trainyard_core::diagnose::Retry::DoesNotHelp;
    let same = one.signature == other.signature && one.label == other.label;
    // The kernel's OOM kill counts more than a log that says otherwise.
    let memory = second.cause.is_some_and(Cause::is_out_of_memory);
    let fits = !memory || other.label == "host_oom_killed";
    let further = match (first.step, second.step) {
        (Some(first), Some(second)) => second > first,
        _ => ran_long(pass, before),
    };
    ensure!(
        ENDS,
        !(retries && in_a_row && hopeless && same && fits) || further,
        "attempts {} and {} ended with {:?}, and attempt {} begins",
        first.attempt,
        second.attempt,
        other.signature,
        new.attempt
    );
    Ok(())
}

fn ran_long(pass: &Pass<'_>, before: &JobStatus) -> bool {
    let mut conditions = before.conditions.iter();
    let running = conditions.find(|condition| condition.kind == ConditionType::Running);
    says(before, ConditionType::Running)
        && running.is_some_and(|running| {
            let ran = pass.now.duration_since(running.last_transition_time);
            ran.as_secs() >= LONG_SECONDS
        })
}

fn pods_end(before: &JobStatus, after: &JobStatus) -> Verdict {
    let (old, new) = (&before.trainyard, &after.trainyard);
    if old.attempt != new.attempt {
        return Ok(());
    }
    for (pod, second) in &new.last_ends {
        let first = old.last_ends.get(pod);
        ensure!(
            ENDS,
            !first.is_some_and(|first| is_again(first, second)),
            "pod {pod} ended again with {} and starts again",
            second.failure
        );
    }
    Ok(())
}

/// Whether `second` is another end than `first` for the same reason, and the job came no further.
fn is_again(first: &LastEnd, second: &LastEnd) -> bool {
    let another = (&first.uid, first.ends) != (&second.uid, second.ends);
    let further = match (first.step, second.step) {
        (Some(first), Some(second)) => second > first,
        _ => second.at.duration_since(first.at).as_secs() >= LONG_SECONDS,
    };
    another && !second.failure.is_empty() && first.failure == second.failure && !further
}

/// How many attempts without a later step the job may have.
fn no_progress_limit(job: &Job) -> Option<u32> {
    let default = follows(job).then_some(3);
    job.settings
        .no_progress
        .or(default)
        .filter(|limit| *limit > 0)
}

/// A job ends for attempts without progress only where as many as its limit failed by themselves and reached no later step.
fn ends_without_progress(pass: &Pass<'_>) -> Verdict {
    let (old, new) = (
        &pass.observed.status.trainyard,
        &pass.decision.status.trainyard,
    );
    let (Some(before), Some(after)) = (old.without_progress, new.without_progress) else {
        ensure!(PROGRESS, false, "no step of an attempt before is known");
        return Ok(());
    };
    let limit = no_progress_limit(pass.job);
    let step = new.last_failure.as_ref().and_then(|last| last.step);
    ensure!(
        PROGRESS,
        limit.is_some_and(|limit| after.attempts >= limit)
            && after.attempts == before.attempts + 1
            && after.best_step == before.best_step
            && step.is_some_and(|step| step <= before.best_step)
            && (new.spent.user == old.spent.user + 1 || is_spent(pass)),
        "{before:?} became {after:?} at step {step:?}, limit {limit:?}"
    );
    Ok(())
}

/// Whether the user has lowered the limit to what was spent before: then a failure cannot be paid for.
fn is_spent(pass: &Pass<'_>) -> bool {
    let (old, new) = (&pass.observed.status, &pass.decision.status);
    let spent = old.trainyard.spent.user;
    let limit = match limit(pass.job, Account::User) {
        Limit::At(limit) => limit.max(1),
        Limit::Unlimited => return false,
    };
    new.trainyard.spent.user == spent && spent >= limit
}

/// No attempt follows as many without a later step as the job may have.
pub(super) fn stops_without_progress(pass: &Pass<'_>) -> Verdict {
    let (before, after) = (
        &pass.observed.status.trainyard,
        &pass.decision.status.trainyard,
    );
    let attempts = |record: &JobRecord| record.without_progress.map(|stuck| stuck.attempts);
    let stuck = attempts(after);
    let limit = no_progress_limit(pass.job);
    // One more came no further, and another begins.
    let goes_on = after.attempt > before.attempt && stuck > attempts(before);
    ensure!(
        PROGRESS,
        !goes_on || limit.is_none_or(|limit| stuck < Some(limit)),
        "{stuck:?} attempts came no further, limit {limit:?}, and another begins"
    );
    Ok(())
}

/// Where a limit is set it is spent, and failures that differ are tried again.
pub(super) fn ends_for_a_reason(pass: &Pass<'_>) -> Verdict {
    let mut reasons = pass.decision.reasons.iter();
    let Some(reason) = reasons.find(|reason| reason.code() == Code::RetryDoesNotHelp) else {
        return Ok(());
    };
    if let Reason::RetryDoesNotHelp {
        shown_by: InVain::NoProgress { .. },
        ..
    } = reason
    {
        return ends_without_progress(pass);
    }
    ensure!(
        REASON,
        follows(pass.job),
        "its user set a limit: {:?}",
        pass.job.run_policy
    );
    let (old, new) = (
        &pass.observed.status.trainyard,
        &pass.decision.status.trainyard,
    );
    let again = match pass.job.restart_scope() {
        RestartScope::Gang => {
            let last = new.last_failure.as_ref();
            last.is_some_and(|last| last.since_attempt.is_some_and(|since| since < last.attempt))
        }
        RestartScope::Pod => new.last_ends.iter().any(|(pod, second)| {
            let first = old.last_ends.get(pod);
            first.is_some_and(|first| is_again(first, second))
        }),
    };
    ensure!(REASON, again, "no two failures in a row are equal");
    Ok(())
}
