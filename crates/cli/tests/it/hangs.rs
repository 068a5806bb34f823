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

/// Rank 0 reports steps and passes a word to the others for each, which wait for it without using any processor time.
/// `BETWEEN` is what it does after step 20. In the second attempt they end at once.
const WAITING: &str = "test -e again-$RANK && exit 0; touch again-$RANK; \
                       if test $RANK != 0; then mkfifo word-$RANK; exec 4<>word-$RANK; \
                       while read word <&4; do test $word = end && exit 0; done; fi; \
                       until test -p word-1 && test -p word-2; do sleep 0.02; done; exec 4<>word-1 5<>word-2; \
                       n=0; while test $n -lt 40; do n=$((n + 1)); echo step $n loss 0.5; echo go >&4; echo go >&5; \
                       sleep 0.05; if test $n = 20; then BETWEEN; fi; done; echo end >&4; echo end >&5";

/// Short times, so that a silence of a few seconds is a hang unless something excuses it.
const SHORT: &str = "trainyard.dev/hang-floor: 4s, trainyard.dev/hang-after: 8s";

fn annotated(pods: u32, script: &str, annotations: &str) -> String {
    let wanted = format!("  name: j\n  annotations: {{{annotations}}}\n");
    job(pods, script).replace("  name: j\n", &wanted)
}

fn report(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document")
}

#[test]
fn a_stopped_rank_is_named_and_the_gang_restarts() {
    let file = annotated(3, IN_STEP, "trainyard.dev/hang-floor: 3s");
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
    let file = annotated(3, &script, "trainyard.dev/hang-floor: 3s");
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
    let annotations = "trainyard.dev/hang-floor: 3s, trainyard.dev/watch: report";
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
    // At most 2 s after the second bad line, of which there are at most 100 in a second.
    let last = report["lastStep"].as_u64();
    assert!(last.is_some_and(|step| step <= 21 + 200), "{report}");
}

/// Scenario 6: a save that says nothing, and the same silence without one.
#[test]
fn bytes_that_move_are_no_hang() {
    // One process that writes for 16 s: of a script, the first program that is no shell is looked at.
    let save = "{ i=0; while test $i -lt 32; do head -c 2500000 /dev/zero; sleep 0.5; i=$((i + 1)); done; } | cat > save";
    let cases = [(save, 1, None), ("sleep 600", 2, Some("hang_cpu_side"))];
    for (between, attempts, label) in cases {
        let file = annotated(3, &WAITING.replace("BETWEEN", between), SHORT);
        let outcome = run(&["--format", "json"], &file).run();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let report = report(&outcome);
        assert_eq!(report["attempts"], attempts, "{report}");
        let verdict = &report["failures"][0]["verdict"];
        assert_eq!(verdict["label"].as_str(), label, "{report}");
        if label.is_some() {
            assert_eq!(verdict["ranks"], serde_json::json!([0]), "{report}");
        } else {
            assert!(!outcome.stderr.contains("hang_"), "{}", outcome.stderr);
        }
    }
}

/// Scenario 7: silence before the first step, and in it.
#[test]
fn first_step_takes_its_time() {
    // Both silences are longer than `hang-after`, and steps are far from it on a busy machine, too.
    let script = "sleep 14; echo warm; sleep 10; n=0; while test $n -lt 10; do n=$((n + 1)); \
                  if test $RANK = 0; then echo step $n loss 0.5; fi; sleep 0.05; done";
    let times = "trainyard.dev/hang-floor: 6s, trainyard.dev/hang-after: 8s";
    let outcome = run(&["--format", "json"], &annotated(2, script, times)).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = report(&outcome);
    assert_eq!(report["attempts"], 1, "{report}");
    assert!(!outcome.stderr.contains("hang_"), "{}", outcome.stderr);
}

/// Scenario 8, where the job only reports: three bad losses in a row are named, and the job trains on.
#[test]
fn nan_is_reported_and_the_job_goes_on() {
    let script = "step=0; while test $step -lt 40; do step=$((step + 1)); loss=0.5; \
                  if test $step -ge 20 && test $step -le 22; then loss=nan; fi; echo step $step loss $loss; sleep 0.01; done";
    let outcome = run(&["--format", "json"], &job(1, script)).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(report(&outcome)["attempts"], 1, "{outcome:?}");
    let found = outcome.stderr.matches("nan_loss: ").count();
    assert_eq!(found, 1, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("since step 20"),
        "{}",
        outcome.stderr
    );
}
