//! What the doctor concludes while a job runs: in the report, in the status, and on whose account it is.

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    run::{job, run},
};

/// Rank 1 raises an exception, as Python writes it; the others wait for it.
fn mistake(line: &str) -> String {
    let lines = [
        "Traceback (most recent call last):",
        &format!("  File \"/app/train.py\", line {line}, in main"),
        "    rate = config['rate']",
        "KeyError: 'rate'",
    ];
    let lines: Vec<String> = lines
        .iter()
        .map(|line| format!("echo {line:?} >&2"))
        .collect();
    format!(
        "test $RANK = 1 && {{ {}; exit 1; }}; sleep 60",
        lines.join("; ")
    )
}

fn tries(job: &str, limit: u32) -> String {
    job.replace("backoffLimit: 2", &format!("backoffLimit: {limit}"))
}

/// The job without any limit on retries.
fn unlimited(job: &str) -> String {
    job.replace("  runPolicy:\n    backoffLimit: 2\n", "")
}

fn report_of(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document")
}

#[test]
fn user_error_fails_job_at_once() {
    let call = run(&["--format", "json"], &unlimited(&job(2, &mistake("7"))));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = report_of(&outcome);
    assert_eq!(report["attempts"], 1, "{}", outcome.stdout);
    let message = report["message"].as_str().expect("a sentence");
    for part in [
        "because a retry does not help: ",
        "KeyError: 'rate'",
        "set `backoffLimit`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let verdict = &report["verdict"];
    assert_eq!(verdict["label"], "user_code_error");
    assert_eq!(verdict["ranks"], serde_json::json!([1]));
    assert_eq!(verdict["account"], "user");
    assert_eq!(verdict["attempt"], 1);
    assert_eq!(report["failures"][0]["verdict"]["label"], "user_code_error");

    let status = call.again(&["status", "j"]).run();
    for part in ["verdict", "user_code_error: ", "in main) [rank 1]"] {
        assert!(status.stdout.contains(part), "{part}: {}", status.stdout);
    }
    let explained = call.again(&["explain", "j"]).run();
    let sentence = "the program raised an exception: KeyError: 'rate'";
    let words = explained.stdout.split_whitespace().collect::<Vec<_>>();
    assert!(words.join(" ").contains(sentence), "{}", explained.stdout);
    let doctor = call.again(&["doctor", "--job", "j"]).run();
    assert!(
        doctor.stdout.starts_with("user_code_error: "),
        "{}",
        doctor.stdout
    );
    let first = "ended first: pod j-worker-0 (rank 1) ended with exit code 1 at ";
    assert!(doctor.stdout.contains(first), "{}", doctor.stdout);
}

#[test]
fn budget_applies_and_repeated_failure_printed_once() {
    let outcome = run(&[], &job(2, &mistake("7"))).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in [
        "has reached the specified backoff limit",
        "user: 2 of 2 used",
        "in attempt 1: exit code 1; the same in attempt 2\n",
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    assert_eq!(
        outcome.stderr.matches("verdict   ").count(),
        1,
        "{}",
        outcome.stderr
    );
}

#[test]
fn typo_in_command_fails_job_at_once() {
    let python = "echo \"python: can't open file '/app/trian.py': [Errno 2] No such file or directory\" >&2; exit 2";
    let argparse = "echo 'torchrun: error: unrecognized arguments: --nporc=2' >&2; exit 2";
    let cases = [
        ("exec sh /nowhere/trian.sh", "/nowhere/trian.sh"),
        ("exec /nowhere/trian", "/nowhere/trian"),
        ("trian-the-model", "trian-the-model"),
        (python, "trian.py"),
        (argparse, "--nporc=2"),
    ];
    for (script, word) in cases {
        let outcome = run(&["--format", "json"], &unlimited(&job(1, script))).run();
        assert_eq!(outcome.code, Some(1), "{script}: {outcome:?}");
        let report = report_of(&outcome);
        assert_eq!(report["attempts"], 1, "{script}: {}", outcome.stdout);
        let message = report["message"].as_str().expect("a sentence");
        assert!(
            message.contains("a retry does not help: "),
            "{script}: {message}"
        );
        let evidence = report["verdict"].to_string() + message;
        assert!(evidence.contains(word), "{script}: {evidence}");
    }
}

/// A `TFJob` of one worker, whose pods restart alone.
fn restarts_alone(policy: &str, script: &str) -> String {
    format!(
        "\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: j
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 1
      restartPolicy: {policy}
      template:
        spec:
          terminationGracePeriodSeconds: 5
          containers:
            - name: tensorflow
              image: example.com/train:1
              command: [sh, -c, {script:?}]
"
    )
}

/// How often the container was started: each start leaves a mark.
fn starts(call: &Call) -> usize {
    let marks = std::fs::read_to_string(call.folder().join("starts"));
    marks.expect("it was started").lines().count()
}

#[test]
fn pod_restarting_alone_stops_on_hopeless_error() {
    let script = "echo start >> starts; exec sh /nowhere/trian.sh";
    for policy in ["OnFailure", "Always"] {
        let call = run(&["--format", "json"], &restarts_alone(policy, script));
        let outcome = call.run();
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        let report = report_of(&outcome);
        let message = report["message"].as_str().expect("a sentence");
        for part in [
            "a retry does not help: ",
            "/nowhere/trian.sh",
            "set `backoffLimit`",
        ] {
            assert!(message.contains(part), "{policy}: {part}: {message}");
        }
        assert_eq!(report["attempts"], 1, "{}", outcome.stdout);
        assert_eq!(report["spent"]["user"], 1, "{}", outcome.stdout);
        let label = "data_path_missing";
        assert_eq!(report["verdict"]["label"], label, "{}", outcome.stdout);
        assert_eq!(report["failures"][0]["verdict"]["label"], label);
        assert_eq!(starts(&call), 1, "{policy}");
    }
}

#[test]
fn trained_pod_restarting_alone_gets_second_chance() {
    let trains = format!(
        "echo start >> starts; echo step 1 loss 2.0; {}",
        mistake("7")
    );
    let trains = trains.replace("test $RANK = 1 && ", "");
    let call = run(&["--format", "json"], &restarts_alone("OnFailure", &trains));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = report_of(&outcome);
    let message = report["message"].as_str().expect("a sentence");
    let twice = "pod `j-worker-0` ended twice in a row with the same error at the same place: ";
    assert!(message.contains(twice), "{message}");
    assert_eq!(report["spent"]["user"], 2, "{}", outcome.stdout);
    assert_eq!(starts(&call), 2);
}

#[test]
fn killed_rank_blamed_not_its_peer() {
    let lost = "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:4711";
    let script = format!(
        "test $RANK = 0 && {{ echo '{lost}' >&2; touch said; sleep 60; }}; \
         until test -e said; do sleep 0.05; done; kill -9 $$$$"
    );
    let call = run(&["--format", "json"], &tries(&job(2, &script), 1));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = report_of(&outcome);
    let verdict = &report["verdict"];
    assert_eq!(verdict["label"], "killed_from_outside", "{verdict}");
    assert_eq!(verdict["ranks"], serde_json::json!([1]), "{verdict}");
    let doctor = call.again(&["doctor", "--job", "j"]).run();
    let sentence =
        "rank 1 (pod `j-worker-0`) was killed by signal 9 (SIGKILL); the sender is unknown";
    assert!(doctor.stdout.contains(sentence), "{}", doctor.stdout);
    let followed = call.again(&["doctor", "--job", "j", "--follow"]).run();
    assert_eq!(followed.code, doctor.code, "{followed:?}");
    assert!(followed.stdout.contains(sentence), "{}", followed.stdout);

    // What the engine of another machine stored: the kernel killed it for its memory.
    let runs = call.folder().join(".trainyard/runs/j");
    let mut folders = std::fs::read_dir(runs).expect("a run").flatten();
    let stored = folders.find_map(|folder| {
        let path = folder.path().join("report.json");
        let text = std::fs::read_to_string(&path).ok()?;
        Some((path, text))
    });
    let (path, text) = stored.expect("a report");
    let text = text.replace("\"outOfMemory\": false", "\"outOfMemory\": true");
    std::fs::write(
        path,
        text.replace("\"outOfMemory\":false", "\"outOfMemory\":true"),
    )
    .expect("the report can be written");
    let doctor = call.again(&["doctor", "--job", "j"]).run();
    assert!(
        doctor.stdout.starts_with("host_oom_killed: "),
        "{}",
        doctor.stdout
    );
    assert!(doctor.stdout.contains("rank 1"), "{}", doctor.stdout);
}

#[test]
fn oom_worker_blamed_not_its_peer() {
    let lost = "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:4711";
    let script = format!(
        "test $RANK = 0 && {{ echo '{lost}' >&2; touch said; sleep 20; }}; \
         until test -e said; do sleep 0.05; done; \
         x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo $x | wc -c"
    );
    let limited = unlimited(&job(2, &script)).replace(
        "              command:",
        "              resources: {limits: {memory: 32Mi}}\n              command:",
    );
    let call = run(&["--format", "json"], &limited);
    let outcome = call.run();
    let report = report_of(&outcome);
    if report["failures"].as_array().is_none_or(Vec::is_empty) {
        println!(
            "SKIPPED: this user may not make cgroups here: {}",
            outcome.stderr
        );
        return;
    }
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(report["attempts"], 1, "{}", outcome.stdout);
    let verdict = &report["verdict"];
    assert_eq!(verdict["label"], "host_oom_killed", "{verdict}");
    assert_eq!(verdict["ranks"], serde_json::json!([1]), "{verdict}");
    let sentence = verdict["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("limit of 32Mi"), "{sentence}");
}

#[test]
fn another_line_each_time_is_another_mistake() {
    let script = format!("line=$(date +%s%N); {}", mistake("$line"));
    let outcome = run(&[], &job(2, &script)).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in [
        "has reached the specified backoff limit",
        "user: 2 of 2 used",
        "verdict        user_code_error: ",
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
}

/// A line of NCCL about a channel of the rank that runs the script.
fn channel(network: &str) -> String {
    format!("node-1:42:99 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via {network}/0")
}

fn requiring(transport: &str, job: &str) -> String {
    job.replace(
        "  name: j\n",
        &format!(
            "  name: j\n  annotations: {{trainyard.dev/require-transport: \"{transport}\"}}\n"
        ),
    )
}

#[test]
fn wrong_transport_ends_attempt_early() {
    // The second attempt finds the network that it needs, and goes on until that was noticed.
    let script = format!(
        "test -e tried && {{ \
         echo \"node-1:42:99 [0] NCCL INFO comm 0x1 rank $RANK nranks 2 cudaDev 0 busId 1b000 - Init COMPLETE\"; \
         echo '{}'; \
         for try in $(seq 600); do \
         grep -q '2 of 2 ranks use NET/IB' .trainyard/runs/j/*/status.json && exit 0; sleep 0.1; done; exit 1; }}; \
         test $RANK = 1 && {{ touch tried; echo '{}'; }}; sleep 60",
        channel("NET/IB"),
        channel("NET/Socket")
    );
    let call = run(
        &["--format", "json"],
        &requiring("NET/IB", &job(2, &script)),
    );
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document");
    assert_eq!(report["attempts"], 2, "{}", outcome.stdout);
    assert_eq!(report["spent"]["platform"], 1, "{}", outcome.stdout);
    assert_eq!(report["spent"]["user"], 0, "{}", outcome.stdout);
    let status = call.again(&["status", "j"]).run();
    for part in ["TransportVerified yes", "2 of 2 ranks use NET/IB"] {
        assert!(status.stdout.contains(part), "{part}: {}", status.stdout);
    }
}

#[test]
fn the_same_wrong_transport_twice_ends_the_job() {
    let script = format!(
        "test $RANK = 1 && echo '{}'; sleep 60",
        channel("NET/Socket")
    );
    let call = run(
        &["--format", "json"],
        &requiring("NET/IB,NET/OFI", &job(2, &script)),
    );
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document");
    assert_eq!(report["attempts"], 2, "{}", outcome.stdout);
    let message = report["message"].as_str().expect("a sentence");
    let sentence = "1 rank of attempt 2 uses NET/Socket, but the job requires NET/IB or NET/OFI";
    assert!(
        message.contains("attempts 1 and 2 used the same transport"),
        "{message}"
    );
    assert!(message.contains(sentence), "{message}");
    let verdict = &report["verdict"];
    assert_eq!(verdict["label"], "socket_fallback", "{verdict}");
    assert_eq!(verdict["account"], "platform", "{verdict}");
    assert_eq!(verdict["ranks"], serde_json::json!([1]), "{verdict}");
    let status = call.again(&["status", "j"]).run();
    for part in ["TransportVerified no", "socket_fallback: "] {
        assert!(status.stdout.contains(part), "{part}: {}", status.stdout);
    }
    let explained = call.again(&["explain", "j"]).run();
    assert!(
        explained.stdout.contains("NET/Socket"),
        "{}",
        explained.stdout
    );
}

#[test]
fn a_broken_gpu_is_not_on_the_programs_account() {
    let xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.";
    // Rank 0 ends well once rank 1 has.
    let script = format!(
        "test $RANK = 0 && {{ until test -e done; do sleep 0.05; done; exit 0; }}; \
         test -e tried && {{ touch done; exit 0; }}; touch tried; echo '{xid}'; exit 1"
    );
    let job = tries(&job(2, &script), 1);
    let outcome = run(&["--format", "json"], &job).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document");
    assert_eq!(report["spent"]["infrastructure"], 1, "{}", outcome.stdout);
    assert_eq!(report["spent"]["user"], 0);
    let verdict = &report["failures"][0]["verdict"];
    assert_eq!(verdict["account"], "infrastructure", "{verdict}");

    // Old behaviour is brought back as a whole.
    let compat = job.replace(
        "  name: j\n",
        "  name: j\n  annotations: {trainyard.dev/compat: ignore-verdicts}\n",
    );
    let outcome = run(&["--format", "json"], &compat).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
}
