//! Work that may never finish.
//!
//! Invariant: no caller waits longer than the deadline. Work that has not answered by then continues in a
//! thread of its own until the process ends; what it would have said is lost.

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use trainyard_core::probe::Probed;

/// Bytes of stack of a thread. What is read is small, and there may be dozens of them.
const STACK: usize = 512 * 1024;

/// Work under way.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    answer: Option<Receiver<Probed<T>>>,
    begun: Instant,
    within: Duration,
}

/// Begins `work`, which has `within` to answer.
pub(crate) fn begin<T: Send + 'static>(
    within: Duration,
    work: impl FnOnce() -> Probed<T> + Send + 'static,
) -> Pending<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || {
        // A caller that stopped waiting has dropped the other end.
        drop(sender.send(work()));
    };
    let spawned = thread::Builder::new()
        .name("probe".to_owned())
        .stack_size(STACK)
        .spawn(run);
    Pending {
        answer: spawned.is_ok().then_some(receiver),
        begun: Instant::now(),
        within,
    }
}

impl<T> Pending<T> {
    /// Waits for the result, until the deadline.
    pub(crate) fn finish(self) -> Probed<T> {
        let Some(answer) = self.answer else {
            return Probed::Unreadable("cannot start a thread".to_owned());
        };
        let left = self.within.saturating_sub(self.begun.elapsed());
        match answer.recv_timeout(left) {
            Ok(value) => value,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let after = self.within.as_millis();
                Probed::Hung(u64::try_from(after).unwrap_or(u64::MAX))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Probed::Unreadable("the probe panicked".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_bounds_every_wait() {
        let quick = begin(Duration::from_secs(30), || Probed::Read(1));
        let hung = begin(Duration::from_millis(20), || {
            loop {
                thread::park();
            }
        });
        let failed: Pending<u8> = begin(Duration::from_secs(30), || panic!("on purpose"));
        assert_eq!(quick.finish(), Probed::Read(1));
        assert_eq!(Pending::<u8>::finish(hung), Probed::Hung(20));
        assert!(matches!(failed.finish(), Probed::Unreadable(_)));
    }
}
