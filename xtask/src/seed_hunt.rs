//! `cargo xtask seed-hunt`: the simulation over many seeds, built to be ready soon: what a faster program saves, its build takes many times over.
//!
//! The hunt itself (threads, invariants, shrinking, the command that replays a failure) is the
//! program `seed-hunt` of `tools/programs`; this only builds it and passes the words on.

use crate::{Failure, step};

/// Runs the hunt with `words`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let words = &split(words)[..];
    if let Some(at) = words.iter().position(|word| *word == "--world") {
        let mut command = of_world(words.get(at + 1).copied(), words)?;
        return step::stream(&mut command, |_| {});
    }
    let is_given = |option: &str| words.contains(&option);
    if !is_given("--seeds") && !is_given("--seed") {
        return Err(Failure::CouldNotRun(
            "`--seeds N` or `--seed S` is missing\n\nhint: run `cargo xtask seed-hunt --seeds 20000`"
                .to_owned(),
        ));
    }
    step::stream(&mut command(words), |_| {})
}

/// `--seeds=5` as `--seeds 5`.
fn split<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let parts = words.iter().flat_map(|word| match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => [Some(option), Some(value)],
        _ => [Some(*word), None],
    });
    parts.flatten().collect()
}

/// The command that runs the hunt with `words`.
pub(crate) fn command(words: &[&str]) -> std::process::Command {
    let mut command = step::hunt_tool("seed-hunt");
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
    refuse_unknown(words)?;
    let number = |option: &str| {
        let value = words.iter().position(|word| *word == option);
        let value = value.and_then(|at| words.get(at + 1))?;
        Some(value.parse::<u64>())
    };
    let wrong =
        |_| Failure::CouldNotRun("`--seed`, `--seeds` and `--from` take a number".to_owned());
    let mut command = step::hunt_tool(program);
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

/// Refuses what a hunt in another world does not know: it would run something else than what was asked for.
fn refuse_unknown(words: &[&str]) -> Result<(), Failure> {
    let options = ["--world", "--seed", "--seeds", "--from"];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !options.contains(word) {
            let known = options.map(|option| format!("`{option}`")).join(", ");
            return Err(Failure::CouldNotRun(format!(
                "unknown option `{word}` of a hunt with `--world`; expected one of {known}"
            )));
        }
        if words.next().is_none() {
            return Err(Failure::CouldNotRun(format!("`{word}` needs a value")));
        }
    }
    Ok(())
}

/// The command that runs the first `seeds` seeds of the fleet.
pub(crate) fn fleet(seeds: &str) -> std::process::Command {
    let mut command = step::hunt_tool("fleet-hunt");
    command.args(["0", seeds]);
    command
}

/// The command that runs the seeds of the watch from `from` up to `to`.
pub(crate) fn watch(from: &str, to: &str) -> std::process::Command {
    let mut command = step::hunt_tool("watch-hunt");
    command.args([from, to]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_another_world() {
        // What is given, and what the program gets, or a part of the refusal.
        type Case = (
            &'static [&'static str],
            Result<&'static [&'static str], &'static str>,
        );
        let cases: [Case; 8] = [
            (&["--world", "watch", "--seed", "7"], Ok(&["7"])),
            (&["--world=watch", "--seed=7"], Ok(&["7"])),
            (&["--world=fleet", "--seeds", "5"], Ok(&["0", "5"])),
            (
                &["--seeds=5", "--from=10", "--world=watch"],
                Ok(&["10", "15"]),
            ),
            (&["--world=moon", "--seed=7"], Err("unknown world `moon`")),
            (
                &["--world=watch", "--seed=7", "--trace"],
                Err("unknown option `--trace`"),
            ),
            (&["--world=watch", "--seed=x"], Err("take a number")),
            (&["--world=watch", "--seed"], Err("`--seed` needs a value")),
        ];
        for (words, want) in cases {
            let words = split(words);
            let at = words.iter().position(|word| *word == "--world").unwrap();
            let made = of_world(words.get(at + 1).copied(), &words);
            match (made, want) {
                (Ok(command), Ok(want)) => {
                    let given: Vec<_> = command.get_args().collect();
                    assert!(
                        given.ends_with(&want.iter().map(AsRef::as_ref).collect::<Vec<_>>()),
                        "{given:?}"
                    );
                }
                (Err(Failure::CouldNotRun(sentence)), Err(want)) => {
                    assert!(sentence.contains(want), "{sentence}");
                }
                (made, want) => panic!("{words:?}: {:?}, wanted {want:?}", made.is_ok()),
            }
        }
    }
}
