//! How pods are known to have ended, together with their logs.

use jiff::Timestamp;

use super::*;
use crate::{
    explain::PodFacts,
    job::{Account, Cause, Disruption, Exit, LastFailure, NodeHealth, ObservedPod, PodPhase},
};

const LOST_PEER: &str =
    "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:4711\n";
const TRACE: &str = "Traceback (most recent call last):\n  File \"/app/train.py\", line 7, in main\n    \
                     rate = config['rate']\nKeyError: 'rate'\n";

/// The end of `j-worker-INDEX`, rank INDEX + 1, on `node-INDEX`.
fn ended(index: u32, end: End, second: i64) -> Known {
    Known {
        pod: format!("j-worker-{index}"),
        rank: Some(index + 1),
        node: Some(format!("node-{index}")),
        end,
        at: Timestamp::from_second(second).ok(),
        memory_limit: None,
        on_purpose: None,
    }
}

/// Workers with their ends, and the second of each.
type Ends = Vec<(u32, End, i64)>;

/// Name, logs of both workers, their ends, and label, rank and account of the verdict.
type Case<'a> = (&'a str, [&'a str; 2], Ends, &'a str, Option<u32>, Account);

/// What is concluded from the logs of workers 0 and 1 and from how they ended.
fn concluded(logs: [&str; 2], known: Vec<Known>) -> Report {
    let mut doctor = doctor();
    for (index, log) in (0..).zip(logs) {
        let id = doctor.source(&format!("j-worker-{index}/pytorch"));
        let node = format!("node-{index}");
        doctor.set_rank_and_node(id, Some(index + 1), Some(&node));
        doctor.bytes(id, log.as_bytes());
    }
    for known in known {
        doctor.add_known_end(known);
    }
    doctor.finish()
}

#[test]
fn log_never_contradicts_known_ends() {
    use Account::{Infrastructure, Platform, Preemption, User};
    let memory = End::OutOfMemory(137);
    let exit = End::Exit;
    let disrupted = End::Disrupted;
    let argparse = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr=1\n";
    let missing = "python: can't open file '/app/trian.py': [Errno 2] No such file or directory\n";
    let cases: Vec<Case<'_>> = vec![
        (
            "out of memory, and a peer that reports it",
            [LOST_PEER, ""],
            vec![(0, exit(1), 9), (1, memory.clone(), 9)],
            "host_oom_killed",
            Some(2),
            User,
        ),
        (
            "out of memory, and an exception of the peer",
            [TRACE, ""],
            vec![(0, exit(1), 9), (1, memory, 10)],
            "host_oom_killed",
            Some(2),
            User,
        ),
        (
            "SIGKILL, and a peer that reports it",
            [LOST_PEER, "step 1\n"],
            vec![(0, exit(1), 9), (1, exit(137), 9)],
            "killed_from_outside",
            Some(2),
            User,
        ),
        (
            "a segmentation fault",
            [LOST_PEER, ""],
            vec![(0, exit(1), 9), (1, exit(139), 8)],
            "worker_segfault",
            Some(2),
            User,
        ),
        (
            "a bus error",
            ["", ""],
            vec![(1, exit(135), 8)],
            "shm_too_small",
            Some(2),
            Platform,
        ),
        (
            "the node is gone",
            [TRACE, ""],
            vec![(0, exit(1), 9), (1, End::NodeDeleted, 60)],
            "node_lost",
            Some(2),
            Infrastructure,
        ),
        (
            "preempted",
            [LOST_PEER, ""],
            vec![(0, exit(1), 9), (1, disrupted(Disruption::Preempted), 9)],
            "sigterm_preemption",
            Some(2),
            Preemption,
        ),
        (
            "drained",
            ["", ""],
            vec![(1, disrupted(Disruption::Evicted), 9)],
            "sigterm_preemption",
            Some(2),
            Platform,
        ),
        (
            "evicted by the node",
            ["", ""],
            vec![(1, disrupted(Disruption::NodePressure), 9)],
            "sigterm_preemption",
            Some(2),
            Infrastructure,
        ),
        (
            "SIGTERM from an unknown sender",
            ["", ""],
            vec![(1, exit(143), 9)],
            "sigterm_preemption",
            Some(2),
            User,
        ),
        (
            "an exception and its exit code",
            [LOST_PEER, TRACE],
            vec![(0, exit(1), 10), (1, exit(1), 9)],
            "user_code_error",
            Some(2),
            User,
        ),
        (
            "an exit code that its log does not explain",
            [LOST_PEER, "step 1\n"],
            vec![(0, exit(1), 10), (1, exit(3), 9)],
            "worker_exit_nonzero",
            Some(2),
            User,
        ),
        (
            "the first failure is unknown",
            [LOST_PEER, "step 1\n"],
            vec![(0, exit(1), 9), (1, exit(3), 9)],
            "remote_peer_died",
            None,
            User,
        ),
        (
            "wrong arguments",
            ["", argparse],
            vec![(1, exit(2), 9)],
            "wrong_arguments",
            Some(2),
            User,
        ),
        (
            "a missing script",
            ["", missing],
            vec![(1, exit(2), 9)],
            "data_path_missing",
            Some(2),
            User,
        ),
        (
            "a missing command",
            ["", "bash: line 1: torchrum: command not found\n"],
            vec![(1, exit(127), 9)],
            "command_not_found",
            Some(2),
            User,
        ),
        (
            "the same without output",
            ["", ""],
            vec![(1, exit(127), 9)],
            "command_not_found",
            Some(2),
            User,
        ),
        (
            "a container that cannot start",
            ["", ""],
            vec![(
                1,
                End::NotStarted("exec: \"pyhton\": executable file not found".into()),
                9,
            )],
            "command_not_found",
            Some(2),
            User,
        ),
    ];
    for (name, logs, ends, label, rank, account) in cases {
        let known = ends.into_iter();
        let known = known
            .map(|(index, end, at)| ended(index, end, at))
            .collect();
        let report = concluded(logs, known);
        let verdict = &report.verdicts[0];
        assert_eq!(verdict.label, label, "{name}: {:?}", labels(&report));
        assert_eq!(verdict.ranks, Vec::from_iter(rank), "{name}");
        assert_eq!(verdict.account, account, "{name}");
        let node = rank.map(|rank| format!("node-{}", rank - 1));
        if verdict
            .evidence
            .first()
            .is_some_and(|first| first.line == 0)
        {
            assert_eq!(verdict.nodes, Vec::from_iter(node), "{name}");
        }
        assert!(!report.is_healthy(), "{name}");
        let first = &report.facts.ended[0];
        assert!(!first.how.is_empty(), "{name}");
    }
}

