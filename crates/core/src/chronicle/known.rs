//! What is known of a job before it is observed: from the observation before, or from the history itself where that was read back.

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;

use super::{
    Chronicle,
    fact::{PodState, Save, Waiting, short},
    lane::{Lane, SeatTurn},
    observe::{self, FirstFailure, Seen},
    stretch::Stretch,
};
use crate::{
    checkpoint::CompleteStep,
    diagnose::VerdictSummary,
    job::{JobStatus, LastFailure, ProgressRecord, Spent},
    ledger::{AttemptSpans, Ledger},
    pod::ObservedPod,
    spec::Slot,
};

/// What is known of a job; by default nothing.
#[derive(Default)]
pub(super) struct Known<'a> {
    /// The attempt; 0 before the first.
    pub(super) attempt: u32,
    /// The failure that was reported last.
    pub(super) failure: Option<KnownFailure>,
    /// What was concluded last.
    pub(super) verdict: Option<&'a VerdictSummary>,
    /// The failure budget that was used.
    pub(super) spent: Spent,
    /// What it waited for.
    pub(super) waiting: Waiting,
    /// The newest checkpoint.
    pub(super) save: Option<KnownSave>,
    /// The numbers that were reported last.
    pub(super) points: KnownPoints<'a>,
    /// The time that is accounted for.
    pub(super) ledger: Cow<'a, Ledger>,
    /// Whether `ledger` was made of a history: its times are whole milliseconds and it has no timeline.
    pub(super) is_read_back: bool,
    /// The pods that there were.
    pub(super) pods: BTreeMap<Slot, KnownPod<'a>>,
}

/// A failure that was reported.
pub(super) struct KnownFailure {
    attempt: u32,
    pod: String,
    /// Nothing where only the first failure of the attempt is known, whose words may be others.
    message: Option<String>,
}

/// A checkpoint that was reported.
pub(super) struct KnownSave {
    step: u64,
    /// As the store counts attempts; a history has it as the job counts them.
    store_attempt: Option<u32>,
    attempt: Option<u32>,
}

/// Numbers that were reported.
pub(super) enum KnownPoints<'a> {
    /// These.
    Record(Option<&'a ProgressRecord>),
    /// Those until then.
    Until(i64),
}

/// A pod that was observed.
#[derive(Clone, Copy)]
pub(super) struct KnownPod<'a> {
    /// Its attempt.
    pub(super) attempt: u32,
    /// What it did.
    pub(super) state: PodState,
    /// Its last node, and the attempt that had it.
    seat: Option<(u32, &'a str)>,
    source: Source<'a>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Pod(&'a ObservedPod),
    /// A history, in which the pod changed last at this time.
    History(i64),
}

impl Default for KnownPoints<'_> {
    fn default() -> Self {
        Self::Record(None)
    }
}

impl<'a> Known<'a> {
    /// What an observation shows.
    pub(super) fn of_seen(seen: &Seen<'a>) -> Self {
        let record = &seen.status.trainyard;
        let failure = record.last_failure.as_ref();
        let pods = observe::by_slot(seen.pods).into_iter();
        Self {
            attempt: record.attempt,
            failure: failure.map(KnownFailure::of),
            verdict: failure.and_then(|failure| failure.verdict.as_ref()),
            spent: record.spent,
            waiting: observe::waiting(record.waiting.as_ref()),
            save: newest(seen.status).map(|save| KnownSave {
                step: save.step,
                store_attempt: Some(save.attempt),
                attempt: None,
            }),
            points: KnownPoints::Record(record.progress.as_ref()),
            ledger: Cow::Borrowed(&record.ledger),
            is_read_back: false,
            pods: pods
                .map(|(slot, pod)| (slot, KnownPod::of_pod(pod)))
                .collect(),
        }
    }

    /// What a history shows.
    pub(super) fn of_chronicle(chronicle: &'a Chronicle) -> Self {
        let lanes = chronicle.lanes.iter();
        Self {
            attempt: chronicle.attempts.back().map_or(0, |(_, attempt)| *attempt),
            failure: chronicle.headlines.back().map(|(_, it)| KnownFailure {
                attempt: it.attempt,
                pod: it.pod.clone(),
                message: None,
            }),
            verdict: chronicle.verdicts.back().map(|(_, it)| &it.summary),
            spent: chronicle.spent,
            waiting: chronicle.waiting.1.clone(),
            save: chronicle.saves.back().map(|(_, save)| KnownSave {
                step: save.step,
                store_attempt: None,
                attempt: save.attempt,
            }),
            points: chronicle
                .points_until
                .map_or_else(KnownPoints::default, KnownPoints::Until),
            ledger: Cow::Owned(ledger_of(chronicle).unwrap_or_default()),
            is_read_back: true,
            pods: lanes
                .filter_map(|(slot, lane)| Some((*slot, KnownPod::of_lane(lane)?)))
                .collect(),
        }
    }

    /// Nothing but that the last failure of `status` is one of `failures`, where it is: its headline is known, and so is its verdict where
    /// that failure has one.
    pub(super) fn of_failures(status: &'a JobStatus, failures: &[FirstFailure]) -> Self {
        let last = status.trainyard.last_failure.as_ref();
        let listed = last.and_then(|last| {
            let mut failures = failures.iter();
            failures.find(|failure| failure.attempt == last.attempt)
        });
        let (Some(last), Some(listed)) = (last, listed) else {
            return Self::default();
        };
        let verdict = last.verdict.as_ref();
        Self {
            failure: Some(KnownFailure::of(last)),
            verdict: verdict.filter(|_| listed.verdict.is_some()),
            ..Self::default()
        }
    }
}

