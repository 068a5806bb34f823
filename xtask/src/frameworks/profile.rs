//! Traces of real `PyTorch`, recorded from outside: `trainyard profile` names the slow rank of a running job.
//!
//! A case without a slow rank is left to the traces of the crate's own tests: on two shared cores one of two ranks is slower than the other.
//! The program lies in `tools/profile`.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{Framework, suite::Scratch};
use crate::{Failure, report, step};

/// The framework whose environment holds `PyTorch`.
const FRAMEWORK: &str = "pytorch";
/// How long a job may take to its first recorded steps.
const WITHIN: Duration = Duration::from_mins(4);
/// Between two attempts to record a job that does not train yet.
const PAUSE: Duration = Duration::from_millis(500);
/// The rank that sleeps in each step, and for how long.
const SLOW: [&str; 2] = ["1", "0"];
const SLEEP: &str = "0.25";
/// Steps that are asked for. Fewer are no evidence: of the first ones any rank may be the last, whichever sleeps.
const STEPS: &str = "10";
const LEAST_STEPS: u32 = 8;
/// Where a report names a slow rank.
const SLOW_RANK: &str = "\"slowRank\": {";

/// Ends the run however the trial ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already cannot be ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Records each case. How many ran, and what is wrong; without an environment, that is left to the suite to report.
pub(super) fn run(binary: &Path, chosen: &[&Framework]) -> Result<(usize, Vec<String>), Failure> {
    let framework = chosen.iter().find(|it| it.name == FRAMEWORK);
    let Some(Ok(environment)) = framework.map(|it| it.environment()) else {
        return Ok((0, Vec::new()));
    };
    let mut wrong = Vec::new();
    for slow in SLOW {
        let began = Instant::now();
        let name = format!("tools/profile/train.py {SLEEP} {slow}");
        match record(binary, &environment, slow)? {
            None => report::progress(&format!("{name}: {}", report::seconds(began.elapsed()))),
            Some(complaint) => wrong.push(format!("{name}: {complaint}")),
        }
    }
    Ok((SLOW.len(), wrong))
}

fn job(environment: &Path, slow: &str) -> String {
    let python = environment.join("bin/python").display().to_string();
    let program = step::root()
        .join("tools/profile/train.py")
        .display()
        .to_string();
    let role = |name: &str| {
        format!(
            "    {name}:\n      replicas: 1\n      restartPolicy: Never\n      template:\n        spec:\n          \
             terminationGracePeriodSeconds: 5\n          containers:\n            - name: pytorch\n              image: profile\n              \
             command: [{python:?}, {program:?}, {SLEEP:?}, {slow:?}]\n"
        )
    };
    format!(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: profiled\nspec:\n  pytorchReplicaSpecs:\n{}{}",
        role("Master"),
        role("Worker")
    )
}

/// What is wrong with one case.
fn record(binary: &Path, environment: &Path, slow: &str) -> Result<Option<String>, Failure> {
    let cannot =
        |what: &str, error: std::io::Error| Failure::CouldNotRun(format!("cannot {what}: {error}"));
    let scratch = Scratch::new()?;
    let file = scratch.0.join("job.yaml");
    fs::write(&file, job(environment, slow)).map_err(|error| cannot("write a job file", error))?;
    let output = scratch.0.join("output");
    let log = File::create(&output).map_err(|error| cannot("make a file", error))?;
    let mut command = scratch.command(binary);
    command
        .arg("--cpu")
        .arg(&file)
        .env("OMP_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let running = command
        .spawn()
        .map_err(|error| cannot("start a run", error))?;
    let mut running = Running(running);
    let until = Instant::now() + WITHIN;
    loop {
        let mut profile = Command::new(binary);
        profile
            .args([
                "profile",
                "profiled",
                "--steps",
                STEPS,
                "--format",
                "json",
                "--state-dir",
            ])
            .arg(scratch.0.join("state"));
        let found = profile
            .output()
            .map_err(|error| cannot("start `profile`", error))?;
        let ended = running
            .0
            .try_wait()
            .map_err(|error| cannot("wait for a run", error))?;
        // Until the job trains, there is nothing to record.
        if !found.status.success() && ended.is_none() && Instant::now() < until {
            thread::sleep(PAUSE);
            continue;
        }
        let document = String::from_utf8_lossy(&found.stdout).into_owned();
        if !found.status.success() {
            let said = String::from_utf8_lossy(&found.stderr).into_owned();
            let log = fs::read_to_string(&output).unwrap_or_default();
            return Ok(Some(format!("no trace was recorded: {said}\n{log}")));
        }
        // Asked before its first step, a program records half a second instead of steps, and on a busy machine clocks may not be aligned: the
        // report concludes nothing then. A wrong rank is wrong at once.
        let concludes = has_steps(&document) && document.contains(SLOW_RANK);
        if !concludes && ended.is_none() && Instant::now() < until {
            thread::sleep(PAUSE);
            continue;
        }
        return Ok(complaint(&document, slow));
    }
}

/// Whether each of the two ranks has nearly all steps in a report as JSON.
fn has_steps(document: &str) -> bool {
    let ranks: Vec<u32> = document
        .split("\"source\": ")
        .skip(1)
        .filter_map(|rank| {
            let (_, rest) = rank.split_once("\"steps\": ")?;
            rest.split(',').next()?.parse().ok()
        })
        .collect();
    ranks.len() == 2 && ranks.iter().all(|steps| *steps >= LEAST_STEPS)
}

/// What is wrong with a report as JSON.
fn complaint(document: &str, wanted: &str) -> Option<String> {
    let slow = document.split_once(SLOW_RANK).map(|(_, rest)| rest);
    let found = slow.and_then(|rest| rest.split_once("\"rank\": ")?.1.split(',').next());
    if found != Some(wanted) {
        return Some(format!(
            "expected the slow rank {wanted}, found {found:?}:\n{document}"
        ));
    }
    let aligned = document.contains("\"aligned\": true");
    (!aligned)
        .then(|| format!("the clocks of two ranks of one machine are not aligned:\n{document}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_with_few_steps_are_no_evidence() {
        let report = |one: &str, two: &str| {
            format!(
                r#"{{"ranks": [{{"rank": 0, "source": "a", "steps": {one}, "b": 1}}, {{"rank": 1, "source": "b", "steps": {two}, "b": 1}}],
                "across": {{"slowRank": {{"rank": 1, "steps": 2}}}}}}"#
            )
        };
        assert!(has_steps(&report("10", "8")));
        assert!(!has_steps(&report("10", "1")));
        assert!(!has_steps(&report("0", "10")));
        assert!(!has_steps("{}"));
    }

    #[test]
    fn reports_are_compared() {
        let slow = "\"aligned\": true, \"slowRank\": {\n  \"rank\": 1,\n  \"lastShare\": 1.0 }";
        let even = "\"aligned\": true, \"waits\": []";
        assert_eq!(complaint(slow, "1"), None);
        assert!(complaint(slow, "0").is_some());
        assert!(complaint(even, "1").is_some());
        assert!(complaint(&slow.replacen("true", "false", 1), "1").is_some());
    }
}
