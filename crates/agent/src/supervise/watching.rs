//! The leader's watch over all ranks of the gang.
//!
//! Owns when a watch begins and ends, whom it asks for evidence, and what becomes of a finding. What a hang is, and which rank it is, is
//! [`trainyard_core::watch`]'s.
//!
//! Invariants: an attempt is watched once all its programs have started, and at most one finding of it is reported to the operator.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use trainyard_core::{
    barrier::{
        Command, ConnectionId, HangReport, Hello, Leader, MAX_MEMBERS, MAX_SENTENCE, MemberState,
        StateName,
    },
    launch::supervise::{SupervisedRanks, SupervisedWatch},
    spec::{Slot, WatchMode},
    watch::{Ask, Collective, Finding, Rhythm, Settings, Signal, Watch},
};

use super::signs::{Question, Report, cut};
use crate::log_message;

/// How long answers are waited for before the watch concludes from those that came.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Between two looks whether all programs have started, while members report.
const BEGIN_EVERY: Duration = Duration::from_millis(200);
/// Findings that are logged, at most: the watch reports each once for a silence, and silences have no bound.
const MAX_LOGGED: u32 = 1_000;

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// To ask all members.
    pub(crate) ask: Option<Question>,
    /// To report to the operator.
    pub(crate) hang: Option<HangReport>,
}

/// The watch over the attempt that runs.
#[derive(Debug)]
pub(crate) struct Watching {
    job: String,
    settings: Settings,
    all_ranks: u32,
    own_slot: Slot,
    attempt: u32,
    watch: Option<Watch>,
    began: Duration,
    rhythm: Rhythm,
    look_at: Option<Duration>,
    /// For which attempt it was looked last whether all its programs have started, and when.
    looked: Option<(u32, Duration)>,
    /// A member has reported since.
    changed: bool,
    /// When it is looked next.
    begin_at: Option<Duration>,
    /// Of pods whose program has ended by itself: in which attempt.
    ended: BTreeMap<Slot, u32>,
    /// The pod of each rank, by the first rank of the pod.
    pods: BTreeMap<u32, (u32, Slot)>,
    question: u32,
    /// Who has not answered the last question, and until when that is waited for.
    awaited: Option<(BTreeSet<ConnectionId>, Duration)>,
    reported: bool,
    logged: u32,
}

impl Watching {
    /// A watch with these settings; nothing where the job is not watched.
    pub(crate) fn new(
        job: &str,
        watch: SupervisedWatch,
        ranks: SupervisedRanks,
        own_slot: Slot,
    ) -> Option<Self> {
        if watch.mode == WatchMode::Off || ranks.all == 0 {
            return None;
        }
        Some(Self {
            job: job.to_owned(),
            settings: Settings {
                mode: watch.mode,
                hang_after: Duration::from_millis(watch.hang_after_ms),
                hang_floor: Duration::from_millis(watch.hang_floor_ms),
                first_step_within: Duration::from_millis(watch.first_step_within_ms),
                on_nan: watch.on_nan,
            },
            all_ranks: ranks.all,
            own_slot,
            attempt: 0,
            watch: None,
            began: Duration::ZERO,
            rhythm: Rhythm::default(),
            look_at: None,
            looked: None,
            changed: false,
            begin_at: None,
            ended: BTreeMap::new(),
            pods: BTreeMap::new(),
            question: 0,
            awaited: None,
            reported: false,
            logged: 0,
        })
    }

