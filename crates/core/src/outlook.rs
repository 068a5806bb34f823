//! Weeks of a job on a large cluster, with failures, in seconds.
//!
//! A discrete-event simulation of one gang: machines fail, by component, more often where they are bad,
//! sometimes several at once; a failure is noticed, the gang restarts by one of four paths, trains again
//! what was not saved, and goes on; machines are repaired and come back. Where every second went is told
//! in the phases of [`crate::ledger`].
//!
//! Owns the long view. What one pod's failure means for one job is decided in [`crate::job`], and
//! tested with every fault in the `sim` crate; here that is taken as given, as a time for each path.
//!
//! Invariant: a run depends on its [`World`] and its seed and on nothing else: the same two give the
//! same bytes. Its phases add up to the time that passed.

mod dice;
mod run;
mod sensitivity;
mod summary;
mod world;

pub use run::{Run, Span, run};
pub use sensitivity::{Effect, sensitivity};
pub use summary::{Estimate, Outlook, simulate};
pub use world::{
    Bursts, Checkpoints, Failures, Length, Notice, Path, PathSeconds, Preemptions, Repair, Spares,
    World, WorldError,
};

#[cfg(test)]
mod tests;
