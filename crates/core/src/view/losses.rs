//! Where the time of a job went, what cost most, and what would help.
//!
//! The sums are those of the ledger. What a change would win is arithmetic over measured times, with its formula in the sentence; where a figure was not
//! measured there is no proposal.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use super::VERSION;
use crate::{
    checkpoint::{BoundBy, Measured, cadence},
    chronicle::{At, Chronicle, Content, Save, Stretch},
    job::time_words,
    ledger::{Phase, PhaseMillis},
};

/// Losses that are named.
pub const LOSSES_MAX: usize = 3;
/// Percentage points below which a change is not worth a sentence.
const POINTS_LEAST: f64 = 0.05;

const HOUR: i64 = 3_600_000;

/// Where the time went.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Losses {
    /// The form of this document.
    pub version: u32,
    /// All time, in milliseconds.
    pub wall: u64,
    /// By phase, training first, then most first.
    pub phases: Vec<PhaseTime>,
    /// How much of it has no order, because nobody observed it.
    pub not_observed: u64,
    /// How much of the time was spent training.
    pub ettr: Ettr,
    /// What cost most, at most [`LOSSES_MAX`].
    pub losses: Vec<Loss>,
}

/// The time of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTime {
    /// The phase.
    pub phase: Phase,
    /// How long.
    pub millis: u64,
    /// The same times the accelerators that the job held meanwhile.
    pub gpu_millis: u64,
}

/// The effective training time ratio, over several times. Absent where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ettr {
    /// Over all time but suspension, as the ledger has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<f64>,
    /// Without the time in queues and the wait for nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_seated: Option<f64>,
    /// Over the last hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_hour: Option<f64>,
    /// Over the last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_day: Option<f64>,
}

/// A loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// The phase.
    pub phase: Phase,
    /// The attempt that lost most in it, where that is most of the loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How long.
    pub millis: u64,
    /// Hours of accelerators.
    pub gpu_hours: f64,
    /// What it is.
    pub why: &'static str,
    /// What would help, where that follows from what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_win: Option<WouldWin>,
}

/// A change and its effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WouldWin {
    /// The change, with the figures that it follows from.
    pub change: String,
    /// Percentage points of ETTR.
    pub points: f64,
}

/// Where the time of `chronicle` went until `now`; the job has so many accelerators.
pub fn losses(chronicle: &Chronicle, accelerators: u32, now: Timestamp) -> Losses {
    let totals = chronicle.totals(now);
    let mut phases: Vec<PhaseTime> = totals
        .iter()
        .filter(|(_, millis)| **millis > 0)
        .map(|(phase, millis)| PhaseTime {
            phase: *phase,
            millis: *millis,
            gpu_millis: gpu_millis(*phase, *millis, accelerators),
        })
        .collect();
    phases.sort_by_key(|it| {
        (
            it.phase != Phase::Training,
            std::cmp::Reverse(it.millis),
            it.phase,
        )
    });
    let lost = phases
        .iter()
        .filter(|it| !matches!(it.phase, Phase::Training | Phase::Suspended));
    let losses = lost.take(LOSSES_MAX).map(|it| Loss {
        phase: it.phase,
        attempt: main_attempt(chronicle, it.phase, it.millis, now),
        millis: it.millis,
        gpu_hours: real(it.gpu_millis) / 3.6e6,
        why: why(it.phase),
        would_win: would_win(chronicle, it.phase, &totals),
    });
    Losses {
        version: VERSION,
        wall: sum(totals.values()),
        losses: losses.collect(),
        not_observed: chronicle.not_observed_millis(),
        ettr: ettrs(chronicle, &totals, now),
        phases,
    }
}

/// No accelerator is held while a job waits for nodes or is suspended.
pub(super) fn gpu_millis(phase: Phase, millis: u64, accelerators: u32) -> u64 {
    let holds = !matches!(phase, Phase::Queued | Phase::Placing | Phase::Suspended);
    if holds {
        millis.saturating_mul(accelerators.into())
    } else {
        0
    }
}

fn ettrs(chronicle: &Chronicle, totals: &PhaseMillis, now: Timestamp) -> Ettr {
    if !totals.keys().any(|phase| phase.follows_step()) {
        return Ettr::default();
    }
    let last = |millis: i64| {
        let to = chronicle.until(now)?;
        let from = to.saturating_sub(millis);
        // A younger job has no such time.
        let sums = (chronicle.began? <= from).then(|| sums_between(chronicle, from, to, now))??;
        ratio(&sums, &[Phase::Suspended])
    };
    Ettr {
        all: ratio(totals, &[Phase::Suspended]),
        since_seated: ratio(totals, &[Phase::Suspended, Phase::Queued, Phase::Placing]),
        last_hour: last(HOUR),
        last_day: last(24 * HOUR),
    }
}

