//! Runs seeds through the simulation until one breaks an invariant, then shrinks it.
//!
//! Exit codes: 0 nothing broke, 1 an invariant broke, 2 the arguments are wrong.
#![forbid(unsafe_code)]

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    num::NonZeroUsize,
    process::ExitCode,
    thread,
};

use trainyard_core::job::decide;
use trainyard_sim::{
    Found, Hunt, Mask, RunOptions, Shrunk, Summary, TraceLevel, Violation, hunt, run, shrink,
};

const USAGE: &str = "\
usage: seed-hunt --seeds N [--from S] [--threads N] [--keep-going]
       seed-hunt --seed S [--trace] [--life L] [--faults A,B,…] [--tame A,B,…]

  --seeds N     run N seeds on all cores
  --from S      start at seed S instead of 0
  --threads N   use N threads
  --keep-going  run all seeds even after one broke an invariant
  --seed S      run one seed
  --trace       print every event
  --life L      only this life of the run
  --faults …    only these faults of its plan strike (`none` for none)
  --tame …      these pods do nothing bad on their own
";

#[derive(Debug, Default)]
struct Arguments {
    help: bool,
    seeds: Option<u64>,
    from: u64,
    threads: Option<usize>,
    seed: Option<u64>,
    trace: bool,
    keep_going: bool,
    life: Option<u64>,
    faults: Option<BTreeSet<usize>>,
    tame: BTreeSet<usize>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            let mut err = io::stderr().lock();
            // A usage text that cannot be written is dropped.
            drop(write!(err, "error: {problem}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let outcome = match (arguments.seed, arguments.seeds) {
        _ if arguments.help => io::stdout()
            .lock()
            .write_all(USAGE.as_bytes())
            .map(|()| ExitCode::SUCCESS),
        (Some(seed), _) => replay(seed, &arguments),
        (None, seeds) => search(seeds.unwrap_or(0), &arguments),
    };
    match outcome {
        Ok(code) => code,
        // A reader that went away has seen enough.
        Err(_) => ExitCode::SUCCESS,
    }
}

fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    // `--seeds=5` is `--seeds 5`.
    let mut words = words.flat_map(|word| match word.split_once('=') {
        Some((flag, value)) => vec![flag.to_owned(), value.to_owned()],
        None => vec![word],
    });
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` needs a value"));
        match word.as_str() {
            "-h" | "--help" => arguments.help = true,
            "--seeds" => arguments.seeds = Some(number(&value()?)?),
            "--from" => arguments.from = number(&value()?)?,
            "--threads" => arguments.threads = Some(number(&value()?)?),
            "--seed" => arguments.seed = Some(number(&value()?)?),
            "--trace" => arguments.trace = true,
            "--keep-going" => arguments.keep_going = true,
            "--life" => arguments.life = Some(number(&value()?)?),
            "--faults" => arguments.faults = Some(numbers(&value()?)?),
            "--tame" => arguments.tame = numbers(&value()?)?,
            _ => return Err(format!("`{word}` is not an argument of this command")),
        }
    }
    match (arguments.seed, arguments.seeds) {
        _ if arguments.help => Ok(arguments),
        (None, None) => Err("either `--seeds` or `--seed` is needed".to_owned()),
        (Some(_), Some(_)) => Err("`--seeds` and `--seed` exclude each other".to_owned()),
        _ => Ok(arguments),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    let plain: String = text.chars().filter(|c| *c != '_' && *c != ',').collect();
    plain
        .parse()
        .map_err(|_| format!("`{text}` is not a number of the kind needed"))
}

fn numbers(text: &str) -> Result<BTreeSet<usize>, String> {
    if text == "none" {
        return Ok(BTreeSet::new());
    }
    text.split(',').map(number).collect()
}

fn replay(seed: u64, arguments: &Arguments) -> io::Result<ExitCode> {
    let masked =
        arguments.life.is_some() || arguments.faults.is_some() || !arguments.tame.is_empty();
    let options = RunOptions {
        trace_level: if arguments.trace {
            TraceLevel::Lines
        } else {
            TraceLevel::Digest
        },
        only: masked.then(|| {
            let mask = Mask {
                faults: arguments.faults.clone(),
                tame: arguments.tame.clone(),
            };
            (arguments.life.unwrap_or(0), mask)
        }),
    };
    let outcome = run(seed, decide, &options);
    let mut out = io::stdout().lock();
    for line in &outcome.lines {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "seed {seed} events {} digest {:016x}",
        outcome.events, outcome.digest
    )?;
    match outcome.violation {
        None => Ok(ExitCode::SUCCESS),
        Some((life, violation)) => {
            writeln!(out, "broken in life {life}: {violation}")?;
            Ok(ExitCode::from(1))
        }
    }
}

fn search(seeds: u64, arguments: &Arguments) -> io::Result<ExitCode> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let plan = Hunt {
        seeds: arguments.from..arguments.from.saturating_add(seeds),
        threads: arguments.threads.unwrap_or(cores),
        twice_every: 101,
        keep_going: arguments.keep_going,
    };
    let summary = hunt(&plan, decide, |done| {
        drop(writeln!(io::stderr().lock(), "{done} of {seeds} seeds"));
    });
    let mut out = io::stdout().lock();
    report(&mut out, &summary)?;
    let Some(found) = summary.found() else {
        return Ok(ExitCode::SUCCESS);
    };
    if arguments.keep_going {
        for (invariant, (count, found)) in &summary.broken {
            writeln!(
                out,
                "  {count:>8} seeds, first {:>8}: {invariant}",
                found.seed
            )?;
        }
    }
    writeln!(out, "\nseed {} breaks: {}", found.seed, found.violation)?;
    let shrunk = shrink(found.seed, found.life, found.violation.invariant, decide);
    match &shrunk {
        Some(shrunk) => print_shrunk(&mut out, shrunk)?,
        None => print_replay(&mut out, found)?,
    }
    Ok(ExitCode::from(1))
}

fn report(out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    let seconds = summary.wall.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = summary.seeds as f64 * 60.0 / seconds.max(0.001);
    // On a machine that is shared the wall clock measures the neighbours, so both are printed.
    let core_rate = processor_seconds().map_or_else(String::new, |seconds| {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = summary.seeds as f64 * 60.0 / seconds.max(0.001);
        format!(
            " cpu {seconds:.1} s seeds/core-minute {}",
            grouped(&format!("{rate:.0}"))
        )
    });
    writeln!(
        out,
        "seeds {} events {} events/run {} min {} wall {seconds:.1} s seeds/minute {}{core_rate}",
        summary.seeds,
        grouped(&summary.events.to_string()),
        summary.events / summary.seeds.max(1),
        if summary.seeds == 0 {
            0
        } else {
            summary.min_events
        },
        grouped(&format!("{rate:.0}")),
    )?;
    write!(out, "{}", summary.coverage)?;
    let missing = summary.coverage.missing();
    if !missing.is_empty() {
        writeln!(out, "  never met: {}", missing.join("; "))?;
    }
    Ok(())
}

/// What this process has used of the processors, where the system reports it.
fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program stands in parentheses and may hold spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks: f64 = [fields.next()?, fields.next()?]
        .iter()
        .filter_map(|t| t.parse::<f64>().ok())
        .sum();
    // Linux reports 100 ticks a second to every program.
    Some(ticks / 100.0)
}

/// `1234567` as `1,234,567`.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn print_shrunk(out: &mut impl Write, shrunk: &Shrunk) -> io::Result<()> {
    let kept = shrunk.mask.faults.as_ref().map_or(0, BTreeSet::len);
    writeln!(
        out,
        "shrunk to {kept} of {} faults and {} lines:\n",
        shrunk.planned,
        shrunk.lines.len()
    )?;
    for line in &shrunk.lines {
        writeln!(out, "{line}")?;
    }
    let Violation { invariant, detail } = &shrunk.violation;
    writeln!(out, "\nbroken: {invariant}\n  found: {detail}")?;
    let list = |numbers: &BTreeSet<usize>| {
        let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(",")
        }
    };
    write!(
        out,
        "replay: cargo xtask seed-hunt --seed {} --trace --life {} --faults {}",
        shrunk.seed,
        shrunk.life,
        shrunk.mask.faults.as_ref().map_or("none".to_owned(), list),
    )?;
    if !shrunk.mask.tame.is_empty() {
        write!(out, " --tame {}", list(&shrunk.mask.tame))?;
    }
    writeln!(out)
}

fn print_replay(out: &mut impl Write, found: &Found) -> io::Result<()> {
    writeln!(
        out,
        "replay: cargo xtask seed-hunt --seed {} --trace",
        found.seed
    )
}
