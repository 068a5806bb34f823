//! `cargo xtask prepare`: every cache that the suites and benches need, built before they ask for it.
//!
//! Owns the list of the caches, their order and the priority they are built at. How each one is built belongs
//! to the chore that uses it: what `prepare` leaves out is built by the suite that misses it.
//!
//! Invariant: a cache appears by a rename or a mark at its end, so a call that was cut short is continued by the
//! next one and never leaves half a cache behind.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Failure, alerts, bench, cache::Part, cluster, frameworks, report, step};

/// Whether this process still has to give way to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Start again at the lowest priority.
    Lowest,
    /// Keep the caller's.
    Own,
}

/// Downloads every locked crate, and nothing if all are there.
const FETCH: &[&str] = &["fetch", "--locked"];

/// Whether `fetch` succeeds without a network: only Cargo knows which files it needs.
fn crates_are_fetched(fetch: &mut Command) -> Result<bool, Failure> {
    let offline = fetch.args(["--offline", "--quiet"]).stderr(Stdio::null());
    let status = offline
        .status()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start `cargo fetch`: {error}")))?;
    Ok(status.success())
}

/// What is asked for the suites first: a test run waits for these, and for nothing after them.
fn parts() -> Vec<Part> {
    let mut parts = vec![Part {
        name: "crates of the workspace".to_owned(),
        used_by: "every suite",
        took: Duration::from_secs(20),
        is_there: Box::new(|| crates_are_fetched(&mut step::cargo(FETCH))),
        make: Box::new(|| step::run(&mut step::cargo(FETCH))),
    }];
    parts.extend(cluster::suite_caches());
    parts.extend(frameworks::caches());
    parts.extend(cluster::peer_caches());
    parts.push(alerts::cache());
    parts.push(bench::ripgrep_cache());
    parts
}

/// Prints the caches, which are there, and how long the others took elsewhere.
pub(crate) fn list() -> Result<(), Failure> {
    let parts = parts();
    let missing = missing(&parts)?;
    print!("{}", report::table(&rows(&parts, &missing)));
    println!("{}", forecast(&parts, &missing));
    Ok(())
}

/// Builds every cache that is missing, also after one could not be built.
pub(crate) fn run(priority: Priority) -> Result<(), Failure> {
    if priority == Priority::Lowest {
        return again_at_lowest_priority();
    }
    let parts = parts();
    let absent = missing(&parts)?;
    report::progress(&format!(
        "caches:\n{}{}",
        report::table(&rows(&parts, &absent)),
        forecast(&parts, &absent)
    ));
    let began = Instant::now();
    let mut failed = Vec::new();
    let mut built = 0_usize;
    for (part, _) in parts.iter().zip(&absent).filter(|(_, absent)| **absent) {
        report::progress(&format!("{}: building", part.name));
        let start = Instant::now();
        match (part.make)() {
            Ok(()) => {
                built += 1;
                let time = report::seconds(start.elapsed());
                report::progress(&format!("{}: ready after {time}", part.name));
            }
            Err(Failure::Failed(message) | Failure::CouldNotRun(message)) => {
                report::error(&format!("{}: {message}", part.name));
                failed.push(part.name.as_str());
            }
            Err(Failure::Reported) => failed.push(&part.name),
        }
    }
    println!(
        "{built} caches built in {}, {} were there",
        report::seconds(began.elapsed()),
        parts.len() - built - failed.len()
    );
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "not built: {}\n\nhint: call `cargo xtask prepare` again; it continues with what is missing",
        failed.join(", ")
    )))
}

/// Children inherit the priority, so the whole build gives way to whatever else runs.
fn again_at_lowest_priority() -> Result<(), Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::CouldNotRun(format!("cannot find this program: {error}")))?;
    let mut command = Command::new("nice");
    command
        .args(["-n", "19"])
        .arg(own)
        .args(["prepare", "--at-this-priority"])
        .current_dir(step::root());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        // It has printed why.
        Ok(_) => Err(Failure::Reported),
        Err(error) => {
            report::progress(&format!(
                "cannot start `nice` ({error}); building at the priority of this call"
            ));
            run(Priority::Own)
        }
    }
}

fn missing(parts: &[Part]) -> Result<Vec<bool>, Failure> {
    let missing = |part: &Part| (part.is_there)().map(|is_there| !is_there);
    parts.iter().map(missing).collect()
}

fn rows(parts: &[Part], missing: &[bool]) -> Vec<Vec<String>> {
    let heading = ["cache", "needed by", "state", "took elsewhere"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    rows.extend(parts.iter().zip(missing).map(|(part, missing)| {
        vec![
            part.name.clone(),
            part.used_by.to_owned(),
            if *missing { "missing" } else { "there" }.to_owned(),
            minutes(part.took),
        ]
    }));
    rows
}

/// How long the missing ones will take, as far as another machine can say.
fn forecast(parts: &[Part], missing: &[bool]) -> String {
    let absent = parts.iter().zip(missing).filter(|(_, missing)| **missing);
    let (count, time) = absent.fold((0_usize, Duration::ZERO), |(count, time), (part, _)| {
        (count + 1, time + part.took)
    });
    format!(
        "{count} of {} are missing; they took {} on two shared cores",
        parts.len(),
        minutes(time)
    )
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, seconds: u64) -> Part {
        Part {
            name: name.to_owned(),
            used_by: "cluster",
            took: Duration::from_secs(seconds),
            is_there: Box::new(|| Ok(true)),
            make: Box::new(|| Ok(())),
        }
    }

    #[test]
    fn only_missing_caches_count_in_the_forecast() {
        let parts = [part("a", 61), part("b", 600)];
        assert_eq!(
            forecast(&parts, &[true, false]),
            "1 of 2 are missing; they took 1 min 01 s on two shared cores"
        );
        let rows = rows(&parts, &[true, false]);
        assert_eq!(rows[1], ["a", "cluster", "missing", "1 min 01 s"]);
        assert_eq!(rows[2], ["b", "cluster", "there", "10 min 00 s"]);
    }

    #[test]
    fn crates_are_missing_until_fetched() {
        let folder = std::env::temp_dir().join(format!("xtask-prepare-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).unwrap();
        std::fs::write(folder.join("src/lib.rs"), "").unwrap();
        for (needs, want) in [("", true), ("[dependencies]\nserde = \"1\"\n", false)] {
            let manifest =
                format!("[package]\nname = \"a\"\nversion = \"1.0.0\"\n[workspace]\n{needs}");
            std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
            let mut fetch = step::cargo(&["fetch"]);
            fetch
                .current_dir(&folder)
                .env("CARGO_HOME", folder.join("home"));
            assert_eq!(crates_are_fetched(&mut fetch).unwrap(), want, "{needs:?}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_program_that_a_suite_provides_is_prepared() {
        let names: Vec<String> = parts().into_iter().map(|part| part.name).collect();
        for want in [
            "cluster: control plane",
            "cluster: real nodes",
            "cluster: kwok",
            "cluster: Helm",
            "cluster: Kueue and the kinds of other schedulers",
            "cluster: Multus",
            "cluster: SDK and end-to-end tests of the Training Operator",
            "framework: pytorch",
            "peer: training-operator",
        ] {
            assert!(names.iter().any(|name| name == want), "{want}: {names:?}");
        }
    }
}
