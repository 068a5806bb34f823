//! `cargo xtask bench lint`: 10,000 manifests at once, and one alone, from start to exit.
//!
//! The manifests are made from shapes: every job file of `examples/`, every template of `trainyard new` and
//! every base of the linter's rules, each with names of its own. kubeconform and kube-linter, built once from
//! the modules that `tools/cluster` pins, read the same folder in the same run; kubeconform is given the
//! schemas of our kinds, so that it looks at the same objects.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{Figure, Scratch, judge, milliseconds, release, times};
use crate::{Failure, cluster, report, step};

/// Manifests of the corpus.
const MANIFESTS: usize = 10_000;
/// Address space of the call that reads them all, in KiB: 300 MB. Stricter than resident memory.
const MEMORY_KIB: u32 = 300_000;
/// Bound on the median of one file.
const ONE: Duration = Duration::from_millis(15);
/// Runs of one file.
const RUNS: usize = 20;
/// Runs of all files, ours and each peer's in turns.
const RUNS_OF_ALL: usize = 3;

/// Measures, and fails where a bound is missed.
pub(crate) fn lint() -> Result<(), Failure> {
    let linters = cluster::linters()?;
    let shapes = shapes()?;
    let scratch = Scratch::new("lint")?;
    let schemas = schemas(&scratch)?;
    let folder = corpus(&scratch, &shapes)?;
    let binary = release()?;
    report::progress("one file");
    let one = scratch.write("one.yaml", &shapes[0])?;
    let alone = times(RUNS, 0, || {
        let mut command = Command::new(&binary);
        command.arg("lint").arg(&one);
        command
    })?;
    let conform = || {
        let mut command = Command::new(linters.join("kubeconform"));
        // Kinds that are not ours have no schema here, and nothing is fetched.
        command
            .arg("-ignore-missing-schemas")
            .arg("-schema-location");
        command.arg(format!(
            "{}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
            schemas.display()
        ));
        command.arg(&folder);
        command
    };
    let linter = || {
        let mut command = Command::new(linters.join("kube-linter"));
        command.arg("lint").arg(&folder);
        command
    };
    let mut all = Vec::new();
    let mut peers = [("kubeconform", Vec::new()), ("kube-linter", Vec::new())];
    for run in 1..=RUNS_OF_ALL {
        report::progress(&format!(
            "{MANIFESTS} manifests, turn {run} of {RUNS_OF_ALL}"
        ));
        all.push(times(1, 0, || limited(&binary, &folder))?.best);
        peers[0].1.push(peer(conform())?);
        peers[1].1.push(peer(linter())?);
    }
    let ours = median(&mut all);
    let mut figures = vec![
        Figure {
            name: "one file, start to exit".to_owned(),
            measured: format!("median {}", milliseconds(alone.median)),
            bound: format!("median under {}", milliseconds(ONE)),
            met: alone.median < ONE,
        },
        Figure {
            name: format!(
                "{MANIFESTS} manifests of {} shapes, under 300 MB, no error in any",
                shapes.len()
            ),
            measured: format!("median {}", report::seconds(ours)),
            bound: "ends with 0".to_owned(),
            met: true,
        },
    ];
    for (name, mut times) in peers {
        let theirs = median(&mut times);
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        figures.push(Figure {
            name: format!("the same, {name}"),
            measured: format!(
                "median {}, ours is {ratio:.2} of it",
                report::seconds(theirs)
            ),
            bound: "ours is faster".to_owned(),
            met: ours < theirs,
        });
    }
    println!();
    judge(&figures)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The schemas of our kinds as kubeconform reads them.
fn schemas(scratch: &Scratch) -> Result<PathBuf, Failure> {
    report::progress("schemas");
    let folder = scratch.0.join("schemas");
    let mut command = step::tool("schemas")?;
    step::run(command.arg(&folder))?;
    Ok(folder)
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

/// The time of another tool over the folder. Its findings are its own affair, and exit code 1 is findings.
fn peer(mut command: Command) -> Result<Duration, Failure> {
    let start = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start {command:?}: {error}")))?;
    let time = start.elapsed();
    match status.code() {
        Some(0 | 1) => Ok(time),
        _ => Err(Failure::Failed(format!("{command:?} ended with {status}"))),
    }
}

/// The text of every shape.
fn shapes() -> Result<Vec<String>, Failure> {
    let mut paths = Vec::new();
    for folder in ["testdata/lint/base", "examples", "testdata/template"] {
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
