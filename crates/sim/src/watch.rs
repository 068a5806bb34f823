//! One job under `core::watch`: ranks that train, save, evaluate, compile and hang, and an adapter that loses, delays and repeats what they report.
//!
//! Owns the truth about every rank at every moment, drawn from a seed: its line in the program, its processor time and bytes, its state.
//! The watch sees only what the adapter carries: lines, phases and the evidence that it asks for, any of it late, missing or doubled,
//! under a clock that steps forward. What is found is checked against the truth and the settings, with limits that `bounds` computes by
//! itself. The same seed gives the same run, byte by byte.
//!
//! A world of its own because a watch sees signs of ranks, and the world of `job::decide` has only pods.
//!
//! Reading order: [`run()`], `job` (the truth), `draw`, `adapter` (the run), `check`, `bounds`.

mod adapter;
mod bounds;
mod check;
mod coverage;
mod draw;
mod job;

pub use coverage::{Coverage, Mark};

use trainyard_core::watch::Rhythm;

use self::{adapter::Adapter, draw::Draw};
use crate::{TraceLevel, Violation, trace::Trace};

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

/// Runs one seed and keeps as much of what happened as asked for: one attempt, or two of which the second goes by the rhythm of the first.
pub fn run_with(seed: u64, level: TraceLevel) -> Outcome {
    let mut draw = Draw::new(seed);
    let (mut coverage, mut events, mut violation) = (Coverage::default(), 0, None);
    let mut trace = Trace::new(level);
    let (mut rhythm, mut before) = (Rhythm::default(), bounds::Known::default());
    for attempt in 1..=draw.attempts {
        let plan = draw.attempt(attempt);
        trace.note(0, format_args!("attempt {attempt}: {plan}"));
        if attempt == 2 {
            coverage.mark(Mark::SecondAttempt);
        }
        let adapter = Adapter::new(&plan, rhythm, before, &mut coverage, &mut trace);
        let run = adapter.run();
        events += run.events;
        (rhythm, before) = (run.rhythm, run.known);
        if let Err(broken) = run.verdict {
            trace.note(0, format_args!("broken: {broken}"));
            violation = Some(broken);
            break;
        }
    }
    let (lines, digest) = trace.finish();
    Outcome {
        violation,
        coverage,
        events,
        lines,
        digest,
    }
}
