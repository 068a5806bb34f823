//! What happened to one job, as facts in order, and the history that they add up to.
//!
//! The ledger of a job keeps sums; a drawing needs when each phase began, what each pod did meanwhile, which nodes changed, what was saved and what a
//! diagnosis concluded. [`Chronicle::record`] compares two observations of a job and returns the facts between them, to be appended to a file or a
//! database; [`Chronicle::apply`] reads them back. [`Chronicle::of_stored`] makes the best of a run that was stored without facts.
//!
//! Invariants:
//! - The stretches of time never overlap and add up to the accounts of the ledger, to the millisecond, however many observations were missed. Time whose
//!   order nobody observed has exact sums and no order ([`Content::NotObserved`]); it is never stretched.
//! - Everything is bounded by the constants here, whatever is recorded or read. Where something is dropped, [`Chronicle::left_out`] counts it.
//! - No failure is dropped: failures of one slot are merged where there are too many, and the merged one covers the times of both. Failures of
//!   slots beyond the limit are the job's, and as many.
//! - A fact that was applied is not applied again, so two readings of one file, or two parts that overlap, give the same history as one.

mod account;
mod fact;
mod known;
mod lane;
mod observe;
mod stretch;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use self::known::Known;
pub use self::{
    fact::{
        EVIDENCE_MAX, EvidenceLine, Fact, Headline, KeptVerdict, LINE_MAX, LeftOut, NotAFact,
        Outcome, PodState, Save, Swap, TEXT_CHARS, VERSION, Waiting, What,
    },
    lane::{Failure, Lane, SeatTurn, Turn},
    observe::{FirstFailure, Places, Seen},
    stretch::{BOOKED_MAX, Booked, Content, Stretch},
};
use crate::{
    job::Spent,
    ledger::{Ledger, OpenSpan, PhaseMillis},
    spec::Slot,
};

/// Stretches of time that are kept apart.
pub const STRETCHES_MAX: usize = 16_384;
/// Slots whose pods are kept apart.
pub const LANES_MAX: usize = 8_192;
/// Changes of pods and nodes that are kept, of all slots together.
pub const TURNS_MAX: usize = 262_144;
/// Failures that are kept apart: more than twice as many as there are lanes, so that merging those of one slot is always enough.
pub const FAILURES_MAX: usize = 2 * (LANES_MAX + 1);
/// Verdicts that are kept, the newest ones.
pub const VERDICTS_MAX: usize = 512;
/// Headlines of failed attempts that are kept, the newest ones.
pub const HEADLINES_MAX: usize = 4_096;
/// Checkpoints that are kept, the newest ones.
pub const SAVES_MAX: usize = 16_384;
/// Swaps that are kept, the newest ones.
pub const SWAPS_MAX: usize = 4_096;
/// Attempts whose begin is kept, the newest ones.
pub const ATTEMPTS_MAX: usize = 4_096;

/// Something with the time at which it happened, in Unix milliseconds.
pub type At<T> = (i64, T);

/// The history of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chronicle {
    /// When the first span began, in Unix milliseconds.
    pub began: Option<i64>,
    /// The time that is accounted for, in order, without gaps or overlaps.
    pub stretches: Vec<Stretch>,
    /// The span that time now goes to.
    pub open: Option<OpenSpan>,
    /// When and how the job ended.
    pub ended: Option<At<Outcome>>,
    /// What the pods did, by slot.
    pub lanes: BTreeMap<Slot, Lane>,
    /// Failures of pods and of attempts, in order of time.
    pub failures: Vec<Failure>,
    /// When attempts began.
    pub attempts: VecDeque<At<u32>>,
    /// Why attempts failed.
    pub headlines: VecDeque<At<Headline>>,
    /// What was concluded about attempts.
    pub verdicts: VecDeque<At<KeptVerdict>>,
    /// Complete checkpoints.
    pub saves: VecDeque<At<Save>>,
    /// Slots that changed their node.
    pub swaps: VecDeque<At<Swap>>,
    /// Failure budget used by now.
    pub spent: Spent,
    /// What the job waits for.
    pub waiting: At<Waiting>,
    /// What was dropped.
    pub left_out: LeftOut,
    turns: usize,
    next: u64,
    /// When the newest number was reported. [`Self::facts`] has no numbers, so what follows it may have that one again.
    points_until: Option<i64>,
    /// Facts before this number are those of [`Self::facts`], which has failures as facts of their own.
    compacted_until: Option<u64>,
}

impl Chronicle {
    /// The history that `facts` add up to.
    pub fn of_facts<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> Self {
        let mut chronicle = Self::default();
        for fact in facts {
            chronicle.apply(fact);
        }
        chronicle
    }

