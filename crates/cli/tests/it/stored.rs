//! `ps`, `status` and `logs` over a folder of runs, as an engine would have left it.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{call::Call, golden};

/// So many minutes ago, and half a minute: ages do not change while the tests run.
fn ago(minutes: u64) -> Timestamp {
    let before = Duration::from_secs(minutes * 60 + 30);
    Timestamp::try_from(SystemTime::now() - before).expect("a time of this century")
}

fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("folders can be made");
    fs::write(path, content).expect("files can be written");
}

fn record(name: &str, run_id: &str, started: Timestamp) -> Value {
    json!({
        "version": 1, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name,
        "namespace": "default", "runId": run_id, "startedAt": started, "pid": 4242,
        "replicas": {"Master": 1, "Worker": 11},
        "limits": {"user": 3, "platform": 100, "infrastructure": 1000},
    })
}

fn condition(kind: &str, status: &str, message: &str, at: Timestamp) -> Value {
    json!({
        "type": kind, "status": status, "reason": format!("PyTorchJob{kind}"), "message": message,
        "lastUpdateTime": at, "lastTransitionTime": at,
    })
}

/// A run `mnist` that failed, one `llama` whose engine died, and an older one of it.
fn fill(root: &Path) {
    write(&root.join("version"), "1\n");
    let run = root.join("runs/mnist/20250101T000000Z");
    write(
        &run.join("job.json"),
        record("mnist", "20250101T000000Z", ago(185)).to_string(),
    );
    let status = json!({
        "conditions": [
            condition("Created", "True", "PyTorchJob mnist is created.", ago(185)),
            condition("Running", "False", "PyTorchJob mnist is running.", ago(180)),
            condition(
                "Failed", "True",
                "Job mnist has failed because it has reached the specified backoff limit",
                ago(120)
            ),
        ],
        "replicaStatuses": {"Master": {"failed": 1}, "Worker": {"active": 10, "failed": 1}},
        "trainyard": {
            "attempt": 2, "seen": 40, "formed": true,
            "spent": {"user": 3, "platform": 0, "infrastructure": 0, "preemption": 0},
            "ledger": {"timeline": [
                [1, "creating", 1000], [1, "starting", 400_000], [1, "training", 1_000_000],
                [2, "starting", 499_000], [2, "training", 2_000_000],
            ]},
        },
    });
    write(
        &run.join("status.json"),
        json!({"version": 1, "view": 40, "status": status}).to_string(),
    );
    let failure = json!({
        "attempt": 1, "slot": {"role": "Worker", "index": 2}, "pod": "mnist-worker-2", "rank": 3,
        "container": "pytorch", "code": 139, "signal": "SIGSEGV", "outOfMemory": false,
        "injected": null, "at": ago(150), "lastLines": ["about to fail"],
    });
    let report = json!({
        "version": 1, "job": "mnist", "runId": "20250101T000000Z", "folder": run,
        "outcome": "failed", "message": "Job mnist has failed", "startedAt": ago(185),
        "endedAt": ago(120), "attempts": 2,
        "spent": {"user": 3, "platform": 0, "infrastructure": 0, "preemption": 0},
        "failures": [failure], "trainedRatio": 0.75,
        "ledger": {"creating": 1000, "starting": 899_000, "training": 3_000_000},
        "lastStep": 12_345, "lastLoss": 0.5, "status": status,
    });
    write(&run.join("report.json"), report.to_string());
    for (attempt, pod, container, text) in [
        (1, "worker-2", "pytorch", "step 1\nabout to fail\n"),
        (1, "master-0", "pytorch", "first attempt\n"),
        (2, "master-0", "pytorch", "step 2\nsecond line\n"),
        (2, "worker-2", "pytorch", "two\n"),
        (2, "worker-2", "sidecar", "proxy up\n"),
        (2, "worker-10", "pytorch", "ten\x1b[2J, no newline"),
    ] {
        let log = format!("attempts/{attempt}/mnist-{pod}/{container}.log");
        write(&run.join(log), text);
    }
    for (id, minutes) in [("20250102T000000Z", 2_000), ("20250103T000000Z", 90)] {
        let run = root.join("runs/llama").join(id);
        write(
            &run.join("job.json"),
            record("llama", id, ago(minutes)).to_string(),
        );
    }
    interrupted(&root.join("runs/llama/20250103T000000Z"));
}

