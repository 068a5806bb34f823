//! The least that still breaks.
//!
//! Faults are taken out of the plan in ever smaller groups, then pods are tamed one by one; what
//! still breaks the same invariant is kept.

use std::collections::BTreeSet;

use crate::{
    Decide, TraceLevel,
    run::{RunOptions, life_seed, run},
    violation::Violation,
    world::{self, Mask},
};

/// A run that breaks an invariant with nothing left to take out.
#[derive(Debug)]
pub struct Shrunk {
    /// The seed.
    pub seed: u64,
    /// The life of the run that breaks.
    pub life: u64,
    /// What is left out.
    pub mask: Mask,
    /// What breaks.
    pub violation: Violation,
    /// The trace of what is left.
    pub lines: Vec<String>,
    /// How many faults were planned.
    pub planned: usize,
}

/// Shrinks a run that broke `invariant` in `life`.
pub fn shrink(seed: u64, life: u64, invariant: &'static str, decide: Decide) -> Option<Shrunk> {
    let breaks = |mask: &Mask| {
        let options = RunOptions {
            trace_level: TraceLevel::Off,
            only: Some((life, mask.clone())),
        };
        let outcome = run(seed, decide, &options);
        let same = outcome
            .violation
            .is_some_and(|(_, violation)| violation.invariant == invariant);
        (same, outcome.births)
    };
    let planned = world::plan(life_seed(seed, life)).len();
    let mut kept: BTreeSet<usize> = (0..planned).collect();
    let masked = |kept: &BTreeSet<usize>| Mask {
        faults: Some(kept.clone()),
        tame: BTreeSet::new(),
    };
    let mut group = planned.max(1);
    loop {
        let mut went = false;
        for chunk in kept.iter().copied().collect::<Vec<_>>().chunks(group) {
            let fewer: BTreeSet<usize> = kept
                .iter()
                .copied()
                .filter(|number| !chunk.contains(number))
                .collect();
            if breaks(&masked(&fewer)).0 {
                kept = fewer;
                went = true;
            }
        }
        if group == 1 && !went {
            break;
        }
        group = (group / 2).max(1);
    }
    let mut mask = masked(&kept);
    let (_, births) = breaks(&mask);
    for birth in 0..births {
        mask.tame.insert(birth);
        if !breaks(&mask).0 {
            mask.tame.remove(&birth);
        }
    }
    let options = RunOptions {
        trace_level: TraceLevel::Lines,
        only: Some((life, mask.clone())),
    };
    let outcome = run(seed, decide, &options);
    let (_, violation) = outcome.violation?;
    Some(Shrunk {
        seed,
        life,
        mask,
        violation,
        lines: outcome.lines,
        planned,
    })
}
