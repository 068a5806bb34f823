//! Runs the fleet over many seeds: `fleet-hunt FROM TO`, or shows every event of one: `fleet-hunt SEED`.
//!
//! Prints every seed that breaks something and what was met; the same seed breaks the same again.
#![expect(clippy::print_stdout, reason = "what was met is the program's output")]

use std::process::ExitCode;

use trainyard_sim::{
    TraceLevel,
    fleet::{Coverage, run, run_with},
};

fn main() -> ExitCode {
    let words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let Ok(words) = words.collect::<Result<Vec<u64>, _>>() else {
        println!("usage: fleet-hunt SEED | fleet-hunt FROM TO");
        return ExitCode::from(2);
    };
    let (from, to) = match words[..] {
        [seed] => {
            let outcome = run_with(seed, TraceLevel::Lines);
            println!("{}", outcome.lines.join("\n"));
            return ExitCode::from(u8::from(outcome.violation.is_some()));
        }
        [from, to] => (from, to),
        _ => {
            println!("usage: fleet-hunt SEED | fleet-hunt FROM TO");
            return ExitCode::from(2);
        }
    };
    let (mut met, mut events, mut broken) = (Coverage::default(), 0, 0_u64);
    for seed in from..to {
        let outcome = run(seed);
        if let Some(violation) = outcome.violation {
            println!("seed {seed} breaks {violation}");
            broken += 1;
        }
        met.add(&outcome.coverage);
        events += outcome.events;
    }
    println!(
        "{} seeds, {broken} broken, {events} events: {met:?}",
        to - from
    );
    ExitCode::from(u8::from(broken > 0))
}
