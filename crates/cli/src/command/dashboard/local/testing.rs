//! Run folders made by hand, for the tests of this module.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_core::{
    chronicle::{Chronicle, Fact, Places, Seen},
    job::JobStatus,
    ledger::Phase,
};
use trainyard_web::{Question, RunPart};

use super::Local;

/// When the runs of tests begin.
pub(super) const BEGAN: i64 = 1_800_000_000_000;

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(BEGAN + millis).unwrap()
}

/// A state folder of its own.
pub(super) struct Folder {
    temp: tempfile::TempDir,
    locks: Vec<File>,
}

/// The folder of one run.
pub(super) struct Run {
    pub(super) path: PathBuf,
    pub(super) job: String,
    pub(super) id: String,
}

impl Folder {
    pub(super) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("runs")).unwrap();
        fs::write(temp.path().join("version"), "1\n").unwrap();
        Self {
            temp,
            locks: Vec::new(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        self.temp.path()
    }

    pub(super) fn local(&self) -> Local {
        Local::open(self.root()).unwrap()
    }

    /// A run of a job with two workers that was asked for and did nothing yet.
    pub(super) fn run(&self, job: &str, id: &str, started: Timestamp) -> Run {
        let path = self.root().join("runs").join(job).join(id);
        fs::create_dir_all(&path).unwrap();
        let container = json!({
            "name": "pytorch", "image": "i", "command": ["true"],
            "resources": {"limits": {"nvidia.com/gpu": 4}},
        });
        let worker = json!({
            "replicas": 2, "restartPolicy": "OnFailure",
            "template": {"spec": {"containers": [container]}},
        });
        let record = json!({
            "version": 1, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "namespace": "team",
            "runId": id, "startedAt": started, "pid": 1, "replicas": {"Worker": 2},
            "ranks": {"perPod": 1, "inLauncher": false},
            "job": {
                "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
                "metadata": {"name": job, "namespace": "team"},
                "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
            },
        });
        let run = Run {
            path,
            job: job.to_owned(),
            id: id.to_owned(),
        };
        run.write("job.json", &record);
        run
    }

    /// Makes `run` live until the folder is dropped.
    pub(super) fn live(&mut self, run: &Run) {
        let path = self.root().join("runs").join(&run.job).join("run.lock");
        let mut file = File::create(path).unwrap();
        let holder = json!({"pid": std::process::id(), "runId": run.id});
        file.write_all(holder.to_string().as_bytes()).unwrap();
        file.try_lock().unwrap();
        self.locks.push(file);
    }

    /// The engines of all runs die. The locks are given back, not only closed: a child that another test starts just then has them, too.
    pub(super) fn kill(&mut self) {
        for lock in self.locks.drain(..) {
            lock.unlock().unwrap();
        }
    }
}

impl Run {
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.id, self.job)
    }

    pub(super) fn write(&self, name: &str, value: &Value) {
        // As the engine does it: replaced as a whole.
        let next = self.path.join(format!("{name}.next"));
        fs::write(&next, value.to_string()).unwrap();
        fs::rename(next, self.path.join(name)).unwrap();
    }

    pub(super) fn status(&self, status: &JobStatus) {
        let status = json!({"version": 1, "view": 1, "status": status});
        self.write("status.json", &status);
    }

    pub(super) fn facts(&self, facts: &[Fact]) {
        let lines: Vec<String> = facts.iter().map(|fact| fact.line() + "\n").collect();
        fs::write(self.path.join("facts.jsonl"), lines.concat()).unwrap();
    }

    /// Ends it `outcome`; `failures` as the report has them.
    pub(super) fn report(
        &self,
        outcome: &str,
        status: &JobStatus,
        ended: Timestamp,
        failures: &Value,
    ) {
        let ledger = &status.trainyard.ledger;
        let record = fs::read(self.path.join("job.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        let report = json!({
            "version": 1, "job": self.job, "runId": self.id, "folder": self.path, "outcome": outcome,
            "message": "the end", "startedAt": record["startedAt"], "endedAt": ended,
            "attempts": status.trainyard.attempt, "spent": status.trainyard.spent, "failures": failures,
            "ledger": ledger.totals(ended), "trainedRatio": ledger.ettr(ended),
            "lastStep": 40, "lastLoss": 0.5, "status": status,
        });
        self.write("report.json", &report);
    }

    /// Makes its folder and report look as if they had changed then, long ago.
    pub(super) fn settle(&self, seconds: u64) {
        let then = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
        for path in [self.path.clone(), self.path.join("report.json")] {
            File::open(path).unwrap().set_modified(then).unwrap();
        }
    }

    pub(super) fn log(&self, attempt: u32, pod: &str, bytes: &[u8]) -> PathBuf {
        let folder = self.path.join(format!("attempts/{attempt}/{pod}"));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pytorch.log");
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// A failure of the first worker as a report has it.
pub(super) fn failure(job: &str, attempt: u32, at: Timestamp, verdict: &Value) -> Value {
    let mut failure = json!({
        "attempt": attempt, "slot": {"role": "Worker", "index": 0}, "pod": format!("{job}-worker-0"), "rank": 0,
        "ranks": 1, "container": "pytorch", "code": 1, "signal": null, "outOfMemory": false, "injected": null,
        "at": at, "lastLines": [],
    });
    if !verdict.is_null() {
        failure["verdict"] = verdict.clone();
    }
    failure
}

/// A status whose time went to these phases, each from its millisecond on.
pub(super) fn status(attempt: u32, phases: &[(Phase, i64)], ended: Option<i64>) -> JobStatus {
    let mut status = JobStatus::default();
    status.trainyard.attempt = attempt;
    for (phase, since) in phases {
        status.trainyard.ledger.enter(attempt, *phase, at(*since));
    }
    if let Some(ended) = ended {
        status.trainyard.ledger.end(at(ended));
    }
    status
}

/// The facts that an engine which saw these statuses would write.
pub(super) fn facts_of(statuses: &[(&JobStatus, i64)]) -> Vec<Fact> {
    let mut chronicle = Chronicle::default();
    let mut facts = Vec::new();
    let mut before: Option<Seen<'_>> = None;
    for (status, millis) in statuses {
        let after = Seen { status, pods: &[] };
        facts.extend(chronicle.record(before.as_ref(), &after, &Places::new(), at(*millis)));
        before = Some(after);
    }
    facts
}

/// The answer to a question, as JSON.
pub(super) fn ask(local: &Local, question: &Question, now: Timestamp) -> Value {
    let answer = local.answer(question, now);
    let answer = answer.unwrap_or_else(|problem| panic!("{problem:?}"));
    serde_json::from_slice(&answer.json).unwrap()
}

pub(super) fn part(local: &Local, run: &Run, part: RunPart, now: Timestamp) -> Value {
    let question = Question::Run {
        run: run.name(),
        part,
    };
    let answer = ask(local, &question, now);
    assert_eq!(answer["run"], json!(run.name()));
    assert_eq!(answer["version"], json!(1));
    answer
}