#[test]
fn sentence_names_rank_and_known_end() {
    let mut memory = ended(1, End::OutOfMemory(137), 9);
    memory.memory_limit = Some("2Gi".into());
    let report = concluded([LOST_PEER, ""], vec![memory]);
    assert_eq!(
        report.verdicts[0].sentence,
        "a process was OOM-killed (out of host memory): the kernel killed rank 2 (pod `j-worker-1`) at its memory \
         limit of 2Gi (exit code 137)"
    );
    let evidence = &report.verdicts[0].evidence[0];
    assert_eq!((evidence.file.as_str(), evidence.line), ("j-worker-1", 0));

    let report = concluded(["", ""], vec![ended(1, End::Exit(137), 9)]);
    assert_eq!(
        report.verdicts[0].sentence,
        "a process was killed from outside: rank 2 (pod `j-worker-1`) was killed by signal 9 (SIGKILL); the sender \
         is unknown"
    );

    let report = concluded(
        [LOST_PEER, ""],
        vec![ended(0, End::Exit(1), 9), ended(1, End::Exit(3), 8)],
    );
    let sentence = &report.verdicts[0].sentence;
    assert!(
        sentence.ends_with("(pod `j-worker-1`) ended with exit code 3 first; it wrote nothing"),
        "{sentence}"
    );

    let mut killed = ended(1, End::Exit(137), 9);
    killed.on_purpose = Some("kill rank=2".into());
    let report = concluded([LOST_PEER, ""], vec![killed]);
    let sentence = &report.verdicts[0].sentence;
    assert!(
        sentence.contains("was ended by an injected fault (`kill rank=2`)"),
        "{sentence}"
    );
}

#[test]
fn a_kernel_log_names_who_sent_the_signal() {
    let kernel = "kernel: Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB\n";
    let report = concluded(["", kernel], vec![ended(1, End::Exit(137), 9)]);
    assert_eq!(
        labels(&report)[0],
        "host_oom_killed",
        "{:?}",
        labels(&report)
    );
}

