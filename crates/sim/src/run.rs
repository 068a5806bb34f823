//! One seed, from its first event to its verdict.

use crate::{
    Decide,
    coverage::Coverage,
    trace::{Trace, TraceLevel},
    violation::Violation,
    world::{Mask, World},
};

/// A run has at least this many events.
pub const MIN_EVENTS: u64 = 200;

/// How to run a seed.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How much is traced.
    pub trace_level: TraceLevel,
    /// Only this life of the run, with this much of its plan left out.
    pub only: Option<(u64, Mask)>,
}

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The invariant that broke, and the life in which it did.
    pub violation: Option<(u64, Violation)>,
    /// Events that happened.
    pub events: u64,
    /// What was met.
    pub coverage: Coverage,
    /// The trace, where it was asked for.
    pub lines: Vec<String>,
    /// Digest of the trace, where it was asked for.
    pub digest: u64,
    /// Pods that were born in the last life.
    pub births: usize,
}

/// Runs a seed: one job after another, each in a world of its own, until enough has happened.
pub fn run(seed: u64, decide: Decide, options: &RunOptions) -> Outcome {
    let mut outcome = Outcome {
        violation: None,
        events: 0,
        coverage: Coverage::default(),
        lines: Vec::new(),
        digest: 0,
        births: 0,
    };
    let life_numbers = match &options.only {
        Some((life, _)) => *life..=*life,
        None => 0..=u64::MAX,
    };
    for life in life_numbers {
        let mask = options
            .only
            .as_ref()
            .map_or_else(Mask::default, |(_, mask)| mask.clone());
        let trace = Trace::new(options.trace_level);
        let mut world = World::new(life_seed(seed, life), decide, mask, trace);
        world.run();
        outcome.events += world.agenda.events;
        outcome.coverage.add(&world.coverage);
        outcome.births = world.cluster.births.len();
        let (lines, digest) = world.trace.finish();
        outcome.lines = lines;
        outcome.digest = outcome.digest.rotate_left(1) ^ digest;
        if let Some(violation) = world.violation {
            outcome.violation = Some((life, violation));
            break;
        }
        if outcome.events >= MIN_EVENTS {
            break;
        }
    }
    outcome
}

/// The seed of one life of a run.
pub(crate) fn life_seed(seed: u64, life: u64) -> u64 {
    // The odd constant of SplitMix64 keeps lives of neighbouring seeds apart.
    seed.wrapping_add(life.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
