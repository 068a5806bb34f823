//! `cargo xtask soak`: jobs of all kinds on a real cluster, for many minutes, while everything around them fails.
//!
//! The run itself (jobs, faults, operators, invariants) is the program `soak` of `tools/programs`; here its cluster is made
//! and the programs are built. It is not a suite of the test command: a run that says something takes half an hour.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Failure, cluster::Fixture, report, step};

/// The name of the cluster that is made and removed, unless the call gives another: runs of different names do not meet.
const NAME: &str = "soak";
/// Simulated nodes of eight GPUs: fewer than the jobs want at times, so that gangs wait.
const NODES: usize = 12;
/// The figure that is published is that of so many minutes.
const MINUTES: u64 = 30;

/// Runs it with `words`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let arguments = read(words)?;
    let seed = arguments.seed.unwrap_or_else(any_seed);
    report::progress("building the programs");
    let (binary, soak) = step::released_with_tool("soak")?;
    let logs = step::released(&format!("soak-logs/{}", arguments.name))?;
    let fixture = Fixture::fresh(&arguments.name, NODES)?;
    let mut install = fixture.command("kubectl");
    install.args(["apply", "--server-side", "--kustomize", "deploy/crds"]);
    step::capture(&mut install)?;
    let mut command = fixture.command(&soak.to_string_lossy());
    command
        .args(["--minutes", &arguments.minutes.to_string()])
        .args(["--seed", &seed.to_string()])
        .arg("--binary")
        .arg(&binary)
        .arg("--logs")
        .arg(&logs);
    for fault in &arguments.without {
        command.args(["--without", fault]);
    }
    let status = command
        .status()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start the soak: {error}")))?;
    match status.code() {
        Some(0) => Ok(()),
        // What broke is on stderr already.
        Some(1) => Err(Failure::Reported),
        _ => Err(Failure::CouldNotRun(format!(
            "the soak ended with {status}"
        ))),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    name: String,
    minutes: u64,
    seed: Option<u64>,
    without: Vec<String>,
}

fn read(words: &[&str]) -> Result<Arguments, Failure> {
    let mut arguments = Arguments {
        name: NAME.to_owned(),
        minutes: MINUTES,
        seed: None,
        without: Vec::new(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().copied();
        let number = || {
            let number = value.and_then(|text| text.parse().ok());
            number.ok_or_else(|| Failure::CouldNotRun(format!("`{word}` needs a number")))
        };
        match *word {
            "--minutes" => arguments.minutes = number()?,
            "--seed" => arguments.seed = Some(number()?),
            "--name" => {
                let name = value.ok_or_else(|| {
                    Failure::CouldNotRun("`--name` needs the name of a cluster".to_owned())
                })?;
                name.clone_into(&mut arguments.name);
            }
            "--without" => {
                let fault = value.ok_or_else(|| {
                    Failure::CouldNotRun("`--without` needs the name of a fault".to_owned())
                })?;
                arguments.without.push(fault.to_owned());
            }
            other => {
                return Err(Failure::CouldNotRun(format!(
                    "unknown argument `{other}`; expected `--minutes N`, `--seed S`, `--name NAME` or `--without FAULT`"
                )));
            }
        }
    }
    if arguments.minutes == 0 {
        return Err(Failure::CouldNotRun(
            "`--minutes` needs a number of at least 1".to_owned(),
        ));
    }
    Ok(arguments)
}

/// A seed that differs from call to call; the run prints it.
fn any_seed() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let plain = read(&[]).unwrap();
        assert_eq!((plain.minutes, plain.seed), (30, None));
        assert_eq!(plain.name, "soak");
        let words = "--minutes 3 --seed 7 --name other --without api-kill";
        let words: Vec<&str> = words.split(' ').collect();
        let all = read(&words).unwrap();
        let want = Arguments {
            name: "other".to_owned(),
            minutes: 3,
            seed: Some(7),
            without: vec!["api-kill".to_owned()],
        };
        assert_eq!(all, want);
        for wrong in [
            &["--minutes"][..],
            &["--minutes", "0"],
            &["--seed", "x"],
            &["--without"],
            &["--name"],
            &["--hours", "1"],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
