//! Attempts that come no further: a job whose attempts reach the same step again and again spends its nodes without training.
//!
//! Owns how many there were in a row and when they end the job. Does not decide what a failure is or who pays for it.
//!
//! Invariants: attempts that infrastructure, platform or preemption ended count for nothing, nor do attempts of which no step is
//! known; a later step or epoch sets the count to zero. By default an attempt counts only where its steps are known to be counted
//! across attempts. A user who limits retries in another way is not limited by the default.

use super::{
    Account, Progress, WithoutProgress,
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
/// What to do, as `labels.toml` has it; a test compares the two.
pub(super) const NEXT: &str =
    "check that the program loads its last checkpoint and saves one before it fails";

/// Remembers how far the attempt came that `failure` ends.
pub(super) fn note(pass: &mut Pass<'_>, failure: &Failure) {
    let Some(seen) = verdict::progress(pass) else {
        return;
    };
    let attempt = pass.status.trainyard.attempt;
    let before = pass.status.trainyard.without_progress;
    let first_step = match (before.and_then(|before| before.first_step), seen.first_step) {
        (Some(before), Some(now)) => Some(before.min(now)),
        (before, now) => before.or(now),
    };
    let best_epoch = before.and_then(|before| before.best_epoch);
    let later_epoch = seen
        .epoch
        .filter(|epoch| epoch.0 > best_epoch.map_or(f64::NEG_INFINITY, |best| best.0));
    let next = match before {
        Some(before) if seen.step <= before.best_step && !is_later(&before, &seen) => {
            if is_own(pass, failure) && came_no_further(pass, &before, &seen) {
                WithoutProgress {
                    attempts: before.attempts.saturating_add(1),
                    since_attempt: if before.attempts == 0 {
                        attempt
                    } else {
                        before.since_attempt
                    },
                    ..before
                }
            } else {
                before
            }
        }
        // The furthest step may be that of an earlier attempt, where steps are counted again.
        _ => WithoutProgress {
            best_step: before.map_or(seen.step, |before| before.best_step.max(seen.step)),
            attempts: 0,
            since_attempt: attempt,
            best_epoch,
            first_step,
        },
    };
    pass.status.trainyard.without_progress = Some(WithoutProgress {
        best_epoch: later_epoch.or(best_epoch),
        first_step,
        ..next
    });
}

/// Whether the attempt reached a later epoch: its steps may begin again in each.
fn is_later(before: &WithoutProgress, seen: &Progress) -> bool {
    let best = before.best_epoch.map(|best| best.0);
    let epoch = seen.epoch.map(|epoch| epoch.0);
    matches!((best, epoch), (Some(best), Some(epoch)) if epoch > best)
}

/// Whether an attempt whose step is not later than the best one has really come no further. Of a user who set `no-progress` the steps are
/// taken as they are. By default that is known only of a program that counts steps across attempts: one that counts them again in each
/// attempt, or in each epoch, may reach the same step each time and train all the while. So the attempt must have begun at a later step,
/// and must not have ended inside an epoch whose steps may be its own.
fn came_no_further(pass: &Pass<'_>, before: &WithoutProgress, seen: &Progress) -> bool {
    if pass.job.settings.no_progress.is_some() {
        return true;
    }
    let resumed = match (before.first_step, seen.first_step) {
        // Logs are written now and then, so the first step differs a little where each attempt begins at zero.
        (Some(lowest), Some(first)) => first > lowest.saturating_mul(2).saturating_add(1),
        _ => false,
    };
    let epochs = (
        before.best_epoch.map(|best| best.0),
        seen.epoch.map(|epoch| epoch.0),
    );
    let behind = match epochs {
        (None, None) => true,
        // A part of an epoch is a place in the training; a whole number is all of an epoch.
        (Some(best), Some(epoch)) => epoch < best || epoch <= best && epoch.fract() != 0.0,
        _ => false,
    };
    resumed && behind
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
