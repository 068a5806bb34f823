//! The report at the end of a run.

use jiff::Timestamp;
use trainyard_core::job::{ConditionType, ProgressRecord};

use super::Engine;
use crate::store::{Outcome, RunReport, VERSION};

impl Engine<'_> {
    pub(super) fn report(&self) -> RunReport {
        let now = Timestamp::now();
        let outcome = if self.stored.holds(ConditionType::Succeeded) {
            Outcome::Succeeded
        } else if self.stored.holds(ConditionType::Failed) {
            Outcome::Failed
        } else {
            Outcome::Stopped
        };
        let already_succeeded = self
            .volumes
            .already_succeeded(outcome, self.steps.first)
            .map(str::to_owned);
        let folder = self.outlet.writer.folder();
        let record = &self.stored.status.trainyard;
        let last = self.stored.status.conditions.last();
        // An attempt may also end for what its ranks talk over, without any that failed.
        let decided = record.last_failure.as_ref();
        let decided = decided.and_then(|last| last.verdict.clone());
        let concluded = self.failures.verdict();
        // Where pods restart alone, only the first failure of an attempt is kept, and another may have ended it.
        let verdicts = concluded.into_iter().chain(decided);
        RunReport {
            version: VERSION,
            job: folder.job.clone(),
            run_id: folder.id.clone(),
            folder: folder.path.clone(),
            outcome,
            message: last.map_or_else(String::new, |condition| condition.message.clone()),
            started_at: self.outlet.writer.started_at(),
            ended_at: now,
            attempts: record.attempt,
            spent: record.spent,
            failures: self.failures.all().to_vec(),
            verdict: verdicts
                .max_by_key(|verdict| verdict.attempt)
                .filter(|_| outcome == Outcome::Failed),
            ledger: record.ledger.totals(now),
            trained_ratio: record.ledger.ettr(now),
            last_step: self.steps.last,
            last_loss: self.steps.last_loss,
            progress: self.steps.progress(now).as_ref().map(ProgressRecord::from),
            injections: self
                .faults
                .results(outcome, &self.steps, already_succeeded.as_deref()),
            already_succeeded,
            status: self.stored.status.clone(),
        }
    }
}
