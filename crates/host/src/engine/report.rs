//! The report at the end of a run.

use jiff::Timestamp;
use trainyard_core::job::{ConditionType, ProgressRecord};

use super::Engine;
use crate::store::{Outcome, RunReport, VERSION};

impl Engine<'_> {
    pub(super) fn report(&self) -> RunReport {
        let now = Timestamp::now();
        let outcome = if self.holds(ConditionType::Succeeded) {
            Outcome::Succeeded
        } else if self.holds(ConditionType::Failed) {
            Outcome::Failed
        } else {
            Outcome::Stopped
        };
        let already_succeeded = self
            .volumes
            .already_succeeded(outcome, self.first_step)
            .map(str::to_owned);
        let folder = self.writer.folder();
        let record = &self.status.trainyard;
        let last = self.status.conditions.last();
        // An attempt may also end for what its ranks talk over, without any that failed.
        let decided = record.last_failure.as_ref();
        let decided = decided.and_then(|last| last.verdict.clone());
        let concluded = self.failures.last().and_then(|last| last.verdict.clone());
        // Where pods restart alone, only the first failure of an attempt is kept, and another may have ended it.
        let verdicts = concluded.into_iter().chain(decided);
        RunReport {
            version: VERSION,
            job: folder.job.clone(),
            run_id: folder.id.clone(),
            folder: folder.path.clone(),
            outcome,
            message: last.map_or_else(String::new, |condition| condition.message.clone()),
            started_at: self.started_at,
            ended_at: now,
            attempts: record.attempt,
            spent: record.spent,
            failures: self.failures.clone(),
            verdict: verdicts
                .max_by_key(|verdict| verdict.attempt)
                .filter(|_| outcome == Outcome::Failed),
            ledger: record.ledger.totals(now),
            trained_ratio: record.ledger.ettr(now),
            last_step: self.last_step,
            last_loss: self.last_loss,
            progress: self
                .track
                .progress(self.tracked, now)
                .as_ref()
                .map(ProgressRecord::from),
            injections: self.injection_results(outcome, already_succeeded.as_deref()),
            already_succeeded,
            status: self.status.clone(),
        }
    }
}