/// What an engine wrote before it was killed in the second attempt.
fn interrupted(run: &Path) {
    let status = json!({
        "conditions": [condition("Running", "True", "PyTorchJob llama is running.", ago(80))],
        "trainyard": {
            "attempt": 2, "seen": 9, "formed": true,
            "spent": {"user": 1, "platform": 0, "infrastructure": 0, "preemption": 0},
            "ledger": {},
        },
    });
    write(
        &run.join("status.json"),
        json!({"version": 1, "view": 9, "status": status}).to_string(),
    );
    let failure = json!({
        "attempt": 1, "slot": {"role": "Worker", "index": 0}, "pod": "llama-worker-0", "rank": 1,
        "container": "pytorch", "code": 137, "signal": "SIGKILL", "outOfMemory": true,
        "injected": null, "at": ago(85), "lastLines": ["loading"],
    });
    write(
        &run.join("failures.json"),
        json!({"version": 1, "failures": [failure]}).to_string(),
    );
    let progress = json!({
        "version": 1, "attempt": 2, "step": 120, "loss": 1.5, "at": ago(81), "furthestStep": 340,
    });
    write(&run.join("progress.json"), progress.to_string());
    write(
        &run.join("attempts/1/llama-worker-0/pytorch.log"),
        "loading\n",
    );
}

pub(crate) fn call(words: &[&str]) -> Call {
    let call = Call::new(words);
    fill(&call.folder().join(".trainyard"));
    call
}

#[test]
fn what_ran_here() {
    golden::check(
        "ps",
        &[
            call(&["ps"]).run(),
            call(&["ps", "--all"]).run(),
            Call::new(&["ps"]).run(),
            Call::new(&["ps", "-q", "--format", "json"]).run(),
        ],
    );
    let outcome = call(&["ps", "--format", "json"]).run();
    let list: Value = serde_json::from_str(&outcome.stdout).expect("stdout is JSON");
    assert_eq!(list["version"], 1);
    let names: Vec<&str> = list["runs"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|run| run["job"].as_str())
        .collect();
    assert_eq!(names, ["llama", "mnist"]);
    assert_eq!(list["runs"][1]["state"], "Failed");
    assert_eq!(list["runs"][1]["lastStep"], 12_345);
    assert_eq!(list["runs"][0]["endedAt"], Value::Null);
    assert_eq!(list["runs"][0]["lastStep"], 340);
    assert_eq!(list["runs"][0]["attemptStep"], 120);
    assert_eq!(list["runs"][0]["lastLoss"], 1.5);
}

