//! A cluster around `gang::place`: gangs come and go, nodes fail and return, other people's pods get in between, and
//! what is seen is old.
//!
//! Owns clusters and gangs drawn from a seed, a checker that knows the rules in other words than the placer, and the
//! best seating that exists, found by trying all. The same seed gives the same run.
//!
//! Reading order: [`run()`] (one seed to its outcome), `draw`, `world`, [`check()`], [`optimum`].

mod check;
mod constraints;
mod draw;
pub mod optimum;
mod world;

use jiff::Timestamp;
use trainyard_core::gang::{Gang, Placement, Snapshot};

pub use check::check;
pub use draw::{drawn, small};
pub use world::{Counts, Outcome, run};

/// The placer under test.
pub type Place = fn(&Snapshot, &[Gang], Timestamp) -> Placement;
