//! Every example of a framework, really run by `trainyard run`: undisturbed, then with a fault.
//!
//! An example states the accuracy or loss that it must reach and fails where it does not, so the
//! exit code alone says whether it trained. The report must say the step and the loss that it reached.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Framework, Trial, adapters, chosen, hangs, package, profile,
    trainers::{self, Known},
};
use crate::{Failure, report, step};

/// Bound on one run of an example.
const PATIENCE: Duration = Duration::from_mins(4);
/// Bound on one file of tests. On two busy cores `test_jax.py` took 97 s.
const TESTS_PATIENCE: Duration = Duration::from_mins(12);
/// How often a running job is looked at; nothing is measured here.
const GLANCE: Duration = Duration::from_millis(50);
/// Lines of a failed run that are shown.
const SHOWN_LINES: usize = 40;

/// Runs every example, or those of the framework that is named; a framework that cannot be installed is reported after all others have run.
pub(crate) fn suite(only: Option<&str>) -> Result<String, Failure> {
    let chosen = chosen(only)?;
    let binary = step::shared_program("trainyard")?;
    let (mut ran, mut failed, mut absent) = (0_usize, Vec::new(), Vec::new());
    for framework in &chosen {
        let environment = match framework.environment() {
            Ok(environment) => environment,
            Err(Failure::CouldNotRun(message) | Failure::Failed(message)) => {
                absent.push(message);
                continue;
            }
            Err(Failure::Reported) => continue,
        };
        for trial in framework.trials {
            for fault in [None, Some(trial.fault)] {
                let call = Call {
                    binary: &binary,
                    framework,
                    environment: &environment,
                    trial,
                    fault,
                    packages: None,
                };
                match call.run() {
                    Ok(ended) => {
                        report::progress(&format!("{call}: {}", report::seconds(ended.time)));
                    }
                    Err(Failure::Failed(message)) => failed.push(format!("{call}: {message}")),
                    Err(other) => return Err(other),
                }
                ran += 1;
            }
        }
    }
    let began = Instant::now();
    if only.is_none_or(|name| name == package::FRAMEWORK) {
        ran += collected(package::run(&binary), &mut failed, &mut absent)?;
        report::progress(&format!(
            "Python package: {}",
            report::seconds(began.elapsed())
        ));
    }
    ran += collected(adapters::run(&binary, only), &mut failed, &mut absent)?;
    let began = Instant::now();
    let mut trained = 0;
    if only.is_none_or(|name| name == trainers::FRAMEWORK) {
        trained = collected(trainers::run(&binary), &mut failed, &mut absent)?;
        report::progress(&format!(
            "progress of {trained} trainers: {}",
            report::seconds(began.elapsed())
        ));
    }
    let began = Instant::now();
    let hung = collected(hangs::run(&binary, &chosen), &mut failed, &mut absent)?;
    report::progress(&format!(
        "hangs of {hung} programs: {}",
        report::seconds(began.elapsed())
    ));
    let began = Instant::now();
    let recorded = collected(profile::run(&binary, &chosen), &mut failed, &mut absent)?;
    report::progress(&format!(
        "traces of {recorded} jobs: {}",
        report::seconds(began.elapsed())
    ));
    if !failed.is_empty() {
        return Err(Failure::Failed(failed.join("\n")));
    }
    if !absent.is_empty() {
        return Err(Failure::CouldNotRun(absent.join("\n")));
    }
    Ok(format!(
        "{ran} runs of {} frameworks, progress of {trained} trainers, {hung} hangs, traces of {recorded} jobs",
        chosen
            .iter()
            .filter(|framework| !framework.trials.is_empty())
            .count()
    ))
}

/// How many runs a part of the suite made. What it found is added to what the parts before have found, also where it could not run to its
/// end: nothing that failed before is lost with it.
fn collected(
    found: Result<(usize, Vec<String>), Failure>,
    failed: &mut Vec<String>,
    absent: &mut Vec<String>,
) -> Result<usize, Failure> {
    match found {
        Ok((count, wrong)) => {
            failed.extend(wrong);
            return Ok(count);
        }
        Err(Failure::Failed(message)) => failed.push(message),
        // An environment, which may be reported already.
        Err(Failure::CouldNotRun(message)) if absent.contains(&message) => {}
        Err(Failure::CouldNotRun(message)) => absent.push(message),
        Err(Failure::Reported) => return Err(Failure::Reported),
    }
    Ok(0)
}

