//! A stored run as `ps` and `status` report it.

use jiff::Timestamp;

use super::Stored;
use crate::{
    job_report::{JobReport, JobRow, Origin, Processes, budget, checkpoint_step},
    run::names,
};

impl Stored {
    /// The entry of `ps`.
    pub(crate) fn row(&self) -> JobRow {
        let record = &self.record;
        let reported = self.progress.as_ref();
        let ended = self.report.as_ref();
        // What was written last, and before a version that wrote it, what the other files say.
        let written_loss = match ended {
            Some(report) => report.last_loss,
            None => reported.and_then(|reported| reported.loss),
        };
        let loss = self.progress_record().and_then(|record| record.loss);
        let furthest_step = reported.map(|reported| reported.furthest_step);
        JobRow {
            job: record.name.clone(),
            kind: record.kind.clone(),
            namespace: record.namespace.clone(),
            origin: Origin::Machine {
                run_id: self.folder.id.clone(),
                folder: self.folder.path.clone(),
                pid: self.live.then_some(record.pid),
                processes: self.processes(),
            },
            state: self.state(),
            live: self.live,
            attempts: self.attempts(),
            pods: self.pods(),
            created_at: Some(record.started_at),
            started_at: Some(record.started_at),
            ended_at: ended.map(|report| report.ended_at),
            last_step: match ended {
                Some(report) => report.last_step,
                None => furthest_step.max(self.status.trainyard.ledger.best_step),
            },
            last_loss: loss.map(|loss| loss.0).or(written_loss),
            attempt_step: reported
                .filter(|reported| reported.attempt == self.attempts())
                .map(|reported| reported.step),
            checkpoint_step: checkpoint_step(&self.status),
        }
    }

    /// The answer of `status`.
    pub(crate) fn report(&self, now: Timestamp) -> JobReport {
        let row = self.row();
        let times = &self.status.trainyard.ledger;
        // Nothing is known of the time after an engine died.
        let until = match (&self.report, times.open) {
            (Some(report), _) => report.ended_at,
            (None, Some(span)) if !self.live => span.since,
            _ => now,
        };
        let (ledger, trained_ratio) = match &self.report {
            Some(report) => (report.ledger.clone(), report.trained_ratio),
            None => (times.totals(until), times.ettr(until)),
        };
        let died = "its engine died without a report; no process of it is left";
        let interrupted = row.state == "Interrupted";
        JobReport {
            budget: budget(&self.status, &self.record.limits),
            progress: self.progress_record().cloned(),
            stalled: self.stall(now),
            ledger,
            timeline: times.spans(until),
            trained_ratio,
            failures: Some(self.failures.clone()),
            places: None,
            status: self.status.clone(),
            replicas: self.record.replicas.clone(),
            limits: self.record.limits.clone(),
            notes: Vec::from_iter(interrupted.then(|| ("note", died.to_owned()))),
            more: vec![("run", self.folder.path.display().to_string())],
            row,
        }
    }

    /// The processes of every pod; none of a run that is over.
    fn processes(&self) -> Vec<Processes> {
        if !self.live {
            return Vec::new();
        }
        // A run of an older version has no such file.
        let pods = self.folder.pods().unwrap_or_default();
        let record = &self.record;
        let pods = pods.into_iter().map(|pod| Processes {
            rank: record
                .ranks
                .of_pod(&record.replicas, pod.slot)
                .map(|held| *held.start()),
            attempt: pod.attempt,
            pids: pod.processes(),
            init_pid: pod.pid,
            short_name: names::short(pod.slot),
            pod: pod.pod,
        });
        pods.collect()
    }
}
