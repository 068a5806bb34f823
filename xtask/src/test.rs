//! `cargo xtask test`: every suite, and an account of which ran.
//!
//! Invariant: a suite passes only if it ran and found something to run. One that could not run is
//! shown in the table and, where all are required, is a failure.

mod files;
pub(crate) mod hosts;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::{Failure, check, cluster, frameworks, report, seed_hunt, step};

/// What becomes of a suite that could not run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Require {
    /// The table shows it, and the other suites count.
    Available,
    /// It is a failure.
    All,
}

/// One suite: its name and its work, which returns what it ran in a few words.
type Suite = (&'static str, fn() -> Result<String, Failure>);

/// Cheapest first, except that `check` comes first because what it finds explains later failures.
const SUITES: &[Suite] = &[
    ("check", || check::run().map(|()| "every step".to_owned())),
    ("unit, integration and doc", unit),
    ("examples", files::examples),
    ("fuzz seeds", files::fuzz_seeds),
    ("storm", storm),
    ("sim", sim),
    ("mutants", mutants),
    ("hosts", hosts::suite),
    ("frameworks", || frameworks::suite(None)),
    ("cluster", cluster::suite),
];

/// The suites that need nothing but the Rust toolchain and a C compiler, and no search over seeds.
const QUICK: &[Suite] = &[
    ("check", || check::run().map(|()| "every step".to_owned())),
    ("unit, integration and doc", workspace_tests),
    ("examples", files::examples),
    ("fuzz seeds", files::fuzz_seeds),
];

/// The limit on one command of a suite, so that one that never ends does not cost the table of the others. The longest takes a
/// third of this on two shared cores.
const LIMIT: Duration = Duration::from_mins(30);
/// Seeds that every run of the tests goes through.
const SEEDS: &str = "20000";
/// The same for the fleet; a seed of it takes longer.
const FLEET_SEEDS: &str = "2000";

/// Runs every suite, also after one failed.
pub(crate) fn run(require: Require) -> Result<(), Failure> {
    run_suites(SUITES, require)
}

/// Runs the suites that need no root, Go or Python.
pub(crate) fn quick() -> Result<(), Failure> {
    run_suites(QUICK, Require::Available)
}

fn run_suites(suites: &[Suite], require: Require) -> Result<(), Failure> {
    let mut rows = vec![
        ["suite", "outcome", "time", "ran"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let (mut passed, mut failed, mut absent) = (0_usize, 0_usize, 0_usize);
    for (at, (name, work)) in suites.iter().enumerate() {
        report::progress(&format!("suite {} of {}: {name}", at + 1, suites.len()));
        let start = Instant::now();
        let (word, detail) = match work() {
            Ok(ran) => {
                passed += 1;
                ("passed", ran)
            }
            Err(Failure::Reported) => {
                failed += 1;
                ("FAILED", String::new())
            }
            Err(Failure::Failed(message)) => {
                failed += 1;
                report::error(&message);
                ("FAILED", first_line(&message))
            }
            Err(Failure::CouldNotRun(message)) => {
                absent += 1;
                report::error(&message);
                ("COULD NOT RUN", first_line(&message))
            }
        };
        let time = report::seconds(start.elapsed());
        rows.push(vec![(*name).to_owned(), word.to_owned(), time, detail]);
    }
    println!("\n{}", report::table(&rows));
    if absent > 0 {
        println!("{absent} of {} suites could not run", suites.len());
    }
    if require == Require::All {
        failed += absent;
    }
    // Scripts read the last line, so nothing is printed after it.
    println!("{passed} passed, {failed} failed");
    if failed > 0 {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

fn unit() -> Result<String, Failure> {
    // One test of the engine starts `mpirun` and passes over itself without it. Where it cannot be
    // had, the suite of frameworks could not run either, so that it is never passed over in silence.
    if let Err(Failure::CouldNotRun(message) | Failure::Failed(message)) = frameworks::open_mpi() {
        report::error(&message);
    }
    workspace_tests()
}

/// The tests of the workspace, as they are without installing anything.
fn workspace_tests() -> Result<String, Failure> {
    // The tests of `sim` search thousands of seeds and are a suite of their own, built for speed.
    // Without a choice of targets, cargo also builds the example programs that tests start.
    counted(&mut step::cargo(&[
        "test",
        "--locked",
        "--workspace",
        "--exclude",
        "trainyard-sim",
        "--no-fail-fast",
    ]))
}

/// Jobs and failures of the API server by seed, against the real operator. The same selection of packages as [`workspace_tests()`],
/// so that nothing is built again.
fn storm() -> Result<String, Failure> {
    counted(&mut step::cargo(&[
        "test",
        "--locked",
        "--workspace",
        "--exclude",
        "trainyard-sim",
        "--lib",
        "storm",
        "--",
        "--ignored",
    ]))
    .map(|_| "2,000 seeds".to_owned())
}

fn mutants() -> Result<String, Failure> {
    counted(&mut step::cargo(&[
        "test",
        "--locked",
        "--release",
        "--package",
        "trainyard-sim",
        "--no-fail-fast",
    ]))
}

fn sim() -> Result<String, Failure> {
    step::stream_within(&mut seed_hunt::command(&["--seeds", SEEDS]), LIMIT, |_| {})?;
    step::stream_within(&mut seed_hunt::fleet(FLEET_SEEDS), LIMIT, |_| {})?;
    Ok(format!("{SEEDS} seeds, {FLEET_SEEDS} of the fleet"))
}

/// Runs a test command; no test at all is a failure.
pub(crate) fn counted(command: &mut Command) -> Result<String, Failure> {
    let mut tally = Tally::default();
    let outcome = step::stream_within(command, LIMIT, |line| tally.read(line));
    match outcome {
        Err(Failure::Failed(message)) => {
            Err(Failure::Failed(format!("{}; {message}", tally.words())))
        }
        Err(other) => Err(other),
        Ok(()) if tally.passed == 0 => Err(Failure::Failed("no test ran".to_owned())),
        Ok(()) => Ok(tally.words()),
    }
}

/// Counts of the test harness, summed over its binaries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Tally {
    /// Adds the counts of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            let Some((number, word)) = count.split_once(' ') else {
                continue;
            };
            let number: u32 = number.parse().unwrap_or(0);
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    fn words(&self) -> String {
        let mut words = vec![format!("{} tests", self.passed + self.failed)];
        if self.failed > 0 {
            words.push(format!("{} failed", self.failed));
        }
        if self.ignored > 0 {
            words.push(format!("{} ignored", self.ignored));
        }
        words.join(", ")
    }
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_over_binaries() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            tally.read(line);
        }
        assert_eq!(
            tally,
            Tally {
                passed: 4,
                failed: 2,
                ignored: 1
            }
        );
        assert_eq!(tally.words(), "6 tests, 2 failed, 1 ignored");
    }
}