/// One run of one example.
pub(super) struct Call<'a> {
    pub(super) binary: &'a Path,
    pub(super) framework: &'a Framework,
    pub(super) environment: &'a Path,
    pub(super) trial: &'a Trial,
    pub(super) fault: Option<&'a str>,
    /// A folder with packages that the environment does not have.
    pub(super) packages: Option<&'a Path>,
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
    pub(super) fn run(&self) -> Result<Ended, Failure> {
        let scratch = Scratch::new()?;
        let mut command = scratch.command(self.binary);
        command
            .envs(self.packages.map(|packages| ("PYTHONPATH", packages)))
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
            .args(self.fault.iter().flat_map(|fault| ["--inject", fault]));
        let ended = scratch.run(&mut command)?;
        match ended.complaint(|report, output| self.complaint(report, output)) {
            None => Ok(ended),
            Some(complaint) => Err(Failure::Failed(complaint)),
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
            // From the report: the sentences of the output may change.
            if !report.contains("\"fired\": true") {
                return Some(format!("the fault did not take place:\n{report}"));
            }
            if !output.contains(self.trial.resumed) {
                return Some(format!("no rank said `{}`", self.trial.resumed));
            }
        }
        self.progress_mismatch(report, output)
    }

    /// What the report says wrongly about the progress. An example prints its last step with the loss, and some print
    /// the loss once more at the end.
    fn progress_mismatch(&self, report: &str, output: &str) -> Option<String> {
        let steps = self.framework.steps;
        let loss = output
            .lines()
            .filter_map(|line| {
                let (_, loss) = line
                    .split_once(&format!("step {steps}/{steps} loss "))
                    .or_else(|| line.split_once("done: loss "))?;
                loss.split(' ').next()?.trim().parse().ok()
            })
            .next_back();
        let known = [
            Known::new("step", Some(f64::from(steps))),
            Known::new("totalSteps", Some(f64::from(steps))),
            Known::new("loss", loss),
        ];
        trainers::progress_mismatch(report, &known)
    }
}

/// What came of one call of `trainyard run --format json`.
pub(super) struct Ended {
    /// `None` where it was ended because it took too long.
    success: Option<bool>,
    report: String,
    pub(super) output: String,
    pub(super) time: Duration,
}

impl Ended {
    /// What is wrong with it, with its last lines; `judge` sees report and output of a run that succeeded.
    pub(super) fn complaint(
        &self,
        judge: impl FnOnce(&str, &str) -> Option<String>,
    ) -> Option<String> {
        let complaint = match self.success {
            None => format!("still ran after {}", report::seconds(PATIENCE)),
            Some(false) => "failed".to_owned(),
            Some(true) => judge(&self.report, &self.output)?,
        };
        let lines: Vec<&str> = self.output.lines().collect();
        let last = lines.get(lines.len().saturating_sub(SHOWN_LINES)..);
        let last = last.unwrap_or_default().join("\n");
        Some(format!("{complaint}\n{last}\n"))
    }
}

/// Whether `command` succeeded; `None` where it was ended because it took too long.
pub(super) fn finish(command: &mut Command) -> Result<Option<bool>, Failure> {
    // The pods of an engine that is killed end with it.
    finish_or(command, PATIENCE, |child| child.kill().map_err(lost))
}

/// The same for the tests of one file. They lead a process group, all of which is ended.
pub(super) fn finish_tests(command: &mut Command) -> Result<Option<bool>, Failure> {
    finish_or(command, TESTS_PATIENCE, |child| {
        // Every shell has it; the program of that name is missing on small systems.
        let ended = Command::new("sh")
            .args(["-c", &format!("kill -s KILL -- -{}", child.id())])
            .status();
        ended.map(drop).map_err(lost)
    })
}

fn finish_or(
    command: &mut Command,
    patience: Duration,
    end_it: impl FnOnce(&mut Child) -> Result<(), Failure>,
) -> Result<Option<bool>, Failure> {
    let mut child = command.spawn().map_err(lost)?;
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > end {
            end_it(&mut child)?;
            child.wait().map_err(lost)?;
            return Ok(None);
        }
        thread::sleep(GLANCE);
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn lost(error: std::io::Error) -> Failure {
    Failure::CouldNotRun(format!("cannot run: {error}"))
}

/// Runs, volumes and output of one call, removed with it.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    /// `trainyard run`, without what it runs.
    pub(super) fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .args(["run", "--format", "json", "--state-dir"])
            .arg(self.0.join("state"));
        command
    }

    /// Runs such a command.
    pub(super) fn run(&self, command: &mut Command) -> Result<Ended, Failure> {
        let (report_path, output_path) = (self.0.join("report"), self.0.join("output"));
        let create = |path: &Path| {
            File::create(path)
                .map_err(|error| Failure::CouldNotRun(format!("cannot make a file: {error}")))
        };
        command
            .current_dir(step::root())
            // Two ranks and more share the machine.
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::null())
            .stdout(create(&report_path)?)
            .stderr(create(&output_path)?);
        let began = Instant::now();
        let success = finish(command)?;
        let time = began.elapsed();
        let read = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Ended {
            success,
            report: read(&report_path),
            output: read(&output_path),
            time,
        })
    }

    pub(super) fn new() -> Result<Self, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_cannot_run_lose_nothing() {
        let (mut failed, mut absent) = (vec!["first".to_owned()], vec!["no env".to_owned()]);
        let parts = [
            Err(Failure::CouldNotRun("no env".to_owned())),
            Err(Failure::CouldNotRun("no disk".to_owned())),
            Err(Failure::Failed("no wheel".to_owned())),
            Ok((3, vec!["second".to_owned()])),
        ];
        let counts = parts.map(|part| collected(part, &mut failed, &mut absent).ok());
        assert_eq!(counts, [Some(0), Some(0), Some(0), Some(3)]);
        assert_eq!(failed, ["first", "no wheel", "second"]);
        assert_eq!(absent, ["no env", "no disk"]);
        let reported = collected(Err(Failure::Reported), &mut failed, &mut absent);
        assert!(matches!(reported, Err(Failure::Reported)));
    }
}
