//! `run`: small jobs, really run on this machine.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::call::Call;

/// A job `j` of `pods` pods, the first of them the master, that run `script`.
pub(crate) fn job(pods: u32, script: &str) -> String {
    named("j", pods, script)
}

fn named(name: &str, pods: u32, script: &str) -> String {
    let role = |role: &str, replicas: u32| {
        format!(
            "    {role}:
      replicas: {replicas}
      restartPolicy: OnFailure
      template:
        spec:
          terminationGracePeriodSeconds: 5
          containers:
            - name: pytorch
              image: example.com/train:1
              command: [sh, -c, {script:?}]
"
        )
    };
    let workers = if pods > 1 {
        role("Worker", pods - 1)
    } else {
        String::new()
    };
    format!(
        "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
spec:
  runPolicy:
    backoffLimit: 2
  pytorchReplicaSpecs:
{}{workers}",
        role("Master", 1)
    )
}

pub(crate) fn run(words: &[&str], job: &str) -> Call {
    let words: Vec<&str> = ["run", "job.yaml"].iter().chain(words).copied().collect();
    Call::new(&words).file("job.yaml", job)
}

#[test]
fn a_job_that_succeeds() {
    let outcome = run(&[], &job(2, "echo world $WORLD_SIZE; echo oops >&2")).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // Whether the two ranks write within the time in which lines are folded is up to the machine, so
    // each line is printed once or twice.
    for (end, mark) in [(" world 2", "] "), (" oops", "]·")] {
        let lines: Vec<&str> = outcome
            .stdout
            .lines()
            .filter(|line| line.ends_with(end))
            .collect();
        assert!((1..=2).contains(&lines.len()), "{}", outcome.stdout);
        assert!(lines.iter().all(|line| line.contains(mark)), "{lines:?}");
    }
    assert!(
        outcome.stderr.contains("\nj succeeded after "),
        "{}",
        outcome.stderr
    );
    assert!(!outcome.stderr.contains('\u{1b}') && !outcome.stderr.contains('\r'));
}

#[test]
fn failed_job_reports_rank_and_last_lines() {
    let script = "echo rank $RANK; test $RANK = 1 && { echo the cause; exit 3; }; sleep 60";
    let call = run(&[], &job(2, script));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in [
        "\nj failed after ",
        "2 attempts",
        "failed first   worker-0 (rank 1) in attempt 1: exit code 3",
        "| the cause",
        "user: 2 of 2 used",
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    let logs = call.again(&["logs", "j", "--first-failure"]).run();
    assert_eq!(logs.stdout, "rank 1\nthe cause\n");
    let list = call.again(&["ps"]).run();
    assert!(list.stdout.contains("Failed"), "{}", list.stdout);
    let status = call.again(&["status", "j"]).run();
    assert!(
        status.stdout.contains("user: 2 of 2 used"),
        "{}",
        status.stdout
    );
}

#[test]
fn a_fault_on_purpose_is_recovered_from() {
    // Long enough for the fault however slow the machine is; only the second attempt is short.
    let script = "test -e again-$RANK && exit 0; touch again-$RANK; exec sleep 20";
    let words = ["--inject", "kill rank=0 at=200ms"];
    let outcome = run(&words, &job(2, script)).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for part in [
        "killed by signal 9 (SIGKILL), injected (`kill rank=0 at=0.2s`)",
        "attempt 2 starts",
        "succeeded",
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
}

#[test]
fn the_report_as_json() {
    let outcome = run(&["--format", "json"], &job(1, "echo hello; exit 7")).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document");
    assert_eq!(report["version"], 1);
    assert_eq!(report["outcome"], "failed");
    assert_eq!(report["failures"][0]["code"], 7);
    assert_eq!(report["failures"][0]["lastLines"][0], "hello");
    assert!(
        outcome.stderr.contains("[master-0]  hello"),
        "{}",
        outcome.stderr
    );

    let quiet = run(&["--format", "json", "-q"], &job(1, "echo hello")).run();
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&quiet.stdout).expect("stdout is one JSON document");
    assert_eq!(report["outcome"], "succeeded");
}

#[test]
fn quiet_leaves_what_ranks_write_and_failures() {
    let outcome = run(&["-q"], &job(1, "echo hello")).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    assert_eq!(outcome.stdout, "[master-0]  hello\n");
    let failed = run(&["-q"], &job(1, "exit 1")).run();
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("j failed"), "{}", failed.stderr);
}

