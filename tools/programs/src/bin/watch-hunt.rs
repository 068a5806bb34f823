//! Runs the world of the watch over many seeds on all cores: `watch-hunt FROM TO`, or shows every event of one: `watch-hunt SEED`.
//!
//! Prints every seed that breaks something, what was met and how long it took; the same seed breaks the same again.
#![expect(clippy::print_stdout, reason = "what was met is the program's output")]

use std::{
    num::NonZeroUsize,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use trainyard_sim::{
    TraceLevel,
    watch::{Coverage, run, run_with},
};

fn main() -> ExitCode {
    let words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let words = words.collect::<Result<Vec<u64>, _>>();
    match words.as_deref() {
        Ok([seed]) => {
            let outcome = run_with(*seed, TraceLevel::Lines);
            println!("{}", outcome.lines.join("\n"));
            println!(
                "seed {seed} events {} digest {:016x}",
                outcome.events, outcome.digest
            );
            ExitCode::from(u8::from(outcome.violation.is_some()))
        }
        Ok([from, to]) => hunt(*from, *to),
        _ => {
            println!("usage: watch-hunt SEED | watch-hunt FROM TO");
            ExitCode::from(2)
        }
    }
}

fn hunt(from: u64, to: u64) -> ExitCode {
    let began = Instant::now();
    let next = AtomicU64::new(from);
    let total = Mutex::new((Coverage::default(), 0_u64, 0_u64));
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let (mut met, mut events, mut broken) = (Coverage::default(), 0, 0);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        break;
                    }
                    let outcome = run(seed);
                    if let Some(violation) = outcome.violation {
                        println!("seed {seed} breaks {violation}");
                        broken += 1;
                    }
                    met.add(&outcome.coverage);
                    events += outcome.events;
                }
                let mut total = total.lock().expect("no worker panics while it adds");
                total.0.add(&met);
                total.1 += events;
                total.2 += broken;
            });
        }
    });
    let (met, events, broken) = total.into_inner().expect("all workers are done");
    println!(
        "{} seeds, {broken} broken, {events} events, {:.0} s: {met:?}",
        to.saturating_sub(from),
        began.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(broken > 0))
}
