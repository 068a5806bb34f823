//! A moment that nothing waits past.

use std::{
    io,
    time::{Duration, Instant},
};

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Limit(Instant);

impl Limit {
    pub(super) fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    /// What is left; an error once nothing is, since a timeout of zero would mean none at all.
    pub(super) fn left(self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::Error::new(io::ErrorKind::TimedOut, "timed out"))
        } else {
            Ok(left)
        }
    }

    pub(super) fn is_over(self) -> bool {
        self.left().is_err()
    }

    /// The earlier of this and `duration` from now.
    pub(super) fn within(self, duration: Duration) -> Self {
        self.min(Self::after(duration))
    }
}

/// Whether an error is a timeout of one wait.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
