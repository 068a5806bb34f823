//! The engine of checkpoints: files, threads and time around the decisions of `trainyard_core::checkpoint`.
//!
//! A step is visible only through its commit, a file is published under its final name only once its bytes are durable, and no
//! name is used twice. What a save survives is tested against the module `faulty`, which fails below this crate's own code.
#![forbid(unsafe_code)]

pub mod abandon;
pub mod arena;
pub mod begin;
pub mod buffer;
mod choose;
pub mod clock;
pub mod drain;
#[cfg(any(test, feature = "faulty"))]
pub mod faulty;
mod fence;
pub mod files;
pub mod formats;
pub mod load;
pub mod look;
#[cfg(feature = "object")]
pub mod object;
pub mod open;
mod publish;
pub mod read;
pub mod regions;
pub mod remove;
pub mod save;
pub mod storage;
pub mod store;
pub mod tiers;
pub mod token;
pub mod verify;

pub use self::{
    arena::Arena,
    drain::{Drain, Drainer},
    files::Files,
    load::Loader,
    save::{Saver, Session},
    storage::Storage,
    store::Store,
    tiers::Tiers,
};