/// Starts the call, waits until a rank says `ready`, and has `then` act on its process number.
pub(crate) fn interrupted(call: &Call, then: impl FnOnce(u32)) -> (Option<i32>, String, String) {
    interrupted_by(&mut call.command(), then)
}

/// The same with a command of its own.
pub(crate) fn interrupted_by(
    command: &mut Command,
    then: impl FnOnce(u32),
) -> (Option<i32>, String, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut text = String::new();
    while !text.contains("ready") {
        assert_ne!(
            stdout.read_line(&mut text).expect("stdout is UTF-8"),
            0,
            "{text}"
        );
    }
    then(child.id());
    let rest = std::io::read_to_string(stdout).expect("stdout is UTF-8");
    let output = child.wait_with_output().expect("the call ends");
    let stderr = String::from_utf8(output.stderr).expect("stderr is UTF-8");
    (output.status.code(), text + &rest, stderr)
}

pub(crate) fn send(signal: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(sent.expect("kill can be started").success());
}

#[test]
fn ctrl_c_lets_ranks_save() {
    let script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let call = run(&[], &job(1, script));
    let (code, stdout, stderr) = interrupted(&call, |pid| send("-INT", pid));
    assert_eq!(code, Some(1), "{stdout}\n{stderr}");
    assert!(stdout.contains("saved"), "{stdout}");
    assert!(stderr.contains("stopping: pods get SIGTERM"), "{stderr}");
    assert!(stderr.contains("j was stopped after"), "{stderr}");
    let list = call.again(&["ps"]).run();
    assert!(list.stdout.contains("Stopped"), "{}", list.stdout);
}

#[test]
fn ctrl_c_twice_ends_at_once() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let job = job(1, script).replace("Seconds: 5", "Seconds: 600");
    let call = run(&[], &job);
    let (code, stdout, stderr) = interrupted(&call, |pid| {
        send("-INT", pid);
        // Two signals of a kind that are not taken in between are one.
        while !call
            .again(&["status", "j"])
            .run()
            .stdout
            .contains("Suspended")
        {}
        send("-INT", pid);
    });
    assert_eq!(code, Some(1), "{stdout}\n{stderr}");
    assert!(stderr.contains("was stopped"), "{stderr}");
}

#[test]
fn other_terminals_see_a_run_that_goes_on() {
    let script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let call = run(&[], &job(1, script));
    let (code, _, stderr) = interrupted(&call, |pid| {
        let list = call.again(&["ps"]).run();
        assert!(list.stdout.contains("Running"), "{}", list.stdout);
        let status = call.again(&["status", "j"]).run();
        assert!(status.stdout.contains("in process"), "{}", status.stdout);
        let logs = call.again(&["logs", "j", "--rank", "0"]).run();
        assert_eq!(logs.stdout, "ready\n");
        let second = call.again(&["run", "job.yaml"]).run();
        assert_eq!(second.code, Some(2), "{second:?}");
        assert!(
            second.stderr.contains("job `j` is already running"),
            "{}",
            second.stderr
        );
        send("-TERM", pid);
    });
    assert_eq!(code, Some(1), "{stderr}");
}

#[test]
fn live_run_shows_first_failure_and_step() {
    let script = "test -e again || { touch again; echo out of luck; exit 7; }; \
                  trap 'exit 0' TERM; echo step 41 loss 0.5; echo ready; \
                  while :; do sleep 0.05; done";
    let call = run(&[], &job(1, script));
    let (code, _, stderr) = interrupted(&call, |pid| {
        // Progress is written at most once a second.
        while !call.again(&["ps"]).run().stdout.contains("41     0.5000") {}
        let status = call.again(&["status", "j"]).run().stdout;
        for want in [
            "failed first  master-0 (rank 0) in attempt 1: exit code 7",
            "step          41, loss 0.5000",
        ] {
            assert!(status.contains(want), "{status}");
        }
        let first = call.again(&["logs", "j", "--first-failure"]).run();
        assert_eq!(first.stdout, "out of luck\n");
        send("-TERM", pid);
    });
    assert_eq!(code, Some(1), "{stderr}");
}

