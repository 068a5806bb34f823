//! When a lost connection is tried again.

use std::time::Duration;

/// Longest pause between two tries.
const LONGEST: u32 = 3;

/// Pauses of 1, 2, 4, 8, 8, … seconds, from the beginning again once a peer has responded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redial {
    tries: u32,
}

impl Redial {
    /// The pause before the next try.
    pub fn pause(&mut self) -> Duration {
        let doublings = self.tries.min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        Duration::from_secs(1 << doublings)
    }

    /// A peer has responded.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_eight_seconds() {
        let mut redial = Redial::default();
        let pauses: Vec<u64> = (0..6).map(|_| redial.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 8, 8]);
        redial.reset();
        assert_eq!(redial.pause().as_secs(), 1);
    }
}
