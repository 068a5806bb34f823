//! The drain in a thread of its own. The thread is never joined: a shared tier that hangs keeps it, and the process can still exit.

use std::{
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};

use trainyard_core::checkpoint::{ATTEMPTS, Lineage};

use super::{Drain, DrainError, Turn};
use crate::{
    storage::within,
    store::{Board, Known, StoreError},
};

/// How often a rank other than 0 looks whether there is a step to copy.
const POLL: Duration = Duration::from_secs(1);

/// How the end of a drain went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The newest step of the local tier is on the shared one, or there is none.
    Finished,
    /// The newest step is on the local tier only, for this reason.
    Behind(String),
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
        // What an earlier attempt has left on the local tier does not wait for the next commit.
        board.wake();
        board.lock().left_behind = Some("the copy has ended early".to_owned());
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

    /// Begins no copy from now on, or begins them again. The one under way continues. Before a save that is the last one: whether it can
    /// be ready in time is decided at the end, with the time that is left then.
    pub fn hold(&self, is_held: bool) {
        self.board.lock().is_held = is_held;
        self.board.changed.notify_all();
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
                drop(known);
                return self.without_the_thread();
            }
            let waited = self.board.changed.wait_timeout(known, left);
            (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        match &known.left_behind {
            Some(why) => Ended::Behind(why.clone()),
            None => Ended::Finished,
        }
    }

    /// How the end went as far as this process knows: the thread may wait for a shared tier that hangs, so that one is not asked.
    fn without_the_thread(&self) -> Ended {
        let Ok(history) = self.drain.tiers.local_history() else {
            return Ended::Unfinished;
        };
        let known = self.board.lock();
        match history.newest() {
            Some(newest) if !known.safe.contains(&newest.folder) => Ended::Unfinished,
            _ => Ended::Finished,
        }
    }
}

fn run(drain: &Drain, board: &Board) {
    let mut pause = drain.limits.first_pause;
    loop {
        let ends_at = next_call(drain, board);
        let now = drain.clock.now();
        let left = ends_at.map(|ends_at| ends_at.saturating_sub(now));
        let turn = drain.turn(left);
        if let Err(error @ DrainError::Store(StoreError::Fenced { .. })) = &turn {
            board.lock().left_behind = Some(error.to_string());
            return;
        }
        let Some(left) = left else {
            if matches!(turn, Ok(Turn::Committed(_) | Turn::Copied(_))) {
                // More may have come meanwhile.
                board.wake();
            }
            continue;
        };
        let is_over = match &turn {
            Ok(Turn::Committed(_)) => false,
            Ok(Turn::Copied(_) | Turn::Nothing(_)) => drain.rank == 0 || !expects_more(drain, left),
            Err(_) => true,
        };
        if is_over || left.is_zero() {
            end(drain, board, turn);
            return;
        }
        if drain.rank != 0 {
            drain.clock.wait(pause.min(left));
            pause = pause.saturating_mul(2).min(drain.limits.longest_pause);
        }
    }
}

/// Waits until there may be something to copy; returns when the process ends, if it does.
fn next_call(drain: &Drain, board: &Board) -> Option<Duration> {
    let mut known = board.lock();
    loop {
        let is_idle =
            |known: &mut Known| known.ends_at.is_none() && (known.is_held || !known.is_woken);
        // Rank 0 is woken by commits; the others also look for what rank 0 shows.
        known = if drain.rank == 0 {
            let waited = board.changed.wait_while(known, is_idle);
            waited.unwrap_or_else(PoisonError::into_inner)
        } else {
            let waited = board.changed.wait_timeout_while(known, POLL, is_idle);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        if known.may_begin() {
            known.is_woken = false;
            return known.ends_at;
        }
    }
}

/// Records how the drain of this process ended. Rank 0 shows it to the other ranks, which may wait for one more step.
fn end(drain: &Drain, board: &Board, turn: Result<Turn, DrainError>) {
    if drain.rank == 0 && drain.world > 1 {
        let name = within(ATTEMPTS, &drain.id.drained_file());
        // Without it they wait until their time is over.
        drop(drain.tiers.shared.publish_bytes(&name, b"drained\n"));
    }
    let why = match turn {
        Ok(Turn::Nothing(why)) => why,
        Ok(Turn::Copied(_) | Turn::Committed(_)) => "the time is over".to_owned(),
        Err(error) => error.to_string(),
    };
    // A tier that cannot be read shows nothing that is safe.
    let is_behind = !matches!(newest_behind(drain), Ok(None));
    board.lock().left_behind = is_behind.then_some(why);
}

/// Whether a rank other than 0 may get one more step to copy: the newest one is not there yet, rank 0 has not ended, and it fits.
fn expects_more(drain: &Drain, left: Duration) -> bool {
    let ended = within(ATTEMPTS, &drain.id.drained_file());
    (newest_behind(drain).ok().flatten()).is_some_and(|history| !drain.is_too_late(&history, left))
        && drain.tiers.shared.storage.stat(&ended).is_err()
}

/// The history, where its newest step is not on the shared tier yet.
fn newest_behind(drain: &Drain) -> Result<Option<Lineage>, StoreError> {
    let history = drain.tiers.local_history()?;
    let is_behind = history.newest().is_some_and(|newest| {
        let shared = drain.tiers.is_shared(&newest.folder);
        !matches!(shared, Ok(true))
    });
    Ok(is_behind.then_some(history))
}
