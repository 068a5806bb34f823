//! Ranks that stop making progress are named and restarted; what is silent for a reason is left alone.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use serde_json::Value;

use crate::{
    call::Outcome,
    run::{job, run, send},
};

/// Three ranks that take each step together; in the second attempt they end at once.
const IN_STEP: &str = "test -e again-$RANK && exit 0; touch again-$RANK; n=0; while :; do n=$((n + 1)); \
                       echo $n > at-$RANK.new; mv at-$RANK.new at-$RANK; for rank in 0 1 2; do \
                       while test \"$(cat at-$rank 2>/dev/null || echo 0)\" -lt $n; do sleep 0.02; done; done; \
                       if test $RANK = 0; then echo step $n loss 0.5; fi; done";

fn annotated(pods: u32, script: &str, annotations: &str) -> String {
    let wanted = format!("  name: j\n  annotations: {{{annotations}}}\n");
    job(pods, script).replace("  name: j\n", &wanted)
}

fn report(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document")
}

#[test]
fn a_stopped_rank_is_named_and_the_gang_restarts() {
    let file = annotated(3, IN_STEP, "trainyard.dev/hang-floor: 1s");
    let fault = ["--format", "json", "--inject", "hang rank=2 at=step:20"];
    let outcome = run(&fault, &file).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = report(&outcome);
    assert_eq!(report["attempts"], 2, "{report}");
    let failure = &report["failures"][0];
    assert_eq!(failure["rank"], 2, "{report}");
    let verdict = &failure["verdict"];
    assert_eq!(verdict["label"], "hang_stopped", "{report}");
    assert_eq!(verdict["ranks"], serde_json::json!([2]), "{report}");
    assert_eq!(verdict["account"], "platform", "{report}");
    assert_eq!(report["spent"]["platform"], 1, "{report}");
    assert_eq!(report["spent"]["user"], 0, "{report}");
}

#[test]
fn a_hang_is_found_by_heartbeats_alone() {
    let script = IN_STEP.replace(
        "echo step $n loss 0.5",
        "echo step=$n phase=train > $TRAINYARD_BEAT",
    );
    assert_ne!(script, IN_STEP);
    let file = annotated(3, &script, "trainyard.dev/hang-floor: 1s");
    let fault = ["--format", "json", "--inject", "hang rank=2 at=step:20"];
    let outcome = run(&fault, &file).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = report(&outcome);
    assert_eq!(report["attempts"], 2, "{report}");
    assert_eq!(report["failures"][0]["rank"], 2, "{report}");
    let verdict = &report["failures"][0]["verdict"];
    assert_eq!(verdict["label"], "hang_stopped", "{report}");
    assert!(report["lastStep"].as_u64() >= Some(20), "{report}");
}

#[test]
fn a_job_that_only_reports_is_not_restarted() {
    let annotations = "trainyard.dev/hang-floor: 1s, trainyard.dev/watch: report";
    let file = annotated(3, IN_STEP, annotations);
    let call = run(&["--inject", "hang rank=2 at=step:20"], &file);
    let mut command = call.command();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut text = String::new();
    while !text.contains("hang_stopped: no step for ") {
        let read = stderr.read_line(&mut text).expect("stderr is UTF-8");
        assert_ne!(read, 0, "{text}");
    }
    send("-TERM", child.id());
    text += &std::io::read_to_string(stderr).expect("stderr is UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "{text}");
    assert!(text.contains("rank 2 is stopped by a signal"), "{text}");
    assert!(!text.contains("attempt 2 starts"), "{text}");
}

#[test]
fn a_job_ends_for_nan_where_it_says_so() {
    let script = "step=1; while :; do if test $step -lt 20; then echo step $step loss 0.5; \
                  else echo step $step loss nan; fi; step=$((step + 1)); sleep 0.01; done";
    let file = annotated(1, script, "trainyard.dev/on-nan: stop");
    let outcome = run(&["--format", "json"], &file).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = report(&outcome);
    assert_eq!(report["attempts"], 1, "{report}");
    let verdict = &report["verdict"];
    assert_eq!(verdict["label"], "nan_loss", "{report}");
    let sentence = verdict["sentence"].as_str().unwrap_or_default();
    assert!(sentence.contains("since step 20"), "{report}");
    assert_eq!(verdict["account"], "user", "{report}");
}
