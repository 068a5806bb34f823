//! The simulation finds mistakes: each deliberate mistake in a policy breaks an invariant.

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
    job::decide,
    mutant::{self, Mutant},
};
use trainyard_sim::{RunOptions, Violation, barrier, fleet, placement, run, watch};

/// Seeds after which a mistake counts as not found.
const SEEDS: u64 = 20_000;
/// The same for mistakes in how seats are given; a seed of that world takes longer.
const PLACEMENT_SEEDS: u64 = 1_000;
/// The same for mistakes in what happens to nodes and in the wait queue.
const FLEET_SEEDS: u64 = 1_000;
/// The same for mistakes in a restart in place.
const BARRIER_SEEDS: u64 = 20_000;
/// The same for mistakes in how hangs are found.
const WATCH_SEEDS: u64 = 20_000;

fn first_catch(mutant: Mutant) -> Option<(u64, Violation)> {
    if Mutant::OF_FLEET.contains(&mutant) {
        return (0..FLEET_SEEDS).find_map(|seed| {
            let outcome = mutant::with(Some(mutant), || fleet::run(seed));
            outcome.violation.map(|violation| (seed, violation))
        });
    }
    if Mutant::OF_BARRIER.contains(&mutant) {
        return (0..BARRIER_SEEDS).find_map(|seed| {
            let outcome = mutant::with(Some(mutant), || barrier::run(seed));
            outcome.violation.map(|violation| (seed, violation))
        });
    }
    if Mutant::OF_WATCH.contains(&mutant) {
        return (0..WATCH_SEEDS).find_map(|seed| {
            let outcome = mutant::with(Some(mutant), || watch::run(seed));
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
    let of_jobs = |mutant: &Mutant| {
        let elsewhere = [
            &Mutant::OF_FLEET[..],
            &Mutant::OF_BARRIER,
            &Mutant::OF_WATCH,
        ];
        !elsewhere.iter().any(|mutants| mutants.contains(mutant))
    };
    let others: Vec<Mutant> = Mutant::ALL.into_iter().filter(of_jobs).collect();
    let (table, survivors) = catch(&others);
    println!("{table}");
    assert!(survivors.is_empty(), "{survivors:?} survive\n{table}");
}

#[test]
fn every_mutant_of_the_fleet_is_caught() {
    let (table, survivors) = catch(&Mutant::OF_FLEET);
    println!("{table}");
    assert!(survivors.is_empty(), "{survivors:?} survive\n{table}");
}

#[test]
fn every_mutant_of_the_barrier_is_caught() {
    let (table, survivors) = catch(&Mutant::OF_BARRIER);
    println!("{table}");
    assert!(survivors.is_empty(), "{survivors:?} survive\n{table}");
}

#[test]
fn every_mutant_of_the_watch_is_caught() {
    let (table, survivors) = catch(&Mutant::OF_WATCH);
    println!("{table}");
    assert!(survivors.is_empty(), "{survivors:?} survive\n{table}");
}

/// What catches each of `mutants`, as a table, and those that nothing catches.
fn catch(mutants: &[Mutant]) -> (String, Vec<Mutant>) {
    let next = AtomicUsize::new(0);
    let caught = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = first_catch(*mutant);
                    let mut caught = caught.lock().expect("no thread panics with the lock");
                    caught.push((*mutant, result));
                }
            });
        }
    });
    let mut caught = caught.into_inner().expect("no thread panicked");
    caught.sort_by_key(|(mutant, _)| *mutant);
    assert_eq!(caught.len(), mutants.len());
    let mut table = format!("{:<28} {:>8}  caught by\n", "mutant", "seed");
    let mut survivors = Vec::new();
    for (mutant, result) in &caught {
        let (words, seed) = match result {
            Some((seed, violation)) => (violation.invariant, seed.to_string()),
            None => ("SURVIVES", "-".to_owned()),
        };
        writeln!(table, "{:<28} {seed:>8}  {words}", format!("{mutant:?}"))
            .expect("writing to a string cannot fail");
        if result.is_none() {
            survivors.push(*mutant);
        }
    }
    (table, survivors)
}
