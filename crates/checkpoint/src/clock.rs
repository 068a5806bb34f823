//! Time as the engine sees it: how long something takes, never when it happened.
//!
//! Nothing is ordered by a clock. Deadlines and back-off are durations since a start, so a clock that is set back changes nothing.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Measures durations and waits.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time since some fixed start, for deadlines.
    fn now(&self) -> Duration;
    /// Time since some fixed start, for durations: it never jumps, also not for a save that is abandoned.
    fn elapsed(&self) -> Duration {
        self.now()
    }
    /// Waits.
    fn wait(&self, time: Duration);
    /// Seconds since 1970, for people who read the files. No decision uses it.
    fn date(&self) -> u64;
}

/// The clock of this machine.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock that starts now.
    pub fn start() -> Arc<dyn Clock> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&self, time: Duration) {
        thread::sleep(time);
    }

    fn date(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }
}

/// A clock that a test moves: waiting moves it at once.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock at zero.
    pub fn start() -> Arc<dyn Clock> {
        Arc::new(Self::default())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn wait(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    fn date(&self) -> u64 {
        self.now().as_secs()
    }
}
