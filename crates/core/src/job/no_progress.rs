//! Attempts that come no further: a job whose attempts reach the same step again and again spends its nodes without training.
//!
//! Owns how many there were in a row and when they end the job. Does not decide what a failure is or who pays for it.
//!
//! Invariants: attempts that infrastructure, platform or preemption ended count for nothing, nor do attempts of which no step is
//! known; a later step sets the count to zero. A user who limits retries in another way is not limited by the default.

use super::{
    Account, WithoutProgress,
    cause::{Cause, Failure},
    mutant,
    pass::Pass,
    verdict,
};
use crate::{
    diagnose::{Confidence, Depth, Retry, VerdictSummary},
    reason::{InVain, Reason},
    spec::JobSettings,
};

/// The label of the verdict.
pub(super) const LABEL: &str = "no_progress_across_attempts";
/// What to do, as `labels.toml` has it: the decider reads no rules.
pub(super) const NEXT: &str =
    "check that the program loads its last checkpoint and saves one before it fails";

/// Remembers how far the attempt came that `failure` ends.
pub(super) fn note(pass: &mut Pass<'_>, failure: &Failure) {
    let Some(step) = verdict::step(pass) else {
        return;
    };
    let attempt = pass.status.trainyard.attempt;
    let counts = is_own(pass, failure);
    let before = pass.status.trainyard.without_progress;
    pass.status.trainyard.without_progress = Some(match before {
        Some(before) if step > before.best_step => reached(step, attempt),
        None => reached(step, attempt),
        Some(before) if !counts => before,
        Some(before) => WithoutProgress {
            attempts: before.attempts.saturating_add(1),
            since_attempt: if before.attempts == 0 {
                attempt
            } else {
                before.since_attempt
            },
            ..before
        },
    });
}

fn reached(best_step: u64, since_attempt: u32) -> WithoutProgress {
    WithoutProgress {
        best_step,
        attempts: 0,
        since_attempt,
    }
}

/// Whether the program failed by itself, or nobody knows why it did.
fn is_own(pass: &Pass<'_>, failure: &Failure) -> bool {
    let unknown = failure.cause == Cause::NoExitCode && verdict::about(pass, failure).is_none();
    unknown || verdict::account(pass, failure) == Account::User
}

/// After how many attempts the job fails; `None` for never.
fn limit(pass: &Pass<'_>) -> Option<u32> {
    let job = pass.job;
    let default = job.settings.compat.is_empty() && !verdict::has_own_limit(job);
    let default = default.then_some(JobSettings::NO_PROGRESS);
    job.settings
        .no_progress
        .or(default)
        .filter(|limit| *limit > 0)
}

/// Why the job fails with `failure`, and the verdict on it, where its attempts came no further.
pub(super) fn ends(pass: &Pass<'_>, failure: &Failure) -> Option<(Reason, Option<VerdictSummary>)> {
    let stuck = pass.status.trainyard.without_progress?;
    let attempt = pass.status.trainyard.attempt;
    // An attempt of which no step is known, or that others ended, ends nothing.
    verdict::step(pass)?;
    let enough = limit(pass).is_some_and(|limit| stuck.attempts >= limit);
    let spared = mutant::is(mutant::Mutant::RetriesWithoutProgress);
    if !enough || !is_own(pass, failure) || spared {
        return None;
    }
    let shown_by = InVain::NoProgress {
        attempts: stuck.attempts,
        first: stuck.since_attempt,
        last: attempt,
        step: stuck.best_step,
    };
    let about = verdict::about(pass, failure);
    let error = match about {
        Some(about) => about.sentence.clone(),
        None => format!(
            "pod `{}`: {}",
            pass.job.pod_name(failure.slot),
            failure.cause
        ),
    };
    let verdict = VerdictSummary {
        attempt,
        label: LABEL.to_owned(),
        sentence: format!("{shown_by}; the last one: {error}"),
        ranks: about.map(|about| about.ranks.clone()).unwrap_or_default(),
        nodes: Vec::new(),
        account: Account::User,
        retry: Retry::DoesNotHelp,
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: about.and_then(|about| about.place.clone()),
        exception: about.and_then(|about| about.exception.clone()),
        signature: None,
        next: NEXT.to_owned(),
    };
    let reason = Reason::RetryDoesNotHelp {
        job: pass.job.name.to_string(),
        shown_by,
        error,
        next: NEXT.to_owned(),
    };
    Some((reason, Some(verdict)))
}
