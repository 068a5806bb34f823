//! `cargo xtask bench local`: the figures of a job on this machine, beside those of `torchrun`.
//!
//! Both run the same script with the same interpreter and the same number of ranks, in turns and in
//! one call, so a busy machine slows both. Every time is the median of its runs; clocks are read
//! by the ranks themselves, not by whoever watches them.

mod logs;
mod many;
mod peers;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{Figure, Scratch, release};
use crate::{Failure, frameworks};

/// Measures every figure.
pub(super) fn figures() -> Result<Vec<Figure>, Failure> {
    let environment = frameworks::pytorch()?;
    let binary = release()?;
    let mut figures = peers::figures(&binary, &environment)?;
    figures.extend(many::figures(&binary)?);
    figures.extend(logs::figures(&binary, &environment)?);
    Ok(figures)
}

/// A `PyTorchJob` of `pods` pods that all run `command`.
pub(super) fn job(pods: u32, command: &[&str]) -> String {
    let role = |role: &str, replicas: u32| {
        // Strings of JSON are strings of YAML.
        let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
        format!(
            "    {role}:\n      replicas: {replicas}\n      restartPolicy: OnFailure\n      template:\n        \
             spec:\n          terminationGracePeriodSeconds: 5\n          containers:\n            \
             - name: pytorch\n              image: bench\n              command: [{}]\n",
            words.join(", ")
        )
    };
    let workers = if pods > 1 {
        role("Worker", pods - 1)
    } else {
        String::new()
    };
    format!(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: bench\nspec:\n  \
         runPolicy:\n    backoffLimit: 3\n  pytorchReplicaSpecs:\n{}{workers}",
        role("Master", 1)
    )
}

/// `trainyard run` of the job in `scratch`, with nothing shown and its report on stdout.
pub(super) fn trainyard(binary: &Path, scratch: &Scratch, job: &str) -> Result<Command, Failure> {
    let file = scratch.write("job.yaml", job)?;
    let mut command = Command::new(binary);
    command
        .arg("run")
        .arg(file)
        .args(["--format", "json", "--state-dir"])
        .arg(scratch.0.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command)
}

/// A started program, ended with whoever started it.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn start(command: &mut Command) -> Result<Self, Failure> {
        command
            .spawn()
            .map(Self)
            .map_err(|error| Failure::CouldNotRun(format!("cannot start {command:?}: {error}")))
    }

    /// Waits until `what` is there; a program that ends before, or a wait too long, is a failure.
    fn wait_for<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut there: impl FnMut() -> Option<T>,
    ) -> Result<T, Failure> {
        let end = Instant::now() + patience;
        loop {
            if let Some(found) = there() {
                return Ok(found);
            }
            let ended = self.0.try_wait().map_err(lost)?;
            if let Some(status) = ended {
                return there().ok_or_else(|| {
                    Failure::Failed(format!("it ended with {status} before {what}"))
                });
            }
            if Instant::now() > end {
                return Err(Failure::Failed(format!("waited in vain for {what}")));
            }
            // The ranks stamp the time, so looking rarely costs no precision.
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for its end, which must be a success.
    pub(super) fn finish(mut self, patience: Duration) -> Result<(), Failure> {
        let end = Instant::now() + patience;
        loop {
            match self.0.try_wait().map_err(lost)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failure::Failed(format!("it ended with {status}"))),
                None if Instant::now() > end => {
                    return Err(Failure::Failed("it did not end".to_owned()));
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Asks it to end, as Ctrl-C would, and waits.
    fn stop(mut self) -> Result<(), Failure> {
        let id = self.0.id().to_string();
        Command::new("kill").arg(id).status().map_err(lost)?;
        self.0.wait().map_err(lost)?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the form that `map_err` takes"
)]
pub(super) fn lost(error: std::io::Error) -> Failure {
    Failure::CouldNotRun(format!("lost a program while it ran: {error}"))
}

/// The times that ranks stamped into `path`, in nanoseconds since 1970.
pub(super) fn stamps(path: &Path) -> Vec<u128> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
}

/// From `earlier` to `later`, both in nanoseconds since 1970.
pub(super) fn between(earlier: u128, later: u128) -> Duration {
    let nanoseconds = later.saturating_sub(earlier);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Who runs when in a turn, as whether it is Trainyard: each is first in every other turn.
fn in_turns(turn: usize) -> [bool; 2] {
    let first = turn.is_multiple_of(2);
    [first, !first]
}

pub(super) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// An empty folder below the scratch of a measurement.
pub(super) fn fresh(scratch: &Scratch, name: &str) -> Result<PathBuf, Failure> {
    let path = scratch.0.join(name);
    drop(fs::remove_dir_all(&path));
    fs::create_dir_all(&path)
        .map_err(|error| Failure::CouldNotRun(format!("cannot make a folder: {error}")))?;
    Ok(path)
}
