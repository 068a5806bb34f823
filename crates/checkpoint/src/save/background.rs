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
    /// Folders that retention removed after commits of this rank.
    pub removed: u64,
    /// Why the last retention failed, which does not concern the saves.
    pub last_not_removed: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    counts: Counts,
    /// The step in flight.
    busy: Option<u64>,
    /// Whether retention is running.
    is_removing: bool,
    /// The newest step that was committed while retention was running: it is behind what that one has seen.
    to_remove_after: Option<u64>,
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
    has_ended: bool,
}

impl Ending {
    /// Ends the save. Who learns from [`Saver::close`] that nothing is in flight finds the outcome: both change under one lock.
    fn end(&mut self, outcome: Result<Saved, SaveError>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let mut shared = self.board.lock();
        match &outcome {
            Ok(_) => shared.counts.committed += 1,
            Err(error) => {
                shared.counts.failed += 1;
                shared.counts.last_failure = Some(error.to_string());
            }
        }
        shared.busy = None;
        self.save.end(outcome.map_err(Arc::new));
        drop(shared);
        self.board.changed.notify_all();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end(Err(SaveError::Panicked));
    }
}

/// Retention after a commit: one at a time, and beside the next save.
struct Retention {
    board: Arc<Board>,
    has_ended: bool,
}

impl Retention {
    /// `None` while the one before is still running: it goes on with `step` when it is through, for it may have looked before this commit.
    fn begin(board: &Arc<Board>, step: u64) -> Option<Self> {
        let mut shared = board.lock();
        if shared.is_removing {
            shared.to_remove_after = Some(step);
            return None;
        }
        shared.is_removing = true;
        Some(Self {
            board: Arc::clone(board),
            has_ended: false,
        })
    }

    /// Counts what was removed. Returns the step that was committed meanwhile, or ends: between both no commit is overlooked.
    fn next(&mut self, removed: usize, failure: Option<String>) -> Option<u64> {
        let mut shared = self.board.lock();
        shared.counts.removed += removed as u64;
        shared.counts.last_not_removed = failure;
        let next = shared.to_remove_after.take();
        if next.is_none() {
            self.has_ended = true;
            shared.is_removing = false;
            self.board.changed.notify_all();
        }
        next
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut shared = self.board.lock();
            shared.is_removing = false;
            shared.to_remove_after = None;
            self.board.changed.notify_all();
        }
    }
}

/// What the thread of a save does.
fn save_and_remove(session: &Session, step: u64, state: &State, mut ending: Ending) {
    let (saved, is_mine) = match session.commit_step(step, state) {
        Ok((saved, is_mine)) => (Ok(saved), is_mine),
        Err(error) => (Err(error), false),
    };
    let board = Arc::clone(&ending.board);
    let retention = if is_mine {
        Retention::begin(&board, step)
    } else {
        None
    };
    ending.end(saved);
    if let Some(mut retention) = retention {
        let mut newest = Some(step);
        while let Some(step) = newest {
            let (removed, failure) = session.after_commit(&session.folder(step));
            newest = retention.next(removed.len(), failure);
        }
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

    /// Begins a save and returns at once. The state must not change until it has ended. Retention follows after the save has ended,
    /// in the same thread and beside the next save.
    pub fn save(&self, step: u64, state: State) -> Started {
        self.save_by(Arc::clone(&self.session), step, state)
    }

    /// The same with a session for this save alone, such as one with a clock and a deadline of its own.
    pub fn save_by(&self, session: Arc<Session>, step: u64, state: State) -> Started {
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
        let ending = Ending {
            board: Arc::clone(&self.board),
            save: save.clone(),
            has_ended: false,
        };
        // The ending stays reachable where the thread cannot be started, which drops what it was given.
        let slot = Arc::new(Mutex::new(Some(ending)));
        let for_thread = Arc::clone(&slot);
        let take = |slot: &Mutex<Option<Ending>>| {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.take()
        };
        let started = thread::Builder::new()
            .name("checkpoint-save".into())
            .spawn(move || {
                if let Some(ending) = take(&for_thread) {
                    save_and_remove(&session, step, &state, ending);
                }
            });
        if let Err(error) = started
            && let Some(mut ending) = take(&slot)
        {
            ending.end(Err(SaveError::NoThread(error)));
        }
        Started::Save(save)
    }

    /// What became of the saves so far.
    pub fn counts(&self) -> Counts {
        self.board.lock().counts.clone()
    }

    /// Waits for the save in flight and for the retention after it, at most this long; whether both have ended.
    pub fn settle(&self, timeout: Duration) -> bool {
        let shared = self.board.lock();
        let is_busy = |shared: &mut Shared| shared.busy.is_some() || shared.is_removing;
        let waited = self
            .board
            .changed
            .wait_timeout_while(shared, timeout, is_busy);
        let (mut shared, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !is_busy(&mut shared)
    }

    /// Waits for the save in flight, at most this long. Retention after it is not waited for: it can be cut at any time.
    pub fn close(&self, timeout: Duration) -> Closed {
        let start = Instant::now();
        let mut shared = self.board.lock();
        loop {
            let Some(step) = shared.busy else {
                return Closed::Finished;
            };
            let left = timeout.saturating_sub(start.elapsed());
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
