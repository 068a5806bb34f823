//! Numbers that depend on a seed and on nothing else (`SplitMix64`).

/// A source of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The source of `part` of the run with `seed`; parts do not influence each other.
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        let mut random = Self(seed ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Whether something of this percentage happens.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    /// One of `all`, which holds at least one.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let last = all.len() as u64 - 1;
        all[usize::try_from(self.between(0, last)).unwrap_or(0)]
    }

    /// Puts `all` into another order.
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            let other = usize::try_from(self.between(0, at as u64)).unwrap_or(0);
            all.swap(at, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_seed_and_part_only() {
        let draw = |seed, part| {
            let mut random = Random::new(seed, part);
            [0; 8].map(|_: i32| random.between(0, 1_000_000))
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn shuffle_keeps_every_element() {
        let mut all: Vec<u32> = (0..20).collect();
        Random::new(3, 3).shuffle(&mut all);
        assert_ne!(all, (0..20).collect::<Vec<u32>>());
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<u32>>());
    }
}
