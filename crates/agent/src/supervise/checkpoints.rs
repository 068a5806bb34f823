//! The store of the job's checkpoints, as the supervisor of the leading pod sees it in its container.
//!
//! Owns when it is looked at. What was seen goes to the operator with the summaries of the leader; the operator decides what follows.
//!
//! Invariants: the loop of the supervisor never waits for a disk; a report is sent only when something else was seen.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use trainyard_checkpoint_engine::look::{Moment, Watcher};
use trainyard_core::barrier::{MAX_SENTENCE, StoreReport};

use super::{
    signs::cut,
    wake::{self, Woken},
};

/// The store of a gang, seen from its leading pod.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    watcher: Watcher,
    woken: Woken,
    origin: Instant,
    /// The attempt whose program runs, or ran last.
    attempt: u32,
    runs: bool,
}

impl Checkpoints {
    /// Looks at the store in `folder` from the first program on.
    pub(crate) fn start(folder: PathBuf, origin: Instant) -> io::Result<Self> {
        let (woken, waker) = wake::pair()?;
        Ok(Self {
            watcher: Watcher::start(folder, move || waker.wake())?,
            woken,
            origin,
            attempt: 0,
            runs: false,
        })
    }

    /// Readable when a look has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// When [`Checkpoints::step`] has something to do, at the latest.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let due = self.watcher.due()?;
        Some(due.saturating_duration_since(self.origin))
    }

    /// What is to be reported. A look is asked for when a program starts and when it has ended: then the next attempt resumes from what is there.
    pub(crate) fn step(&mut self, attempt: u32, runs: bool, now: Duration) -> Option<StoreReport> {
        let now = self.origin + now;
        self.woken.clear();
        if runs && (!self.runs || attempt != self.attempt) {
            self.watcher.ask(Moment::Running, now);
        } else if !runs && self.runs {
            self.watcher
                .ask(Moment::Start(self.attempt.saturating_add(1)), now);
        }
        if runs {
            self.attempt = attempt;
        }
        self.runs = runs;
        let mut last = None;
        while let Some(looked) = self.watcher.take(now) {
            last = Some(looked.store);
        }
        Some(match last? {
            Ok(seen) => StoreReport {
                attempt: self.attempt,
                seen: Some(Box::new(seen)),
                why: String::new(),
            },
            Err(why) => StoreReport {
                attempt: self.attempt,
                seen: None,
                why: cut(why, MAX_SENTENCE),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    /// Steps until a look has ended.
    fn report(store: &mut Checkpoints, attempt: u32, runs: bool) -> StoreReport {
        loop {
            // No time passes: a busy machine makes no look late.
            if let Some(report) = store.step(attempt, runs, Duration::ZERO) {
                return report;
            }
            let mut fds = [PollFd::new(store.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(10_000_u16)).unwrap();
        }
    }

    #[test]
    fn store_is_looked_at_when_a_program_starts_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none");
        let mut store = Checkpoints::start(missing, Instant::now()).unwrap();
        assert_eq!(store.step(1, false, Duration::ZERO), None);
        assert_eq!(store.wake_at(), None, "no program has run");
        let started = report(&mut store, 1, true);
        assert_eq!((started.attempt, started.seen.is_some()), (1, true));
        let next = store.wake_at().unwrap();
        assert!(next > Duration::from_secs(1), "{next:?}");
        // The program ends: what it left is looked at at once.
        assert_eq!(report(&mut store, 1, false), started);
    }

    #[test]
    fn store_that_cannot_be_read_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut store = Checkpoints::start(file, Instant::now()).unwrap();
        let found = report(&mut store, 3, true);
        assert_eq!((found.attempt, found.seen), (3, None));
        assert!(found.why.starts_with("cannot open `.`"), "{}", found.why);
    }
}
