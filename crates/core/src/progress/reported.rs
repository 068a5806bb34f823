//! How far one attempt is, as a value that others keep and decide on.

use std::time::Duration;

use jiff::Timestamp;

use super::Figure;

/// How far the training of one attempt is; [`super::Track::progress`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The attempt that reported it.
    pub attempt: u32,
    /// The last step reported.
    pub step: u64,
    /// The first step reported, where all output of the attempt was read from its beginning and its steps have only grown. Nothing where a step may
    /// have been missed before it, or where steps are counted again, as in each epoch.
    pub first_step: Option<u64>,
    /// The number of steps after which the training ends.
    pub total_steps: Option<u64>,
    /// The last epoch reported.
    pub epoch: Option<Figure>,
    /// The last loss reported. It can be NaN.
    pub loss: Option<Figure>,
    /// The step since which the loss is NaN or infinite.
    pub nan_since: Option<u64>,
    /// The step since which the norm of the gradients is NaN or infinite.
    pub grad_nan_since: Option<u64>,
    /// How often loss or norm were NaN or infinite and recovered.
    pub overflows: u64,
    /// When the first step of the attempt was reported.
    pub first_at: Timestamp,
    /// When the last step was reported.
    pub at: Timestamp,
    /// Until when the output was read: what came later is not known, so there is no silence after it.
    pub read_at: Timestamp,
    /// Whether it is saving a checkpoint.
    pub saving: bool,
    /// Whether it is evaluating.
    pub evaluating: bool,
    /// The median time between reports, once it is known.
    pub rhythm: Option<Duration>,
    /// The median time of one step, once it is known.
    pub step_seconds: Option<Figure>,
}

impl Progress {
    /// Attempt `attempt` has reported `step` and nothing else, at `at`.
    pub fn new(attempt: u32, step: u64, at: Timestamp) -> Self {
        Self {
            attempt,
            step,
            first_step: None,
            total_steps: None,
            epoch: None,
            loss: None,
            nan_since: None,
            grad_nan_since: None,
            overflows: 0,
            first_at: at,
            at,
            read_at: at,
            saving: false,
            evaluating: false,
            rhythm: None,
            step_seconds: None,
        }
    }
}
