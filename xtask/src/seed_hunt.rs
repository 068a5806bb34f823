//! `cargo xtask seed-hunt`: the simulation over many seeds, built for speed.
//!
//! The hunt itself (threads, invariants, shrinking, the command that replays a failure) is the
//! program `seed-hunt` of `tools/programs`; this only builds it and passes the words on.

use crate::{Failure, step};

/// Runs the hunt with `words`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let is_given = |option: &str| {
        let mut names = words.iter().filter_map(|word| word.split('=').next());
        names.any(|name| name == option)
    };
    if !is_given("--seeds") && !is_given("--seed") {
        return Err(Failure::CouldNotRun(
            "`--seeds N` or `--seed S` is missing\n\nhint: run `cargo xtask seed-hunt --seeds 20000`"
                .to_owned(),
        ));
    }
    step::stream(&mut command(words), |_| {})
}

/// The command that runs the hunt with `words`.
pub(crate) fn command(words: &[&str]) -> std::process::Command {
    let mut command = step::pure_tool("seed-hunt");
    command.args(words);
    command
}

/// The command that runs the first `seeds` seeds of the fleet.
pub(crate) fn fleet(seeds: &str) -> std::process::Command {
    let mut command = step::pure_tool("fleet-hunt");
    command.args(["0", seeds]);
    command
}
