//! What people and programs get from supervisors: containers that are held, stacks, heartbeats, last words.

use std::{
    fs,
    process::{Command, Output},
    time::{Duration, Instant},
};

use serde_json::Value;
use trainyard_core::{barrier::StopHow, launch::supervise::SuperviseSettings};

use super::{Gang, Supervised, operator::Operator, send_signal, until};

/// Prints its attempt, then runs until it is ended.
const RUNS: &str = "echo attempt $TRAINYARD_ATTEMPT; exec sleep 300";

/// `trainyard supervise --stacks POD` in the container with these settings.
fn ask(settings: &SuperviseSettings) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trainyard"))
        .args(["supervise", "--stacks", "j-worker-0"])
        .env(
            "TRAINYARD_SUPERVISE",
            serde_json::to_string(settings).unwrap(),
        )
        .output()
        .unwrap()
}

#[test]
fn held_container_outlives_its_program() {
    let mut gang = Gang::new(2);
    gang.hold_ms = 5_000;
    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    operator.seen.lock().unwrap().hold = Some(Duration::from_mins(10));
    let fails = "echo attempt $TRAINYARD_ATTEMPT; test $TRAINYARD_ATTEMPT = 2 && exec sleep 300; \
                 until test -e fail; do sleep 0.02; done; exit 7";
    let mut pods = vec![gang.start(0, RUNS), gang.start(1, fails)];
    until("both report", || {
        operator.seen.lock().unwrap().reported() == 2
    });
    fs::write(gang.path("fail"), "").unwrap();
    until("the end of the program is reported", || {
        !operator.seen.lock().unwrap().summary.ended.is_empty()
    });
    let ended = Instant::now();
    // Without the order, which it gets well before, it would leave after 5 s.
    until("its time without the order is over", || {
        ended.elapsed() > Duration::from_millis(gang.hold_ms * 3 / 2)
    });
    for pod in &mut pods {
        assert!(pod.child.try_wait().unwrap().is_none(), "{}", pod.err());
    }
    assert_eq!(pods[0].number("attempt "), Some(1), "it still runs");
    operator.seen.lock().unwrap().hold = None;
    until("both run again", || {
        pods.iter().all(|pod| pod.number("attempt ") == Some(2))
    });
}

#[test]
fn stacks_are_asked_for_in_the_container() {
    let gang = Gang::new(1);
    let pod = gang.start(0, RUNS);
    until("it runs", || pod.number("attempt ") == Some(1));
    let settings = gang.settings(0);
    let mut answer = Value::Null;
    until("the rank is read", || {
        let asked = ask(&settings);
        answer = serde_json::from_slice(&asked.stdout).unwrap_or_default();
        answer["ranks"][0]["program"] == "sleep"
    });
    assert_eq!(answer["attempt"], 1, "{answer:#}");
    assert_eq!(answer["ranks"][0]["pod"], "j-worker-0");
    assert_eq!(answer["ranks"][0]["reason"], "not a Python process");
    drop(pod);
    let refused = ask(&settings);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("does not answer"), "{said}");
}

/// Three ranks that take each step together and print nothing: their heartbeats alone show that they train.
#[test]
fn heartbeats_show_who_hangs() {
    let mut gang = Gang::new(3);
    gang.watch.hang_floor_ms = 5_000;
    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let script = "echo attempt $TRAINYARD_ATTEMPT; test $TRAINYARD_ATTEMPT = 2 && exec sleep 300; echo pid $$; n=0; \
                  while :; do n=$((n + 1)); echo $n > at-$RANK.new; mv at-$RANK.new at-$RANK; for rank in 0 1 2; do \
                  while test \"$(cat at-$rank 2>/dev/null || echo 0)\" -lt $n; do sleep 0.02; done; done; \
                  echo \"step=$n loss=0.5\" > run-$RANK/beat; sleep 0.1; done";
    let pods: Vec<Supervised> = (0..3)
        .map(|rank| gang.start(rank, &format!("export RANK={rank}; {script}")))
        .collect();
    until("all train", || {
        let at = fs::read_to_string(gang.path("run-0/beat")).unwrap_or_default();
        let step = at.strip_prefix("step=").and_then(|at| at.split(' ').next());
        step.and_then(|step| step.parse::<u32>().ok()) > Some(20)
    });
    send_signal("-STOP", pods[1].number("pid ").unwrap());
    until("the leader reports it", || {
        !operator.seen.lock().unwrap().hangs.is_empty()
    });
    let hang = operator.seen.lock().unwrap().hangs[0].clone();
    assert_eq!(
        (hang.rank, hang.label.as_str()),
        (Some(1), "hang_stopped"),
        "{hang:?}"
    );
    until("all run again", || {
        pods.iter().all(|pod| pod.number("attempt ") == Some(2))
    });
}

#[test]
fn last_words_are_left_for_the_kubelet() {
    let mut gang = Gang::new(1);
    gang.hold_ms = 100;
    let mut settings = gang.settings(0);
    let path = gang.path("termination-log");
    settings.last_words = path.to_str().map(str::to_owned);
    let cases = [
        (
            "echo fine; echo 'RuntimeError: boom' >&2; exit 3",
            3,
            Value::Null,
        ),
        ("echo 'RuntimeError: boom'; kill -9 $$", 137, 9.into()),
    ];
    for (script, code, signal) in cases {
        fs::write(&path, "").unwrap();
        let mut pod = gang.start_with(0, script, &settings);
        assert_eq!(pod.code(), Some(code));
        let words: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(words["lastLine"], "RuntimeError: boom", "{words}");
        let rest = (&words["attempt"], &words["rank"], &words["how"]);
        assert_eq!(rest, (&1.into(), &0.into(), &"ended".into()), "{words}");
        assert_eq!((&words["code"], &words["signal"]), (&code.into(), &signal));
    }
    fs::write(&path, "").unwrap();
    let mut pod = gang.start_with(0, "exit 0", &settings);
    assert_eq!(pod.code(), Some(0));
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "",
        "a success needs none"
    );
}
