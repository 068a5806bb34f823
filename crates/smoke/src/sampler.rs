//! Which samples a step trains on.
//!
//! Each epoch visits every sample once, in an order drawn afresh. The place in the epoch is counted
//! in samples, never in steps of one rank, so it means the same for any number of ranks and any
//! batch.
//!
//! Invariant: however often training stops and resumes, and with however many ranks, each epoch
//! gives out every sample exactly once.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// A place in the sequence of samples; with the seed, all that is needed to resume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Epochs completed.
    pub(crate) epoch: u64,
    /// Samples of this epoch that were trained on.
    pub(crate) position: usize,
    /// State of the generator, in words drawn, when this epoch's order was drawn.
    pub(crate) random: u128,
}

/// Gives out the samples of a run.
#[derive(Debug)]
pub(crate) struct Sampler {
    cursor: Cursor,
    random: ChaCha8Rng,
    order: Vec<usize>,
}

impl Sampler {
    /// A sampler over `count` samples that stands at `cursor`.
    pub(crate) fn at(seed: u64, count: usize, cursor: Cursor) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_word_pos(cursor.random);
        let order = draw_order(&mut random, count);
        Self {
            cursor,
            random,
            order,
        }
    }

    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The next samples, at most `size`; fewer at the end of an epoch, which no batch crosses.
    pub(crate) fn batch(&self, size: usize) -> &[usize] {
        let end = self.order.len().min(self.cursor.position + size);
        &self.order[self.cursor.position..end]
    }

    /// Skips the `count` samples of a batch that was trained on.
    pub(crate) fn advance(&mut self, count: usize) {
        self.cursor.position += count;
        if self.cursor.position >= self.order.len() {
            let random = self.random.get_word_pos();
            self.order = draw_order(&mut self.random, self.order.len());
            self.cursor = Cursor {
                epoch: self.cursor.epoch + 1,
                position: 0,
                random,
            };
        }
    }

    /// Steps left until `epochs` are complete, with batches of `size`.
    pub(crate) fn steps_left(&self, epochs: u64, size: usize) -> u64 {
        let Some(later) = epochs.checked_sub(self.cursor.epoch + 1) else {
            return 0;
        };
        let steps = |samples: usize| u64::try_from(samples.div_ceil(size)).unwrap_or(u64::MAX);
        let this = steps(self.order.len() - self.cursor.position);
        later
            .saturating_mul(steps(self.order.len()))
            .saturating_add(this)
    }
}

/// The part of `batch` that falls to `rank` of `size`: contiguous, and even to within one sample.
pub(crate) fn share(batch: &[usize], rank: usize, size: usize) -> &[usize] {
    let edge = |rank: usize| batch.len() * rank / size;
    &batch[edge(rank)..edge(rank + 1)]
}

/// A permutation of `0..count`, each as likely as the others.
fn draw_order(random: &mut ChaCha8Rng, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, below(random, last + 1));
    }
    order
}

/// A number from 0 to `bound` - 1. Numbers of the last, incomplete stretch are drawn again, for
/// they would favour the small ones.
fn below(random: &mut ChaCha8Rng, bound: usize) -> usize {
    let bound = bound as u64;
    let whole = u64::MAX - u64::MAX % bound;
    loop {
        let drawn = random.next_u64();
        if drawn < whole {
            let index = drawn % bound;
            return usize::try_from(index).expect("an index below a usize fits one");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 1541;

    /// Trains `steps` steps with `size` ranks and notes what each epoch gave out.
    fn train(
        sampler: &mut Sampler,
        size: usize,
        batch: usize,
        steps: usize,
        seen: &mut Vec<Vec<usize>>,
    ) {
        for _ in 0..steps {
            let epoch = usize::try_from(sampler.cursor().epoch).unwrap();
            seen.resize(seen.len().max(epoch + 1), Vec::new());
            let given = sampler.batch(batch).to_vec();
            for rank in 0..size {
                seen[epoch].extend(share(&given, rank, size));
            }
            sampler.advance(given.len());
        }
    }

    #[test]
    fn epoch_survives_world_size_changes() {
        let mut seen = Vec::new();
        let mut cursor = Cursor::default();
        // Two epochs of 49 steps, interrupted at arbitrary steps.
        for (size, steps) in [(4, 17), (2, 23), (3, 31), (1, 1), (5, 26)] {
            let mut sampler = Sampler::at(11, COUNT, cursor);
            train(&mut sampler, size, 32, steps, &mut seen);
            cursor = sampler.cursor();
        }
        assert_eq!((cursor.epoch, cursor.position), (2, 0));
        for (epoch, samples) in seen.iter_mut().enumerate() {
            samples.sort_unstable();
            assert_eq!(samples, &(0..COUNT).collect::<Vec<_>>(), "epoch {epoch}");
        }
    }

    #[test]
    fn restart_keeps_sample_order() {
        let mut straight = Sampler::at(5, 100, Cursor::default());
        let mut first = Vec::new();
        train(&mut straight, 1, 8, 40, &mut first);

        let mut second = Vec::new();
        let mut cursor = Cursor::default();
        for _ in 0..8 {
            let mut resumed = Sampler::at(5, 100, cursor);
            train(&mut resumed, 1, 8, 5, &mut second);
            cursor = resumed.cursor();
        }
        assert_eq!(first, second);
        assert_eq!(cursor, straight.cursor());
    }

    #[test]
    fn epochs_and_seeds_have_orders_of_their_own() {
        let mut sampler = Sampler::at(1, 50, Cursor::default());
        let first = sampler.batch(50).to_vec();
        sampler.advance(50);
        assert_ne!(first, sampler.batch(50));
        assert_ne!(first, Sampler::at(2, 50, Cursor::default()).batch(50));
    }

    #[test]
    fn epoch_survives_batch_size_change() {
        let mut seen = Vec::new();
        let mut sampler = Sampler::at(3, 100, Cursor::default());
        train(&mut sampler, 2, 16, 3, &mut seen);
        let mut sampler = Sampler::at(3, 100, sampler.cursor());
        train(&mut sampler, 3, 13, 4, &mut seen);
        assert_eq!(sampler.cursor().epoch, 1);
        seen[0].sort_unstable();
        assert_eq!(seen[0], (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn shares_are_even_and_whole() {
        let batch: Vec<usize> = (0..30).collect();
        for size in [1, 2, 3, 4, 7, 30, 40] {
            let shares: Vec<&[usize]> = (0..size).map(|rank| share(&batch, rank, size)).collect();
            assert_eq!(shares.concat(), batch, "{size} ranks");
            let lengths = shares.iter().map(|share| share.len());
            let (least, most) = (lengths.clone().min(), lengths.max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{size} ranks");
        }
    }

    #[test]
    fn steps_left_counts_the_short_batch() {
        let mut sampler = Sampler::at(1, 100, Cursor::default());
        assert_eq!(sampler.steps_left(3, 32), 12);
        sampler.advance(32);
        assert_eq!(sampler.steps_left(3, 32), 11);
        assert_eq!(sampler.steps_left(1, 50), 2);
        sampler.advance(68);
        assert_eq!(sampler.steps_left(1, 32), 0);
    }
}
