//! Runs the cluster around `gang::place` over many seeds: `placement-hunt FROM TO`.
//!
//! Prints what was met, or the first seed that breaks something; the same seed breaks the same again.
#![expect(clippy::print_stdout, reason = "what was met is the program's output")]

use std::process::ExitCode;

use trainyard_core::gang::place;
use trainyard_sim::placement::run;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Some(Ok(from)), Some(Ok(to))) = (words.next(), words.next()) else {
        println!("usage: placement-hunt FROM TO");
        return ExitCode::from(2);
    };
    let mut ended = 0;
    for seed in from..to {
        let outcome = run(seed, place);
        if let Some(violation) = outcome.violation {
            println!("seed {seed} breaks {violation}");
            return ExitCode::FAILURE;
        }
        ended += outcome.counts.ended;
    }
    println!("{} seeds, {ended} gangs ended, nothing broke", to - from);
    ExitCode::SUCCESS
}