#[test]
fn ends_are_in_order_of_time() {
    let known = vec![
        ended(0, End::Exit(1), 10),
        ended(1, End::Exit(139), 9),
        ended(2, End::Unknown, 11),
    ];
    let report = concluded(["", ""], known);
    let pods: Vec<&str> = report
        .facts
        .ended
        .iter()
        .map(|end| end.pod.as_str())
        .collect();
    assert_eq!(pods, ["j-worker-1", "j-worker-0", "j-worker-2"]);
}

#[test]
fn what_is_known_of_a_pod() {
    let pod = |change: fn(&mut ObservedPod)| {
        let mut pod = ObservedPod::in_phase(PodPhase::Failed);
        change(&mut pod);
        pod
    };
    let exit = |code, out_of_memory| Exit {
        code,
        out_of_memory,
        at: None,
    };
    let silent = Some(NodeHealth::SilentSince(Timestamp::UNIX_EPOCH));
    let cases: Vec<(&str, ObservedPod, Option<NodeHealth>, Option<End>)> = vec![
        (
            "failed without a code",
            pod(|_| ()),
            None,
            Some(End::Unknown),
        ),
        ("runs", pod(|pod| pod.phase = PodPhase::Running), None, None),
        (
            "runs on a silent node",
            pod(|pod| pod.phase = PodPhase::Running),
            silent,
            Some(End::NodeSilent),
        ),
        (
            "is being deleted",
            pod(|pod| pod.deleted_at = Some(Timestamp::UNIX_EPOCH)),
            None,
            None,
        ),
        (
            "evicted",
            pod(|pod| pod.disruption = Some(Disruption::Evicted)),
            None,
            Some(End::Disrupted(Disruption::Evicted)),
        ),
        (
            "could not start",
            pod(|pod| pod.start_error = Some("no".into())),
            None,
            Some(End::NotStarted("no".into())),
        ),
    ];
    for (name, pod, node, want) in cases {
        let known = Known::of_pod(&pod, "j-worker-0".into(), node);
        assert_eq!(known.map(|known| known.end), want, "{name}");
    }
    let mut seen = PodFacts::new("j-worker-0", PodPhase::Running);
    seen.exit = Some(exit(1, false));
    assert_eq!(seen.known_end(None), None, "it runs");
    seen.restarts = 1;
    seen.exit = Some(exit(137, true));
    let known = seen.known_end(Some(1)).expect("it was restarted in place");
    assert_eq!(known.end, End::OutOfMemory(137));

    let last = |cause: Cause| LastFailure {
        attempt: 1,
        pod: "j-worker-0".into(),
        account: Account::User,
        message: cause.to_string(),
        cause: Some(cause),
        step: None,
        since_attempt: None,
        verdict: None,
    };
    let exited = |code, out_of_memory| Cause::Exited {
        code,
        out_of_memory,
    };
    let kept = [
        (exited(137, true), Some(End::OutOfMemory(137))),
        (exited(1, false), Some(End::Exit(1))),
        (Cause::NodeLost, Some(End::NodeDeleted)),
        (Cause::Deleted, None),
    ];
    for (cause, want) in kept {
        let known = last(cause).known_end();
        assert_eq!(known.map(|known| known.end), want, "{cause}");
    }
    let without = LastFailure {
        cause: None,
        ..last(Cause::NodeLost)
    };
    let known = without.known_end();
    assert_eq!(known, None, "a sentence is not read");
}

#[test]
fn equal_failures_have_equal_signatures() {
    let summary = |log: &str, code: i32| {
        let report = concluded(["", log], vec![ended(1, End::Exit(code), 9)]);
        report.summary(1).expect("a verdict")
    };
    let missing = |path: &str| {
        let line =
            format!("python: can't open file '{path}': [Errno 2] No such file or directory\n");
        summary(&line, 2)
    };
    assert!(missing("/app/trian.py").is_same_failure(&missing("/app/trian.py")));
    assert!(!missing("/app/trian.py").is_same_failure(&missing("/app/eval.py")));
    assert!(summary("", 127).is_same_failure(&summary("", 127)));
    assert!(summary(TRACE, 1).is_same_failure(&summary(TRACE, 1)));
    let other = TRACE.replace("line 7", "line 9");
    assert!(!summary(TRACE, 1).is_same_failure(&summary(&other, 1)));
}