/// Times that may come from a file.
fn sum<'a>(millis: impl Iterator<Item = &'a u64>) -> u64 {
    millis.fold(0, |sum, millis| sum.saturating_add(*millis))
}

fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, millis: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(millis);
}

/// Training over all but the phases `without`.
fn ratio(sums: &PhaseMillis, without: &[Phase]) -> Option<f64> {
    let meant = sums.iter().filter(|(phase, _)| !without.contains(phase));
    let meant = sum(meant.map(|(_, millis)| millis));
    let trained = sums.get(&Phase::Training).copied().unwrap_or(0);
    (meant > 0).then(|| real(trained) / real(meant))
}

/// The sums of a window; nothing where it cuts a stretch whose order is not known.
fn sums_between(chronicle: &Chronicle, from: i64, to: i64, now: Timestamp) -> Option<PhaseMillis> {
    let open = chronicle.open.map(|open| Stretch {
        from: open.since.as_millisecond(),
        to: open.since.max(now).as_millisecond(),
        content: Content::Phase {
            attempt: open.attempt,
            phase: open.phase,
        },
    });
    let mut sums = PhaseMillis::new();
    let first = chronicle
        .stretches
        .partition_point(|stretch| stretch.to <= from);
    for stretch in chronicle.stretches.iter().skip(first).chain(&open) {
        let (begin, end) = (stretch.from.max(from), stretch.to.min(to));
        if begin >= end {
            continue;
        }
        match &stretch.content {
            Content::Phase { phase, .. } => {
                let millis = u64::try_from(end.saturating_sub(begin)).ok()?;
                add(&mut sums, *phase, millis);
            }
            _ if (begin, end) == (stretch.from, stretch.to) => {
                for part in stretch.booked() {
                    add(&mut sums, part.phase, part.millis);
                }
            }
            _ => return None,
        }
    }
    Some(sums)
}

/// The attempt that has most of the loss, where that is more than half.
fn main_attempt(chronicle: &Chronicle, phase: Phase, millis: u64, now: Timestamp) -> Option<u32> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for part in chronicle.stretches.iter().flat_map(Stretch::booked) {
        if let Some(attempt) = part.attempt.filter(|_| part.phase == phase) {
            add(&mut sums, attempt, part.millis);
        }
    }
    if let Some(open) = chronicle.open.filter(|open| open.phase == phase) {
        let lasts = now
            .as_millisecond()
            .saturating_sub(open.since.as_millisecond());
        add(&mut sums, open.attempt, u64::try_from(lasts).unwrap_or(0));
    }
    let largest = sums.into_iter().max_by_key(|(_, sum)| *sum);
    largest
        .filter(|(_, sum)| *sum > millis / 2)
        .map(|(attempt, _)| attempt)
}

/// What a phase is, as a loss.
pub(super) fn why(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "a scheduling gate or a queue holds the gang back",
        Phase::Placing => "the gang waits for nodes",
        Phase::Creating => "pods and containers are created",
        Phase::Pulling => "images are pulled",
        Phase::Starting => "programs run and have not reported a step of their attempt",
        Phase::Saving => "training stands still while checkpoints are saved",
        Phase::Stalled => "programs run and report no step",
        Phase::Restarting => "an attempt ended and the next one is not up",
        Phase::Redoing => "steps since the last checkpoint are trained again after a failure",
        Phase::Training | Phase::Suspended | Phase::Other => {
            "another version of Trainyard names this phase"
        }
    }
}

fn would_win(chronicle: &Chronicle, phase: Phase, totals: &PhaseMillis) -> Option<WouldWin> {
    let what = match phase {
        Phase::Redoing | Phase::Saving => return save_interval(chronicle, totals),
        Phase::Placing => "half the wait for nodes",
        Phase::Creating => "half the time to create pods",
        Phase::Pulling => "half the time to pull images",
        Phase::Starting => "half the time to the first step",
        Phase::Stalled => "half the time until a stall ends",
        Phase::Restarting => "half the time to restart",
        Phase::Queued | Phase::Training | Phase::Suspended | Phase::Other => return None,
    };
    let now = ratio(totals, &[Phase::Suspended])?;
    let mut halved = totals.clone();
    halved.entry(phase).and_modify(|millis| *millis /= 2);
    let points = 100.0 * (ratio(&halved, &[Phase::Suspended])? - now);
    (points >= POINTS_LEAST).then(|| WouldWin {
        change: what.to_owned(),
        points,
    })
}

