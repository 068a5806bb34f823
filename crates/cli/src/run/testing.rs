//! Jobs, reports and golden files for the tests of what people see.

use std::{fs, path::PathBuf};

use jiff::Timestamp;
use trainyard_core::{
    diagnose::{Confidence, Depth, Retry, VerdictSummary},
    job::{Account, JobStatus, Spent},
    ledger::Phase,
    spec::{self, Job, Role, Slot},
};
use trainyard_host::{FailedRank, Outcome, RunReport};

/// A `PyTorchJob` `mnist` with so many pods.
pub(crate) fn job(masters: u32, workers: u32) -> Job {
    let role = |name: &str, replicas: u32| {
        format!(
            "    {name}:\n      replicas: {replicas}\n      template:\n        spec:\n          \
             containers:\n            - {{name: pytorch, image: train:1}}\n            - {{name: \
             sidecar, image: train:1}}\n"
        )
    };
    let mut text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: mnist\n\
                    spec:\n  pytorchReplicaSpecs:\n"
        .to_owned();
    if masters > 0 {
        text.push_str(&role("Master", masters));
    }
    text.push_str(&role("Worker", workers));
    let file = spec::read(text.as_bytes()).expect("the job can be read");
    let checked = spec::check(&file.documents[0]);
    checked
        .job
        .unwrap_or_else(|| panic!("{:?}", checked.findings))
}

/// The time `seconds` after the beginning of all runs here.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_735_689_600 + seconds).expect("a time of this century")
}

/// Worker 1, ended with code 1.
pub(crate) fn failed_rank() -> FailedRank {
    FailedRank {
        attempt: 1,
        slot: Slot::new(Role::Worker, 1),
        pod: "mnist-worker-1".to_owned(),
        rank: Some(2),
        ranks: 1,
        container: "pytorch".to_owned(),
        code: 1,
        signal: None,
        out_of_memory: false,
        injected: None,
        at: at(40),
        last_lines: Vec::new(),
        verdict: None,
    }
}

/// A mistake in the program.
pub(crate) fn verdict() -> VerdictSummary {
    VerdictSummary {
        attempt: 1,
        label: "user_code_error".to_owned(),
        sentence: "the program raised an exception: KeyError: 'rate' (File \"/app/train.py\", line 7, in main)"
            .to_owned(),
        ranks: vec![2],
        nodes: vec!["mnist-worker-1".to_owned()],
        account: Account::User,
        retry: Retry::DoesNotHelp,
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: Some("KeyError at File \"/app/train.py\", line 7, in main".to_owned()),
        exception: Some("KeyError".to_owned()),
        signature: None,
        next: "read the innermost frame".to_owned(),
    }
}

/// A run that succeeded at its second attempt.
pub(crate) fn report() -> RunReport {
    RunReport {
        version: 1,
        job: "mnist".to_owned(),
        run_id: "20250101T000000Z".to_owned(),
        folder: PathBuf::from(".trainyard/runs/mnist/20250101T000000Z"),
        outcome: Outcome::Succeeded,
        message: "PyTorchJob mnist is successfully completed.".to_owned(),
        started_at: at(0),
        ended_at: at(187),
        attempts: 2,
        spent: Spent {
            user: 1,
            ..Spent::default()
        },
        failures: vec![failed_rank()],
        verdict: None,
        ledger: [
            (Phase::Creating, 400),
            (Phase::Starting, 16_600),
            (Phase::Training, 150_000),
            (Phase::Restarting, 8_000),
            (Phase::Redoing, 12_000),
        ]
        .into(),
        trained_ratio: Some(0.802),
        last_step: Some(12_000),
        last_loss: Some(0.0312),
        progress: None,
        injections: Vec::new(),
        already_succeeded: None,
        status: status(),
    }
}

/// The status of that run, with its time in order.
fn status() -> JobStatus {
    let mut status = JobStatus::default();
    let ledger = &mut status.trainyard.ledger;
    for (attempt, phase, seconds) in [
        (1, Phase::Creating, 0),
        (1, Phase::Starting, 1),
        (1, Phase::Training, 10),
        (2, Phase::Restarting, 60),
        (2, Phase::Starting, 68),
        (2, Phase::Redoing, 76),
        (2, Phase::Training, 88),
    ] {
        ledger.enter(attempt, phase, at(seconds));
    }
    ledger.end(at(187));
    status
}

/// Compares `got` with the golden file `name`, or writes it where `UPDATE` is set.
pub(crate) fn golden(name: &str, got: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("src/run/testdata")
        .join(name);
    #[expect(
        clippy::disallowed_methods,
        reason = "whether golden files are rewritten is the caller's word to the test"
    )]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        fs::write(&path, got).expect("testdata can be written");
        return;
    }
    let want = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == want,
        "`{name}` differs\n--- wanted\n{want}\n--- got\n{got}\n\
         hint: if this is right, run `UPDATE=1 cargo test -p trainyard` and look at the diff"
    );
}
