//! Hangs of real frameworks: `trainyard run` names the rank that stopped, without a change of its program, and restarts
//! the gang; what is only slow is left alone.
//!
//! The programs lie in `tools/hangs`.

use std::{fmt::Write as _, fs, path::Path};

use super::{Framework, suite::Scratch};
use crate::{Failure, report, step};

/// One run of one program.
struct Hang {
    framework: &'static str,
    /// What rank 2 does at step 40, as the program calls it.
    kind: &'static str,
    /// The verdict's label; `None` where nothing hangs, and nothing may be restarted.
    label: Option<&'static str>,
    /// What the verdict must name: the line on which the rank stands.
    place: Option<&'static str>,
}

const HANGS: &[Hang] = &[
    Hang {
        framework: "pytorch",
        kind: "sleep",
        label: Some("hang_cpu_side"),
        place: Some("time.sleep(10**6)"),
    },
    Hang {
        framework: "pytorch",
        kind: "stop",
        label: Some("hang_stopped"),
        place: None,
    },
    Hang {
        framework: "pytorch",
        kind: "busy",
        label: Some("hang_cpu_side"),
        place: Some("while True: pass"),
    },
    Hang {
        framework: "pytorch",
        kind: "save",
        label: None,
        place: None,
    },
    Hang {
        framework: "mpi",
        kind: "sleep",
        label: Some("hang_cpu_side"),
        place: Some("time.sleep(10**6)"),
    },
];

/// The rank that stops.
const CULPRIT: u32 = 2;

impl Hang {
    fn program(&self) -> &'static str {
        match self.framework {
            "mpi" => "train_mpi.py",
            _ => "train.py",
        }
    }

    /// The job, with its programs in `environment` and what they write in `folder`.
    fn job(&self, environment: &Path, folder: &Path) -> String {
        let python = environment.join("bin/python").display().to_string();
        let program = step::root().join("tools/hangs").join(self.program());
        let mut words = vec![
            python,
            program.display().to_string(),
            folder.display().to_string(),
        ];
        let mut roles = String::new();
        let mut role = |name: &str, replicas: u32, container: &str, words: &[String]| {
            let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            write!(
                roles,
                "    {name}:\n      replicas: {replicas}\n      restartPolicy: OnFailure\n      template:\n        spec:\n          \
                 terminationGracePeriodSeconds: 5\n          containers:\n            - name: {container}\n              \
                 image: hangs\n              command: [{}]\n",
                words.join(", ")
            )
            .expect("a string takes whatever is written");
        };
        // A busy loop and ranks that spin while they wait move all the time, so only the ceiling ends them.
        let annotations = "    trainyard.dev/hang-floor: 2s\n    trainyard.dev/hang-after: 10s\n";
        let head = |kind: &str, version: &str| {
            format!(
                "apiVersion: kubeflow.org/{version}\nkind: {kind}\nmetadata:\n  name: hang\n  annotations:\n{annotations}spec:\n"
            )
        };
        if self.framework == "mpi" {
            let mut launch: Vec<String> = [
                "mpirun",
                "--allow-run-as-root",
                "--oversubscribe",
                "-n",
                "4",
            ]
            .map(str::to_owned)
            .to_vec();
            launch.extend(words);
            role("Launcher", 1, "mpi", &launch);
            role(
                "Worker",
                2,
                "mpi",
                &["sleep".to_owned(), "1000000".to_owned()],
            );
            return format!(
                "{}  slotsPerWorker: 2\n  runPolicy:\n    backoffLimit: 3\n  mpiReplicaSpecs:\n{roles}",
                head("MPIJob", "v2beta1")
            );
        }
        words.push(self.kind.to_owned());
        role("Master", 1, "pytorch", &words);
        role("Worker", 3, "pytorch", &words);
        format!(
            "{}  runPolicy:\n    backoffLimit: 3\n  pytorchReplicaSpecs:\n{roles}",
            head("PyTorchJob", "v1")
        )
    }

    /// What is wrong with the report of a run that succeeded.
    fn complaint(&self, report: &str) -> Option<String> {
        let attempts = if self.label.is_some() { 2 } else { 1 };
        let wanted = format!("\"attempts\": {attempts},");
        if !report.contains(&wanted) {
            return Some(format!("the report does not say `{wanted}`:\n{report}"));
        }
        let label = self.label?;
        let program = self.program();
        let line = self.place.and_then(|text| line_of(program, text));
        let place = line.map(|line| format!("{program}:{line}"));
        let wanted = [
            format!("\"label\": \"{label}\""),
            format!("rank {CULPRIT}"),
            place.unwrap_or_default(),
        ];
        let missing = wanted.iter().find(|text| !report.contains(text.as_str()));
        missing.map(|text| format!("the report does not say `{text}`:\n{report}"))
    }
}

/// The number of the first line of a program that contains `text`.
fn line_of(program: &str, text: &str) -> Option<usize> {
    let path = step::root().join("tools/hangs").join(program);
    let source = fs::read_to_string(path).ok()?;
    let mut lines = source.lines();
    lines.position(|line| line.contains(text)).map(|at| at + 1)
}

/// Runs every program of the `chosen` frameworks. How many ran, and what is wrong; those without an environment are left to the
/// suite to report.
pub(super) fn run(binary: &Path, chosen: &[&Framework]) -> Result<(usize, Vec<String>), Failure> {
    let (mut ran, mut wrong) = (0, Vec::new());
    for hang in HANGS {
        let mut chosen = chosen.iter();
        let framework = chosen.find(|framework| framework.name == hang.framework);
        let environment = framework.map(|framework| framework.environment());
        let Some(Ok(environment)) = environment else {
            continue;
        };
        let name = format!("tools/hangs/{} {}", hang.program(), hang.kind);
        let scratch = Scratch::new()?;
        let file = scratch.0.join("job.yaml");
        fs::write(&file, hang.job(&environment, &scratch.0))
            .map_err(|error| Failure::CouldNotRun(format!("cannot write a job file: {error}")))?;
        let mut command = scratch.command(binary);
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg("--cpu")
            .arg(&file);
        let ended = scratch.run(&mut command)?;
        match ended.complaint(|report, _| hang.complaint(report)) {
            None => report::progress(&format!("{name}: {}", report::seconds(ended.time))),
            Some(complaint) => wrong.push(format!("{name}: {complaint}")),
        }
        ran += 1;
    }
    Ok((ran, wrong))
}
