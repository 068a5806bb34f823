//! A limit of bytes per second for what drains take from disks and networks that training needs.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{clock::Clock, store::Board};

/// The longest wait after which an end that was requested is seen.
const SLICE: Duration = Duration::from_millis(100);

/// Paces copies: each chunk waits until those before it are paid for.
#[derive(Debug, Default)]
pub struct Pace {
    bytes_per_second: Option<u64>,
    /// When the next chunk may start.
    next: Mutex<Duration>,
}

impl Pace {
    /// A limit; `None` and 0 are none.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            bytes_per_second: bytes_per_second.filter(|rate| *rate > 0),
            next: Mutex::default(),
        }
    }

    /// The limit, as a rate.
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        self.bytes_per_second.map(|rate| rate as f64)
    }

    /// Waits until a chunk may be copied. Fails with `TimedOut` when the time is over, its own or that of a process that ends.
    pub(super) fn take(
        &self,
        clock: &dyn Clock,
        bytes: u64,
        until: Duration,
        board: &Board,
    ) -> io::Result<()> {
        let start = self.book(clock.now(), bytes);
        loop {
            let ends_at = board.lock().ends_at.unwrap_or(Duration::MAX);
            let now = clock.now();
            if now >= until.min(ends_at) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if now >= start {
                return Ok(());
            }
            clock.wait(start.saturating_sub(now).min(SLICE));
        }
    }

    /// Books the time of a chunk; returns when it may start.
    fn book(&self, now: Duration, bytes: u64) -> Duration {
        let Some(rate) = self.bytes_per_second else {
            return now;
        };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = (*next).max(now);
        *next = start.saturating_add(cost);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn chunks_wait_for_those_before() {
        let clock = ManualClock::start();
        let board = Board::default();
        let pace = Pace::new(Some(1_000));
        let forever = Duration::MAX;
        for second in 0..5_u64 {
            pace.take(&*clock, 1_000, forever, &board).unwrap();
            assert_eq!(clock.now(), Duration::from_secs(second));
        }
        // Idle time is not saved up.
        clock.wait(Duration::from_secs(100));
        let start = clock.now();
        pace.take(&*clock, 500, forever, &board).unwrap();
        pace.take(&*clock, 500, forever, &board).unwrap();
        assert_eq!(
            clock.now().saturating_sub(start),
            Duration::from_millis(500)
        );
        let none = Pace::new(Some(0));
        none.take(&*clock, u64::MAX, forever, &board).unwrap();
        none.take(&*clock, u64::MAX, forever, &board).unwrap();
        assert_eq!(
            clock.now().saturating_sub(start),
            Duration::from_millis(500)
        );
    }

    #[test]
    fn waits_end_with_the_time() {
        let clock = ManualClock::start();
        let board = Board::default();
        let pace = Pace::new(Some(1));
        let until = Duration::from_secs(10);
        pace.take(&*clock, 1_000, until, &board).unwrap();
        let late = pace.take(&*clock, 1, until, &board).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert_eq!(clock.now(), until);
        board.lock().ends_at = Some(Duration::ZERO);
        let ended = pace.take(&*clock, 1, Duration::MAX, &board).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }
}