/// Another interval between checkpoints, where stalls and lost work would cost less (Daly 2006): for an interval `t`, stalls cost `stall / t` and lost
/// work `t / (2 × time between failures)` of the time.
fn save_interval(chronicle: &Chronicle, totals: &PhaseMillis) -> Option<WouldWin> {
    let of = |phase: Phase| totals.get(&phase).copied().unwrap_or(0);
    let saves = all_saves(chronicle, of(Phase::Saving))?;
    let count = f64::from(u32::try_from(saves.len()).ok()?);
    let failures = u32::try_from(chronicle.headlines.len())
        .ok()
        .filter(|count| *count > 0 && chronicle.left_out.headlines == 0)?;
    let trains = of(Phase::Training).saturating_add(of(Phase::Redoing));
    let every = seconds(trains) / count;
    let measured = Measured {
        stall: mean(&saves, |save| save.stall_millis)?,
        write: mean(&saves, |save| save.write_millis)?,
        step: step_seconds(&saves)?,
        between_failures: seconds(trains.saturating_add(of(Phase::Saving))) / f64::from(failures),
    };
    let cadence = cadence(&measured)?;
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 steps")]
    let best = cadence.steps as f64 * measured.step;
    let cost =
        |interval: f64| measured.stall / interval + interval / (2.0 * measured.between_failures);
    let points = 100.0 * (cost(every) - cost(best));
    if every <= 0.0 || !points.is_finite() || points < POINTS_LEAST {
        return None;
    }
    let words = |seconds: f64| Some(time_words(Duration::try_from_secs_f64(seconds).ok()?));
    let written = match cadence.bound_by {
        BoundBy::Write => format!("; a save is written for {}", words(measured.write)?),
        BoundBy::Failures | BoundBy::Step => String::new(),
    };
    let change = format!(
        "save every {} instead of every {}: a save stalls training for {}, and {} pass between failures{written}",
        words(best)?,
        words(every)?,
        words(measured.stall)?,
        words(measured.between_failures)?
    );
    Some(WouldWin { change, points })
}

/// The checkpoints that the job saved, where all were observed. An observation shows only the newest one; the ledger has `saving`, the stalls of all of
/// them, as the store has them. Where that is more than the stalls that are known here, checkpoints were missed, and how often the job saves is not known.
fn all_saves(chronicle: &Chronicle, saving: u64) -> Option<Vec<At<Save>>> {
    // One from before the first attempt is of another job in the same folder.
    let is_own = |save: &Save| save.attempt.is_none_or(|attempt| attempt > 0);
    let saves = chronicle.saves.iter().filter(|(_, save)| is_own(save));
    let saves: Vec<At<Save>> = saves.copied().collect();
    let stalls = saves.iter().try_fold(0_u64, |sum, (_, save)| {
        // A stall of no time leaves no trace in the ledger.
        let stall = save.stall_millis.filter(|stall| *stall > 0)?;
        sum.checked_add(stall)
    });
    let all = !saves.is_empty() && chronicle.left_out.saves == 0 && stalls == Some(saving);
    all.then_some(saves)
}

/// The mean of a time that was measured for each checkpoint, in seconds.
fn mean(saves: &[At<Save>], of: impl Fn(&Save) -> Option<u64>) -> Option<f64> {
    let sum = saves
        .iter()
        .try_fold(0_u64, |sum, (_, save)| sum.checked_add(of(save)?))?;
    let count = u32::try_from(saves.len()).ok().filter(|count| *count > 0)?;
    Some(seconds(sum) / f64::from(count))
}

/// How long a step takes, from the steps between checkpoints of the same attempt.
fn step_seconds(saves: &[At<Save>]) -> Option<f64> {
    let (mut millis, mut steps) = (0_u64, 0_u64);
    for pair in saves.windows(2) {
        let [(from, first), (to, last)] = pair else {
            continue;
        };
        let lasts = u64::try_from(to.saturating_sub(*from)).unwrap_or(0);
        if first.attempt.is_some() && first.attempt == last.attempt && last.step > first.step {
            // The time of the later stall is no step's.
            let trains = lasts.saturating_sub(last.stall_millis.unwrap_or(0));
            millis = millis.saturating_add(trains);
            steps = steps.saturating_add(last.step - first.step);
        }
    }
    (steps > 0).then(|| seconds(millis) / real(steps))
}

fn seconds(millis: u64) -> f64 {
    real(millis) / 1e3
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds and steps of a job fit a double"
)]
fn real(millis: u64) -> f64 {
    millis as f64
}
