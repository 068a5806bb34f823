//! Randomness that depends on nothing but a seed and the name of what is drawn.
//!
//! Each thing that is drawn (the job, the plan of faults, the life of one pod) has a stream of its
//! own, so that taking one fault out of a run leaves the rest of the run as it was. Shrinking
//! lives from that.

use std::ops::RangeInclusive;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A source of draws.
#[derive(Clone, Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// The dice of `seed` for the thing numbered `stream`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut source = ChaCha8Rng::seed_from_u64(seed);
        source.set_stream(stream);
        Self(source)
    }

    /// A number below `bound`, which is not zero. The bias of the remainder is far below what a
    /// hunt could notice.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0.next_u32() % bound
    }

    /// A number in `range`.
    pub(crate) fn within(&mut self, range: RangeInclusive<i64>) -> i64 {
        let width = range.end() - range.start() + 1;
        range.start() + i64::from(self.0.next_u32()) % width
    }

    /// True in `percent` of the draws.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which are not empty.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.next_u32() as usize % choices.len()]
    }
}