    /// When [`Watching::step`] has something to do, at the latest.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let awaited = self.awaited.as_ref().map(|(_, until)| *until);
        [self.look_at, awaited, self.begin_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// A member reported what it does: an ended program is not waited for.
    pub(crate) fn take_hello(&mut self, hello: &Hello, now: Duration) {
        self.changed = true;
        if !matches!(hello.state, MemberState::Ended(_)) {
            return;
        }
        // Its container may end before all others have started.
        if self.ended.len() < MAX_MEMBERS as usize || self.ended.contains_key(&hello.slot) {
            self.ended.insert(hello.slot, hello.attempt);
        }
        self.end_ranks(hello.slot, now);
    }

    /// The ranks of `slot` are not waited for, where its program of this attempt has ended.
    fn end_ranks(&mut self, slot: Slot, now: Duration) {
        if self.ended.get(&slot) != Some(&self.attempt) {
            return;
        }
        let of_slot = self.pods.iter().filter(|(_, (_, of))| *of == slot);
        let ranks: Vec<u32> = of_slot
            .flat_map(|(first, (count, _))| (0..*count).filter_map(|at| first.checked_add(at)))
            .collect();
        for rank in ranks {
            self.hear(rank, Signal::Ended, now);
        }
    }

    /// A member reported signs of its ranks.
    pub(crate) fn take(
        &mut self,
        connection: ConnectionId,
        slot: Slot,
        report: Report,
        now: Duration,
    ) {
        if report.job != self.job {
            return;
        }
        // Entries are bounded by the ranks of the job.
        if report.first < self.all_ranks && report.count <= self.all_ranks {
            self.pods.insert(report.first, (report.count, slot));
        }
        if report.attempt != self.attempt {
            return;
        }
        self.end_ranks(slot, now);
        let answers = report.asked == Some(self.question);
        for (rank, signal) in report.signals() {
            self.hear(rank, signal, now);
        }
        if let Some((awaited, _)) = &mut self.awaited
            && answers
            && awaited.remove(&connection)
            && awaited.is_empty()
        {
            self.awaited = None;
            self.look_at = self.watch.is_some().then_some(now);
        }
    }

    /// NCCL's monitor reported what ranks began.
    pub(crate) fn take_reported(
        &mut self,
        attempt: u32,
        reported: Vec<(u32, Collective)>,
        now: Duration,
    ) {
        if attempt == self.attempt {
            for (rank, began) in reported {
                self.hear(rank, Signal::Collective(began), now);
            }
        }
    }

    fn hear(&mut self, rank: u32, signal: Signal, now: Duration) {
        let since = now.saturating_sub(self.began);
        if let Some(watch) = &mut self.watch
            && watch.hear(since, rank, signal)
        {
            self.look_at = Some(now);
        }
    }

    /// Begins, ends or looks, where it is time. `members` are the connections that can be asked.
    pub(crate) fn step(
        &mut self,
        leader: &Leader,
        members: impl Iterator<Item = ConnectionId>,
        now: Duration,
    ) -> Outcome {
        self.follow(leader, now);
        if self
            .awaited
            .as_ref()
            .is_some_and(|(_, until)| now >= *until)
        {
            self.awaited = None;
            self.look_at = self.watch.is_some().then_some(now);
        }
        let mut outcome = Outcome::default();
        if self.look_at.is_none_or(|at| now < at) {
            return outcome;
        }
        let Some(watch) = &mut self.watch else {
            self.look_at = None;
            return outcome;
        };
        let outlook = watch.look(now.saturating_sub(self.began));
        self.look_at = outlook.wake_at.map(|at| self.began.saturating_add(at));
        if !outlook.ask.is_empty() {
            self.question = self.question.wrapping_add(1);
            self.awaited = Some((members.collect(), now + ANSWER_WITHIN));
            outcome.ask = Some(Question {
                number: self.question,
                attempt: self.attempt,
                stacks: outlook.ask.contains(&Ask::Stacks),
                collectives: outlook.ask.contains(&Ask::Collectives),
                dumps: outlook.ask.contains(&Ask::Dumps),
            });
        }
        for finding in outlook.findings {
            self.answer(&finding, &mut outcome);
        }
        outcome
    }

    /// Begins a watch once all programs of an attempt have started, and ends it when they are ordered to stop.
    fn follow(&mut self, leader: &Leader, now: Duration) {
        let Some(order) = leader.order() else {
            return;
        };
        let Command::Go { attempt } = order.command else {
            self.end();
            return;
        };
        if attempt <= self.attempt {
            self.begin_at = None;
            return;
        }
        self.begin_at = None;
        if let Some((_, at)) = self.looked.filter(|(of, _)| *of == attempt) {
            if !self.changed {
                return;
            }
            let again = at + BEGIN_EVERY;
            if now < again {
                self.begin_at = Some(again);
                return;
            }
        }
        self.looked = Some((attempt, now));
        self.changed = false;
        let summary = leader.summary();
        let mut groups = summary.groups.iter();
        let running =
            groups.find(|group| (group.attempt, group.state) == (attempt, StateName::Running));
        let runs = |slot| running.is_some_and(|group| group.slots.contains(slot));
        let ended: Vec<Slot> = order
            .roster
            .iter()
            .map(|(slot, _)| slot)
            .filter(|slot| !runs(*slot) && self.ended.get(slot) == Some(&attempt))
            .collect();
        let count = running.map_or(0, |group| group.slots.len() as usize);
        if count + ended.len() < order.roster.len() {
            return;
        }
        if !ended.is_empty() {
            log_message(&format!(
                "{} of {} programs of attempt {attempt} ended before all had started; the others are watched",
                ended.len(),
                order.roster.len()
            ));
        }
        self.attempt = attempt;
        self.began = now;
        self.reported = false;
        self.watch = Some(Watch::begin_with(
            self.settings,
            self.all_ranks,
            Duration::ZERO,
            self.rhythm.clone(),
        ));
        self.look_at = Some(now);
        for slot in ended {
            self.end_ranks(slot, now);
        }
    }

    fn end(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.rhythm = watch.rhythm().clone();
        }
        self.look_at = None;
        self.awaited = None;
        self.begin_at = None;
    }

    fn answer(&mut self, finding: &Finding, outcome: &mut Outcome) {
        let (label, sentence) = (finding.cause.label(), finding.sentence());
        if self.logged < MAX_LOGGED {
            self.logged += 1;
            log_message(&format!(
                "{label}: {sentence}; refuted by: {}",
                finding.cause.refuted_by()
            ));
        }
        if !finding.act || self.reported {
            return;
        }
        self.reported = true;
        let rank = finding.ranks.first().copied();
        outcome.hang = Some(HangReport {
            attempt: self.attempt,
            slot: self.slot_of(rank.unwrap_or(0)),
            rank,
            label: label.to_owned(),
            sentence: cut(sentence, MAX_SENTENCE),
        });
    }

    /// The pod that holds `rank`, as members reported it.
    fn slot_of(&self, rank: u32) -> Slot {
        let before = self.pods.range(..=rank).next_back();
        let held = before.filter(|(first, (count, _))| rank - **first < *count);
        held.map_or(self.own_slot, |(_, (_, slot))| *slot)
    }
}

#[cfg(test)]
mod tests;
