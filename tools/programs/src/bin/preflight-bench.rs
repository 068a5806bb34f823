//! Prints how long the schedule of a preflight takes and how well its search finds a slow link;
//! `cargo xtask bench preflight` reads it.
//!
//! One line per figure, with tabs between its fields; the first is its name: `schedule` nodes,
//! milliseconds · `search` trials, those that named the slow link and nothing else, the most rounds,
//! the most rounds allowed, milliseconds of all reasoning of the slowest trial, the network included ·
//! `wrong` the seed of a trial that was not, and all about it.
#![expect(clippy::print_stdout, reason = "the figures are the program's output")]

use std::time::Instant;

use trainyard_core::probe::pairs::{most_rounds, schedule};
use trainyard_sim::network::{Trial, zones};

/// As many as the issue of the figure asks for.
const TRIALS: u64 = 1_000;

fn main() {
    let topology = zones(4, 8, 32);
    let (mut slowest, mut rounds) = (0.0_f64, 0);
    for _ in 0..5 {
        let start = Instant::now();
        rounds = schedule(&zones(4, 8, 32)).len();
        slowest = slowest.max(start.elapsed().as_secs_f64() * 1e3);
    }
    assert_eq!(rounds, 10, "the logarithm of 1,024");
    println!("schedule\t{}\t{slowest:.3}", topology.nodes());

    let (mut right, mut most, mut longest) = (0_u32, 0, 0.0_f64);
    for seed in 0..TRIALS {
        let start = Instant::now();
        let trial = Trial::run(seed, &topology);
        longest = longest.max(start.elapsed().as_secs_f64() * 1e3);
        most = most.max(trial.conclusion.rounds);
        if trial.is_right() {
            right += 1;
        } else {
            println!("wrong\t{seed}\t{trial:?}");
        }
    }
    let bound = most_rounds(topology.nodes());
    println!("search\t{TRIALS}\t{right}\t{most}\t{bound}\t{longest:.1}");
}
