//! A cluster with many jobs around the decider that can harm all of them: `fleet::Fleet`, which gives nodes to gangs and puts
//! nodes on probation, and one `job::decide` per job.
//!
//! Owns nodes, pods, jobs and operators drawn from a seed. Operators crash between any two calls, lose the lease, see the
//! cluster late, and know after a start only what pods and nodes carry. What they decide is carried out on the truth, and the
//! invariants are checked on the truth after every event. The same seed gives the same run, byte by byte.
//!
//! Reading order: [`run()`] (one seed to its outcome), `world` (the truth and the clock), `draw`, `nodes`, `pods`, `kubelet`,
//! `jobs` and `faults` (what happens), `watch`, `operator`, `pass`, `actions`, `queue`, `preflight` and `trials` (what an operator
//! does), `invariants`.

mod actions;
mod coverage;
mod draw;
mod faults;
mod invariants;
mod jobs;
mod kubelet;
mod nodes;
mod operator;
mod pass;
mod pods;
mod preflight;
mod queue;
mod trials;
mod watch;
mod world;

pub use coverage::{Coverage, Mark};

use self::world::World;
use crate::{TraceLevel, Violation};

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// What happened, and how often.
    pub coverage: Coverage,
    /// How many events there were.
    pub events: u64,
    /// Every event as text, where asked for.
    pub lines: Vec<String>,
    /// The digest of these lines and of every decision.
    pub digest: u64,
}

/// Runs one seed.
pub fn run(seed: u64) -> Outcome {
    run_with(seed, TraceLevel::Off)
}

/// Runs one seed and keeps as much of what happened as asked for.
pub fn run_with(seed: u64, level: TraceLevel) -> Outcome {
    World::new(seed, level).run()
}
