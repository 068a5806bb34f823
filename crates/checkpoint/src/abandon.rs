//! A clock that a save can be abandoned with: its deadline passes at once.
//!
//! When one rank fails, the others need not wait for its piece until their deadline. The save ends as one that was too late, so
//! there is no further way for a save to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::clock::Clock;

/// Later than every deadline, and far from an overflow.
const END: Duration = Duration::from_secs(u64::MAX >> 8);

/// A clock that jumps beyond every deadline once [`Abandon::now`] is called.
#[derive(Debug)]
struct AbandonClock {
    inner: Arc<dyn Clock>,
    is_over: Arc<AtomicBool>,
}

impl Clock for AbandonClock {
    fn now(&self) -> Duration {
        if self.is_over.load(Ordering::Relaxed) {
            END
        } else {
            self.inner.now()
        }
    }

    fn elapsed(&self) -> Duration {
        self.inner.elapsed()
    }

    fn wait(&self, time: Duration) {
        self.inner.wait(time);
    }

    fn date(&self) -> u64 {
        self.inner.date()
    }
}

/// Abandons the save whose clock it came with.
#[derive(Clone, Debug)]
pub struct Abandon(Arc<AtomicBool>);

impl Abandon {
    /// From here on every deadline has passed.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A clock for one save, and what abandons it.
pub fn abandonable(inner: Arc<dyn Clock>) -> (Arc<dyn Clock>, Abandon) {
    let is_over = Arc::new(AtomicBool::new(false));
    let clock = AbandonClock {
        inner,
        is_over: Arc::clone(&is_over),
    };
    (Arc::new(clock), Abandon(is_over))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn abandoned_clock_is_beyond_every_deadline() {
        let inner = ManualClock::start();
        let (clock, abandon) = abandonable(Arc::clone(&inner));
        clock.wait(Duration::from_secs(5));
        assert_eq!(clock.now(), Duration::from_secs(5));
        assert_eq!(inner.now(), clock.now());
        abandon.now();
        assert!(clock.now() > inner.now() + Duration::from_hours(1_000_000));
        assert_eq!(clock.elapsed(), Duration::from_secs(5));
    }
}