impl KnownFailure {
    fn of(failure: &LastFailure) -> Self {
        Self {
            attempt: failure.attempt,
            pod: short(&failure.pod),
            message: Some(short(&failure.message)),
        }
    }

    pub(super) fn is(&self, failure: &LastFailure) -> bool {
        let message = self.message.as_ref();
        self.attempt == failure.attempt
            && self.pod == short(&failure.pod)
            && message.is_none_or(|message| *message == short(&failure.message))
    }
}

impl KnownSave {
    /// Whether it is `save`, of which `kept` is stored.
    pub(super) fn is(&self, save: &CompleteStep, kept: &Save) -> bool {
        let same_attempt = match self.store_attempt {
            Some(attempt) => attempt == save.attempt,
            // How the store counts may not have been known.
            None => {
                self.attempt == kept.attempt || self.attempt.is_none() || kept.attempt.is_none()
            }
        };
        self.step == save.step && same_attempt
    }
}

impl KnownPoints<'_> {
    pub(super) fn has(&self, progress: &ProgressRecord) -> bool {
        match self {
            Self::Record(known) => *known == Some(progress),
            Self::Until(until) => progress.last_step_at.as_millisecond() <= *until,
        }
    }
}

impl<'a> KnownPod<'a> {
    fn of_pod(pod: &'a ObservedPod) -> Self {
        Self {
            attempt: pod.attempt,
            state: observe::state(pod),
            seat: pod.node.as_deref().map(|node| (pod.attempt, node)),
            source: Source::Pod(pod),
        }
    }

    /// The last pod of a lane, unless it is gone.
    fn of_lane(lane: &'a Lane) -> Option<Self> {
        let last = lane.turns.last()?;
        let seat = |seat: &'a SeatTurn| (seat.attempt, seat.node.as_str());
        (last.state != PodState::Gone).then(|| Self {
            attempt: last.attempt,
            state: last.state,
            seat: lane.seats.last().map(seat),
            source: Source::History(last.at),
        })
    }

    /// Whether it is `pod`, as far as that is known.
    pub(super) fn is(&self, pod: &ObservedPod) -> bool {
        let same_uid = match self.source {
            Source::Pod(known) => known.uid == pod.uid,
            Source::History(_) => true,
        };
        self.attempt == pod.attempt && same_uid
    }

    /// Whether `attempt` had this node.
    pub(super) fn sits_on(&self, attempt: u32, node: &str) -> bool {
        self.seat == Some((attempt, node))
    }

    /// Its last node.
    pub(super) fn node(&self) -> Option<&'a str> {
        self.seat.map(|(_, node)| node)
    }

    /// Whether its container ended since, and was not observed to.
    pub(super) fn ended_since(&self, pod: &ObservedPod) -> bool {
        match self.source {
            Source::Pod(known) => pod.ends > known.ends,
            Source::History(at) => {
                let ended = pod.exit.and_then(|exit| exit.at);
                ended.is_some_and(|ended| ended.as_millisecond() > at)
            }
        }
    }

    /// Whether it failed once more although it had failed before: another incarnation, which only its time shows.
    pub(super) fn failed_again(&self, pod: &ObservedPod) -> bool {
        let is_history = matches!(self.source, Source::History(_));
        is_history && self.state == PodState::Failed && self.ended_since(pod)
    }
}

/// The newest complete checkpoint.
pub(super) fn newest(status: &JobStatus) -> Option<&CompleteStep> {
    status.trainyard.checkpoint.as_ref()?.newest.as_ref()
}

/// A ledger with the sums of a history; nothing where its time does not reach the span that is open, as in a file that lost lines. A history without any
/// closed time has no sums: it may be that of a ledger that is not sound.
fn ledger_of(chronicle: &Chronicle) -> Option<Ledger> {
    let time = |millis: i64| Timestamp::from_millisecond(millis).ok();
    let mut ledger = Ledger {
        began: Some(time(chronicle.began?)?),
        open: chronicle.open,
        ended: chronicle.ended.and_then(|(at, _)| time(at)),
        ..Ledger::default()
    };
    let closed = chronicle.stretches.last().map(|last| last.to);
    let until = ledger.open.map(|open| open.since).or(ledger.ended)?;
    if closed.or(chronicle.began) != Some(until.as_millisecond()) {
        return chronicle.stretches.is_empty().then_some(ledger);
    }
    for part in chronicle.stretches.iter().flat_map(Stretch::booked) {
        let last = ledger.attempts.last().map(|last| last.attempt);
        let sums = match part.attempt {
            None => Some(&mut ledger.earlier),
            Some(attempt) => {
                if last != Some(attempt) {
                    let millis = BTreeMap::new();
                    ledger.attempts.push(AttemptSpans { attempt, millis });
                }
                ledger.attempts.last_mut().map(|last| &mut last.millis)
            }
        };
        let sum = sums?.entry(part.phase).or_default();
        *sum = sum.saturating_add(part.millis);
    }
    Some(ledger)
}

/// A ledger as a history would have it: whole milliseconds, and no phases without time.
pub(super) fn as_read_back(ledger: &Ledger) -> Ledger {
    let whole = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    let mut ledger = ledger.clone();
    ledger.began = ledger.began.map(whole);
    ledger.ended = ledger.ended.map(whole);
    if let Some(open) = &mut ledger.open {
        open.since = whole(open.since);
    }
    ledger.earlier.retain(|_, millis| *millis > 0);
    for spans in &mut ledger.attempts {
        spans.millis.retain(|_, millis| *millis > 0);
    }
    ledger.attempts.retain(|spans| !spans.millis.is_empty());
    ledger
}
