//! Checkpoints of a job: what was seen in its store, what the next attempt resumes from, and what follows for the ledger.
//!
//! Owns `status.trainyard.checkpoint`. Does not read a store, and does not choose a step: [`crate::checkpoint`] does.
//!
//! Invariants: the step that pods are given was the newest complete one in the last look before any pod of their attempt existed, and never
//! changes after that; where none is known to be good, none is given. What the record of the attempt in the store says decides over it. A store
//! that cannot be read changes nothing but the reason that is shown.

use jiff::{SignedDuration, Timestamp};

use super::{CheckpointRecord, EventKind, EventReason, SeenGang, SeenStore, pass::Pass};
use crate::{
    checkpoint::{NewestAttempt, ResumedFrom, StoreSeen, WHY_BYTES},
    diagnose,
};

/// An attempt that begins after this step did not resume anything.
const FIRST_STEPS: u64 = 1;

/// How old the look behind the report of a leader may be. Its supervisor reports changes; it looks again after twenty times what the last look took,
/// and one of more than 5 s is reported as late.
const REPORT_AGE: SignedDuration = SignedDuration::from_secs(120);

/// Takes what was seen in the store, for the attempt that is in the status.
pub(super) fn note(pass: &mut Pass<'_>) {
    if pass.job.settings.checkpoints.is_none() {
        pass.status.trainyard.checkpoint = None;
        return;
    }
    match seen(pass) {
        SeenStore::Unused => {}
        SeenStore::Unknown(why) => {
            let stamp = pass.stamp;
            let record = &mut pass.status.trainyard;
            let kept = record.checkpoint.get_or_insert_default();
            kept.why = Some(why);
            kept.unreadable_since.get_or_insert(stamp);
        }
        SeenStore::Seen { store, at } => {
            take(pass, &store);
            count_stalls(pass, &store);
            report_not_restored(pass, at);
        }
    }
}

/// What was seen: by the adapter itself, or by the supervisor that leads the gang, in a pod of the user. That one is believed about its own job only.
fn seen(pass: &Pass<'_>) -> SeenStore {
    if pass.observed.store != SeenStore::Unused {
        return pass.observed.store.clone();
    }
    let SeenGang::Here(gang) = &pass.observed.gang else {
        return SeenStore::Unused;
    };
    let Some(report) = gang.coordinator.store() else {
        return SeenStore::Unused;
    };
    let shown = |text: &str| {
        let mut text = diagnose::shown(text);
        text.truncate(text.floor_char_boundary(WHY_BYTES));
        text
    };
    match &report.seen {
        None => SeenStore::Unknown(shown(&report.why)),
        Some(store) => SeenStore::Seen {
            store: Box::new(
                StoreSeen {
                    why: store.why.as_deref().map(shown),
                    ..(**store).clone()
                }
                .believed(),
            ),
            at: pass.now.checked_sub(REPORT_AGE).unwrap_or(pass.now),
        },
    }
}

fn take(pass: &mut Pass<'_>, store: &StoreSeen) {
    let uid = pass.job.uid.as_deref();
    let record = &mut pass.status.trainyard;
    let attempt = record.attempt;
    let kept = record.checkpoint.get_or_insert_default();
    kept.newest.clone_from(&store.newest);
    // A job that was created again in its old folder follows on the attempts of the one before.
    if let Some(NewestAttempt {
        attempt: newest,
        job: Some(job),
        ..
    }) = &store.attempt
        && Some(job.uid.as_str()) == uid
    {
        kept.earlier_attempts = newest.checked_sub(job.attempt);
    }
    kept.uncommitted = store.uncommitted;
    kept.why.clone_from(&store.why);
    kept.unreadable_since = None;
    if kept.attempt == attempt
        && let Some(newest) = &store.attempt
        && kept.store_attempt(attempt) == Some(newest.attempt)
    {
        kept.resumed_from = Some(newest.from);
    }
}