/// What can have happened to a file.
enum Damage {
    Holds(&'static [u8]),
    Huge,
    Link,
}

impl Damage {
    fn inflict(&self, path: &Path) {
        match self {
            Self::Holds(bytes) => write(path, bytes),
            Self::Huge => {
                let file = fs::File::create(path).expect("files can be made");
                file.set_len(1 << 40).expect("a hole takes no space");
            }
            Self::Link => {
                std::os::unix::fs::symlink("/etc/passwd", path).expect("a link can be made");
            }
        }
    }
}

#[test]
fn unreadable_run_does_not_hide_others() {
    use Damage::{Holds, Huge, Link};
    let folder = "runs/llama/20250103T000000Z";
    let cases = [
        ("job.json", Holds(b"{"), "job.json`: EOF"),
        ("report.json", Holds(b"{"), "report.json`: EOF"),
        (
            "report.json",
            Holds(b""),
            "it is empty, perhaps after a power loss",
        ),
        ("status.json", Holds(b"\xff\xfe\0"), "cannot parse"),
        ("report.json", Huge, "it has 1099511627776 bytes"),
        ("report.json", Link, "it is a symbolic link"),
    ];
    for (file, damage, reason) in cases {
        let call = call(&["ps"]);
        damage.inflict(&call.folder().join(".trainyard").join(folder).join(file));
        let outcome = call.run();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stdout.contains("mnist"), "{outcome:?}");
        let row = outcome.stdout.lines().find(|row| row.starts_with("llama"));
        let row = row.expect("it has a row");
        assert!(row.contains("Unreadable") && row.contains(reason), "{row}");
        assert!(row.contains(file), "{row}");

        let outcome = call.again(&["ps", "--format", "json"]).run();
        let list: Value = serde_json::from_str(&outcome.stdout).expect("stdout is JSON");
        assert_eq!(list["runs"][0]["job"], "mnist");
        assert_eq!(list["unreadable"][0]["job"], "llama");
        assert_eq!(list["unreadable"][0]["startedAt"], "2025-01-03T00:00:00Z");
        let said = list["unreadable"][0]["reason"].as_str().unwrap_or_default();
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn a_report_is_enough_to_list_a_run() {
    let call = call(&["ps"]);
    let run = call.folder().join(".trainyard/runs/mnist/20250101T000000Z");
    // Nothing that the report repeats is read beside it.
    for file in ["status.json", "failures.json"] {
        write(&run.join(file), "{");
    }
    let outcome = call.run();
    assert!(outcome.stdout.contains("Failed"), "{outcome:?}");
    assert!(!outcome.stdout.contains("Unreadable"), "{outcome:?}");
}

#[test]
fn ten_thousand_runs_are_listed_within_the_limits() {
    let call = Call::new(&["ps", "--all"]);
    let runs = call.folder().join(".trainyard/runs/j");
    for number in 0..10_000 {
        let id = format!("20250101T000000Z-{number:05}");
        let run = runs.join(&id);
        write(&run.join("job.json"), record("j", &id, ago(1)).to_string());
    }
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.stdout.lines().count(), 10_001);
}

#[test]
fn where_a_job_is() {
    golden::check(
        "status",
        &[
            call(&["status", "mnist"]).run(),
            call(&["status", "llama", "--run", "20250102T000000Z"]).run(),
            call(&["status", "llama"]).run(),
            call(&["status", "mnits"]).run(),
            call(&["status", "something-else"]).run(),
            call(&["status", "../mnist"]).run(),
            call(&["status", "llama", "--run", "1"]).run(),
            Call::new(&["status", "mnist"]).run(),
        ],
    );
    let outcome = call(&["status", "mnist", "--format", "json"]).run();
    let status: Value = serde_json::from_str(&outcome.stdout).expect("stdout is JSON");
    assert_eq!(status["version"], 1);
    assert_eq!(status["state"], "Failed");
    assert_eq!(status["budget"]["user"], json!({"spent": 3, "limit": 3}));
    assert_eq!(status["budget"]["preemption"], json!({"spent": 0}));
    assert_eq!(status["failures"][0]["pod"], "mnist-worker-2");
    assert_eq!(status["status"]["conditions"][2]["type"], "Failed");
}

#[test]
fn what_pods_wrote() {
    golden::check(
        "logs",
        &[
            call(&["logs", "mnist"]).run(),
            call(&["logs", "mnist", "--attempt", "1"]).run(),
            call(&["logs", "mnist", "--rank", "0"]).run(),
            call(&["logs", "mnist", "--pod", "worker-2"]).run(),
            call(&["logs", "mnist", "--pod", "mnist-worker-10"]).run(),
            call(&["logs", "mnist", "--first-failure"]).run(),
            call(&["logs", "mnist", "--follow"]).run(),
            call(&["logs", "mnist", "--rank", "0", "--format", "json"]).run(),
            call(&["logs", "mnist", "--rank", "12"]).run(),
            call(&["logs", "mnist", "--rank", "1"]).run(),
            call(&["logs", "mnist", "--pod", "wroker-2"]).run(),
            call(&["logs", "mnist", "--attempt", "7"]).run(),
            call(&["logs", "llama", "--run", "20250102T000000Z"]).run(),
            call(&["logs", "llama", "--first-failure"]).run(),
            call(&[
                "logs",
                "llama",
                "--first-failure",
                "--run",
                "20250102T000000Z",
            ])
            .run(),
        ],
    );
}

#[test]
fn a_line_of_any_length_passes_whole_through_a_pipe() {
    let call = call(&["logs", "mnist", "--rank", "0"]);
    let log = "runs/mnist/20250101T000000Z/attempts/2/mnist-master-0/pytorch.log";
    let content = "x".repeat(20 << 20) + "\nend\n";
    write(&call.folder().join(".trainyard").join(log), &content);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout == content, "{} bytes", outcome.stdout.len());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for words in [&["ps"][..], &["status", "mnist"], &["logs", "mnist"]] {
        let call = call(words);
        let mut child = call
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(output.stderr, b"", "{words:?}");
    }
}

#[test]
fn a_folder_of_a_newer_program_is_left_alone() {
    for words in [&["ps"][..], &["status", "mnist"], &["logs", "mnist"]] {
        let call = call(words);
        write(&call.folder().join(".trainyard/version"), "2\n");
        let outcome = call.run();
        assert_eq!(outcome.code, Some(2), "{words:?}");
        assert!(
            outcome.stderr.contains("has version 2"),
            "{}",
            outcome.stderr
        );
    }
}
