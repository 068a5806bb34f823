//! What diagnoses concluded about the attempts of a run, with the lines that they rest on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use trainyard_core::{chronicle::KeptVerdict, view::rows::Ending};
use trainyard_web::Problem;

use super::{
    super::shared::{ShownVerdict, Verdicts, shown_verdicts},
    lock,
    run::{Moment, RunSlot},
};
use crate::command::doctor;

/// Attempts whose logs are read again, the newest ones that failed.
const DIAGNOSED: usize = 4;
/// Logs with more bytes than this are not read for a page: `trainyard doctor` does it.
const BYTES_MAX: u64 = 2 << 30;

/// What was concluded from the logs of attempts, by attempt; with their bytes, which show that more was written.
pub(super) type Diagnoses = BTreeMap<u32, (u64, Option<KeptVerdict>)>;

impl RunSlot {
    /// The last verdict on each attempt, the newest attempt first.
    pub(super) fn verdicts(&self, now: Timestamp) -> Result<Vec<ShownVerdict>, Problem> {
        let moment = self.moment(now)?;
        let mut by_attempt = Verdicts::new();
        for (at, verdict) in &moment.chronicle.verdicts {
            let verdict = verdict.clone();
            by_attempt.insert(verdict.summary.attempt, (Some(*at), verdict));
        }
        // A run of an older version has them in its report alone.
        let report = moment.stored.report.as_ref();
        let failures = moment.stored.failures.iter();
        let stored = failures
            .filter_map(|it| Some((it.at, it.verdict.clone()?)))
            .chain(report.and_then(|report| Some((report.ended_at, report.verdict.clone()?))));
        for (at, summary) in stored {
            by_attempt
                .entry(summary.attempt)
                .or_insert_with(|| (Some(at.as_millisecond()), summary.into()));
        }
        for attempt in failed_attempts(&moment) {
            let known = by_attempt.get(&attempt).map(|(_, verdict)| verdict);
            if known.is_some_and(|known| !known.evidence.is_empty()) {
                continue;
            }
            let found = self.diagnose(&moment, attempt);
            let Some(found) = found else { continue };
            let headlines = moment.chronicle.headlines.iter();
            let failed = headlines
                .filter(|(_, it)| it.attempt == attempt)
                .map(|(at, _)| *at)
                .next_back();
            match by_attempt.get_mut(&attempt) {
                // What was decided on stands; the logs only show what it rests on.
                Some((_, known)) if known.summary.label == found.summary.label => {
                    known.evidence = found.evidence;
                    known.refuted_by = found.refuted_by;
                }
                Some(_) => {}
                None => {
                    by_attempt.insert(attempt, (failed, found));
                }
            }
        }
        Ok(shown_verdicts(by_attempt))
    }

    /// What `trainyard doctor` concludes from the logs of an attempt, read once.
    fn diagnose(&self, moment: &Moment, attempt: u32) -> Option<KeptVerdict> {
        let bytes = self.log_bytes(attempt)?;
        if bytes > BYTES_MAX {
            return None;
        }
        let mut known = lock(&self.diagnoses);
        if let Some((of, verdict)) = known.get(&attempt)
            && *of == bytes
        {
            return verdict.clone();
        }
        let found = doctor::diagnose(&moment.stored, attempt).ok();
        let verdict = found.and_then(|(report, _)| {
            let summary = report.summary(attempt)?;
            Some(KeptVerdict::of(report.verdicts.first()?, summary))
        });
        known.insert(attempt, (bytes, verdict.clone()));
        verdict
    }

    /// How many bytes the logs of an attempt have.
    pub(super) fn log_bytes(&self, attempt: u32) -> Option<u64> {
        let logs = self.folder.logs(attempt).ok()?;
        let sizes = logs.iter().map(super::logs::size);
        Some(sizes.fold(0, u64::saturating_add))
    }
}

/// The newest attempts that failed.
fn failed_attempts(moment: &Moment) -> Vec<u32> {
    let stored = &moment.stored;
    let mut attempts: Vec<u32> = moment
        .chronicle
        .headlines
        .iter()
        .map(|(_, it)| it.attempt)
        .chain(stored.failures.iter().map(|it| it.attempt))
        .collect();
    let outcome = stored.report.as_ref().map(|report| report.outcome);
    if outcome.map(super::index::ending) == Some(Ending::Failed) {
        attempts.push(stored.attempts());
    }
    attempts.sort_unstable();
    attempts.dedup();
    let first = attempts.len().saturating_sub(DIAGNOSED);
    attempts.split_off(first)
}
