//! The readings of one stream of one attempt, in order of time.
//!
//! # Rhythm
//!
//! How often new steps arrive, as a median of the last [`SAMPLES`] intervals, so that one checkpoint or evaluation
//! does not move it. What arrives within [`TOGETHER`] is one arrival: a program whose output is buffered prints a
//! hundred lines at once. A program that reports every k-th step has the rhythm of its reports;
//! [`Track::step_seconds`] is the time of one step.
//!
//! # Guarantees
//!
//! Memory is bounded. A step that is printed again is not progress. Steps may go back: a bar that counts the batches of
//! each epoch begins again. The last loss is the last one that was read, whatever it is.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;

use super::{Event, Figure, Progress, Reading};

/// Intervals that the rhythm is taken from.
const SAMPLES: usize = 31;
/// Fewer intervals show no rhythm: the first steps compile and warm up.
const SAMPLES_LEAST: usize = 3;
/// Steps that arrive within this time arrive together.
const TOGETHER: Duration = Duration::from_millis(250);

/// What is known of the progress of one attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// The last step.
    pub step: Option<u64>,
    /// The first step, while nothing speaks against it; see [`Progress::first_step`].
    first_step: Option<u64>,
    /// Output before the first step was not read, or the steps went back.
    not_from_first: bool,
    /// The number of steps after which the training ends.
    pub last_step: Option<u64>,
    /// The last epoch.
    pub epoch: Option<f64>,
    /// When the first step was read.
    pub first_at: Option<Timestamp>,
    /// When the last step was read. A step that is printed again does not count.
    pub last_at: Option<Timestamp>,
    /// The last loss, and its step. It can be NaN.
    pub loss: Option<(u64, f64)>,
    /// The step from which on every loss was NaN or infinite.
    pub nan_since: Option<u64>,
    /// The last norm of the gradients, and its step. It can be NaN.
    pub grad_norm: Option<(u64, f64)>,
    /// The step from which on every norm of the gradients was NaN or infinite.
    pub grad_nan_since: Option<u64>,
    /// How often loss or norm were NaN or infinite and became finite again, such as overflows that a loss scaler
    /// corrects.
    pub overflows: u64,
    /// Whether it saves a checkpoint now.
    pub saving: bool,
    /// Whether it evaluates now.
    pub evaluating: bool,
    /// The median time between reports of steps, once enough of them were read.
    pub rhythm: Option<Duration>,
    /// How many new steps were reported.
    pub reports: u64,
    /// When the first step of the last arrival was read.
    arrived: Option<Timestamp>,
    samples: VecDeque<Sample>,
}

/// An arrival of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    /// Since the arrival before it.
    interval: Duration,
    /// Steps that it brought; those that went back count as none.
    steps: u64,
}

impl Track {
    /// Takes what was read at `now`.
    pub fn take(&mut self, reading: &Reading, now: Timestamp) {
        if let Some(step) = reading.step {
            self.take_step(step, now);
        }
        self.last_step = reading.last_step.or(self.last_step);
        self.epoch = reading.epoch.or(self.epoch);
        let step = self.step.unwrap_or(0);
        if let Some(loss) = reading.loss {
            self.loss = Some((step, loss));
            self.overflows += follow(&mut self.nan_since, step, loss);
        }
        if let Some(norm) = reading.grad_norm {
            self.grad_norm = Some((step, norm));
            self.overflows += follow(&mut self.grad_nan_since, step, norm);
        }
        match reading.event {
            Some(Event::Saving) => self.saving = true,
            Some(Event::Saved) => self.saving = false,
            Some(Event::Evaluating) => self.evaluating = true,
            None => {}
        }
    }

    /// The median time of one step, once enough of them were read.
    pub fn step_seconds(&self) -> Option<f64> {
        self.rhythm?;
        let times = self.samples.iter().filter(|sample| sample.steps > 0);
        #[expect(
            clippy::cast_precision_loss,
            reason = "steps between two reports fit a double"
        )]
        let mut times: Vec<f64> = times
            .map(|sample| sample.interval.as_secs_f64() / sample.steps as f64)
            .collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }

    /// What a decision may rest on: the progress of `attempt`, of which all output until `read_at` was read. Nothing
    /// before its first step.
    pub fn progress(&self, attempt: u32, read_at: Timestamp) -> Option<Progress> {
        Some(Progress {
            attempt,
            step: self.step?,
            first_step: self.first_step.filter(|_| !self.not_from_first),
            total_steps: self.last_step,
            epoch: self.epoch.map(Figure),
            loss: self.loss.map(|(_, loss)| Figure(loss)),
            nan_since: self.nan_since,
            grad_nan_since: self.grad_nan_since,
            overflows: self.overflows,
            first_at: self.first_at?,
            at: self.last_at?,
            read_at,
            saving: self.saving,
            evaluating: self.evaluating,
            rhythm: self.rhythm,
            step_seconds: self.step_seconds().map(Figure),
        })
    }

    /// Output of the attempt before its first step may not have been read.
    pub fn miss_beginning(&mut self) {
        self.not_from_first = true;
    }

    fn take_step(&mut self, step: u64, now: Timestamp) {
        if self.step == Some(step) {
            return;
        }
        self.first_step.get_or_insert(step);
        self.not_from_first |= self.step.is_some_and(|last| step < last);
        // What is saved or evaluated between two steps is done when the next one comes.
        self.saving = false;
        self.evaluating = false;
        self.reports = self.reports.saturating_add(1);
        let steps = self.step.map_or(0, |last| step.saturating_sub(last));
        self.step = Some(step);
        self.first_at.get_or_insert(now);
        // A clock that steps back counts as no time.
        self.last_at = Some(self.last_at.map_or(now, |last| last.max(now)));
        let Some(arrived) = self.arrived else {
            self.arrived = Some(now);
            return;
        };
        let interval = Duration::try_from(now.duration_since(arrived)).unwrap_or_default();
        if interval <= TOGETHER {
            if let Some(sample) = self.samples.back_mut() {
                sample.steps = sample.steps.saturating_add(steps);
            }
            return;
        }
        self.arrived = Some(now);
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { interval, steps });
        if self.samples.len() >= SAMPLES_LEAST {
            let mut intervals: Vec<Duration> =
                self.samples.iter().map(|sample| sample.interval).collect();
            intervals.sort_unstable();
            self.rhythm = intervals.get(intervals.len() / 2).copied();
        }
    }
}

/// Keeps since when numbers are not finite. Says 1 where that ends, and 0 otherwise.
fn follow(since: &mut Option<u64>, step: u64, number: f64) -> u64 {
    if number.is_finite() {
        u64::from(since.take().is_some())
    } else {
        since.get_or_insert(step);
        0
    }
}

#[cfg(test)]
mod tests;
