//! `cargo xtask test`: every suite, and an account of which ran.
//!
//! Invariant: a suite passes only if it ran and found something to run. One that could not run is
//! shown in the table and, where all are required, is a failure.

mod beside;
mod files;
pub(crate) mod hosts;

use std::{process::Command, time::Instant};

use self::beside::{Beside, Row};
use crate::{
    Failure, alerts, check, cluster, frameworks, page, report, seed_hunt,
    step::{
        self,
        harness::{LIMIT, counted},
    },
};

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
    ("check", || {
        check::run(check::Scope::All).map(|()| "every step".to_owned())
    }),
    ("unit, integration and doc", unit),
    ("examples", || {
        files::examples(&step::shared_program("trainyard")?)
    }),
    ("fuzz seeds", || {
        files::fuzz_seeds(&step::shared_program("trainyard")?)
    }),
    ("storm", storm),
    ("sim", sim),
    ("mutants", mutants),
    ("hosts", hosts::suite),
    ("alerts", alerts::suite),
    ("browser", page::suite),
    ("frameworks", || frameworks::suite(None)),
    ("cluster", cluster::suite),
];

/// Suites that only need processor time: they run one after another, at a low priority, beside all others. Those build one large crate after another, or
/// wait, and leave a core idle for a third of the time. The first two are built with a profile, and so below a lock, of their own; the last one
/// finds what the tests of the workspace have built.
const BESIDE: &[&str] = &["sim", "mutants", "storm"];

/// The suites that need nothing but the Rust toolchain and a C compiler, build each crate with one set of features, and
/// start few processes.
const QUICK: &[Suite] = &[
    ("check", || {
        check::run(check::Scope::Quick).map(|()| "the quick steps".to_owned())
    }),
    ("unit", || counted(&mut quick_tests(&["--lib", "--bins"]))),
    ("commands", commands),
    // The tests of the commands have built the program.
    ("fuzz seeds", || {
        files::fuzz_seeds(&step::sibling("trainyard")?)
    }),
];

/// Seeds that every run of the tests goes through.
const SEEDS: &str = "20000";
/// The same for the fleet; a seed of it takes longer.
const FLEET_SEEDS: &str = "2000";
/// Seeds of the watch: those after the ones that the tests of `crates/sim` run.
const WATCH_SEEDS: (&str, &str) = ("20000", "40000");

/// Runs every suite, also after one failed.
pub(crate) fn run(require: Require) -> Result<(), Failure> {
    run_suites(SUITES, BESIDE, require)
}

/// Runs the suites that need no root, Go or Python.
pub(crate) fn quick() -> Result<(), Failure> {
    run_suites(QUICK, &[], Require::Available)
}

/// Runs one suite.
pub(crate) fn only(name: &str, require: Require) -> Result<(), Failure> {
    let Some(suite) = SUITES.iter().find(|suite| suite.0 == name) else {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.0).collect();
        return Err(Failure::CouldNotRun(format!(
            "unknown suite `{name}`; expected one of `{}`",
            names.join("`, `")
        )));
    };
    run_suites(&[*suite], &[], require)
}

fn run_suites(suites: &[Suite], beside: &[&'static str], require: Require) -> Result<(), Failure> {
    let mut rows: Vec<Row> = Vec::new();
    let lane = (!beside.is_empty()).then(|| Beside::start(beside.to_vec()));
    for (at, (name, work)) in suites.iter().enumerate() {
        if beside.contains(name) {
            continue;
        }
        report::progress(&format!("suite {} of {}: {name}", at + 1, suites.len()));
        let start = Instant::now();
        let (word, detail) = match work() {
            Ok(ran) => (PASSED, ran),
            Err(Failure::Reported) => (FAILED, String::new()),
            Err(Failure::Failed(message)) => {
                report::error(&message);
                (FAILED, first_line(&message))
            }
            Err(Failure::CouldNotRun(message)) => {
                report::error(&message);
                (COULD_NOT_RUN, first_line(&message))
            }
        };
        let time = report::seconds(start.elapsed());
        rows.push(vec![(*name).to_owned(), word.to_owned(), time, detail]);
    }
    if let Some(lane) = lane {
        rows.extend(lane.rows()?);
    }
    print_outcomes(rows, require)
}

const PASSED: &str = "passed";
const FAILED: &str = "FAILED";
const COULD_NOT_RUN: &str = "COULD NOT RUN";

fn print_outcomes(rows: Vec<Row>, require: Require) -> Result<(), Failure> {
    let count = |outcome| {
        let rows = rows.iter();
        rows.filter(|row| row.get(1).is_some_and(|it| it == outcome))
            .count()
    };
    let (passed, absent) = (count(PASSED), count(COULD_NOT_RUN));
    let all = rows.len();
    let mut failed = all - passed - absent;
    let head = ["suite", "outcome", "time", "ran"].map(str::to_owned);
    let table: Vec<Row> = std::iter::once(head.to_vec()).chain(rows).collect();
    println!("\n{}", report::table(&table));
    if absent > 0 {
        println!("{absent} of {all} suites could not run");
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
    counted(step::shared("test").arg("--no-fail-fast"))
}

/// `cargo test` of the quick suites, for `targets`.
fn quick_tests(targets: &[&str]) -> Command {
    let mut command = step::cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]);
    // The programs of xtask are linked for nothing: what is tested of them is tested with all other suites.
    command.args(["--exclude", "trainyard-sim", "--exclude", "trainyard-tools"]);
    command.args(targets);
    command
}

