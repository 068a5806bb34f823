//! What failed first in each attempt, with its last lines and the doctor's verdict.
//!
//! Invariant: one failure of each attempt is kept, and that of the run is never dropped for a later one.

use jiff::Timestamp;
use nix::sys::signal::Signal;
use trainyard_core::{diagnose::VerdictSummary, spec::Job};

use super::table::{Entry, Key};
use crate::{
    Ranks,
    store::{FailedRank, LogFile, RunFolder},
};

/// First failures kept, one for each attempt: that of the run, and the last ones.
const FAILURES_KEPT: usize = 16;
/// Lines of a failed container that are kept with its failure.
const LAST_LINES: usize = 20;

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

/// The first failure of each attempt.
#[derive(Debug, Default)]
pub(super) struct Failures {
    kept: Vec<FailedRank>,
    /// The last failure is new to the caller.
    unreported: bool,
    /// The store does not have the last failure, or not its last lines.
    unsaved: bool,
    /// The pod of the last failure, while it may still write.
    writes_on: Option<Key>,
    /// Why an attempt is ended from here: the verdict on its failure.
    expected: Option<VerdictSummary>,
}

impl Failures {
    /// Keeps the end of a pod if it is the first failure of its attempt; whether it is.
    pub(super) fn add(&mut self, job: &Job, key: Key, entry: &Entry, end: End<'_>) -> bool {
        let known = self
            .last()
            .is_some_and(|failure| failure.attempt == entry.attempt);
        if end.code == 0 || known || entry.deleted_at.is_some() {
            return false;
        }
        let signal = end
            .signaled
            .then(|| Signal::try_from(end.code - 128).ok())
            .flatten()
            .map(|signal| signal.as_str().to_owned());
        let ranks = Ranks::of(job).of_pod(&job.replicas(), entry.slot);
        if self.kept.len() == FAILURES_KEPT {
            // What failed first of all stays.
            self.kept.remove(1);
        }
        self.kept.push(FailedRank {
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
            at: Timestamp::now(),
            last_lines: Vec::new(),
            verdict: self.expected_of(entry.attempt).cloned(),
        });
        self.unreported = true;
        self.unsaved = true;
        self.writes_on = Some(key);
        true
    }

    /// A rank is about to be ended for what `verdict` says.
    pub(super) fn expect(&mut self, verdict: VerdictSummary) {
        self.expected = Some(verdict);
    }

    /// Whether `attempt` was ended for a verdict that was known before.
    pub(super) fn is_expected(&self, attempt: u32) -> bool {
        self.expected_of(attempt).is_some()
    }

    fn expected_of(&self, attempt: u32) -> Option<&VerdictSummary> {
        let expected = self.expected.as_ref();
        expected.filter(|expected| expected.attempt == attempt)
    }

    pub(super) fn all(&self) -> &[FailedRank] {
        &self.kept
    }

    pub(super) fn last(&self) -> Option<&FailedRank> {
        self.kept.last()
    }

    /// What the doctor concluded about the last failure.
    pub(super) fn verdict(&self) -> Option<VerdictSummary> {
        self.last()?.verdict.clone()
    }

    /// Keeps what the doctor concludes about the last failure.
    pub(super) fn set_verdict(&mut self, verdict: Option<VerdictSummary>) {
        if let Some(failure) = self.kept.last_mut()
            && failure.verdict != verdict
        {
            failure.verdict = verdict;
            self.unsaved = true;
        }
    }

    /// Keeps what the doctor concludes about an end of `pod`, where that is the failure that is kept of the attempt.
    pub(super) fn set_verdict_on_end(
        &mut self,
        pod: &str,
        attempt: u32,
        verdict: Option<VerdictSummary>,
    ) {
        let last = self.last();
        let is_kept = last.is_some_and(|failed| failed.attempt == attempt && failed.pod == pod);
        if is_kept && self.unreported {
            self.set_verdict(verdict);
        }
    }

    /// Whether the last failure is new to the caller.
    pub(super) fn is_unreported(&self) -> bool {
        self.unreported
    }

    /// The last failure, where it is new to the caller.
    pub(super) fn take_unreported(&mut self) -> Option<FailedRank> {
        let unreported = std::mem::take(&mut self.unreported);
        self.kept.last().filter(|_| unreported).cloned()
    }

    /// The pod of the last failure, while it may still write.
    pub(super) fn writes_on(&self) -> Option<Key> {
        self.writes_on
    }

    /// Whether the store lacks something of the failures.
    pub(super) fn take_unsaved(&mut self) -> bool {
        std::mem::take(&mut self.unsaved)
    }

    /// What `key` writes from now on, if anything, does not belong to its failure.
    pub(super) fn output_ended(&mut self, key: Key, folder: &RunFolder) {
        if self.writes_on == Some(key) {
            self.writes_on = None;
            self.unsaved = true;
            self.read_last_lines(folder);
        }
    }

    /// Takes the last lines of the last failure from its log.
    pub(super) fn read_last_lines(&mut self, folder: &RunFolder) {
        let Some(failure) = self.kept.last_mut() else {
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
