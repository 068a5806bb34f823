//! The readings of one attempt, in order of time.

use std::time::Duration;

use jiff::Timestamp;

use super::{Event, Reading};

/// What is known of the progress of one attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// The last step.
    pub step: Option<u64>,
    /// The number of steps after which the training ends.
    pub last_step: Option<u64>,
    /// When the first step was read.
    pub first_at: Option<Timestamp>,
    /// When the last step was read.
    pub last_at: Option<Timestamp>,
    /// The last loss, and its step. It can be NaN.
    pub loss: Option<(u64, f64)>,
    /// The step from which on every loss was NaN or infinite.
    pub nan_since: Option<u64>,
    /// Whether it saves a checkpoint now.
    pub saving: bool,
    /// The median time between steps, once enough of them were read.
    pub rhythm: Option<Duration>,
}

impl Track {
    /// Takes what was read at `now`.
    pub fn take(&mut self, reading: &Reading, now: Timestamp) {
        if let Some(step) = reading.step {
            self.step = Some(step);
            self.first_at.get_or_insert(now);
            self.last_at = Some(now);
            self.saving = false;
        }
        if let Some(loss) = reading.loss {
            let step = self.step.unwrap_or(0);
            self.loss = Some((step, loss));
            if loss.is_finite() {
                self.nan_since = None;
            } else {
                self.nan_since.get_or_insert(step);
            }
        }
        match reading.event {
            Some(Event::Saving) => self.saving = true,
            Some(Event::Saved) => self.saving = false,
            Some(Event::Evaluating) | None => {}
        }
    }
}
