//! A deterministic world around `decide`: what happens when everything that may go wrong does.
//!
//! Runs the unchanged decider of core against a virtual cluster with faults drawn from a seed, and
//! checks after every step that nothing was claimed, spent, created or left behind that the truth
//! of that cluster does not bear out. The same seed gives the same run, byte by byte.
//!
//! Reading order:
//!
//! 1. [`run()`]: one seed to its [`Outcome`];
//! 2. `world`: pods, nodes, users, controllers and what they see;
//! 3. `generate`: the job of a run;
//! 4. `world::invariants`: what must hold, one file each;
//! 5. [`hunt()`]: many seeds on all cores; [`shrink()`]: the least that still breaks;
//! 6. [`placement`]: another world, around `gang::place`;
//! 7. [`network`]: another, around `probe::search`;
//! 8. [`fleet`]: another, with many jobs around the deciders that concern all of them;
//! 9. [`barrier`]: another, around the restart of one gang in its pods;
//! 10. [`watch`]: another, around `core::watch` and the ranks of one job.
#![forbid(unsafe_code)]

pub mod barrier;
mod coverage;
mod dice;
pub mod fleet;
mod generate;
mod hunt;
pub mod network;
pub mod placement;
mod report;
mod run;
mod shrink;
mod trace;
mod violation;
pub mod watch;
mod world;

use jiff::Timestamp;
use trainyard_core::{
    job::{Decision, Observed},
    spec::Job,
};

pub use coverage::{Coverage, Mark};
pub use hunt::{Found, Hunt, Summary, hunt};
pub use run::{MIN_EVENTS, Outcome, RunOptions, run};
pub use shrink::{Shrunk, shrink};
pub use trace::TraceLevel;
pub use violation::Violation;
pub use world::Mask;

/// The decider under test.
pub type Decide = fn(&Job, &Observed, Timestamp) -> Decision;