    /// Adds a fact; says whether it was new.
    pub fn apply(&mut self, fact: &Fact) -> bool {
        if fact.seq < self.next {
            return false;
        }
        self.next = fact.seq.saturating_add(1);
        self.add(fact.at, &fact.what);
        let next = self.next;
        self.compacted_until.take_if(|until| next >= *until);
        true
    }

    /// The number of the next fact.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Adds what is new in `after`, and returns it as facts to be stored. `before` is what was observed last; nothing where this is the first
    /// observation, or the first since the history was read back: then what is new is what the history does not have.
    pub fn record(
        &mut self,
        before: Option<&Seen<'_>>,
        after: &Seen<'_>,
        places: &Places,
        now: Timestamp,
    ) -> Vec<Fact> {
        // What follows is new, also where a file ended before all facts of a history that was read back.
        self.compacted_until = None;
        let known = before.map_or_else(|| Known::of_chronicle(self), Known::of_seen);
        let news = observe::news(&known, after, places, now);
        // A history that was read back has no pods of slots beyond the limit, so all that failed look new.
        let counted: Vec<Failure> = match before {
            None => (self.failures.iter().copied())
                .filter(|failure| failure.slot.is_none())
                .collect(),
            Some(_) => Vec::new(),
        };
        let mut facts = Vec::with_capacity(news.len());
        for (at, what) in news {
            if self.is_counted(&counted, at, &what) {
                continue;
            }
            let fact = Fact {
                version: VERSION,
                seq: self.next,
                at,
                what,
            };
            self.apply(&fact);
            facts.push(fact);
        }
        facts
    }

    /// The history of a run of which only the last status and the first failures of its attempts are stored.
    pub fn of_stored(
        seen: &Seen<'_>,
        failures: &[FirstFailure],
        places: &Places,
        now: Timestamp,
    ) -> Self {
        let mut chronicle = Self::default();
        let last = seen.status.trainyard.last_failure.as_ref();
        let mut news = observe::of_failures(failures, last);
        let known = Known::of_failures(seen.status, failures);
        news.extend(observe::news(&known, seen, places, now));
        // The ledger first: it says when the job began.
        news.sort_by_key(|(at, what)| (!matches!(what, What::Began), *at));
        for (at, what) in news {
            chronicle.add(at, &what);
            chronicle.next += 1;
        }
        chronicle
    }

    /// As few facts as give this history again. Whoever replaces a file by them continues with the [`Self::next_seq`] of the history that they give.
    pub fn facts(&self) -> Vec<Fact> {
        let mut whats: Vec<At<What>> = self.failures.iter().map(Failure::fact).collect();
        if let Some(began) = self.began {
            whats.push((began, What::Began));
        }
        let stretches = self.stretches.iter().cloned();
        whats.extend(stretches.map(|stretch| (stretch.from, What::from(stretch))));
        whats.extend(
            self.attempts
                .iter()
                .map(|(at, attempt)| (*at, What::Attempt { attempt: *attempt })),
        );
        for (slot, lane) in &self.lanes {
            whats.extend(lane.facts(*slot));
        }
        let headlines = self.headlines.iter().cloned();
        whats.extend(headlines.map(|(at, it)| (at, What::Failed(it))));
        let verdicts = self.verdicts.iter().cloned();
        whats.extend(verdicts.map(|(at, it)| (at, What::Verdict(Box::new(it)))));
        whats.extend(self.saves.iter().map(|(at, it)| (*at, What::Saved(*it))));
        let swaps = self.swaps.iter().cloned();
        whats.extend(swaps.map(|(at, it)| (at, What::Swapped(it))));
        if self.spent != Spent::default() {
            whats.push((self.began.unwrap_or(0), What::Spent(self.spent)));
        }
        if self.waiting != At::default() {
            whats.push((self.waiting.0, What::Waiting(self.waiting.1.clone())));
        }
        if let Some((at, outcome)) = self.ended {
            whats.push((at, What::Ended { outcome }));
        }
        if let Some(open) = self.open {
            let (attempt, phase) = (open.attempt, open.phase);
            whats.push((open.since.as_millisecond(), What::Phase { attempt, phase }));
        }
        if self.left_out != LeftOut::default() {
            whats.push((self.began.unwrap_or(0), What::LeftOut(self.left_out)));
        }
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let mut first = self.next.saturating_sub(number(whats.len()));
        if !self.failures.is_empty() {
            // In front, so that what follows adds no failure.
            first = first.saturating_sub(1);
            let until = first.saturating_add(number(whats.len() + 1));
            whats.insert(0, (self.began.unwrap_or(0), What::Compacted { until }));
        }
        let numbered = whats.into_iter().zip(first..);
        let facts = numbered.map(|((at, what), seq)| Fact {
            version: VERSION,
            seq,
            at,
            what,
        });
        facts.collect()
    }

