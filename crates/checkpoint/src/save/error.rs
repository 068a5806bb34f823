//! Why a save did not become a commit.

use std::{io, time::Duration};

use trainyard_core::checkpoint::{Conflict, ranks_named};

use crate::store::StoreError;

/// Why a save did not become a commit. Training can continue; the last commit is untouched.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// No room, also after what may be removed was removed.
    #[error("no room for step {step}: {needed} bytes needed, {} free: {source}", words(*free))]
    Full {
        /// The step.
        step: u64,
        /// The bytes of this rank.
        needed: u64,
        /// The bytes that are free, where known.
        free: Option<u64>,
        /// The answer of the storage.
        source: StoreError,
    },
    /// No room on the shared tier for the small files through which nodes learn of each other's pieces. The local tier is not full.
    #[error(
        "step {step} was abandoned: no room on the shared tier for the records that nodes exchange: {source}"
    )]
    NoExchange {
        /// The step.
        step: u64,
        /// The answer of the storage.
        source: StoreError,
    },
    /// The storage failed, or a higher attempt has begun ([`StoreError::Fenced`]).
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The deadline passed before all ranks had their pieces there.
    #[error(
        "step {step} was abandoned after {} s: no piece of {} of {world} ranks: {}{}",
        waited.as_secs(), ranks.len(), ranks_named(ranks), also(unreadable.as_deref())
    )]
    Missing {
        /// The step.
        step: u64,
        /// The ranks without a piece.
        ranks: Vec<u32>,
        /// How many ranks there are.
        world: u32,
        /// How long this rank waited.
        waited: Duration,
        /// Why the first piece that is there could not be read.
        unreadable: Option<String>,
    },
    /// The deadline passed while this rank wrote.
    #[error("step {step} was abandoned: its deadline passed while rank {rank} wrote")]
    Late {
        /// The step.
        step: u64,
        /// This rank.
        rank: u32,
    },
    /// Pieces that are not of one save.
    #[error("{0}")]
    Conflict(Conflict),
    /// A file of this save has other contents.
    #[error(
        "`{0}` has other contents: another process saves as this rank, or the step was saved before with another state"
    )]
    Taken(String),
    /// The thread of the save ended without a result.
    #[error("the thread of the save panicked")]
    Panicked,
    /// The thread of the save could not be started.
    #[error("cannot start a thread for the save: {0}")]
    NoThread(io::Error),
}

impl SaveError {
    /// Whether a higher attempt has begun, so that this one should end.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Store(StoreError::Fenced { .. }))
    }
}

fn words(free: Option<u64>) -> String {
    free.map_or_else(|| "an unknown number".to_owned(), |free| free.to_string())
}

fn also(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!("; {reason}"))
}
