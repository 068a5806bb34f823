//! Checkpoints: which saves exist, which one is restored, which ones are removed, and which bytes are read for it.
//!
//! Values in, values out; `crates/checkpoint` reads and writes the files. `docs/reference/checkpoint-format.md` describes the format.
//!
//! # Flow
//! Each rank publishes a [`Piece`] once its data is durable; [`commit()`] makes one [`Commit`] of all of them. An attempt looks at the
//! records and commits that are there ([`lineage()`], [`suspects`]), chooses ([`select()`]), publishes its [`Fence`]
//! ([`Lineage::fence`]) and reads what [`reshard()`] says. After a commit, [`retain()`] says what goes, and [`drain_next`] what is
//! copied to a safer tier. [`summary()`] is for people.
//!
//! # Guarantees
//! - A step exists only through its commit, and a commit follows from pieces of one save alone.
//! - What counts follows from the highest record: no clock, no lock, no listing order, no modification time.
//! - Nothing is removed unless enough newer commits of the same history are complete, durable and not suspect.
//! - Every wanted byte is read exactly once, or the error names tensor and region.

mod cadence;
mod checks;
mod codec;
mod commit;
mod drain;
mod folder;
mod image;
mod index;
mod layout;
mod limits;
mod lineage;
mod manifest;
mod names;
mod owner;
mod partners;
mod places;
mod reshard;
mod retain;
mod sealed;
mod seen;
mod select;
mod summary;
mod unreadable;
mod words;

#[cfg(test)]
mod tests;

pub use cadence::{
    BoundBy, Cadence, Measured, TierCost, cadence, daly_interval, tiers_before, young_interval,
};
pub use codec::{Document, ManifestError, Sealed, VERSION, decode, encode, sealed};
pub use commit::{Conflict, Gathered, commit};
pub use drain::{
    DrainNext, DrainPolicy, HeldStep, TierHas, TimeLeft, drain_next, not_drained, restored_from,
};
pub use folder::{FolderSeen, FolderState, commits};
pub use image::{BOXES_KEY, DATA_ALIGNMENT, header};
pub use index::{Index, ReshardError, Tensor, TensorFile};
pub use layout::{Axis, Dtype, Entry, Layout, Region, Split};
pub use limits::{
    CHUNK_BYTES, JOIN_BYTES, MAX_ACKNOWLEDGED, MAX_AXES, MAX_CHUNKS, MAX_DIMS, MAX_FILE_BYTES,
    MAX_FILES, MAX_LAYOUTS, MAX_NAME, MAX_SHARED, MAX_TENSORS, MAX_TEXT, MAX_VIEW_BYTES, MAX_WORLD,
    READ_BYTES,
};
pub use lineage::{
    Claim, Claimant, CommitSeen, Head, Lineage, NotCounted, RecordSeen, SUSPECT_AFTER, claim,
    counts, fenced_by, head, lineage, suspects,
};
pub use manifest::{
    Commit, CommitFile, CommitPiece, CommitRef, Fence, JobAttempt, LayoutRef, Objects, ObjectsRef,
    Other, Piece, PieceFile, Restored, Root, Seconds, SharedRef,
};
pub use names::{
    ATTEMPTS, AttemptFile, AttemptId, COMMIT_FILE, DRAIN_FILE, LATEST, LOCAL_COMMIT_FILE, LayoutId,
    NameError, Nonce, OBJECTS, REMOVED_FILE, ROOT_FILE, SHARED, STEPS, StepFile, StepName,
};
pub use owner::owner;
pub use partners::{PartnerNode, partners};
pub use places::{Merged, OnTier, merge, summary_of_tiers};
pub use reshard::{Copy, Plan, Read, Stride, WantedRegion, reshard};
pub use retain::{KeepWhy, Policy, RemoveWhy, Retention, Uses, retain, sweep_shared};
pub use sealed::{Crc32c, SealError, open, seal};
pub use seen::{
    CompleteStep, NewestAttempt, ResumedFrom, SAVES_KEPT, StoreSeen, WHY_BYTES, suspects_at_start,
};
pub use select::{
    Choice, Passed, PassedWhy, PieceSeen, Selection, Source, Tier, TierView, Wanted, select,
};
pub use summary::{StepLine, StepState, Summary, summary};
pub use words::ranks_named;
