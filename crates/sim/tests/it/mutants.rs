//! The simulation bites: each deliberate mistake in a policy breaks an invariant.

use std::{
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use trainyard_core::{
    gang::place,
    job::{
        decide,
        mutant::{self, Mutant},
    },
};
use trainyard_sim::{RunOptions, Violation, fleet, placement, run};

/// Seeds after which a mistake counts as one that nobody would notice.
const SEEDS: u64 = 20_000;
/// The same for mistakes in how seats are given; a seed of that world takes longer.
const PLACEMENT_SEEDS: u64 = 1_000;
/// The same for mistakes in what happens to nodes and in the wait queue.
const FLEET_SEEDS: u64 = 1_000;

fn first_catch(mutant: Mutant) -> Option<(u64, Violation)> {
    if Mutant::OF_FLEET.contains(&mutant) {
        return (0..FLEET_SEEDS).find_map(|seed| {
            let outcome = mutant::with(Some(mutant), || fleet::run(seed));
            outcome.violation.map(|violation| (seed, violation))
        });
    }
    if Mutant::OF_PLACEMENT.contains(&mutant) {
        return (0..PLACEMENT_SEEDS).find_map(|seed| {
            let outcome = mutant::with(Some(mutant), || placement::run(seed, place));
            outcome.violation.map(|violation| (seed, violation))
        });
    }
    (0..SEEDS).find_map(|seed| {
        let outcome = mutant::with(Some(mutant), || run(seed, decide, &RunOptions::default()));
        outcome.violation.map(|(_, violation)| (seed, violation))
    })
}

#[test]
fn every_mutant_is_caught() {
    catch(&Mutant::ALL);
}

/// Those of the fleet alone: the quick part of the test above.
#[test]
fn every_mutant_of_the_fleet_is_caught() {
    catch(&Mutant::OF_FLEET);
}

fn catch(mutants: &[Mutant]) {
    let next = AtomicUsize::new(0);
    let caught = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = first_catch(*mutant);
                    caught.lock().unwrap().push((*mutant, result));
                }
            });
        }
    });
    let mut caught = caught.into_inner().unwrap();
    caught.sort_by_key(|(mutant, _)| *mutant);
    let mut table = String::new();
    let mut survivors = Vec::new();
    for (mutant, result) in &caught {
        let (words, seed) = match result {
            Some((seed, violation)) => (violation.invariant, seed.to_string()),
            None => ("SURVIVES", format!("> {SEEDS}")),
        };
        writeln!(table, "{:<28} {seed:>8}  {words}", format!("{mutant:?}")).unwrap();
        if result.is_none() {
            survivors.push(*mutant);
        }
    }
    println!("{:<28} {:>8}  caught by\n{table}", "mutant", "seed");
    assert_eq!(caught.len(), mutants.len());
    assert!(survivors.is_empty(), "{survivors:?} survive\n{table}");
}
