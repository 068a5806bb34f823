//! Saves in a thread of their own: training continues, and a storage that hangs blocks nobody.
//!
//! One save is in flight at most. The next one is skipped and counted, so memory does not grow when the storage is slower than the
//! interval. Threads are never joined: one that hangs in the kernel cannot be, and the process can still exit.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{SaveError, Saved, Session, State};

/// What became of the saves so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Saves that were committed.
    pub committed: u64,
    /// Saves that failed.
    pub failed: u64,
    /// Saves that were skipped because one was in flight.
    pub skipped: u64,
    /// Why the last failed one failed.
    pub last_failure: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    counts: Counts,
    /// The step in flight.
    busy: Option<u64>,
}

#[derive(Debug, Default)]
struct Board {
    shared: Mutex<Shared>,
    changed: Condvar,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Outcome = Result<Saved, Arc<SaveError>>;

/// A save under way.
#[derive(Clone, Debug)]
pub struct Save {
    step: u64,
    outcome: Arc<(Mutex<Option<Outcome>>, Condvar)>,
}

impl Save {
    /// The step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Waits for the end; `None` when the time has passed before.
    pub fn committed(&self, timeout: Duration) -> Option<Outcome> {
        let (outcome, changed) = &*self.outcome;
        let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, _) = changed
            .wait_timeout_while(outcome, timeout, |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        outcome.clone()
    }

    fn end(&self, with: Outcome) {
        let (outcome, changed) = &*self.outcome;
        *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(with);
        changed.notify_all();
    }
}

/// Whether a save began.
#[derive(Clone, Debug)]
pub enum Started {
    /// It did.
    Save(Save),
    /// The save of this step is still in flight.
    Skipped {
        /// The step in flight.
        busy: u64,
    },
}

/// How closing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nothing is in flight.
    Finished,
    /// The save of this step did not end in time; its thread is left behind.
    Unfinished {
        /// The step.
        step: u64,
    },
}

/// Saves of one rank, in the background.
#[derive(Debug)]
pub struct Saver {
    session: Arc<Session>,
    board: Arc<Board>,
}

/// Ends a save on every way out of its thread, a panic included.
struct Ending {
    board: Arc<Board>,
    save: Save,
    outcome: Option<Outcome>,
}

impl Ending {
    fn take(&mut self, outcome: Result<Saved, SaveError>) {
        self.outcome = Some(outcome.map_err(Arc::new));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let outcome = self
            .outcome
            .take()
            .unwrap_or_else(|| Err(Arc::new(SaveError::Panicked)));
        let mut shared = self.board.lock();
        match &outcome {
            Ok(_) => shared.counts.committed += 1,
            Err(error) => {
                shared.counts.failed += 1;
                shared.counts.last_failure = Some(error.to_string());
            }
        }
        shared.busy = None;
        drop(shared);
        self.save.end(outcome);
        self.board.changed.notify_all();
    }
}

impl Saver {
    /// Saves with this session.
    pub fn new(session: Session) -> Self {
        Self {
            session: Arc::new(session),
            board: Arc::default(),
        }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Begins a save and returns at once. The state must not change until it has ended.
    pub fn save(&self, step: u64, state: State) -> Started {
        {
            let mut shared = self.board.lock();
            if let Some(busy) = shared.busy {
                shared.counts.skipped += 1;
                return Started::Skipped { busy };
            }
            shared.busy = Some(step);
        }
        let save = Save {
            step,
            outcome: Arc::default(),
        };
        let mut ending = Ending {
            board: Arc::clone(&self.board),
            save: save.clone(),
            outcome: None,
        };
        let session = Arc::clone(&self.session);
        // A thread that cannot be started drops `ending`, which ends the save.
        let started = thread::Builder::new()
            .name("checkpoint-save".into())
            .spawn(move || ending.take(session.save(step, &state)));
        drop(started);
        Started::Save(save)
    }

    /// What became of the saves so far.
    pub fn counts(&self) -> Counts {
        self.board.lock().counts.clone()
    }

    /// Waits for the save in flight, at most this long.
    pub fn close(&self, timeout: Duration) -> Closed {
        let end = Instant::now() + timeout;
        let mut shared = self.board.lock();
        loop {
            let Some(step) = shared.busy else {
                return Closed::Finished;
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Closed::Unfinished { step };
            }
            let (next, _) = self
                .board
                .changed
                .wait_timeout(shared, left)
                .unwrap_or_else(PoisonError::into_inner);
            shared = next;
        }
    }
}
