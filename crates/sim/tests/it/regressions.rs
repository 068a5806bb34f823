//! Seeds that broke the decider once, by what was wrong.
//!
//! Each was found with the mistake put back into core, in the world as it is. A change of the
//! world gives these numbers another meaning; the mistakes themselves have one short case
//! each, beside the policies in core (`job/tests/hunted.rs`).

use trainyard_core::job::decide;
use trainyard_sim::{RunOptions, run};

const SEEDS: [(u64, &str); 12] = [
    (
        478,
        "a success outside the wanted slots stood in for one inside",
    ),
    (24, "pods were made where old ones still held the names"),
    (
        384,
        "an attempt waited for silent nodes of the one before it",
    ),
    (29_013, "the user paid for a program that was stopped"),
    (108, "borne failures left a job running without pods"),
    (6_646, "a resized gang without pods was said to run"),
    (3, "the order of the list changed what was said"),
    (1, "a pod that was made again was booked as training"),
    (
        5_096,
        "a restart that was asked for waited for silent nodes of the attempt before it",
    ),
    (653_846, "a borne worker stayed forever on a dead node"),
    (
        10_804,
        "nodes that failed a preflight had an event in every pass while old pods held the names",
    ),
    (
        17_632,
        "seats were released in every pass for a refusal, and taken by the launcher in between",
    ),
];

#[test]
fn what_broke_once_holds() {
    for (seed, story) in SEEDS {
        let outcome = run(seed, decide, &RunOptions::default());
        if let Some((_, violation)) = outcome.violation {
            panic!("seed {seed} breaks again ({story}): {violation}");
        }
    }
}