/// The tests of the program as users call it. `cargo test` has no way to name one package without building the others with
/// other features, so it only builds.
fn commands() -> Result<String, Failure> {
    let mut build = quick_tests(&["--test", "it", "--no-run"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = step::capture(&mut build)?;
    let program = messages.lines().find_map(tests_of_commands);
    let program = program
        .ok_or_else(|| Failure::CouldNotRun("cargo built no tests of the commands".to_owned()))?;
    counted(Command::new(program).current_dir(step::root().join("crates/cli")))
}

/// The program with the tests of the commands, where cargo's message is about it.
fn tests_of_commands(message: &str) -> Option<&str> {
    let is_it = message.contains("/crates/cli#") && message.contains(r#""kind":["test"]"#);
    let (_, path) = message.split_once(r#""executable":""#).filter(|_| is_it)?;
    path.split_once('"').map(|(path, _)| path)
}

/// Jobs and failures of the API server by seed, against the real operator. The same selection of packages as [`workspace_tests()`],
/// so that nothing is built again.
fn storm() -> Result<String, Failure> {
    counted(step::shared("test").args(["--lib", "storm", "--", "--ignored"]))
        .map(|_| "2,000 seeds".to_owned())
}

fn mutants() -> Result<String, Failure> {
    counted(&mut step::cargo(&[
        "test",
        "--locked",
        "--profile",
        step::HUNT,
        "--package",
        "trainyard-sim",
        "--no-fail-fast",
    ]))
}

fn sim() -> Result<String, Failure> {
    step::stream_within(&mut seed_hunt::command(&["--seeds", SEEDS]), LIMIT, |_| {})?;
    step::stream_within(&mut seed_hunt::fleet(FLEET_SEEDS), LIMIT, |_| {})?;
    let (from, to) = WATCH_SEEDS;
    step::stream_within(&mut seed_hunt::watch(from, to), LIMIT, |_| {})?;
    // Built together with what the suite `mutants` builds, so that the core is not built with other features once more.
    let mut cuts = step::cargo(&["test", "--locked", "--profile", step::HUNT, "--lib"]);
    cuts.args(["--package", "trainyard-sim"])
        .args(["--package", "trainyard-checkpoint-engine"])
        .args(["--", "--ignored", "many_random_cuts"]);
    counted(&mut cuts)?;
    Ok(format!(
        "{SEEDS} seeds, {FLEET_SEEDS} of the fleet, {from} to {to} of the watch, 100,000 cuts of saves"
    ))
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_commands_are_found() {
        let message = |package: &str, kind: &str, program: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///a/crates/{package}","target":{{"kind":["{kind}"],"name":"it"}},"executable":{program},"fresh":true}}"#
            )
        };
        let cli = "cli#trainyard@0.1.0";
        let cases = [
            (cli, "test", r#""/a/it-1""#, Some("/a/it-1")),
            (cli, "bin", r#""/a/trainyard""#, None),
            (cli, "test", "null", None),
            ("host#trainyard-host@0.1.0", "test", r#""/a/it-2""#, None),
        ];
        for (package, kind, program, want) in cases {
            let message = message(package, kind, program);
            assert_eq!(tests_of_commands(&message), want, "{message}");
        }
    }
}
