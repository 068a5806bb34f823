//! How long silence is ordinary, and when to look.
//!
//! Time is measured from the last sign of progress. Four moments follow from the settings and from the largest gap L of
//! the phase:
//!
//! | moment | what may follow | while training, L known |
//! |---|---|---|
//! | `suspect` | evidence is gathered; nobody is accused | max(floor / 2, 2 L) |
//! | `patience` | a rank that is clearly apart and does not move | max(floor, 3 L) |
//! | `unclear` | a report that is not sure | max(2 floor, 5 L), at most the ceiling |
//! | `ceiling` | whatever else is found | max(`hang-after`, 3 L, patience) |
//!
//! Before the second report of a step all four are at `first-step-within`, before the sixth at the ceiling, and in a phase that was said and may take long (a save, an
//! evaluation) at the end of its allowance. Evidence is then gathered over the last quarter of that time.

use std::time::Duration;

use super::{Settings, rhythm::Rhythm, signal::Phase};

/// How long bytes that move at the rate of real work excuse a silence, from the first that were seen: an evaluation of two
/// hours and a save of half an hour, with the lines between them lost. A hang with a busy helper process lasts that long.
pub(super) const WORK_MOST: Duration = Duration::from_hours(3);
/// How long bytes that moved excuse a silence when no later sample shows whether they still do: some evidence gets lost, and
/// samples are a minute apart by then.
pub(super) const WORK_UNSEEN: Duration = Duration::from_mins(15);
/// A save that was announced may take this long.
const SAVE_MOST: Duration = Duration::from_mins(30);
/// An evaluation that was announced may take this long.
const EVALUATION_MOST: Duration = Duration::from_hours(2);
/// Two looks are at least this far apart: less shows no movement of a program that works.
pub(super) const LOOKS_APART_LEAST: Duration = Duration::from_millis(400);
/// Two looks are at most this far apart.
pub(super) const LOOKS_APART_MOST: Duration = Duration::from_mins(1);
/// Two looks that only keep the time are at least this far apart.
const BEAT_LEAST: Duration = Duration::from_secs(1);
/// Looks at one silence. A program that never reports a step and works all the same is left alone after eight hours.
pub const LOOKS_MOST: u32 = 512;
/// Looks that a conclusion needs.
pub(super) const LOOKS_LEAST: u32 = 3;

/// The moments of one silence, from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) suspect: Duration,
    pub(super) patience: Duration,
    pub(super) unclear: Duration,
    pub(super) ceiling: Duration,
}

impl Limits {
    /// All at one moment. Evidence is gathered over its last quarter, and over at least one gap of `largest`: in a step of
    /// ten minutes all ranks may be at one line for minutes.
    fn at(end: Duration, largest: Duration) -> Self {
        let lead = (end / 4).max(largest).min(end / 2);
        Self {
            suspect: end.saturating_sub(lead),
            patience: end,
            unclear: end,
            ceiling: end,
        }
    }

    /// How long nothing may have moved before it counts as still.
    pub(super) fn still(&self) -> Duration {
        // A part of it, because evidence arrives a little after it was asked for.
        self.patience.saturating_sub(self.suspect) * 3 / 4
    }

    /// The next moment after `silence`.
    pub(super) fn next_after(&self, silence: Duration) -> Option<Duration> {
        [self.suspect, self.patience, self.unclear, self.ceiling]
            .into_iter()
            .find(|moment| *moment > silence)
    }
}

/// The limits of an attempt that has reported no step (`started` is false), or is in `phase`.
pub(super) fn limits(settings: &Settings, rhythm: &Rhythm, started: bool, phase: Phase) -> Limits {
    let floor = settings.hang_floor;
    let largest = rhythm.largest(Phase::Train);
    let ceiling = settings
        .hang_after
        .max(largest.saturating_mul(3))
        .max(floor);
    let training = if !started {
        Limits::at(settings.first_step_within.max(floor), Duration::ZERO)
    } else if rhythm.is_learned() {
        let patience = floor.max(largest.saturating_mul(3));
        Limits {
            suspect: (floor / 2).max(largest.saturating_mul(2)),
            patience,
            unclear: (floor * 2)
                .max(largest.saturating_mul(5))
                .min(ceiling)
                .max(patience),
            ceiling,
        }
    } else if rhythm.has_gap() {
        Limits::at(ceiling, largest)
    } else {
        // The second report may be of the hundredth step, or compile again.
        Limits::at(ceiling.max(settings.first_step_within), largest)
    };
    let allowance = match phase {
        Phase::Train | Phase::Start => return training,
        Phase::Save => SAVE_MOST,
        Phase::Evaluate => EVALUATION_MOST,
        Phase::Compile | Phase::Load => settings.first_step_within,
    };
    // The step after it is not reported before it ends, too.
    let end = allowance
        .max(rhythm.largest(phase).saturating_mul(3))
        .saturating_add(training.patience);
    Limits::at(end.max(ceiling), largest)
}

/// How long to wait for the next look when the first was `elapsed` ago: the longer nothing was decided, the less often,
/// so that the number of looks grows with the logarithm of the time until one a minute is reached.
pub(super) fn next_look(elapsed: Duration) -> Duration {
    (elapsed / 8).clamp(LOOKS_APART_LEAST, LOOKS_APART_MOST)
}

/// How far apart looks are that only keep the time.
pub(super) fn beat(limits: &Limits) -> Duration {
    (limits.suspect / 8).clamp(BEAT_LEAST, LOOKS_APART_MOST)
}
