//! What became of jobs, kept after their folders and objects are gone.
//!
//! Facts of [`trainyard_core::chronicle`] become rows of one `SQLite` file ([`Store::write`]), in one transaction with the sums by day that they change.
//! [`Reader`] answers questions about it, and anybody's own SQL reads its views `v1_…`. This is the only crate that speaks SQL.
//!
//! Invariants:
//! - One process writes. A second one is refused, with the name of the one that holds the store; readers are not in its way.
//! - A fact that was written is not written again: whoever is killed writes the same facts again and ends with the same rows.
//! - `phase_day` is the sum of `run_day`, and `run_day` that of the spans of a run, at every commit.
//! - Without room, detail stops and ends are kept: what was not written is written once there is room, since its facts still count as new.
//! - A file of a newer version, or of another program, is refused and not changed. A live run is never deleted.
//!
//! `PostgreSQL` is not here. Queries keep to what both have in common; the schema and its types are `SQLite`'s.

#![forbid(unsafe_code)]

mod error;
mod kept;
mod lock;
mod prune;
mod read;
mod report;
mod retention;
mod row;
mod schema;
mod store;
mod transfer;
mod write;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use self::{
    error::HistoryError,
    kept::Kept,
    prune::Pruned,
    read::{Filter, LISTED_MAX, Listed, Listing, Reader},
    report::{By, Group, NodeCount, Report, Restarts, Sums},
    retention::Retention,
    store::{Options, Store},
    transfer::{Imported, export},
    write::{BATCH, End, Run, RunState, Written},
};
