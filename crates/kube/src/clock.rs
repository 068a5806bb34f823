//! The time of day.
//!
//! In tests it advances with the clock of the runtime, so that a test that pauses that clock decides what
//! time it is.

/// The time now.
#[cfg(not(test))]
pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

#[cfg(test)]
pub(crate) use tests::{now, restart};

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use jiff::{SignedDuration, Timestamp};
    use tokio::time::Instant;

    std::thread_local! {
        static START: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
    }

    /// The time that the runtime of this thread says.
    pub(crate) fn now() -> Timestamp {
        let (start, began) = START.get().unwrap_or_else(restart);
        let passed = Instant::now().saturating_duration_since(began);
        let passed = SignedDuration::try_from(passed).unwrap_or_default();
        start.checked_add(passed).unwrap_or(start)
    }

    /// Takes the clock of the runtime that is entered now.
    pub(crate) fn restart() -> (Timestamp, Instant) {
        let pair = (Timestamp::now(), Instant::now());
        START.set(Some(pair));
        pair
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_day_follows_the_runtime() {
        restart();
        let before = now();
        tokio::time::sleep(std::time::Duration::from_hours(1)).await;
        let passed = now().duration_since(before);
        assert!((3_600..3_602).contains(&passed.as_secs()), "{passed}");
    }
}
