//! A gang that restarts in place while members, leader, operator and network fail.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use trainyard_sim::{
    TraceLevel,
    barrier::{Coverage, Mark, run, run_with, shrink},
};

const SEEDS: u64 = 20_000;

#[test]
fn twenty_thousand_seeds_break_nothing() {
    let next = AtomicU64::new(0);
    let met = Mutex::new((Coverage::default(), 0));
    let broken = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut coverage, mut events) = (Coverage::default(), 0);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        break;
                    }
                    let outcome = run(seed);
                    coverage.add(&outcome.coverage);
                    events += outcome.events;
                    if let Some(violation) = outcome.violation {
                        broken.lock().unwrap().push((seed, violation));
                    }
                }
                let mut met = met.lock().unwrap();
                met.0.add(&coverage);
                met.1 += events;
            });
        }
    });
    let mut broken = broken.into_inner().unwrap();
    broken.sort_by_key(|(seed, _)| *seed);
    if let Some((seed, violation)) = broken.first() {
        let shrunk = shrink(*seed).map_or_else(String::new, |shrunk| {
            let (kept, planned) = shrunk.kept;
            let lines = shrunk.lines.join("\n");
            format!("with {kept} of its {planned} faults:\n{lines}")
        });
        panic!(
            "{} of {SEEDS} seeds break an invariant; seed {seed}: {violation}\n{shrunk}",
            broken.len()
        );
    }
    let (met, events) = met.into_inner().unwrap();
    println!("{events} events: {met:?}");
    let rare: Vec<&Mark> = Mark::ALL
        .iter()
        .filter(|mark| met.count(**mark) < 3)
        .collect();
    assert!(rare.is_empty(), "{rare:?} hardly happened: {met:?}");
}

#[test]
fn same_seed_gives_same_run() {
    for seed in 0..20 {
        let [one, other] = [(), ()].map(|()| run_with(seed, TraceLevel::Lines));
        assert!(!one.lines.is_empty());
        assert_eq!(one.lines, other.lines, "seed {seed}");
        assert_eq!(one.digest, other.digest, "seed {seed}");
    }
}
