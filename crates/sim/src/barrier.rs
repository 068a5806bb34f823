//! One gang that restarts in place: the three machines of `core::barrier` in a world in which all of them and the network between them fail.
//!
//! Owns the API server, pods, supervisors, programs, connections and one operator at a time, drawn from a seed. Messages are lost, late,
//! doubled and reordered, connections are cut or half-open; supervisors, the leader and the operator crash, the operator between any two calls;
//! programs fail again inside a barrier or cannot be stopped; users suspend, resize and delete. What is checked is checked on the truth after every
//! event. The same seed gives the same run, byte by byte.
//!
//! What happens to the job is decided by `job::decide`. A world of its own because that of [`crate::run()`] has no messages and no processes inside
//! a pod; kinds, roles, seats and budgets are drawn there.
//!
//! Reading order: [`run()`], `world` (the truth and the clock), `faults`, `pods`, `network`, `operator`, `job`, `invariants`.

mod coverage;
mod faults;
mod invariants;
mod job;
mod network;
mod operator;
mod pods;
mod world;

pub use coverage::{Coverage, Mark};

use std::collections::BTreeSet;

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
    /// The digest of these lines.
    pub digest: u64,
}

/// Runs one seed.
pub fn run(seed: u64) -> Outcome {
    run_with(seed, TraceLevel::Off)
}

/// Runs one seed and keeps as much of what happened as asked for.
pub fn run_with(seed: u64, level: TraceLevel) -> Outcome {
    World::new(seed, level, None).run()
}

/// A run that breaks an invariant with no fault left to take out.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The faults that are left, of how many.
    pub kept: (usize, usize),
    /// What breaks.
    pub violation: Violation,
    /// Every event.
    pub lines: Vec<String>,
}

/// Takes faults out of the run of `seed` as long as the same invariant breaks.
pub fn shrink(seed: u64) -> Option<Shrunk> {
    let invariant = run(seed).violation?.invariant;
    let planned = faults::plan(seed).len();
    let mut kept: BTreeSet<usize> = (0..planned).collect();
    let breaks = |kept: &BTreeSet<usize>| {
        let outcome = World::new(seed, TraceLevel::Off, Some(kept)).run();
        outcome
            .violation
            .is_some_and(|violation| violation.invariant == invariant)
    };
    for fault in 0..planned {
        kept.remove(&fault);
        if !breaks(&kept) {
            kept.insert(fault);
        }
    }
    let outcome = World::new(seed, TraceLevel::Lines, Some(&kept)).run();
    Some(Shrunk {
        kept: (kept.len(), planned),
        violation: outcome.violation?,
        lines: outcome.lines,
    })
}
