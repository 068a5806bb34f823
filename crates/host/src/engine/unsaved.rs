//! Writes to the store while the job runs, so that other terminals see it, and so that it is
//! known after an engine that was killed: what failed first, and how far the job is.
//!
//! Invariant: nothing is written between the end of a rank and what was decided about it, and
//! progress is written at most once in [`PROGRESS_EVERY`].

use std::time::Instant;

use nix::sys::signal::Signal;
use trainyard_core::{
    diagnose::VerdictSummary,
    job::{PodPhase, ProgressRecord},
};

use super::{Engine, PROGRESS_EVERY, start, table::Key};
use crate::{
    Ranks,
    request::RunEvent,
    store::{FailedRank, LogFile, StoredPod, StoredProgress, VERSION},
};

/// First failures kept, one for each attempt: that of the run, and the last ones.
const FAILURES_KEPT: usize = 16;
/// Lines of a failed container that are kept with its failure.
const LAST_LINES: usize = 20;

/// What was seen and is not in the store yet.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    /// The last failure is new to the caller.
    event: bool,
    /// The store does not have the last failure, or not its last lines.
    failure: bool,
    /// The pod of the last failure, while it may still write.
    writes_on: Option<Key>,
    /// Progress is to be written.
    pub(super) progress: bool,
    progress_written: Option<Instant>,
}

impl Unsaved {
    /// Whether the last failure is new to the caller.
    pub(super) fn has_new_failure(&self) -> bool {
        self.event
    }

    /// When progress that waits may be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let written = self.progress_written.filter(|_| self.progress)?;
        Some(written + PROGRESS_EVERY)
    }
}

/// How a container ended that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    pub(super) container: &'a str,
    pub(super) code: i32,
    /// Whether a signal ended it.
    pub(super) signaled: bool,
    pub(super) out_of_memory: bool,
    /// Whether the container starts again in its pod.
    pub(super) starts_again: bool,
}