/// Moves the time for which training stood still from training to saving. The store shows it once the save is committed, so it is taken from the
/// open span, which the stall was a part of or is as long ago as a save takes.
fn count_stalls(pass: &mut Pass<'_>, store: &StoreSeen) {
    let record = &mut pass.status.trainyard;
    let Some(kept) = &mut record.checkpoint else {
        return;
    };
    let own = kept.store_attempt(record.attempt);
    if kept.attempt != record.attempt || own.is_none() {
        return;
    }
    let fresh = store.saves.iter().filter(|save| {
        Some(save.attempt) == own && kept.counted_step.is_none_or(|last| save.step > last)
    });
    let (mut stalled, mut last) = (0_u64, kept.counted_step);
    for save in fresh {
        stalled = stalled.saturating_add(save.snapshot_ms.unwrap_or(0));
        last = last.max(Some(save.step));
    }
    kept.counted_step = last;
    if stalled > 0 {
        record.ledger.stalled(record.attempt, stalled, pass.now);
    }
}

/// Reports once that an attempt began at the beginning although a step was complete. A program that counts its steps from where it resumed
/// is known by its record in the store.
fn report_not_restored(pass: &mut Pass<'_>, at: Timestamp) {
    let record = &pass.status.trainyard;
    let attempt = record.attempt;
    let (Some(kept), Some(progress)) = (&record.checkpoint, pass.observed.progress) else {
        return;
    };
    let began = progress.first_step.filter(|_| progress.attempt == attempt);
    let (Some(began), Some(step)) = (began, kept.resume_step) else {
        return;
    };
    let restored = matches!(
        kept.resumed_from,
        Some(ResumedFrom::Step(_) | ResumedFrom::Unknown)
    );
    // What was seen before the first step may be from before the attempt took its record, and a report of an earlier attempt says nothing of it.
    let took_record = kept.resumed_from == Some(ResumedFrom::Nothing);
    let late_enough = took_record || (at >= progress.first_at && reported_on(pass, attempt));
    let reported = kept.not_restored || kept.attempt != attempt;
    if began > FIRST_STEPS || step <= FIRST_STEPS || restored || reported || !late_enough {
        return;
    }
    let path = pass.job.settings.checkpoints.as_deref().unwrap_or_default();
    let message = format!(
        "attempt {attempt} began at step {began} although step {step} is complete in `{path}`; the program did not restore it"
    );
    pass.emit(EventKind::Warning, EventReason::NotRestored, message);
    if let Some(kept) = &mut pass.status.trainyard.checkpoint {
        kept.not_restored = true;
    }
}

/// Whether what was seen is about `attempt`: a leader's report names the attempt whose program ran.
fn reported_on(pass: &Pass<'_>, attempt: u32) -> bool {
    let SeenGang::Here(gang) = &pass.observed.gang else {
        return true;
    };
    let is_own = pass.observed.store != SeenStore::Unused;
    let report = gang.coordinator.store();
    is_own || report.is_some_and(|report| report.attempt == attempt)
}

/// Settles what the pods of the attempt in the status are given, as long as it has none.
pub(super) fn settle(pass: &mut Pass<'_>) {
    let record = &mut pass.status.trainyard;
    let attempt = record.attempt;
    let mut pods = pass.observed.pods.iter();
    let has_pods = record.formed || pods.any(|pod| pod.attempt == attempt);
    if pass.job.settings.checkpoints.is_none() || attempt == 0 || has_pods {
        return;
    }
    let kept = record.checkpoint.get_or_insert_default();
    let (earlier, step) = match &pass.observed.store {
        // Where nobody can look before there are pods, attempts of the store are those of the job, and the last report holds. A step that the
        // attempt before resumed from without saving another one may be what it died of: programs then look into the store themselves.
        SeenStore::Unused => {
            let readable = kept.unreadable_since.is_none();
            let step = kept.newest.as_ref().map(|newest| newest.step);
            let step = step.filter(|step| {
                if kept.attempt == attempt {
                    // Settled in an earlier pass; the last save of the attempt before may have been reported since.
                    kept.resume_step.is_some_and(|settled| *step >= settled)
                } else {
                    readable && kept.resumed_from != Some(ResumedFrom::Step(*step))
                }
            });
            (Some(0), step)
        }
        SeenStore::Unknown(_) => (None, None),
        SeenStore::Seen { store, .. } => {
            let newest = store.attempt.as_ref().map_or(0, |newest| newest.attempt);
            let step = store.newest.as_ref().map(|newest| newest.step);
            (Some(newest), step)
        }
    };
    if attempt == 1 {
        kept.earlier_attempts = earlier;
    }
    *kept = CheckpointRecord {
        attempt,
        resume_step: step,
        resumed_from: None,
        not_restored: false,
        counted_step: None,
        ..std::mem::take(kept)
    };
}
