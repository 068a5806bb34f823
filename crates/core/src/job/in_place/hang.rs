//! A hang, or a loss that stays NaN, that the watch of the leader reported: the verdict on the attempt that it ends.

use crate::{
    account::Account,
    barrier::HangReport,
    diagnose::{self, Confidence, Depth, Retry, Rules, VerdictSummary},
    job::{Observed, SeenGang, verdict::NAN_LOSS},
    spec::{Job, OnNan, WatchMode},
    watch::RESTART_LABELS,
};

/// Characters of the sentence that are kept; the status is written to the API server.
const MAX_CHARS: usize = 400;

/// What is observed, with the hang as the doctor's verdict; nothing where there is none. Its log shows nothing of it, so what else was concluded
/// about the attempt does not count.
pub(in crate::job) fn with_hang(job: &Job, observed: &Observed) -> Option<Observed> {
    let SeenGang::Here(gang) = &observed.gang else {
        return None;
    };
    let record = &observed.status.trainyard;
    let hang = gang.coordinator.hang()?;
    if hang.attempt != record.attempt || record.barrier.is_some() || !acts_on(job, hang) {
        return None;
    }
    Some(Observed {
        verdict: Some(verdict(hang)),
        ..observed.clone()
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
