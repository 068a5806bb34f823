//! The report at the end of a run.

use jiff::Timestamp;
use trainyard_core::job::ConditionType;

use super::Engine;
use crate::store::{FailedRank, Outcome, RunReport, VERSION};

/// Lines of a failed container that the report shows.
const LAST_LINES: usize = 20;

impl Engine<'_> {
    pub(super) fn report(&mut self) -> RunReport {
        let now = Timestamp::now();
        let outcome = if self.holds(ConditionType::Succeeded) {
            Outcome::Succeeded
        } else if self.holds(ConditionType::Failed) {
            Outcome::Failed
        } else {
            Outcome::Stopped
        };
        let folder = self.writer.folder();
        let mut failures = std::mem::take(&mut self.failures);
        for failure in &mut failures {
            // A log that cannot be read takes its lines with it, not the report.
            let logs = folder.logs(failure.attempt).unwrap_or_default();
            let own = logs.iter().find(|log| is_of(log, failure));
            let lines = own.and_then(|log| log.last_lines(LAST_LINES).ok());
            failure.last_lines = lines.unwrap_or_default();
        }
        let yard = &self.status.trainyard;
        let last = self.status.conditions.last();
        RunReport {
            version: VERSION,
            job: folder.job.clone(),
            run_id: folder.id.clone(),
            folder: folder.path.clone(),
            outcome,
            message: last.map_or_else(String::new, |condition| condition.message.clone()),
            started_at: self.started_at,
            ended_at: now,
            attempts: yard.attempt,
            spent: yard.spent,
            failures,
            ledger: yard.ledger.totals(now),
            trained_ratio: yard.ledger.ettr(now),
            last_step: self.last_step,
            last_loss: self.last_loss,
            status: self.status.clone(),
        }
    }
}

fn is_of(log: &crate::store::LogFile, failure: &FailedRank) -> bool {
    log.pod == failure.pod && log.container == failure.container
}
