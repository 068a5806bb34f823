//! A gang that restarts in place, and what happens where it cannot.

use std::{
    fs,
    time::{Duration, Instant},
};

use trainyard_core::barrier::StopHow;

use super::{Gang, Supervised, lives, operator::Operator, send_signal, until};

/// Prints its own number and its attempt, then runs until it is ended.
const RUNS: &str = "echo pid $$; echo attempt $TRAINYARD_ATTEMPT; echo settings ${TRAINYARD_SUPERVISE-none}; exec sleep 300";

fn in_attempt(pods: &[Supervised], attempt: u32) -> bool {
    pods.iter()
        .all(|pod| pod.number("attempt ") == Some(attempt) && pod.number("pid ").is_some())
}

fn pids(pods: &[Supervised]) -> Vec<u32> {
    pods.iter().map(|pod| pod.number("pid ").unwrap()).collect()
}

#[test]
fn a_killed_program_restarts_the_gang_in_place() {
    let mut gang = Gang::new(3);
    let grace = StopHow::Grace(Duration::from_secs(5));
    let operator = Operator::start(gang.folder.path(), &gang.slots(), grace);
    gang.operator = Some(operator.address.clone());
    // Members that start before their leader find it later.
    let mut pods = vec![
        gang.start(1, RUNS),
        gang.start(2, RUNS),
        gang.start(0, RUNS),
    ];
    until("all run", || in_attempt(&pods, 1));
    until("all report", || {
        operator.seen.lock().unwrap().reported() == 3
    });
    let before = pids(&pods);
    for attempt in 2..4 {
        let killed = Instant::now();
        send_signal("-KILL", pids(&pods)[1]);
        until("all run again", || in_attempt(&pods, attempt));
        eprintln!("restart in place: {:?}", killed.elapsed());
        until("the barrier ends", || {
            let seen = operator.seen.lock().unwrap();
            seen.stored.attempt == attempt && seen.stored.barrier.is_none()
        });
    }
    for pid in before {
        assert!(!lives(pid), "a program of attempt 1 is left");
    }
    for pod in &mut pods {
        assert!(
            pod.child.try_wait().unwrap().is_none(),
            "its supervisor is the same"
        );
        let starts = pod.out().matches("attempt ").count();
        assert_eq!(starts, 3, "{}", pod.out());
        assert!(pod.out().contains("settings none"), "{}", pod.out());
    }
    // A pod that is deleted ends with its program, whatever the gang does.
    send_signal("-TERM", pods[0].child.id());
    assert_eq!(pods[0].code(), Some(143));
    assert!(operator.seen.lock().unwrap().connections >= 1);
}

#[test]
fn a_success_ends_its_container_at_once() {
    let mut gang = Gang::new(2);
    // Longer than the test waits for anything.
    gang.hold_ms = 1_000_000;
    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let mut member = gang.start(1, "exit 0");
    let mut leader = gang.start(0, "exit 0");
    assert_eq!((member.code(), leader.code()), (Some(0), Some(0)));
}

/// A program that saves when it is stopped and ends with 0 did not finish: a pod that is deleted then has not succeeded.
#[test]
fn a_stopped_program_is_no_success() {
    let mut gang = Gang::new(2);
    let grace = StopHow::Grace(Duration::from_secs(25));
    let operator = Operator::start(gang.folder.path(), &gang.slots(), grace);
    gang.operator = Some(operator.address.clone());
    // The leader does not stop for a while, so that the barrier waits for it.
    let leader = gang.start(0, "trap '' TERM; echo pid $$; while :; do sleep 0.05; done");
    let mut member = gang.start(
        1,
        "trap 'echo saved; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done",
    );
    until("both run", || {
        leader.number("pid ").is_some() && member.number("pid ").is_some()
    });
    until("both report", || {
        operator.seen.lock().unwrap().reported() == 2
    });
    operator.seen.lock().unwrap().restart = true;
    until("the member has saved", || member.out().contains("saved"));
    send_signal("-TERM", member.child.id());
    assert_eq!(member.code(), Some(143));
    // It ignores what ends its supervisor, and would be left.
    send_signal("-KILL", leader.number("pid ").unwrap());
}

#[test]
fn a_signal_without_a_name_ends_a_program_too() {
    let mut gang = Gang::new(1);
    gang.hold_ms = 100;
    let mut leader = gang.start(0, "kill -40 $$; sleep 300");
    assert_eq!(leader.code(), Some(168));
}

#[test]
fn a_pod_that_cannot_join_a_restart_runs_nothing() {
    let gang = Gang::new(2);
    let mut settings = gang.settings(1);
    settings.waits = true;
    settings.identity = gang.path("missing").to_str().unwrap().to_owned();
    let mut member = gang.start_with(1, "echo runs", &settings);
    assert_eq!(member.code(), Some(143));
    assert!(
        member.err().contains("cannot take part"),
        "{}",
        member.err()
    );
    assert_eq!(member.out(), "");
}

