//! Many jobs, the wait queue and the trials of nodes in a cluster in which everything goes wrong.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use trainyard_sim::{
    TraceLevel,
    fleet::{Coverage, Mark, run, run_with},
};

/// As many as it takes to meet everything several times; `cargo xtask test` runs more. Without optimization, a seed takes a
/// tenth of a second.
const SEEDS: u64 = 240;

#[test]
fn seeds_break_nothing() {
    let next = AtomicU64::new(0);
    let met = Mutex::new((Coverage::default(), 0));
    let broken = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        return;
                    }
                    let outcome = run(seed);
                    let mut met = met.lock().unwrap();
                    met.0.add(&outcome.coverage);
                    met.1 += outcome.events;
                    if let Some(violation) = outcome.violation {
                        broken.lock().unwrap().push((seed, violation));
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{broken:?}");
    let (met, events) = met.into_inner().unwrap();
    println!("{events} events: {met:?}");
    let rare = Mark::ALL.iter().filter(|mark| met.count(**mark) < 3);
    let rare: Vec<&Mark> = rare.collect();
    assert!(rare.is_empty(), "{rare:?} hardly happened: {met:?}");
}

#[test]
fn same_seed_gives_same_run() {
    for seed in 0..5 {
        let [one, other] = [(), ()].map(|()| run_with(seed, TraceLevel::Digest));
        assert_eq!(one.digest, other.digest, "seed {seed}");
        assert_eq!(one.events, other.events, "seed {seed}");
    }
}
