//! Every example of a framework, really run by `trainyard run`: undisturbed, then with a fault.
//!
//! An example states the accuracy or loss that it must reach and fails where it does not, so the
//! exit code alone says whether it trained.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{FRAMEWORKS, Framework, Trial};
use crate::{Failure, report, step};

/// Bound on one run. On two busy cores the slowest takes about 40 s.
const PATIENCE: Duration = Duration::from_mins(4);
/// How often a running job is looked at; nothing is measured here.
const GLANCE: Duration = Duration::from_millis(50);
/// Lines of a failed run that are shown.
const SHOWN_LINES: usize = 40;

/// Runs every example; a framework that cannot be had is told after all others have run.
pub(crate) fn suite() -> Result<String, Failure> {
    let binary = binary()?;
    let (mut ran, mut failed, mut absent) = (0_usize, Vec::new(), Vec::new());
    for framework in FRAMEWORKS {
        let environment = match framework.environment() {
            Ok(environment) => environment,
            Err(Failure::CouldNotRun(message) | Failure::Failed(message)) => {
                absent.push(message);
                continue;
            }
            Err(Failure::Told) => continue,
        };
        for trial in framework.trials {
            for fault in [None, Some(trial.fault)] {
                let call = Call {
                    binary: &binary,
                    framework,
                    environment: &environment,
                    trial,
                    fault,
                };
                match call.run() {
                    Ok(time) => report::progress(&format!("{call}: {}", report::seconds(time))),
                    Err(Failure::Failed(message)) => failed.push(format!("{call}: {message}")),
                    Err(other) => return Err(other),
                }
                ran += 1;
            }
        }
    }
    if !failed.is_empty() {
        return Err(Failure::Failed(failed.join("\n")));
    }
    if !absent.is_empty() {
        return Err(Failure::CouldNotRun(absent.join("\n")));
    }
    Ok(format!("{ran} runs of {} frameworks", FRAMEWORKS.len()))
}

/// One run of one example.
struct Call<'a> {
    binary: &'a Path,
    framework: &'a Framework,
    environment: &'a Path,
    trial: &'a Trial,
    fault: Option<&'a str>,
}

impl std::fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "examples/{}/{}", self.framework.name, self.trial.file)?;
        match self.fault {
            Some(fault) => write!(f, " with `{fault}`"),
            None => Ok(()),
        }
    }
}

impl Call<'_> {
    fn run(&self) -> Result<Duration, Failure> {
        let scratch = Scratch::new()?;
        let (report_path, output_path) = (scratch.0.join("report"), scratch.0.join("output"));
        let create = |path: &Path| {
            File::create(path)
                .map_err(|error| Failure::CouldNotRun(format!("cannot make a file: {error}")))
        };
        let mut command = Command::new(self.binary);
        command
            .arg("run")
            .arg(format!(
                "examples/{}/{}",
                self.framework.name, self.trial.file
            ))
            .arg("--image-env")
            .arg(format!(
                "{}={}",
                self.framework.image(),
                self.environment.display()
            ))
            .arg("--state-dir")
            .arg(scratch.0.join("state"))
            .args(["--format", "json"])
            .args(self.fault.iter().flat_map(|fault| ["--inject", fault]))
            .current_dir(step::root())
            // Two ranks and more share the machine.
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::null())
            .stdout(create(&report_path)?)
            .stderr(create(&output_path)?);
        let began = Instant::now();
        let success = finish(&mut command)?;
        let time = began.elapsed();
        let read = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (report, output) = (read(&report_path), read(&output_path));
        let complaint = match success {
            None => Some(format!("still ran after {}", report::seconds(PATIENCE))),
            Some(false) => Some("failed".to_owned()),
            Some(true) => self.complaint(&report, &output),
        };
        match complaint {
            None => Ok(time),
            Some(complaint) => {
                let lines: Vec<&str> = output.lines().collect();
                let last = lines.get(lines.len().saturating_sub(SHOWN_LINES)..);
                let last = last.unwrap_or_default().join("\n");
                Err(Failure::Failed(format!("{complaint}\n{last}\n")))
            }
        }
    }

    /// What is wrong with a run that succeeded.
    fn complaint(&self, report: &str, output: &str) -> Option<String> {
        let attempts = if self.fault.is_some() && self.trial.gang {
            2
        } else {
            1
        };
        let wanted = format!("\"attempts\": {attempts},");
        if !report.contains(&wanted) {
            return Some(format!("the report does not say `{wanted}`:\n{report}"));
        }
        if self.fault.is_some() {
            if !output.contains("fault on purpose") {
                return Some("the fault did not take place".to_owned());
            }
            if !output.contains(self.trial.resumed) {
                return Some(format!("no rank said `{}`", self.trial.resumed));
            }
        }
        None
    }
}

/// Whether `command` succeeded; `None` where it was ended because it took too long.
fn finish(command: &mut Command) -> Result<Option<bool>, Failure> {
    let lost = |error: std::io::Error| Failure::CouldNotRun(format!("cannot run: {error}"));
    let mut child = command.spawn().map_err(lost)?;
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > end {
            // The pods of an engine that is killed end with it.
            child.kill().map_err(lost)?;
            child.wait().map_err(lost)?;
            return Ok(None);
        }
        thread::sleep(GLANCE);
    }
}

/// Builds the binary and says where it is.
fn binary() -> Result<PathBuf, Failure> {
    step::run(&mut step::cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--package",
        "trainyard",
    ]))?;
    step::sibling("trainyard")
}

/// Runs, volumes and output of one call, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let name = format!("trainyard-frameworks-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)
            .map_err(|error| Failure::CouldNotRun(format!("cannot make a folder: {error}")))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the folder of temporary files is the system's to remove.
        drop(fs::remove_dir_all(&self.0));
    }
}