    /// Milliseconds by phase over all attempts, the open span included: the totals of the ledger.
    pub fn totals(&self, now: Timestamp) -> PhaseMillis {
        self.sums(now, |_| true)
    }

    /// The same of one attempt. Time whose attempt is not known is not in it.
    pub fn attempt_totals(&self, attempt: u32, now: Timestamp) -> PhaseMillis {
        self.sums(now, |of| of == Some(attempt))
    }

    /// How much of the time has no order.
    pub fn not_observed_millis(&self) -> u64 {
        let unseen = |it: &&Stretch| matches!(it.content, Content::NotObserved(_));
        let unseen = self.stretches.iter().filter(unseen);
        unseen.fold(0, |sum, it| sum.saturating_add(it.millis()))
    }

    /// The end of what is known at `now`, in Unix milliseconds.
    pub fn until(&self, now: Timestamp) -> Option<i64> {
        if let Some((at, _)) = self.ended {
            return Some(at);
        }
        let closed = self.stretches.last().map(|last| last.to).or(self.began)?;
        let open = self.open.map(|open| open.since.max(now).as_millisecond());
        Some(open.map_or(closed, |open| open.max(closed)))
    }

    fn sums(&self, now: Timestamp, counts: impl Fn(Option<u32>) -> bool) -> PhaseMillis {
        let mut sums = PhaseMillis::new();
        let open = self.open.map(|open| Stretch {
            from: open.since.as_millisecond(),
            to: open.since.max(now).as_millisecond(),
            content: Content::Phase {
                attempt: open.attempt,
                phase: open.phase,
            },
        });
        for part in self.stretches.iter().chain(&open).flat_map(Stretch::booked) {
            if counts(part.attempt) {
                let sum = sums.entry(part.phase).or_default();
                *sum = sum.saturating_add(part.millis);
            }
        }
        sums
    }

    fn add(&mut self, at: i64, what: &What) {
        match what {
            What::Began => {
                self.began = Some(at);
                self.stretches.clear();
                self.open = None;
                self.ended = None;
            }
            What::Span {
                from,
                to,
                attempt,
                phase,
            } => self.add_stretch(
                *from,
                *to,
                Content::Phase {
                    attempt: *attempt,
                    phase: *phase,
                },
            ),
            What::Merged { from, to, booked } => {
                self.add_stretch(*from, *to, Content::Merged(booked.clone()));
            }
            What::Unseen { from, to, booked } => {
                self.add_stretch(*from, *to, Content::NotObserved(booked.clone()));
            }
            What::Phase { attempt, phase } => {
                let since = Timestamp::from_millisecond(at);
                self.open = since.ok().map(|since| OpenSpan {
                    attempt: *attempt,
                    phase: *phase,
                    since,
                });
            }
            What::Attempt { attempt } => keep(
                &mut self.attempts,
                (at, *attempt),
                ATTEMPTS_MAX,
                &mut self.left_out.attempts,
            ),
            What::Pod {
                attempt,
                slot,
                state,
            } => {
                let last = self.lanes.get(slot).and_then(|lane| lane.turns.last());
                let at = last.map_or(at, |last| at.max(last.at));
                if *state == PodState::Failed && self.compacted_until.is_none() {
                    self.add_failure(Failure::one(Some(*slot), *attempt, at));
                }
                self.in_lane(*slot, |lane| lane.turn(at, *attempt, *state));
            }
            What::Seated {
                attempt,
                slot,
                first_rank,
                ranks,
                node,
            } => self.in_lane(*slot, |lane| {
                (lane.first_rank, lane.ranks) = (*first_rank, *ranks);
                lane.seat(at, *attempt, node)
            }),
            What::Swapped(swap) => keep(
                &mut self.swaps,
                (at, swap.clone()),
                SWAPS_MAX,
                &mut self.left_out.swaps,
            ),
            What::Failed(headline) => {
                if self.compacted_until.is_none() {
                    self.add_failure(Failure::one(headline.slot, headline.attempt, at));
                }
                let dropped = &mut self.left_out.headlines;
                keep(
                    &mut self.headlines,
                    (at, headline.clone()),
                    HEADLINES_MAX,
                    dropped,
                );
            }
            What::Failures {
                slot,
                attempt,
                until,
                count,
            } => self.add_failure(Failure {
                slot: *slot,
                attempt: *attempt,
                at,
                until: at.max(*until),
                count: *count,
            }),
            What::Compacted { until } => self.compacted_until = Some(*until),
            What::Verdict(verdict) => keep(
                &mut self.verdicts,
                (at, (**verdict).clone()),
                VERDICTS_MAX,
                &mut self.left_out.verdicts,
            ),
            What::Saved(save) => keep(
                &mut self.saves,
                (at, *save),
                SAVES_MAX,
                &mut self.left_out.saves,
            ),
            What::Spent(spent) => self.spent = *spent,
            What::Waiting(waiting) => self.waiting = (at, waiting.clone()),
            // Numbers belong to `view::pyramid`.
            What::Point { .. } => self.points_until = self.points_until.max(Some(at)),
            What::LeftOut(left_out) => self.left_out = *left_out,
            What::Ended { outcome } => {
                self.open = None;
                self.ended = Some((at, *outcome));
            }
            What::Other => add_to(&mut self.left_out.unknown, 1),
        }
    }

