//! Simulates weeks of a job on a large cluster, with failures, within seconds.
//!
//! A discrete-event simulation of one gang: machines fail, by component, more often where they are bad,
//! sometimes several at once; a failure is noticed, the gang restarts by one of four paths, trains again
//! what was not saved, and continues; machines are repaired and come back. Every second is booked to a
//! phase of [`crate::ledger`].
//!
//! Owns the long-term simulation. What one pod's failure means for one job is decided in [`crate::job`], and
//! tested with every fault in the `sim` crate; here each path is only a duration.
//!
//! Invariant: a run depends on its [`World`] and its seed and on nothing else: the same two give the
//! same bytes. Its phases add up to the time that passed.

mod dice;
mod measured;
mod run;
mod sensitivity;
mod summary;
mod world;

pub use measured::{Figures, Given, JobError};
pub use run::{Run, Span, run};
pub use sensitivity::{Effect, sensitivity};
pub use summary::{Estimate, Outlook, simulate};
pub use world::{
    Bursts, Checkpoints, Failures, Length, Notice, Path, PathSeconds, Preemptions, Repair, Spares,
    World, WorldError,
};

#[cfg(test)]
mod tests;