#[test]
fn ranks_that_share_a_pod_are_counted_one_by_one() {
    let script = "test -e again-$RANK && exit 0; touch again-$RANK; echo $RANK; exec sleep 100";
    let job = job(2, script).replace(
        "spec:\n  runPolicy",
        "spec:\n  nprocPerNode: \"4\"\n  runPolicy",
    );
    // Both have said their rank by then.
    let script = "while ! test -e again-0 || ! test -e again-1; do sleep 0.02; done";
    let job = job.replace(
        "echo $RANK;",
        &format!("echo $RANK; {script}; echo step 1;"),
    );
    let call = run(&["--inject", "exit code=3 rank=6 at=step:1"], &job);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for want in [
        "into `j-worker-0`, which has ranks 4 to 7",
        "failed first   worker-0 (ranks 4 to 7) in attempt 1: exit code 3, injected",
    ] {
        assert!(outcome.stderr.contains(want), "{}", outcome.stderr);
    }
    let log = call
        .again(&["logs", "j", "--rank", "7", "--attempt", "1"])
        .run();
    assert_eq!(log.stdout.lines().next(), Some("1"));
    assert_eq!(
        log.stderr,
        "rank 7 runs in worker-0, whose log contains ranks 4 to 7\n"
    );
    let none = call.again(&["logs", "j", "--rank", "8"]).run();
    assert!(none.stderr.contains("it has 8 ranks"), "{}", none.stderr);
    let refused = call
        .again(&["run", "job.yaml", "--inject", "kill rank=8 at=0s"])
        .run();
    assert!(
        refused
            .stderr
            .contains("names rank 8, but the job has only 8\n\nhint: name one of 0 to 7;"),
        "{}",
        refused.stderr
    );
}

#[test]
fn following_ends_with_the_run() {
    let script = "echo ready; while ! test -e go; do sleep 0.05; done; echo last";
    let call = run(&[], &job(1, script));
    let mut tail = None;
    let (code, ..) = interrupted(&call, |_| {
        let child = call
            .again(&["logs", "j", "--follow"])
            .command()
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        tail = Some(child);
        std::fs::write(call.folder().join("go"), "").expect("the folder takes files");
    });
    assert_eq!(code, Some(0));
    let output = tail
        .expect("it was started")
        .wait_with_output()
        .expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ready\nlast\n");
}

#[test]
fn a_reader_that_goes_away_does_not_end_the_job() {
    let call = run(
        &[],
        &job(
            1,
            "for i in 1 2 3; do echo line; sleep 0.1; done; touch done",
        ),
    );
    let mut child = call
        .command()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the call ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(call.folder().join("done").exists());
    assert!(!said.contains("pipe"), "{said}");
}

#[test]
fn a_flood_is_sampled_and_kept_in_the_log() {
    let script = "yes 'a line of the flood' | head -n 200000; echo the end";
    let call = run(&[], &job(1, script));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let shown = outcome.stdout.lines().count();
    assert!((1_000..100_000).contains(&shown), "{shown} lines");
    assert!(outcome.stdout.contains("left out"), "{shown} lines");
    let logs = call.again(&["logs", "j"]).run();
    assert_eq!(logs.stdout.lines().count(), 200_001);
}

#[test]
fn what_cannot_be_run_is_said() {
    let two = format!("{}---\n{}", named("a", 1, "true"), named("b", 1, "true"));
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
    let fine = job(1, "true");
    let cases: [(&str, &[&str], &str, &str); 9] = [
        (
            "two jobs",
            &[],
            &two,
            "contain 2 jobs, and `run` runs one: PyTorchJob `a` in",
        ),
        (
            "no such job",
            &["--job", "c"],
            &two,
            "no job `c` in the files",
        ),
        (
            "no job",
            &[],
            config,
            "the file has no job in it, only objects",
        ),
        ("bad file", &[], "kind: [", "error[TY"),
        (
            "no program",
            &[],
            &fine.replace("[sh, -c, ", "[no-such-program, -c, "),
            "`no-such-program`, which is not on its `PATH`",
        ),
        (
            "no role",
            &["--replicas", "PS=1"],
            &fine,
            "has no role `PS`",
        ),
        (
            "bad role",
            &["--replicas", "Foo=1"],
            &fine,
            "unknown role `Foo`",
        ),
        (
            "bad fault",
            &["--inject", "explode"],
            &fine,
            "unknown fault `explode`",
        ),
        (
            "no such rank",
            &["--inject", "kill rank=9 at=1s"],
            &fine,
            "names rank 9",
        ),
    ];
    for (name, words, job, want) in cases {
        let outcome = run(words, job).run();
        assert_eq!(outcome.code, Some(2), "{name}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "{name}");
        assert!(outcome.stderr.contains(want), "{name}: {}", outcome.stderr);
    }
    let chosen = run(&["--job", "b", "-q"], &two).run();
    assert_eq!(chosen.code, Some(0), "{chosen:?}");
}