    /// Adds time behind what is there. What does not follow it, or does not add up, is a fact of a broken file: it is left out, and the sums of the
    /// status show that it is missing.
    fn add_stretch(&mut self, from: i64, to: i64, content: Content) {
        let stretch = Stretch { from, to, content };
        let end = self.stretches.last().map(|last| last.to).or(self.began);
        if end != Some(from) || !stretch.adds_up() {
            add_to(&mut self.left_out.unknown, 1);
            return;
        }
        stretch::push(&mut self.stretches, stretch);
        if self.stretches.len() > STRETCHES_MAX {
            stretch::compact(&mut self.stretches, STRETCHES_MAX / 4 * 3);
        }
    }

    fn in_lane(&mut self, slot: Slot, change: impl FnOnce(&mut Lane) -> bool) {
        if !self.lanes.contains_key(&slot) && self.lanes.len() >= LANES_MAX {
            add_to(&mut self.left_out.slots, 1);
            return;
        }
        if change(self.lanes.entry(slot).or_default()) {
            self.turns += 1;
        }
        if self.turns > TURNS_MAX {
            let dropped = lane::compact(&mut self.lanes, TURNS_MAX / 4 * 3);
            add_to(&mut self.left_out.turns, dropped);
            self.turns = self.lanes.values().map(Lane::turns_kept).sum();
        }
    }

    /// Whether a pod of a slot without a row failed, which `counted` has: failures of the job.
    fn is_counted(&self, counted: &[Failure], at: i64, what: &What) -> bool {
        let What::Pod {
            attempt,
            slot,
            state: PodState::Failed,
        } = what
        else {
            return false;
        };
        let has_it = |known: &Failure| {
            // A merged one has the attempt of its first.
            let is_of = known.attempt == *attempt || known.at < known.until;
            is_of && (known.at..=known.until).contains(&at)
        };
        !self.has_lane(*slot) && counted.iter().any(has_it)
    }

    /// Whether a slot has a row of its own, or would get one.
    fn has_lane(&self, slot: Slot) -> bool {
        self.lanes.contains_key(&slot) || self.lanes.len() < LANES_MAX
    }

    fn add_failure(&mut self, mut failure: Failure) {
        // A slot beyond the limit has no row of its own: its failures are the job's.
        failure.slot = failure.slot.filter(|slot| self.has_lane(*slot));
        if let Some(slot) = failure.slot {
            self.lanes.entry(slot).or_default();
        }
        // Most come in order of time.
        let place = self
            .failures
            .partition_point(|it| it.key() <= failure.key());
        let before = place.checked_sub(1);
        let same = before.and_then(|before| self.failures.get_mut(before));
        if let Some(known) = same.filter(|known| known.key() == failure.key()) {
            // A pod fails once at a moment, whoever reports it. What has no row of its own may be several pods.
            if failure.slot.is_none() {
                add_to(&mut known.count, failure.count);
            }
            return;
        }
        self.failures.insert(place, failure);
        if self.failures.len() > FAILURES_MAX {
            lane::merge_failures(&mut self.failures, FAILURES_MAX / 4 * 3);
        }
    }
}

/// Whether `chronicle` has the totals of `ledger` at `now`. Phases without time do not count.
pub fn adds_up(chronicle: &Chronicle, ledger: &Ledger, now: Timestamp) -> bool {
    let without_empty = |mut sums: PhaseMillis| {
        sums.retain(|_, millis| *millis > 0);
        sums
    };
    without_empty(chronicle.totals(now)) == without_empty(ledger.totals(now))
}

/// Adds to the newest, and counts what is dropped.
fn keep<T>(all: &mut VecDeque<T>, one: T, most: usize, dropped: &mut u64) {
    all.push_back(one);
    while all.len() > most {
        all.pop_front();
        add_to(dropped, 1);
    }
}

/// Adds to a number that may come from a file.
fn add_to(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}
