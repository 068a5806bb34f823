//! Waiting longer after each failure, up to a bound, and never in step with others.

use std::time::Duration;

/// How long to wait before trying again.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            failures: 0,
        }
    }

    /// What was tried has worked.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait after one more failure: doubled each time, and up to a quarter more or less.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self
            .first
            .saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX))
            .min(self.most);
        self.failures = self.failures.saturating_add(1).min(31);
        wait.mul_f64(0.75 + 0.5 * unit())
    }
}

/// A number between 0 and 1 that two processes do not share.
pub(crate) fn unit() -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    // Keys of the standard hasher differ for each call and each process.
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what it holds")]
    let unit = bits as f64 / (1_u64 << 53) as f64;
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_begin_again() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, most);
        for expected in [100, 200, 400, 800, 1_000, 1_000] {
            let expected = Duration::from_millis(expected);
            let wait = backoff.next();
            assert!(
                wait >= expected.mul_f64(0.74) && wait <= expected.mul_f64(1.26),
                "{wait:?} for {expected:?}"
            );
        }
        for _ in 0..100 {
            assert!(backoff.next() <= most.mul_f64(1.26));
        }
        backoff.reset();
        assert!(backoff.next() < first * 2);
    }
}