impl Engine<'_> {
    /// Keeps the first failure of each attempt.
    pub(super) fn note_failure(&mut self, key: Key, end: End<'_>) {
        let Some(entry) = self.pods.get(&key) else {
            return;
        };
        let known = self
            .failures
            .last()
            .is_some_and(|failure| failure.attempt == entry.attempt);
        if end.code == 0 || known || entry.deleted_at.is_some() {
            return;
        }
        let signal = end
            .signaled
            .then(|| Signal::try_from(end.code - 128).ok())
            .flatten()
            .map(|signal| signal.as_str().to_owned());
        let ranks = Ranks::of(self.job).of_pod(&self.job.replicas(), entry.slot);
        let failure = FailedRank {
            attempt: entry.attempt,
            slot: entry.slot,
            pod: entry.name.clone(),
            rank: ranks.as_ref().map(|ranks| *ranks.start()),
            ranks: ranks.map_or(0, |ranks| ranks.end() - ranks.start() + 1),
            container: end.container.to_owned(),
            code: end.code,
            signal,
            out_of_memory: end.out_of_memory,
            injected: entry.injected.clone(),
            at: start::now(),
            last_lines: Vec::new(),
            verdict: None,
        };
        if self.failures.len() == FAILURES_KEPT {
            // What failed first of all stays.
            self.failures.remove(1);
        }
        self.failures.push(failure);
        self.unsaved.event = true;
        self.unsaved.failure = true;
        self.unsaved.writes_on = Some(key);
        if end.starts_again {
            // The next lines of its log belong to the container that starts in its place.
            self.keep_last_lines(key);
        }
    }

    /// Keeps what the doctor concludes about the last failure.
    pub(super) fn note_verdict(&mut self, verdict: Option<VerdictSummary>) {
        if let Some(failure) = self.failures.last_mut()
            && failure.verdict != verdict
        {
            failure.verdict = verdict;
            self.unsaved.failure = true;
        }
    }

    /// Keeps what the doctor concludes about an end of `pod`, where that is the failure that is kept of the attempt.
    pub(super) fn note_verdict_on_end(
        &mut self,
        pod: &str,
        attempt: u32,
        verdict: Option<VerdictSummary>,
    ) {
        let last = self.failures.last();
        let is_kept = last.is_some_and(|failed| failed.attempt == attempt && failed.pod == pod);
        if is_kept && self.unsaved.event {
            self.note_verdict(verdict);
        }
    }

    /// A pod has written its last.
    pub(super) fn output_ended(&mut self, key: Key) {
        if self.unsaved.writes_on == Some(key) {
            self.unsaved.writes_on = None;
            self.unsaved.failure = true;
            self.read_last_lines();
        }
    }

    /// Emits a new failure to the caller, after the output of its pod.
    pub(super) fn emit_failure(&mut self) {
        if !std::mem::take(&mut self.unsaved.event) {
            return;
        }
        self.read_failed_pod_output();
        if let Some(failure) = self.failures.last() {
            (self.sink)(RunEvent::FailedFirst(Box::new(failure.clone())));
        }
    }

    /// Reads what the pod of the last failure wrote before now.
    pub(super) fn read_failed_pod_output(&mut self) {
        if let Some(key) = self.unsaved.writes_on {
            self.read_pipes(key);
        }
    }

    /// Writes to the store what was seen since.
    pub(super) fn write_store(&mut self, now: Instant) {
        if std::mem::take(&mut self.unsaved.failure) {
            if let Some(key) = self.unsaved.writes_on {
                self.read_pipes(key);
                self.read_last_lines();
            }
            let failures = std::mem::take(&mut self.failures);
            self.note_store(|writer| writer.write_failures(&failures));
            self.failures = failures;
        }
        if std::mem::take(&mut self.pods_changed) {
            let there = self.pods.values().filter(|entry| !entry.gone);
            let mut pods: Vec<StoredPod> = there
                .filter_map(|entry| {
                    Some(StoredPod {
                        slot: entry.slot,
                        pod: entry.name.clone(),
                        attempt: entry.attempt,
                        pid: entry.pid?,
                        running: entry.phase == PodPhase::Running,
                    })
                })
                .collect();
            pods.sort_by_key(|pod| pod.slot);
            self.note_store(|writer| writer.write_pods(pods));
        }
        let may = self.unsaved.due().is_none_or(|due| due <= now);
        if self.unsaved.progress
            && may
            && let Some(progress) = self.track.progress(self.tracked, start::now())
        {
            self.unsaved.progress = false;
            self.unsaved.progress_written = Some(now);
            let stored = StoredProgress {
                version: VERSION,
                attempt: progress.attempt,
                step: progress.step,
                loss: self.last_loss,
                at: progress.at,
                furthest_step: self.last_step.unwrap_or(progress.step),
                progress: Some(ProgressRecord::from(&progress)),
            };
            self.note_store(|writer| writer.write_progress(&stored));
        }
    }

    fn keep_last_lines(&mut self, key: Key) {
        self.read_pipes(key);
        self.read_last_lines();
        self.unsaved.writes_on = None;
    }

    /// Reads what a pod wrote before now: at most what its pipes hold.
    pub(super) fn read_pipes(&mut self, key: Key) {
        let streams = self.pods.get(&key).map_or(0, |entry| entry.outputs.len());
        for at in 0..streams {
            self.read_output(key, at);
        }
    }

    /// Takes the last lines of the last failure from its log.
    fn read_last_lines(&mut self) {
        let folder = self.writer.folder();
        let Some(failure) = self.failures.last_mut() else {
            return;
        };
        // A log that cannot be read takes its lines with it, not the failure.
        let logs = folder.logs(failure.attempt).unwrap_or_default();
        let is_own = |log: &&LogFile| log.pod == failure.pod && log.container == failure.container;
        let lines = logs.iter().find(is_own);
        let lines = lines.and_then(|log| log.last_lines(LAST_LINES).ok());
        failure.last_lines = lines.unwrap_or_default();
    }
}
