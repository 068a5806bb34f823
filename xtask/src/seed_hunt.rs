//! `cargo xtask seed-hunt`: the simulation over many seeds, built for speed.
//!
//! The hunt itself (threads, invariants, shrinking, the command that replays a failure) is the
//! program `seed-hunt` of `tools/programs`; this only builds it and passes the words on.

use crate::{Failure, step};

/// Runs the hunt with `words`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    if let Some(at) = words.iter().position(|word| *word == "--world") {
        let mut command = of_world(words.get(at + 1).copied(), words)?;
        return step::stream(&mut command, |_| {});
    }
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

/// The command that hunts in another world than that of one job: `--seeds N [--from S]` or `--seed S`.
fn of_world(world: Option<&str>, words: &[&str]) -> Result<std::process::Command, Failure> {
    let program = match world {
        Some("fleet") => "fleet-hunt",
        Some("watch") => "watch-hunt",
        _ => {
            let world = world.unwrap_or_default();
            return Err(Failure::CouldNotRun(format!(
                "unknown world `{world}`; expected one of `fleet`, `watch`"
            )));
        }
    };
    let number = |option: &str| {
        let value = words.iter().position(|word| *word == option);
        let value = value.and_then(|at| words.get(at + 1))?;
        Some(value.parse::<u64>())
    };
    let wrong =
        |_| Failure::CouldNotRun("`--seed`, `--seeds` and `--from` take a number".to_owned());
    let mut command = step::pure_tool(program);
    if let Some(seed) = number("--seed") {
        command.arg(seed.map_err(wrong)?.to_string());
        return Ok(command);
    }
    let Some(seeds) = number("--seeds") else {
        return Err(Failure::CouldNotRun(
            "`--seeds N` or `--seed S` is missing".to_owned(),
        ));
    };
    let from = number("--from").unwrap_or(Ok(0)).map_err(wrong)?;
    let to = from.saturating_add(seeds.map_err(wrong)?);
    command.args([from.to_string(), to.to_string()]);
    Ok(command)
}

/// The command that runs the first `seeds` seeds of the fleet.
pub(crate) fn fleet(seeds: &str) -> std::process::Command {
    let mut command = step::pure_tool("fleet-hunt");
    command.args(["0", seeds]);
    command
}

/// The command that runs the first `seeds` seeds of the watch.
pub(crate) fn watch(seeds: &str) -> std::process::Command {
    let mut command = step::pure_tool("watch-hunt");
    command.args(["0", seeds]);
    command
}
