//! `cargo xtask seed-hunt`: the simulation over many seeds, built for speed.
//!
//! The hunt itself (threads, invariants, shrinking, the command that replays a failure) belongs
//! to the `seed-hunt` example of `trainyard-sim`; this only builds it and passes the words on.

use crate::{Failure, step};

/// Runs the hunt with `words`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    if !words
        .iter()
        .any(|word| *word == "--seeds" || word.starts_with("--seeds="))
    {
        return Err(Failure::CouldNotRun(
            "`--seeds N` is missing\n\nhint: run `cargo xtask seed-hunt --seeds 20000`".to_owned(),
        ));
    }
    step::stream(&mut command(words), |_| {})
}

/// The command that runs the hunt with `words`.
pub(crate) fn command(words: &[&str]) -> std::process::Command {
    let mut command = example("seed-hunt");
    command.args(words);
    command
}

/// The command that runs the first `seeds` seeds of the fleet.
pub(crate) fn fleet(seeds: &str) -> std::process::Command {
    let mut command = example("fleet-hunt");
    command.args(["0", seeds]);
    command
}

/// The command that runs an example of the simulation, built for speed.
fn example(name: &str) -> std::process::Command {
    step::cargo(&[
        "run",
        "--locked",
        "--quiet",
        "--release",
        "--package",
        "trainyard-sim",
        "--example",
        name,
        "--",
    ])
}