#[test]
fn without_an_operator_a_failure_ends_its_container() {
    let mut gang = Gang::new(2);
    gang.hold_ms = 300;
    let mut leader = gang.start(0, RUNS);
    let mut member = gang.start(1, "exit 5");
    assert_eq!(member.code(), Some(5));
    assert!(
        leader.child.try_wait().unwrap().is_none(),
        "its own program runs"
    );
    send_signal("-KILL", {
        until("it runs", || leader.number("pid ").is_some());
        leader.number("pid ").unwrap()
    });
    assert_eq!(leader.code(), Some(137));
}

/// A program that ignores signals and leaves its group is stopped with all that it started.
#[test]
fn stubborn_programs_are_stopped() {
    let mut gang = Gang::new(2);
    let grace = StopHow::Grace(Duration::from_millis(100));
    let operator = Operator::start(gang.folder.path(), &gang.slots(), grace);
    gang.operator = Some(operator.address.clone());
    // It ends by itself after a while: a test that fails leaves nothing that runs on.
    let stubborn = "echo attempt $TRAINYARD_ATTEMPT; test $TRAINYARD_ATTEMPT = 2 && exec sleep 300; trap '' TERM ABRT; \
                    setsid sh -c 'trap \"\" TERM ABRT; echo child $$; (setsid sh -c \"echo grandchild \\$\\$; sleep 301\" &); \
                    i=0; while test $((i += 1)) -lt 2000; do sleep 0.05; done' & echo pid $$; i=0; while test $((i += 1)) -lt 2000; do sleep 0.05; done";
    let leader = gang.start(0, stubborn);
    let member = gang.start(1, RUNS);
    let numbers = || ["pid ", "child ", "grandchild "].map(|word| leader.number(word));
    until("all are there", || numbers().iter().all(Option::is_some));
    let numbers = numbers();
    until("the member runs", || member.number("pid ").is_some());
    until("both report", || {
        operator.seen.lock().unwrap().reported() == 2
    });
    send_signal("-KILL", member.number("pid ").unwrap());
    until("attempt 2 runs", || leader.number("attempt ") == Some(2));
    for pid in numbers.into_iter().flatten() {
        assert!(!lives(pid), "{pid} is left");
    }
}

/// The token is read again for each connection, and is in no log.
#[test]
fn a_renewed_token_is_used() {
    let mut gang = Gang::new(1);
    super::operator::write_token(&gang.path("token"), "expired");
    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let leader = gang.start(0, RUNS);
    until("the operator refuses it", || {
        operator.seen.lock().unwrap().bad_tokens > 0
    });
    super::operator::write_token(&gang.path("token"), super::TOKEN);
    until("the operator accepts it", || {
        operator.seen.lock().unwrap().connections >= 1
    });
    assert!(!leader.err().contains("expired"), "{}", leader.err());
}

/// A pod that replaces another one starts nothing by itself, only when the gang does.
#[test]
fn a_waiting_pod_starts_with_go() {
    let mut gang = Gang::new(1);
    let mut settings = gang.settings(0);
    settings.waits = true;
    let mut alone = gang.start_with(0, RUNS, &settings);
    until("it listens", || {
        std::net::TcpStream::connect(gang.address).is_ok()
    });
    send_signal("-TERM", alone.child.id());
    assert_eq!((alone.code(), alone.out()), (Some(143), String::new()));

    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let mut settings = gang.settings(0);
    settings.waits = true;
    let pod = gang.start_with(0, RUNS, &settings);
    until("it runs", || pod.number("attempt ") == Some(1));
}

/// The authority of the operator is read again for each connection: the kubelet writes it when the certificate is renewed.
#[test]
fn a_renewed_authority_is_used() {
    let mut gang = Gang::new(1);
    let renewed = Gang::new(1);
    let operator = Operator::start(renewed.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let mut settings = gang.settings(0);
    let file = gang.path("operator.crt");
    fs::copy(gang.path("ca.crt"), &file).unwrap();
    if let Some(operator) = &mut settings.operator {
        operator.authority = file.to_str().unwrap().to_owned();
    }
    let leader = gang.start_with(0, RUNS, &settings);
    until("the operator is not trusted", || {
        leader.err().contains("invalid peer certificate")
    });
    assert_eq!(operator.seen.lock().unwrap().connections, 0);
    // The new one first, as an operator that renews its certificate writes them.
    let [new, old] = [&renewed, &gang].map(|of| fs::read_to_string(of.path("ca.crt")).unwrap());
    let next = gang.path("next.crt");
    fs::write(&next, format!("{new}{old}")).unwrap();
    fs::rename(next, file).unwrap();
    until("the operator is trusted", || {
        operator.seen.lock().unwrap().connections >= 1
    });
}
