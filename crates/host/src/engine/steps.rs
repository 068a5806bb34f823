//! How far the training is, as its output reports it.
//!
//! Invariant: progress is written at most once in [`PROGRESS_EVERY`].

use std::time::Instant;

use jiff::Timestamp;
use trainyard_core::{
    job::{Progress, ProgressRecord},
    progress::{Reading, StepReporters, Track},
};

use super::{facts::Points, schedule::PROGRESS_EVERY, table::Key};
use crate::store::{StoredProgress, VERSION};

/// One stream of one pod.
pub(super) type StreamId = (Key, usize);

/// The steps of a run: of its last attempt that reported any, and of all.
#[derive(Debug, Default)]
pub(super) struct Steps {
    attempt: u32,
    /// The stream that speaks for the attempt, and what it reported.
    reporters: StepReporters<StreamId>,
    track: Track,
    /// The first step that was reported in the run.
    pub(super) first: Option<u64>,
    /// The furthest step of all attempts.
    pub(super) last: Option<u64>,
    /// The last loss of any attempt. It can be NaN.
    pub(super) last_loss: Option<f64>,
    /// Numbers that are not recorded yet.
    pub(super) points: Points,
    /// Progress is to be written.
    unsaved: bool,
    written: Option<Instant>,
}

impl Steps {
    /// Takes what a stream reported, and records which stream reports for the attempt. The step and its loss where they are
    /// news.
    pub(super) fn take(
        &mut self,
        attempt: u32,
        stream: StreamId,
        readings: &[Reading],
        now: Timestamp,
    ) -> Option<(u64, Option<f64>)> {
        if readings.is_empty() || attempt < self.attempt {
            return None;
        }
        if attempt > self.attempt {
            self.attempt = attempt;
            self.track = Track::default();
            self.reporters = StepReporters::default();
        }
        let before = (self.track.step, self.track.nan_since);
        for reading in readings {
            let accepted = self.reporters.take(stream, reading);
            // Several ranks report the same steps, and not at once. Those behind report nothing new.
            if accepted.is_none() && reading.step.is_some() && reading.step != self.track.step {
                continue;
            }
            self.track.take(reading, now);
            self.points.take(reading, self.track.step, now);
            self.first = self.first.or(self.track.step);
            self.last_loss = reading.loss.or(self.last_loss);
        }
        let step = self.track.step?;
        if (self.track.step, self.track.nan_since) == before {
            return None;
        }
        self.unsaved = true;
        self.last = self.last.max(Some(step));
        Some((step, self.track.loss.map(|(_, loss)| loss)))
    }

    /// The progress of the last attempt. All that was written is read as it comes.
    pub(super) fn progress(&self, now: Timestamp) -> Option<Progress> {
        self.track.progress(self.attempt, now)
    }

    /// How long a step takes, as it was measured since the last write.
    pub(super) fn step_seconds(&self) -> Option<f64> {
        self.track
            .step_seconds()
            .filter(|_| !self.points.is_empty())
    }

    /// When progress that waits may be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let written = self.written.filter(|_| self.unsaved)?;
        Some(written + PROGRESS_EVERY)
    }

    /// What is to be written, where it is time.
    pub(super) fn take_unsaved(&mut self, now: Instant) -> Option<StoredProgress> {
        if !self.unsaved || self.due().is_some_and(|due| due > now) {
            return None;
        }
        let progress = self.progress(Timestamp::now())?;
        self.unsaved = false;
        self.written = Some(now);
        Some(StoredProgress {
            version: VERSION,
            attempt: progress.attempt,
            step: progress.step,
            loss: self.last_loss,
            at: progress.at,
            furthest_step: self.last.unwrap_or(progress.step),
            progress: Some(ProgressRecord::from(&progress)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64, loss: f64) -> [Reading; 1] {
        [Reading {
            step: Some(step),
            loss: Some(loss),
            ..Reading::default()
        }]
    }

    #[test]
    fn new_attempt_resets_steps_and_old_one_is_ignored() {
        let now = Timestamp::UNIX_EPOCH;
        let mut steps = Steps::default();
        assert_eq!(
            steps.take(1, (1, 0), &step(5, 2.0), now),
            Some((5, Some(2.0)))
        );
        assert_eq!(steps.take(1, (2, 0), &step(5, 2.1), now), None, "no news");
        assert_eq!(
            steps.take(2, (3, 0), &step(3, 1.5), now),
            Some((3, Some(1.5)))
        );
        assert_eq!(steps.take(1, (1, 0), &step(9, 0.1), now), None, "late");
        assert_eq!((steps.first, steps.last), (Some(5), Some(5)));
        assert_eq!(steps.last_loss, Some(1.5));
        assert_eq!(
            steps.progress(now).map(|it| (it.attempt, it.step)),
            Some((2, 3))
        );
    }

    #[test]
    fn progress_is_written_once_a_second() {
        let (now, stamp) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let mut steps = Steps::default();
        assert_eq!(steps.take_unsaved(now), None);
        steps.take(1, (1, 0), &step(5, 2.0), stamp);
        assert_eq!(steps.take_unsaved(now).map(|it| it.step), Some(5));
        assert_eq!(steps.due(), None);
        steps.take(1, (1, 0), &step(6, 2.0), stamp);
        assert_eq!(steps.take_unsaved(now), None);
        assert_eq!(steps.due(), Some(now + PROGRESS_EVERY));
        let later = now + PROGRESS_EVERY;
        assert_eq!(
            steps.take_unsaved(later).map(|it| it.furthest_step),
            Some(6)
        );
    }
}
