//! The history of one run: its facts as far as they were read, completed by what its status says.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use trainyard_core::{
    chronicle::{Chronicle, Fact, FirstFailure, Places, Seen, What, adds_up},
    ledger::Ledger,
    view::pyramid::Pyramid,
};
use trainyard_host::{
    FailedRank,
    store::{RunFolder, StoreError},
};

use crate::stored::Stored;

/// Numbers that are kept; further names are counted.
const NAMES_MAX: usize = 64;
/// Longest name of a number.
const NAME_BYTES: usize = 64;

/// The history of one run.
#[derive(Debug, Default)]
pub(super) struct History {
    facts: Chronicle,
    pub(super) series: BTreeMap<String, Pyramid>,
    /// Where reading continues.
    offset: u64,
    /// Whether the run has facts at all: one of an older version has none.
    pub(super) is_recorded: bool,
    /// Lines that are not facts.
    pub(super) unread: u64,
    /// Bytes that are behind the most that is read.
    pub(super) left_out: u64,
    /// Points of names for which there was no room.
    names_left_out: u64,
    /// The history as it was last asked for, with the ledger that it was completed from.
    current: Option<(u64, Ledger, Arc<Chronicle>)>,
}

impl History {
    /// Reads the facts that are new.
    pub(super) fn refresh(&mut self, folder: &RunFolder) -> Result<(), StoreError> {
        let begin = self.offset;
        let read = folder.read_facts(begin, |fact| self.add(&fact))?;
        let Some(read) = read else {
            // Removed, or of an older version.
            if self.is_recorded {
                *self = Self::default();
            }
            return Ok(());
        };
        if read.next < begin {
            *self = Self::default();
            return self.refresh(folder);
        }
        self.offset = read.next;
        self.is_recorded = true;
        self.unread += read.unread;
        self.left_out = read.left_out;
        Ok(())
    }

    fn add(&mut self, fact: &Fact) {
        if !self.facts.apply(fact) {
            return;
        }
        let What::Point { name, value } = &fact.what else {
            return;
        };
        let is_new = !self.series.contains_key(name);
        if is_new && (self.series.len() >= NAMES_MAX || name.len() > NAME_BYTES) {
            self.names_left_out += 1;
            return;
        }
        let series = self.series.entry(name.clone()).or_default();
        series.push(fact.at, value.0);
    }

    /// The history of `run` at `until`, with exactly the time of its ledger. Facts are written once in a while, and an engine that was killed has
    /// not written its last ones: what the status has more is completed from there.
    pub(super) fn chronicle(&mut self, run: &Stored, until: Timestamp) -> Arc<Chronicle> {
        let ledger = &run.status.trainyard.ledger;
        if let Some((offset, known, chronicle)) = &self.current
            && *offset == self.offset
            && known == ledger
        {
            return Arc::clone(chronicle);
        }
        let chronicle = if self.is_recorded && self.facts.began.is_some() {
            completed(self.facts.clone(), run, until)
        } else {
            of_status(run, until)
        };
        let chronicle = Arc::new(chronicle);
        self.current = Some((self.offset, ledger.clone(), Arc::clone(&chronicle)));
        chronicle
    }
}

/// The history that the last status and the first failures of attempts give.
pub(crate) fn of_status(run: &Stored, until: Timestamp) -> Chronicle {
    let failures: Vec<FirstFailure> = run.failures.iter().map(first_failure).collect();
    Chronicle::of_stored(&seen(run), &failures, &places(run), until)
}

/// The history of `facts` with exactly the time of the ledger of `run`.
pub(crate) fn completed(facts: Chronicle, run: &Stored, until: Timestamp) -> Chronicle {
    let ledger = &run.status.trainyard.ledger;
    if adds_up(&facts, ledger, until) && facts.ended.is_some() == ledger.ended.is_some() {
        return facts;
    }
    let mut completed = facts.clone();
    completed.record(None, &seen(run), &places(run), until);
    // The status has no pods, which does not mean that they are gone.
    completed.lanes.clone_from(&facts.lanes);
    if adds_up(&completed, ledger, until) {
        return completed;
    }
    // Lines are missing between: the sums of the status count, without an order.
    let plain = of_status(run, until);
    completed.began = plain.began;
    completed.stretches = plain.stretches;
    completed.open = plain.open;
    completed.ended = plain.ended;
    completed
}

pub(crate) fn seen(run: &Stored) -> Seen<'_> {
    Seen {
        status: &run.status,
        pods: &[],
    }
}

pub(crate) fn places(run: &Stored) -> Places {
    run.record.ranks.places(&run.record.replicas)
}

fn first_failure(failed: &FailedRank) -> FirstFailure {
    let code = failed.code;
    let message = match (&failed.signal, failed.out_of_memory) {
        (_, true) => format!("it ran out of memory (exit code {code})"),
        (Some(signal), false) => format!("it was ended by {signal} (exit code {code})"),
        (None, false) => format!("exit code {code}"),
    };
    let injected = failed.injected.as_ref();
    let injected = injected.map(|fault| format!("; injected by `{fault}`"));
    FirstFailure {
        attempt: failed.attempt,
        slot: failed.slot,
        pod: failed.pod.clone(),
        at: failed.at,
        message: message + &injected.unwrap_or_default(),
        verdict: failed.verdict.clone(),
    }
}

/// Until when something is known of a run: nothing is of the time after an engine died. One that was killed before it wrote where the time goes is known until
/// the last thing that it wrote.
pub(crate) fn known_until(run: &Stored, now: Timestamp) -> Timestamp {
    let ledger = &run.status.trainyard.ledger;
    match (&run.report, ledger.open) {
        (Some(report), _) => report.ended_at,
        _ if run.live => now,
        (None, Some(span)) => span.since,
        (None, None) => {
            let step = run.progress_record().map(|progress| progress.last_step_at);
            let failure = run.failures.last().map(|failed| failed.at);
            let known = [ledger.began, ledger.ended, step, failure];
            let known = known.into_iter().flatten();
            known.fold(run.record.started_at, Timestamp::max)
        }
    }
}
