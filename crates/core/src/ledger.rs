//! Where every second of a job went.
//!
//! A ledger is a chain of spans: each begins where the one before it ended, so every moment since
//! the first belongs to exactly one phase of one attempt. It is derived from what is observed and
//! kept in the status; it is written only when the phase changes.
//!
//! Nothing trains before its program has reported a step, and nothing trains while it is stalled: a phase that began
//! before it was noticed takes its time back from the open span. What is closed stays as it was booked.
//!
//! Invariant: the phases add up to the wall time, at every moment, also when the clock steps back
//! (such a step is counted as no time at all).

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, IntoDeserializer as _},
};

use crate::mutant::{self, Mutant};

mod phase;
mod timeline;

pub use phase::{Phase, Scene, Turn, patience};
pub use timeline::{SPANS_KEPT, Span, Timeline, coarsen};

/// Attempts kept one by one; older ones are added up, so that a job that restarts forever has a
/// status of bounded size.
pub const ATTEMPTS_KEPT: usize = 16;

/// Milliseconds by phase.
pub type PhaseMillis = BTreeMap<Phase, u64>;

/// Every second of a job, by attempt and phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ledger {
    /// When the first span began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// The span that is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenSpan>,
    /// When the last span ended, once the job has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Closed spans of the last attempts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptSpans>,
    /// Closed spans of all attempts before those.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "phase_millis"
    )]
    pub earlier: PhaseMillis,
    /// The furthest step of any attempt before the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_step: Option<u64>,
    /// Closed spans in order of time, to be drawn. Earlier versions kept none.
    #[serde(skip_serializing_if = "Timeline::is_empty")]
    pub timeline: Timeline,
}

/// The span that time now goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSpan {
    /// Of this attempt.
    pub attempt: u32,
    /// In this phase.
    pub phase: Phase,
    /// Since then.
    pub since: Timestamp,
}

/// Closed spans of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSpans {
    /// The attempt; 0 is the time before the first.
    pub attempt: u32,
    /// Milliseconds by phase.
    #[serde(deserialize_with = "phase_millis")]
    pub millis: PhaseMillis,
}

/// Reads milliseconds by phase. Those of phases that this version does not know add up in [`Phase::Other`].
pub fn phase_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PhaseMillis, D::Error> {
    let stored = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let mut phases = PhaseMillis::new();
    for (name, millis) in stored {
        let phase = Phase::deserialize(name.into_deserializer())?;
        let sum = phases.entry(phase).or_default();
        *sum = sum
            .checked_add(millis)
            .ok_or_else(|| D::Error::custom("too many milliseconds"))?;
    }
    Ok(phases)
}

impl Ledger {
    /// From `now` on, time goes to `phase` of `attempt`.
    pub fn enter(&mut self, attempt: u32, phase: Phase, now: Timestamp) {
        if self.ended.is_some() {
            return;
        }
        self.began.get_or_insert(now);
        if self
            .open
            .is_some_and(|span| span.attempt == attempt && span.phase == phase)
        {
            return;
        }
        let since = self.close(now);
        self.open = Some(OpenSpan {
            attempt,
            phase,
            since,
        });
    }

    /// `millis` of the open span of `attempt`, where it trains, were not training: a save stopped it. What is closed stays as it was booked,
    /// so at most the open span turns into saving.
    pub fn stalled(&mut self, attempt: u32, millis: u64, now: Timestamp) {
        let trains = |open: &OpenSpan| matches!(open.phase, Phase::Training | Phase::Redoing);
        let Some(open) = self.open.filter(trains) else {
            return;
        };
        if self.ended.is_some() || open.attempt != attempt {
            return;
        }
        let now = self.clamp(now);
        let stall = Duration::from_millis(millis);
        let since = now.checked_sub(stall).unwrap_or(open.since);
        self.enter(attempt, Phase::Saving, since.max(open.since));
        self.enter(attempt, open.phase, now);
    }

    /// The job has ended: no time is counted after `now`.
    pub fn end(&mut self, now: Timestamp) {
        if self.ended.is_none() {
            self.began.get_or_insert(now);
            self.ended = Some(self.close(now));
        }
    }

    /// Remembers how far an attempt came, so that the next one's repeated steps are seen.
    pub fn reached(&mut self, step: u64) {
        self.best_step = Some(self.best_step.map_or(step, |best| best.max(step)));
    }

