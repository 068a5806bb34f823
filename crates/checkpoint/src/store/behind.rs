//! What is behind a store that is the local tier of a node, and what its process knows of the copy between them.
//!
//! It belongs to the store because saves and retention of the local tier depend on it: what is fenced, and what must stay for the drain.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use trainyard_core::checkpoint::{
    AttemptId, CommitSeen, DRAIN_FILE, DrainPolicy, HeldStep, Lineage, StepName, not_drained,
};

use super::Store;
use crate::storage::within;

/// How many steps retention looks for on the shared tier; a local tier has fewer, unless they cannot be removed.
const MOST_LOOKED_AT: usize = 16;

/// How many pieces are remembered; beyond that, all are read again.
const MOST_READ: usize = 1 << 16;

/// What the drain of this process knows.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The step that is being copied.
    pub(crate) under_way: Option<StepName>,
    /// The step that rank 0 shows, as another rank saw it the last time. Where this process has copied its pieces, others of its node may
    /// still copy theirs.
    pub(crate) shown: Option<StepName>,
    /// Steps that the shared tier has.
    pub(crate) safe: BTreeSet<StepName>,
    /// Pieces whose records on the shared tier were read and are those of their commits.
    pub(crate) read: BTreeSet<(StepName, u32)>,
    /// Steps that could not be copied, with the reason.
    pub(crate) failed: BTreeMap<StepName, String>,
    /// A higher attempt that the shared tier shows.
    pub(crate) fenced: Option<AttemptId>,
    /// Bytes that were copied in a second, the last time.
    pub(crate) bytes_per_second: Option<f64>,
    /// Whether a commit came since the drain last looked.
    pub(crate) is_woken: bool,
    /// Whether the background copy begins nothing until it comes to its end: what fits is decided then.
    pub(crate) is_held: bool,
    /// Whether the background copy is to come to its end, and until when by its clock.
    pub(crate) ends_at: Option<Duration>,
    /// Whether the background copy has ended, and why the newest step is not on the shared tier then.
    pub(crate) has_ended: bool,
    pub(crate) left_behind: Option<String>,
}

impl Known {
    /// Whether the background copy may begin with a step.
    pub(crate) fn may_begin(&self) -> bool {
        !self.is_held || self.ends_at.is_some()
    }

    /// Forgets steps that the local tier does not have any more.
    pub(crate) fn forget(&mut self, history: &Lineage) {
        self.safe.retain(|folder| history.has(folder));
        self.failed.retain(|folder, _| history.has(folder));
        self.read.retain(|(folder, _)| history.has(folder));
    }

    /// Remembers a piece whose record need not be read again.
    pub(crate) fn remember(&mut self, piece: (StepName, u32)) {
        if self.read.len() >= MOST_READ {
            self.read.clear();
        }
        self.read.insert(piece);
    }
}

/// The memory of a drain, shared with the saves and the retention of its process. Nobody holds its lock while waiting for storage.
#[derive(Debug, Default)]
pub(crate) struct Board {
    known: Mutex<Known>,
    pub(crate) changed: Condvar,
}

impl Board {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody holds the lock.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.known.try_lock().is_ok()
    }

    /// A commit is there.
    pub(crate) fn wake(&self) {
        self.lock().is_woken = true;
        self.changed.notify_all();
    }
}

/// How the tiers are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct TierOptions {
    /// Which steps are copied to the shared tier.
    pub drain: DrainPolicy,
    /// Whether ranks run on several nodes, each with a local tier of its own.
    pub several_nodes: bool,
}

/// What is behind a store that is the local tier of a node.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) shared: Arc<Store>,
    pub(crate) options: TierOptions,
    pub(crate) board: Arc<Board>,
}

impl Behind {
    /// The steps of a history as the drain sees them.
    pub(crate) fn held(
        &self,
        history: &Lineage,
        bytes: &dyn Fn(&CommitSeen) -> u64,
    ) -> Vec<HeldStep> {
        // Sizes may come from the disk, so they are found before the memory is locked.
        let sizes: Vec<u64> = history.commits.iter().map(bytes).collect();
        let known = self.board.lock();
        let held = history.commits.iter().zip(sizes);
        let held = held.map(|(seen, bytes)| HeldStep {
            folder: seen.folder.clone(),
            bytes,
            is_safe: known.safe.contains(&seen.folder),
            has_failed: known.failed.contains_key(&seen.folder),
        });
        held.collect()
    }

    /// What retention of the local tier must leave for the drain. On one node it follows from memory alone: a shared tier that hangs must
    /// not fill the local one. Saves of several nodes go through the shared tier anyhow, so there it is looked at: rank 0 may have
    /// begun with a step since this process last looked.
    pub(crate) fn not_drained(&self, history: &Lineage) -> BTreeSet<StepName> {
        let held = self.held(history, &|_| 0);
        let (under_way, shown) = {
            let known = self.board.lock();
            (known.under_way.clone(), known.shown.clone())
        };
        let under_way = under_way.into_iter().chain(shown);
        let mut kept = not_drained(&held, self.options.drain, under_way);
        if self.options.several_nodes {
            let newest_first = held.iter().rev().take_while(|step| !step.is_safe);
            let is_shown = |step: &&HeldStep| {
                let name = within(&step.folder.path(), DRAIN_FILE);
                self.shared.storage.stat(&name).is_ok()
            };
            let shown = newest_first.take(MOST_LOOKED_AT).find(is_shown);
            kept.extend(shown.map(|step| step.folder.clone()));
        }
        kept
    }
}
