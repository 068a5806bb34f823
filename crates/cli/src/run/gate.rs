//! How much of what ranks write is shown: as much as a person can read.
//!
//! A rank that floods its output must not be slowed down by the screen, so what is too much is
//! counted and left out here, before anything looks at it. The log has every line.
//!
//! Invariant: the cost of a line that is left out is the search for its end.

use std::{collections::BTreeMap, time::Duration};

use trainyard_core::spec::Slot;

/// Lines a second that are shown in all. A terminal of 50 lines turns over 40 times a second then,
/// which is beyond reading.
const LINES_PER_SECOND: u64 = 2_000;
/// Lines per second that each rank may always show, so that a loud rank does not hide a quiet one.
const LINES_PER_RANK: u64 = 10;

/// Lets lines through while there is room.
#[derive(Debug)]
pub(crate) struct Gate {
    all: Bucket,
    ranks: BTreeMap<Slot, Bucket>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            all: Bucket::full(LINES_PER_SECOND),
            ranks: BTreeMap::new(),
        }
    }

    /// How many of `lines` lines of `slot` may be shown at `now`.
    pub(crate) fn admit(&mut self, slot: Slot, lines: u64, now: Duration) -> u64 {
        let admitted = self.all.take(lines, now);
        if admitted == lines {
            return admitted;
        }
        let own = self
            .ranks
            .entry(slot)
            .or_insert_with(|| Bucket::full(LINES_PER_RANK));
        admitted + own.take(lines - admitted, now)
    }
}

/// A store of lines that fills up again at so many a second, up to one second's worth.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// In thousandths of a line, so that short times count too.
    left: u64,
    at: Duration,
}

impl Bucket {
    fn full(per_second: u64) -> Self {
        Self {
            per_second,
            left: per_second * 1_000,
            at: Duration::ZERO,
        }
    }

    fn take(&mut self, lines: u64, now: Duration) -> u64 {
        let passed = now.saturating_sub(self.at).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        if passed > 0 {
            let gained = passed.saturating_mul(self.per_second);
            self.left = self
                .left
                .saturating_add(gained)
                .min(self.per_second * 1_000);
            self.at = now;
        }
        let taken = lines.min(self.left / 1_000);
        self.left -= taken * 1_000;
        taken
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::spec::Role;

    use super::*;

    fn worker(index: u32) -> Slot {
        Slot::new(Role::Worker, index)
    }

    #[test]
    fn a_flood_is_cut_to_what_can_be_read() {
        let mut gate = Gate::new();
        let mut shown = 0;
        for millis in 0..10_000 {
            shown += gate.admit(worker(0), 1_000, Duration::from_millis(millis));
        }
        let most = 11 * (LINES_PER_SECOND + LINES_PER_RANK);
        assert!((LINES_PER_SECOND * 10..=most).contains(&shown), "{shown}");
    }

    #[test]
    fn loud_rank_does_not_hide_quiet_one() {
        let mut gate = Gate::new();
        for millis in 0..5_000 {
            let now = Duration::from_millis(millis);
            gate.admit(worker(0), 1_000, now);
            if millis % 500 == 0 {
                assert_eq!(gate.admit(worker(1), 1, now), 1, "at {millis} ms");
            }
        }
    }

    #[test]
    fn what_can_be_read_is_shown_whole() {
        let mut gate = Gate::new();
        for second in 0..100 {
            let now = Duration::from_secs(second);
            assert_eq!(
                gate.admit(worker(0), LINES_PER_SECOND, now),
                LINES_PER_SECOND
            );
        }
    }
}
