//! A hang, or a loss that stays NaN, that the watch of the leader reported: the verdict on the attempt that it ends.
//!
//! Where nobody watches the ranks, a log without steps is all there is. It ends an attempt only if the job says how long that may be.

use crate::{
    account::Account,
    barrier::HangReport,
    diagnose::{self, Confidence, Depth, Retry, Rules, VerdictSummary},
    job::{
        Observed, SeenGang,
        status::progress::{elapsed, time_words},
        verdict::NAN_LOSS,
    },
    spec::{Job, OnNan, RestartScope, WatchMode, leading_slot},
    watch::RESTART_LABELS,
};

/// The label of a hang of which only the log is known.
const SILENT_LOG: &str = "hang_silent_log";
/// Characters of the sentence that are kept; the status is written to the API server.
const MAX_CHARS: usize = 400;

/// What is observed, with the hang as the doctor's verdict; nothing where there is none. Its log shows nothing of it, so what else was concluded
/// about the attempt does not count.
pub(in crate::job) fn with_hang(job: &Job, observed: &Observed) -> Option<Observed> {
    let silent = silent_log(job, observed);
    let hang = match &observed.gang {
        SeenGang::Here(gang) => {
            let record = &observed.status.trainyard;
            let hang = gang.coordinator.hang()?;
            if hang.attempt != record.attempt || record.barrier.is_some() || !acts_on(job, hang) {
                return None;
            }
            hang
        }
        SeenGang::Unused | SeenGang::Unable(_) => silent.as_ref()?,
    };
    Some(Observed {
        verdict: Some(verdict(hang)),
        ..observed.clone()
    })
}

/// The hang of a gang whose log was read and has had no step for longer than `trainyard.dev/hang-after`, where nobody watches its ranks.
pub(super) fn silent_log(job: &Job, observed: &Observed) -> Option<HangReport> {
    let watched = observed.watches_ranks || matches!(observed.gang, SeenGang::Here(_));
    let acts = job.settings.watch == WatchMode::Act && job.restart_scope() == RestartScope::Gang;
    // What a job does not say is no reason to end it: an evaluation may print nothing for an hour.
    let limit = job.settings.hang_after.filter(|_| acts && !watched)?;
    let attempt = observed.status.trainyard.attempt;
    let progress = observed.progress.filter(|seen| seen.attempt == attempt)?;
    // What came after the last reading is not known, so it is no silence.
    let silence = elapsed(progress.at, progress.read_at);
    if silence < limit || progress.saving || progress.evaluating {
        return None;
    }
    Some(HangReport {
        attempt,
        slot: leading_slot(job)?,
        rank: None,
        label: SILENT_LOG.to_owned(),
        sentence: format!(
            "no step for {} in the log, and `trainyard.dev/hang-after` is {}; nobody inspected the ranks",
            time_words(silence),
            time_words(limit)
        ),
    })
}

/// Whether the job is to be restarted for what was found.
pub(super) fn acts_on(job: &Job, hang: &HangReport) -> bool {
    let is_member = hang.slot.index < job.role_replicas(hang.slot.role);
    // The report comes from a pod of the user: no other label is stored or shown.
    if !is_member || !RESTART_LABELS.contains(&hang.label.as_str()) {
        return false;
    }
    if hang.label == NAN_LOSS {
        job.settings.on_nan != OnNan::Report
    } else {
        job.settings.watch == WatchMode::Act
    }
}

/// Which failure budget it counts against, whether a retry helps and what to do are those of the label.
fn verdict(hang: &HangReport) -> VerdictSummary {
    let label = Rules::shared().label(&hang.label);
    let sentence = diagnose::shown(&hang.sentence);
    VerdictSummary {
        attempt: hang.attempt,
        label: hang.label.clone(),
        sentence: sentence.chars().take(MAX_CHARS).collect(),
        ranks: hang.rank.into_iter().collect(),
        nodes: Vec::new(),
        account: label.map_or(Account::User, |label| label.account),
        retry: label.map_or(Retry::MayHelp, |label| label.retry),
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: None,
        exception: None,
        signature: None,
        next: label.map(|label| label.next.clone()).unwrap_or_default(),
    }
}
