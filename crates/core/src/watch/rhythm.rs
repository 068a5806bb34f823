//! How often a job shows progress, phase by phase, in bounded memory.
//!
//! The largest gap matters, not the mean: patience is a multiple of it. Hundreds of ranks may report the same step
//! within a millisecond, so a slot of the ring is not one gap. A slot spans at least a quarter of the largest gap, and
//! the whole ring therefore at least 16 of them, however many reports come in a burst.

use std::time::Duration;

use super::signal::Phase;

/// Slots of a ring.
const SLOTS: usize = 64;

/// The gaps of one phase.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// The largest gap of each slot, in milliseconds, the oldest at `next` once the ring is full.
    slots: [u32; SLOTS],
    filled: usize,
    next: usize,
    /// The slot that is not full yet.
    open_total: u32,
    open_largest: u32,
}

impl Default for Gaps {
    fn default() -> Self {
        Self {
            slots: [0; SLOTS],
            filled: 0,
            next: 0,
            open_total: 0,
            open_largest: 0,
        }
    }
}

impl Gaps {
    /// Takes one gap between two signs of progress.
    pub(super) fn note(&mut self, gap: Duration) {
        // 49 days; a longer gap is no rhythm.
        let gap = u32::try_from(gap.as_millis()).unwrap_or(u32::MAX);
        self.open_total = self.open_total.saturating_add(gap);
        self.open_largest = self.open_largest.max(gap);
        if u64::from(self.open_total) * 4 < u64::from(self.largest_millis()) {
            return;
        }
        if let Some(slot) = self.slots.get_mut(self.next) {
            *slot = self.open_largest;
        }
        self.next = (self.next + 1) % SLOTS;
        self.filled = (self.filled + 1).min(SLOTS);
        self.open_total = 0;
        self.open_largest = 0;
    }

    /// The largest gap that is remembered; zero where there is none.
    pub(super) fn largest(&self) -> Duration {
        Duration::from_millis(self.largest_millis().into())
    }

    fn largest_millis(&self) -> u32 {
        let kept = self.slots.iter().take(self.filled).copied().max();
        kept.unwrap_or(0).max(self.open_largest)
    }
}

/// What is known of the rhythm of a job. It outlives an attempt: hand that of the last one to the next.
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    phases: [Gaps; Phase::ALL.len()],
    /// Gaps between two new steps with nothing between them but training, over all attempts.
    steps: u32,
}

impl Rhythm {
    /// Gaps that show a rhythm: the first steps compile and warm up.
    const LEARNED: u32 = 5;

    /// The gap that was noted last ended with a step that no rank had reported before.
    pub(super) fn count_step(&mut self) {
        self.steps = self.steps.saturating_add(1);
    }

    /// Whether the time between two steps is known at all.
    pub(super) fn has_gap(&self) -> bool {
        self.steps > 0
    }

    /// Whether gaps between steps say how long the next one may take.
    pub(super) fn is_learned(&self) -> bool {
        self.steps >= Self::LEARNED
    }

    /// Takes a gap of `phase`.
    pub(super) fn note(&mut self, phase: Phase, gap: Duration) {
        if let Some(gaps) = self.phases.get_mut(phase as usize) {
            gaps.note(gap);
        }
    }

    /// The largest gap of `phase`.
    pub(super) fn largest(&self, phase: Phase) -> Duration {
        self.phases
            .get(phase as usize)
            .map_or(Duration::ZERO, Gaps::largest)
    }
}
