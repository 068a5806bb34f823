//! When the engine decides next.

use std::time::{Duration, Instant};

/// How often progress alone causes a decision, and a write.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// When to decide: at once after a change, else when the last decision asked for it.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Whether something was seen since the last decision.
    changed: bool,
    /// When to decide even if nothing is seen.
    at: Option<Instant>,
    last: Instant,
}

impl Schedule {
    /// The first decision is due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            changed: true,
            at: None,
            last: now,
        }
    }

    /// Something was seen that a decision depends on.
    pub(super) fn request(&mut self) {
        self.changed = true;
    }

    /// Progress was seen. A script may report a thousand times in a second, and the ledger needs only seconds.
    pub(super) fn request_soon(&mut self) {
        let next = self.last + PROGRESS_EVERY;
        self.at = Some(self.at.map_or(next, |at| at.min(next)));
    }

    /// A decision on all that was seen before `now` begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.changed = false;
        self.last = now;
    }

    /// That decision asked for another one after `wait`, or for none.
    pub(super) fn wake_after(&mut self, wait: Option<Duration>) {
        self.at = wait.map(|wait| self.last + wait);
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.changed || self.at.is_some_and(|at| at <= now)
    }

    /// When the clock alone calls for a decision.
    pub(super) fn due(&self) -> Option<Instant> {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_waits_for_its_second() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut schedule = Schedule::new(start);
        assert!(schedule.is_due(start), "the first decision");
        schedule.begin(start);
        schedule.wake_after(None);
        assert!(!schedule.is_due(after(60_000)));
        schedule.request_soon();
        assert!(!schedule.is_due(after(999)));
        assert!(schedule.is_due(after(1_000)));
        schedule.request();
        assert!(schedule.is_due(start), "a change does not wait");
        schedule.begin(start);
        schedule.wake_after(Some(Duration::from_millis(200)));
        schedule.request_soon();
        assert_eq!(schedule.due(), Some(after(200)), "the earlier of both");
    }
}
