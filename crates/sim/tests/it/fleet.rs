//! Many jobs, the wait queue and the trials of nodes in a cluster in which everything goes wrong.

use trainyard_sim::{
    Telling,
    fleet::{Coverage, Mark, run, run_with},
};

/// As many as it takes to meet everything several times.
const SEEDS: u64 = 300;

#[test]
fn seeds_break_nothing() {
    let mut met = Coverage::default();
    let mut events = 0;
    for seed in 0..SEEDS {
        let outcome = run(seed);
        if let Some(violation) = outcome.violation {
            panic!("seed {seed} breaks {violation}");
        }
        met.add(&outcome.coverage);
        events += outcome.events;
    }
    println!("{events} events: {met:?}");
    let rare: Vec<&Mark> = Mark::ALL.iter().filter(|mark| met.count(**mark) < 5).collect();
    assert!(rare.is_empty(), "{rare:?} hardly happened: {met:?}");
}

#[test]
fn same_seed_gives_same_run() {
    for seed in 0..5 {
        let [one, other] = [(), ()].map(|()| run_with(seed, Telling::Digest));
        assert_eq!(one.digest, other.digest, "seed {seed}");
        assert_eq!(one.events, other.events, "seed {seed}");
    }
}
