//! What the doctor concludes while a job runs: in the report, in the status, and on whose account it is.

use serde_json::Value;

use crate::run::{job, run};

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

#[test]
fn the_same_mistake_twice_ends_the_job_and_is_told() {
    let job = tries(&job(2, &mistake("7")), 9);
    let call = run(&["--format", "json"], &job);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document");
    assert_eq!(report["attempts"], 2, "{}", outcome.stdout);
    let message = report["message"].as_str().expect("a sentence");
    let sentence = "attempts 1 and 2 ended with the same error at the same place";
    assert!(message.contains(sentence), "{message}");
    let verdict = &report["verdict"];
    assert_eq!(verdict["label"], "user_code_error");
    assert_eq!(verdict["ranks"], serde_json::json!([1]));
    assert_eq!(verdict["account"], "user");
    assert_eq!(verdict["attempt"], 2);
    assert_eq!(report["failures"][0]["verdict"]["label"], "user_code_error");
    assert_eq!(report["failures"][0]["verdict"]["attempt"], 1);

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
}

#[test]
fn another_line_each_time_is_another_mistake() {
    let script = format!("line=$(date +%s%N); {}", mistake("$line"));
    let outcome = run(&[], &job(2, &script)).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in [
        "has reached the specified backoff limit",
        "user 2 of 2",
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
fn ranks_that_use_another_transport_than_required_are_ended_early() {
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
    let sentence = "1 rank of attempt 2 uses NET/Socket, and the job requires NET/IB or NET/OFI";
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