    /// Whether all its times can be added up.
    pub fn is_sound(&self) -> bool {
        // Less than this each: the sum of two, and of what is yet to come, fits too.
        const MOST: u64 = i64::MAX as u64 / 2;
        let spans = self.attempts.iter().flat_map(|spans| spans.millis.values());
        let mut millis = spans.chain(self.earlier.values());
        millis
            .try_fold(0_u64, |sum, millis| sum.checked_add(*millis))
            .is_some_and(|sum| sum < MOST)
    }

    /// Time from the first span to `now`, or to the end.
    pub fn wall(&self, now: Timestamp) -> Duration {
        match (self.began, self.ended) {
            (None, _) => Duration::ZERO,
            (Some(began), Some(ended)) => between(began, ended),
            (Some(began), None) => between(began, self.clamp(now)),
        }
    }

    /// Milliseconds by phase over all attempts, the open span included.
    pub fn totals(&self, now: Timestamp) -> PhaseMillis {
        let mut totals = self.earlier.clone();
        for (phase, millis) in self.attempts.iter().flat_map(|spans| &spans.millis) {
            *totals.entry(*phase).or_default() += millis;
        }
        if let Some(span) = self.open {
            *totals.entry(span.phase).or_default() += millis(between(span.since, self.clamp(now)));
        }
        totals
    }

    /// The spans in order of time, the open one included: together they are the wall time.
    ///
    /// Time before the first span that was kept one by one, by an earlier version, comes first, as [`Phase::Other`] of
    /// attempt 0.
    pub fn spans(&self, now: Timestamp) -> Vec<Span> {
        let open = self.open.map(|open| Span {
            attempt: open.attempt,
            phase: open.phase,
            millis: millis(between(open.since, self.clamp(now))),
        });
        let mut spans = self.timeline.0.clone();
        spans.extend(open);
        let known = spans
            .iter()
            .fold(0_u64, |sum, span| sum.saturating_add(span.millis));
        let before = millis(self.wall(now)).saturating_sub(known);
        if before > 0 {
            let earlier = Span {
                attempt: 0,
                phase: Phase::Other,
                millis: before,
            };
            spans.insert(0, earlier);
        }
        spans
    }

    /// Whether any attempt reported a step.
    pub fn has_steps(&self) -> bool {
        let closed = self.attempts.iter().flat_map(|spans| spans.millis.keys());
        let open = self.open.as_ref().map(|open| &open.phase);
        let mut phases = closed.chain(self.earlier.keys()).chain(open);
        self.best_step.is_some() || phases.any(|phase| phase.follows_step())
    }

    /// The effective training time ratio: time that trained over time in which the job was meant
    /// to train (all but suspension). `None`, which is unknown, before any such time has passed and while no step was
    /// reported.
    pub fn ettr(&self, now: Timestamp) -> Option<f64> {
        if !self.has_steps() {
            return None;
        }
        let totals = self.totals(now);
        let of = |phase| totals.get(&phase).copied().unwrap_or(0);
        let meant = totals.values().sum::<u64>() - of(Phase::Suspended);
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of a job fit a double"
        )]
        (meant > 0).then(|| of(Phase::Training) as f64 / meant as f64)
    }

    /// Closes the open span at `now` and says when that is, on a clock that never steps back.
    fn close(&mut self, now: Timestamp) -> Timestamp {
        let now = self.clamp(now);
        if let Some(span) = self.open.take()
            && !mutant::is(Mutant::LedgerDropsSpan)
        {
            self.add(span, millis(between(span.since, now)));
        }
        now
    }

    fn add(&mut self, span: OpenSpan, millis: u64) {
        self.timeline.push(Span {
            attempt: span.attempt,
            phase: span.phase,
            millis,
        });
        if self
            .attempts
            .last()
            .is_none_or(|last| last.attempt != span.attempt)
        {
            self.attempts.push(AttemptSpans {
                attempt: span.attempt,
                millis: BTreeMap::new(),
            });
        }
        if let Some(last) = self.attempts.last_mut() {
            *last.millis.entry(span.phase).or_default() += millis;
        }
        while self.attempts.len() > ATTEMPTS_KEPT {
            for (phase, millis) in self.attempts.remove(0).millis {
                *self.earlier.entry(phase).or_default() += millis;
            }
        }
    }

    fn clamp(&self, now: Timestamp) -> Timestamp {
        self.open.map_or(now, |span| now.max(span.since))
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    // Whole milliseconds of both ends, so that spans add up without a remainder.
    let millis = to.as_millisecond() - from.as_millisecond();
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
