//! `cargo xtask bench lint`: 10,000 manifests at once, and one alone, from start to exit.
//!
//! The manifests are made from shapes: every job file of `examples/` and every base of the linter's rules,
//! each with names of its own. kubeconform and kube-linter read the same folder where they are on the
//! path; where they are not, the table says so instead of a time.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{Figure, Scratch, judge, milliseconds, release, times};
use crate::{Failure, report, step};

/// Manifests of the corpus.
const MANIFESTS: usize = 10_000;
/// Address space of the call that reads them all, in KiB: 300 MB. Stricter than resident memory.
const MEMORY_KIB: u32 = 300_000;
/// Bound on the median of one file.
const ONE: Duration = Duration::from_millis(15);
/// Runs of one file.
const RUNS: usize = 20;
/// Runs of all files.
const RUNS_OF_ALL: usize = 3;

/// Measures, and fails where a bound is missed.
pub(crate) fn lint() -> Result<(), Failure> {
    let shapes = shapes()?;
    let scratch = Scratch::new("lint")?;
    let folder = corpus(&scratch, &shapes)?;
    let binary = release()?;
    report::progress("lint");
    let one = scratch.write("one.yaml", &shapes[0])?;
    let alone = times(RUNS, 0, || {
        let mut command = Command::new(&binary);
        command.arg("lint").arg(&one);
        command
    })?;
    let all = times(RUNS_OF_ALL, 0, || limited(&binary, &folder))?;
    let peers = [
        peer("kubeconform", &["-ignore-missing-schemas"], &folder),
        peer("kube-linter", &["lint"], &folder),
    ];
    let slowest_allowed = peers.iter().filter_map(|(_, time)| *time).min();
    let mut figures = vec![
        Figure {
            name: "one file, start to exit".to_owned(),
            measured: format!("median {}", milliseconds(alone.median)),
            bound: format!("median under {}", milliseconds(ONE)),
            met: alone.median < ONE,
        },
        Figure {
            name: format!(
                "{MANIFESTS} manifests of {} shapes, no error in any",
                shapes.len()
            ),
            measured: format!("best {}", report::seconds(all.best)),
            bound: "faster than both peers, under 300 MB".to_owned(),
            met: slowest_allowed.is_none_or(|peer| all.best < peer),
        },
    ];
    for (name, time) in peers {
        figures.push(Figure {
            name: format!("the same, {name}"),
            measured: time.map_or(
                "not measured: it is not on the path".to_owned(),
                report::seconds,
            ),
            bound: String::new(),
            met: true,
        });
    }
    println!();
    judge(&figures)
}

/// One call over the folder that fails where it needs more memory than it may.
fn limited(binary: &Path, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("ulimit -v {MEMORY_KIB} && exec \"$0\" lint \"$1\""),
        ])
        .args([binary, folder]);
    command
}

/// The time of another tool over the folder, where it is there. What it finds is its own affair.
fn peer(name: &'static str, words: &[&str], folder: &Path) -> (&'static str, Option<Duration>) {
    report::progress(name);
    let start = Instant::now();
    let status = Command::new(name)
        .args(words)
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    (name, status.ok().map(|_| start.elapsed()))
}

/// The text of every shape.
fn shapes() -> Result<Vec<String>, Failure> {
    let mut paths = Vec::new();
    for folder in ["crates/core/src/lint/base", "examples"] {
        manifests(&step::root().join(folder), &mut paths)?;
    }
    let read = |path: &PathBuf| {
        fs::read_to_string(path).map_err(|error| {
            Failure::CouldNotRun(format!("cannot read {}: {error}", path.display()))
        })
    };
    let mut texts = paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    texts.retain(|text| text.contains("apiVersion: kubeflow.org/"));
    Ok(texts)
}

fn manifests(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let cannot = |error| Failure::CouldNotRun(format!("cannot read {}: {error}", folder.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        paths.push(entry.map_err(cannot)?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            manifests(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "yaml") {
            found.push(path);
        }
    }
    Ok(())
}

/// A folder of manifests, every object of each with a name of its own.
fn corpus(scratch: &Scratch, shapes: &[String]) -> Result<PathBuf, Failure> {
    report::progress("manifests");
    for at in 0..MANIFESTS {
        let shape = &shapes[at % shapes.len()];
        let named = |line: &str| match line.strip_prefix("  name: ") {
            Some(name) => format!("  name: {name}-{at}\n"),
            None => format!("{line}\n"),
        };
        let text: String = shape.lines().map(named).collect();
        scratch.write(&format!("all/{at}.yaml"), &text)?;
    }
    Ok(scratch.0.join("all"))
}
