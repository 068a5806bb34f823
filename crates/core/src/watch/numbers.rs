//! Losses and gradient norms that are not numbers any more, and losses that jump.
//!
//! A loss that is NaN or infinite twice in a row does not come back. A gradient norm alone is another matter: a loss scaler
//! of fp16 skips steps with an infinite norm until its scale fits, from 2^16 at most 16 of them in a row.

use super::{Cause, signal::Step};
use crate::{
    mutant::{self, Mutant},
    progress::Figure,
};

/// Losses in a row that are NaN or infinite.
const LOSSES: u32 = 2;
/// Norms in a row that are NaN or infinite while the loss is finite: more than a loss scaler skips.
const NORMS: u32 = 20;
/// Samples whose maximum later ones are compared with.
const FIRST: u32 = 100;
/// How many times that maximum is a spike.
const TIMES_FIRST: f64 = 10.0;
/// How many times the recent median is a spike.
const TIMES_RECENT: f64 = 5.0;
/// Samples that the recent median is taken of.
const RECENT: usize = 31;

/// The numbers of one rank.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    loss: Run,
    norm: Run,
    first: u32,
    first_largest: f64,
    recent: [f64; RECENT],
    filled: usize,
    next: usize,
}

/// Values in a row that are NaN or infinite.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    length: u32,
    first_step: Option<u64>,
    /// The step of the last value.
    last_step: Option<u64>,
}

impl Run {
    /// Whether it is another value: a line that arrives twice is one.
    fn take(&mut self, value: f64, step: Option<u64>) -> bool {
        if step.is_some() && step == self.last_step {
            return false;
        }
        self.last_step = step;
        if value.is_finite() {
            self.length = 0;
            return true;
        }
        if self.length == 0 {
            self.first_step = step;
        }
        self.length = self.length.saturating_add(1);
        true
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            loss: Run::default(),
            norm: Run::default(),
            first: 0,
            first_largest: 0.0,
            recent: [0.0; RECENT],
            filled: 0,
            next: 0,
        }
    }
}

impl Numbers {
    /// Takes what a step reports; what follows from it, if anything. It follows again with every further step: the caller
    /// reports it once.
    pub(super) fn take(&mut self, step: &Step) -> Option<Cause> {
        if let Some(norm) = step.grad_norm {
            self.norm.take(norm, step.step);
        }
        let mut spike = None;
        if let Some(loss) = step.loss
            && self.loss.take(loss, step.step)
            && loss.is_finite()
        {
            spike = self.spike(loss, step.step);
        }
        let once = mutant::is(Mutant::NanOnce) && self.loss.length > 0;
        if self.loss.length >= LOSSES || once {
            let step = self.loss.first_step;
            return Some(Cause::NanLoss { step, norm: false });
        }
        if self.norm.length >= NORMS {
            let step = self.norm.first_step;
            return Some(Cause::NanLoss { step, norm: true });
        }
        spike
    }

    fn spike(&mut self, loss: f64, step: Option<u64>) -> Option<Cause> {
        let mut usual = None;
        if self.first < FIRST {
            self.first += 1;
            self.first_largest = self.first_largest.max(loss);
        } else if self.first_largest > 0.0 && loss >= self.first_largest * TIMES_FIRST {
            usual = Some(self.first_largest);
        }
        if self.filled == RECENT {
            let mut recent = self.recent;
            recent.sort_by(f64::total_cmp);
            let median = recent.get(RECENT / 2).copied().unwrap_or(0.0);
            if median > 0.0 && loss >= median * TIMES_RECENT {
                usual = Some(median);
            }
        }
        if let Some(slot) = self.recent.get_mut(self.next) {
            *slot = loss;
        }
        self.next = (self.next + 1) % RECENT;
        self.filled = (self.filled + 1).min(RECENT);
        usual.map(|usual| Cause::LossSpike {
            step,
            loss: Figure(loss),
            usual: Figure(usual),
        })
    }
}
