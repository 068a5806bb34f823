//! The drain in a thread of its own. The thread is never joined: a shared tier that hangs keeps it, and the process can still exit.

use std::{
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{Drain, DrainError, Turn};
use crate::store::{Board, Known, StoreError};

/// How often a rank other than 0 looks whether there is a step to copy.
const POLL: Duration = Duration::from_secs(1);

/// How the end of a drain went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left to copy, or nothing could be ready in time.
    Finished,
    /// The copy of a step did not end in time; its thread is left behind, and the next attempt continues it.
    Unfinished,
}

/// Drains in the background.
#[derive(Debug)]
pub struct Drainer {
    drain: Arc<Drain>,
    board: Arc<Board>,
}

/// Marks the end of the thread on every way out, a panic included.
struct Ending(Arc<Board>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

impl Drainer {
    /// Starts the thread. Where it cannot be started, nothing is drained, and [`Self::close`] says so.
    pub fn start(drain: Drain) -> Self {
        let board = Arc::clone(&drain.tiers.behind.board);
        let drain = Arc::new(drain);
        let (for_thread, ending) = (Arc::clone(&drain), Ending(Arc::clone(&board)));
        let started = thread::Builder::new()
            .name("checkpoint-drain".into())
            .spawn(move || {
                run(&for_thread, &ending.0);
                drop(ending);
            });
        // What a thread that did not start was given is dropped, which marks its end.
        drop(started);
        Self { drain, board }
    }

    /// The drain.
    pub fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Ends the drain: takes the newest step to the shared tier if it can be ready in time, and waits for it no longer than that.
    pub fn close(&self, timeout: Duration) -> Ended {
        let start = Instant::now();
        let mut known = self.board.lock();
        if known.ends_at.is_none() {
            known.ends_at = Some(self.drain.clock.now().saturating_add(timeout));
        }
        self.board.changed.notify_all();
        while !known.has_ended {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ended::Unfinished;
            }
            let waited = self.board.changed.wait_timeout(known, left);
            (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Ended::Finished
    }
}

fn run(drain: &Drain, board: &Board) {
    loop {
        let ends_at = {
            let known = board.lock();
            let is_idle = |known: &mut Known| !known.is_woken && known.ends_at.is_none();
            // Rank 0 is woken by commits; the others also look for what rank 0 shows.
            let waited = if drain.rank == 0 {
                board
                    .changed
                    .wait_while(known, is_idle)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = board.changed.wait_timeout_while(known, POLL, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
            let mut known = waited;
            known.is_woken = false;
            known.ends_at
        };
        let now = drain.clock.now();
        let left = ends_at.map(|ends_at| ends_at.saturating_sub(now));
        let turn = drain.turn(left);
        if matches!(&turn, Err(DrainError::Store(StoreError::Fenced { .. }))) {
            return;
        }
        let Some(left) = left else {
            if matches!(turn, Ok(Turn::Committed(_) | Turn::Copied(_))) {
                // More may have come meanwhile.
                board.wake();
            }
            continue;
        };
        let is_over = match turn {
            Ok(Turn::Committed(_)) => false,
            // Rank 0 may still show its newest step.
            Ok(Turn::Copied(_) | Turn::Nothing(_)) => drain.rank == 0 || !is_behind(drain),
            Err(_) => true,
        };
        if is_over || left.is_zero() {
            return;
        }
        if drain.rank != 0 {
            drain.clock.wait(drain.limits.first_pause.min(left));
        }
    }
}

/// Whether the newest step of the local tier is not on the shared one yet.
fn is_behind(drain: &Drain) -> bool {
    let Ok(history) = drain.tiers.local_history() else {
        return false;
    };
    let newest = history.newest().map(|seen| seen.folder.clone());
    newest.is_some_and(|folder| !matches!(drain.tiers.is_shared(&folder), Ok(true)))
}
