//! What is said about a job is what happened: stalls, jobs without a step, a loss that is NaN.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use serde_json::Value;

use crate::{
    call::Call,
    run::{interrupted, job, run, send},
};

fn document(text: &str) -> Value {
    serde_json::from_str(text).expect("stdout is one JSON document")
}

/// The first line with `word` that a command prints which goes on.
fn first_line(call: &Call, word: &str) -> String {
    let mut command = call.command();
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    let found = lines.find(|line| line.contains(word));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    found.unwrap_or_default()
}

#[test]
fn a_rank_that_sleeps_after_its_steps_is_stalled() {
    let script = "trap 'exit 0' TERM; \
                  for step in 1 2 3 4 5 6 7 8 9 10 11 12; do echo step $step loss 0.5; sleep 0.1; done; \
                  echo ready; while :; do sleep 0.05; done";
    // Without the annotation it takes 30 s.
    let annotated = "  name: j\n  annotations: {trainyard.dev/hang-after: 1s}\n";
    let call = run(&[], &job(1, script).replace("  name: j\n", annotated));
    let (code, _, stderr) = interrupted(&call, |pid| {
        while !call
            .again(&["status", "j"])
            .run()
            .stdout
            .contains("stalled")
        {}
        let status = call.again(&["status", "j"]).run().stdout;
        assert!(status.contains("  stalled       no step for "), "{status}");
        let json = document(
            &call
                .again(&["status", "j", "--format", "json"])
                .run()
                .stdout,
        );
        assert_eq!(json["progress"]["step"], 12, "{json}");
        assert!(json["stalled"].is_string(), "{json}");
        assert!(json["ledger"]["stalled"].as_u64() >= Some(1_000), "{json}");
        assert_eq!(json["timeline"][0][0], 1, "{json}");
        let why = call.again(&["explain", "j"]).run().stdout;
        assert!(why.contains("stalled: no step for "), "{why}");
        assert!(!why.contains("nothing holds it up"), "{why}");
        let doctor = call.again(&["doctor", "--job", "j"]).run();
        assert_eq!(doctor.code, Some(1), "{doctor:?}");
        assert!(
            doctor.stdout.starts_with("stalled: no step for "),
            "{doctor:?}"
        );
        assert!(!doctor.stdout.contains("healthy"), "{doctor:?}");
        let line = first_line(
            &call.again(&["doctor", "--job", "j", "--follow"]),
            "stalled",
        );
        assert!(line.starts_with("stalled: no step for "), "{line}");
        send("-TERM", pid);
    });
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("stalled: no step for "), "{stderr}");
}

#[test]
fn a_job_without_a_step_did_not_train() {
    let script = "sleep 0.5; echo \"ModuleNotFoundError: No module named 'missing'\" >&2; exit 1";
    let call = run(&["--format", "json"], &job(1, script));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = document(&outcome.stdout);
    assert_eq!(report["trainedRatio"], Value::Null, "{report}");
    assert_eq!(report["ledger"].get("training"), None, "{report}");
    assert!(
        report["ledger"]["starting"].as_u64() >= Some(500),
        "{report}"
    );
    let status = call.again(&["status", "j"]).run().stdout;
    let words = "wall time spent training (ETTR) is unknown: no step was reported";
    assert!(status.contains(words), "{status}");
}

#[test]
fn nan_is_reported_with_the_step_where_it_began() {
    let script = "step=1; while test $step -le 200; do \
                  if test $step -lt 20; then echo step $step loss 0.6602; else echo step $step loss nan; fi; \
                  step=$((step + 1)); done";
    let call = run(&[], &job(1, script));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "it ended well: {outcome:?}");
    for part in [
        "j succeeded",
        "reached        step 200, loss NaN",
        "warning        loss is NaN since step 20",
        "of wall time spent training (ETTR)",
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    let status = call.again(&["status", "j"]).run().stdout;
    for part in [
        "  step          200, loss NaN",
        "  warning       loss is NaN since step 20",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let json = document(
        &call
            .again(&["status", "j", "--format", "json"])
            .run()
            .stdout,
    );
    assert_eq!(json["lastLoss"], Value::Null, "JSON has no NaN");
    assert_eq!(json["progress"]["loss"], "NaN");
    assert_eq!(json["progress"]["nanSince"], 20);
    let why = call.again(&["explain", "j"]).run().stdout;
    assert!(
        why.contains("it succeeded in attempt 1, but loss is NaN since step 20"),
        "{why}"
    );
    let list = call.again(&["ps"]).run().stdout;
    assert!(list.contains("NaN"), "{list}");

    let json = run(&["--format", "json"], &job(1, script)).run();
    assert_eq!(json.code, Some(0), "{json:?}");
    assert!(
        json.stderr.contains("warning: loss is NaN since step 20"),
        "{}",
        json.stderr
    );
    assert_eq!(document(&json.stdout)["progress"]["nanSince"], 20);
}
