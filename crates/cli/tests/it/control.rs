//! `explain`, `suspend`, `resume`, `restart` and `delete` of runs on this machine.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    golden,
    run::{interrupted, job, run},
    stored,
};

/// Every wait ends after this.
const PATIENCE: Duration = Duration::from_mins(1);

/// Calls `words` until what it prints is as `wanted`.
pub(crate) fn until(call: &Call, words: &[&str], wanted: impl Fn(&Outcome) -> bool) -> Outcome {
    let began = Instant::now();
    loop {
        let outcome = call.again(words).run();
        if wanted(&outcome) {
            return outcome;
        }
        assert!(began.elapsed() < PATIENCE, "{words:?}: {outcome:?}");
    }
}

fn status(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_default()
}

#[test]
fn a_run_is_restarted_suspended_resumed_and_deleted() {
    let script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let call = run(&[], &job(2, script));
    let (code, _, stderr) = interrupted(&call, |_| {
        let seen = ["status", "j", "--format", "json"];
        let is = |outcome: &Outcome, state: &str, attempts: u32| {
            let status = status(outcome);
            status["state"] == state && status["attempts"] == attempts
        };
        let asked = call.again(&["restart", "j"]).run();
        assert_eq!(asked.code, Some(0), "{asked:?}");
        assert!(asked.stderr.contains("requested attempt 2"), "{asked:?}");
        let restarted = until(&call, &seen, |outcome| is(outcome, "Running", 2));
        let spent = &status(&restarted)["budget"];
        assert_eq!(spent["user"]["spent"], 0, "{spent}");
        assert_eq!(spent["platform"]["spent"], 0, "{spent}");

        let asked = call.again(&["suspend", "j"]).run();
        assert_eq!(asked.code, Some(0), "{asked:?}");
        assert!(asked.stderr.contains("`trainyard resume j`"), "{asked:?}");
        until(&call, &seen, |outcome| is(outcome, "Suspended", 2));
        let why = call.again(&["explain", "j"]).run();
        assert_eq!(why.code, Some(0), "{why:?}");
        assert!(why.stdout.starts_with("j: it is suspended"), "{why:?}");
        let asked = call.again(&["restart", "j"]).run();
        assert_eq!(asked.code, Some(2), "{asked:?}");

        let asked = call.again(&["resume", "j"]).run();
        assert_eq!(asked.code, Some(0), "{asked:?}");
        until(&call, &seen, |outcome| is(outcome, "Running", 3));
        let why = call.again(&["explain", "j", "--format", "json"]).run();
        assert_eq!(status(&why)["cause"], "Running", "{why:?}");

        let gone = call.again(&["delete", "j"]).run();
        assert_eq!(gone.code, Some(0), "{gone:?}");
        assert!(gone.stderr.contains("deleted 1 run of job `j`"), "{gone:?}");
    });
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("j was stopped"), "{stderr}");
    let list = call.again(&["ps"]).run();
    assert!(list.stdout.is_empty(), "{list:?}");
}

#[test]
fn why_a_run_is_over() {
    let failed = stored::call(&["explain", "mnist"]).run();
    assert_eq!(failed.code, Some(1), "{failed:?}");
    for part in [
        "mnist: it failed: container `pytorch` of pod `mnist-worker-2` ended with exit code 139",
        "SIGSEGV",
        "all 3 attempts that `backoffLimit` allows are used",
        "last line of pod `mnist-worker-2`: about to fail",
        "`trainyard logs --first-failure mnist`",
    ] {
        assert!(failed.stdout.contains(part), "{part}: {}", failed.stdout);
    }
    let json = stored::call(&["explain", "mnist", "--format", "json"]).run();
    let json: Value = serde_json::from_str(&json.stdout).expect("stdout is JSON");
    assert_eq!(json["version"], 1);
    assert_eq!(json["standing"], "failed");
    assert_eq!(json["cause"], "ContainerFailed");
    golden::check(
        "control",
        &[
            stored::call(&["explain", "llama"]).run(),
            stored::call(&["explain", "nosuch"]).run(),
            stored::call(&["suspend", "mnist"]).run(),
            stored::call(&["resume", "llama"]).run(),
            stored::call(&["restart", "mnist"]).run(),
            stored::call(&["delete", "llama"]).run(),
            stored::call(&["delete", "llama", "--run", "20250102T000000Z"]).run(),
            stored::call(&["delete", "nosuch"]).run(),
            stored::call(&["ps", "--cluster", "--kubeconfig", "missing.yaml"]).run(),
            stored::call(&["status", "mnist", "--run", "1", "--cluster"]).run(),
        ],
    );
}

#[test]
fn what_another_program_wrote_cannot_move_the_cursor() {
    let script = "printf 'bad \\033[2J thing'; exit 1";
    let call = run(
        &[],
        &job(1, script).replace("backoffLimit: 2", "backoffLimit: 1"),
    );
    let ended = call.run();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let why = call.again(&["explain", "j"]).run();
    assert!(why.stdout.contains("thing"), "{why:?}");
    assert!(!why.stdout.contains('\u{1b}'), "{why:?}");
}
