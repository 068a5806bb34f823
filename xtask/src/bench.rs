//! `cargo xtask bench core|local|operator|placement|doctor|plan|lint|preflight|attack|progress|recovery|supervisor|checkpoints`: the
//! figures that must be reached, each beside its bound.
//!
//! Invariant: every figure is measured on the release build that users run, in this call; nothing
//! is read from an earlier one.

mod attack;
mod bad_input;
mod checkpoints;
mod decide;
mod doctor;
mod lint;
mod local;
mod operator;
mod placement;
mod plan;
mod preflight;
mod progress;
mod recovery;
mod render;
mod simulation;
mod supervisor;

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Failure, report, step};

pub(crate) use self::{
    attack::attack,
    checkpoints::checkpoints,
    doctor::{doctor, ripgrep_cache},
    lint::lint,
    operator::operator,
    placement::placement,
    plan::plan,
    preflight::preflight,
    progress::progress,
    recovery::recovery,
    supervisor::supervisor,
};

/// One line of the table.
struct Figure {
    name: String,
    measured: String,
    /// Empty where the figure is only for reading.
    bound: String,
    met: bool,
}

/// Measures the figures of the core and fails where a bound is missed.
pub(crate) fn core() -> Result<(), Failure> {
    let mut figures = simulation::figures()?;
    let curve = decide::curve()?;
    figures.extend(decide::figures(&curve)?);
    let binary = release()?;
    figures.push(render::figure(&binary)?);
    figures.push(bad_input::figure(&binary)?);

    println!("\n`decide` in steady state:\n{}", decide::table(&curve));
    let outcome = judge(&figures);
    println!(
        "`render` has no peer to be measured against: no other tool makes these objects outside \
         a cluster. Its floor is the same binary's `--version`, which is start-up alone."
    );
    outcome
}

/// Measures the figures of a job on this machine and fails where a bound is missed.
pub(crate) fn local() -> Result<(), Failure> {
    let figures = local::figures()?;
    println!();
    judge(&figures)
}

/// Prints every figure beside its bound; one that is missed is a failure.
fn judge(figures: &[Figure]) -> Result<(), Failure> {
    let mut rows = vec![
        ["figure", "measured", "bound", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    for figure in figures {
        let word = match figure.met {
            true if figure.bound.is_empty() => "",
            true => "met",
            false => "MISSED",
        };
        rows.push(vec![
            figure.name.clone(),
            figure.measured.clone(),
            figure.bound.clone(),
            word.to_owned(),
        ]);
    }
    println!("{}", report::table(&rows));
    let missed = figures.iter().filter(|figure| !figure.met).count();
    if missed > 0 {
        Err(Failure::Failed(format!(
            "{missed} of {} bounds are missed",
            figures.len()
        )))
    } else {
        Ok(())
    }
}

/// Builds what users run and says where it is.
pub(crate) fn release() -> Result<PathBuf, Failure> {
    step::run(&mut step::cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "trainyard",
    ]))?;
    step::released("trainyard")
}

/// Wall times of repeated runs.
struct Times {
    best: Duration,
    median: Duration,
}

/// Runs what `command` makes `runs` times; an exit code other than `code` is a failure.
fn times(runs: usize, code: i32, command: impl Fn() -> Command) -> Result<Times, Failure> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let mut command = command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let start = Instant::now();
        let status = command
            .status()
            .map_err(|error| Failure::CouldNotRun(format!("cannot start {command:?}: {error}")))?;
        let time = start.elapsed();
        if status.code() != Some(code) {
            return Err(Failure::Failed(format!(
                "{command:?} ended with {status}, not with {code}"
            )));
        }
        times.push(time);
    }
    times.sort();
    Ok(Times {
        best: times[0],
        median: times[times.len() / 2],
    })
}

/// A folder for the files of one measurement, removed with them at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("trainyard-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::CouldNotRun(format!("cannot make a folder: {error}")))?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, content: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder
            .and_then(|()| std::fs::write(&path, content))
            .map_err(|error| Failure::CouldNotRun(format!("cannot write a file: {error}")))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the folder of temporary files is the system's to remove.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
