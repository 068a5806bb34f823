//! Random numbers that depend only on a seed.
//!
//! `xoshiro256**` of Blackman and Vigna, seeded by `splitmix64`: four words of state, no dependency, the
//! same on every machine.

/// A random number generator.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    state: [u64; 4],
}

impl Dice {
    /// The dice of `seed` for run `stream`.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F);
        let mut next = || {
            mixed = mixed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = mixed;
            word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word ^ (word >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let mut state = [a, b, c ^ a, d ^ b];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= b << 17;
        state[3] = state[3].rotate_left(45);
        self.state = state;
        result
    }

    /// A number in [0, 1).
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are what a double holds"
    )]
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with that probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// An exponentially distributed time with that mean; infinite where the mean is.
    pub(super) fn wait(&mut self, mean: f64) -> f64 {
        let share = 1.0 - self.share();
        if mean.is_finite() {
            -mean * share.ln()
        } else {
            f64::INFINITY
        }
    }
}
