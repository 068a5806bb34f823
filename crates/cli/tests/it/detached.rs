//! `run --detach`, `attach` and `stop`: runs without the terminal that started them.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    control::until,
    run::{interrupted_by, job, run, send},
};

const SCRIPT: &str = "trap 'echo saved; exit 0' TERM; echo ready; \
                      while ! test -e go; do sleep 0.05; done; echo step 7 loss 0.5; echo over";

fn says(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
}

/// An `attach` that has shown `ready`.
fn attached(call: &Call) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = call
        .again(&["attach", "j"])
        .command()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut text = String::new();
    while !text.contains("ready") {
        let read = stdout.read_line(&mut text).expect("stdout is UTF-8");
        assert_ne!(read, 0, "{text}");
    }
    (child, stdout)
}

#[test]
fn a_detached_run_is_attached_to_left_and_returned_to() {
    let call = run(&["-d"], &job(1, SCRIPT));
    let started = call.run();
    says(
        &started,
        0,
        &["job `j` runs in process", "trainyard attach j"],
    );
    assert!(started.stdout.starts_with("j 20"), "{}", started.stdout);
    until(&call, &["logs", "j"], |logs| logs.stdout.contains("ready"));
    let again = call.again(&["run", "job.yaml", "-d"]).run();
    says(&again, 2, &["job `j` is already running"]);

    let (first, _first) = attached(&call);
    let (second, rest) = attached(&call);
    let sent = Command::new("kill")
        .args(["-INT", &first.id().to_string()])
        .status();
    assert!(sent.expect("kill can be started").success());
    let left = first.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&left.stderr).into_owned();
    assert_eq!(left.status.code(), Some(0), "{said}");
    assert!(said.contains("detached; job `j` keeps running"), "{said}");
    assert!(said.contains("`trainyard stop j` stops it"), "{said}");
    until(&call, &["ps"], |list| list.stdout.contains("Running"));

    std::fs::write(call.folder().join("go"), "").expect("the folder takes files");
    let shown = std::io::read_to_string(rest).expect("stdout is UTF-8");
    let ended = second.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(shown.contains("over"), "{shown}");
    assert!(said.contains("j succeeded after"), "{said}");
    let later = call.again(&["attach", "j"]).run();
    says(&later, 0, &["j succeeded after"]);
}

#[test]
fn a_detached_run_that_cannot_run_is_refused_here() {
    let call = run(
        &["--detach"],
        &job(1, "true").replace("[sh, -c, ", "[no-such-program, -c, "),
    );
    says(
        &call.run(),
        2,
        &["`no-such-program`, which is not on its `PATH`"],
    );
    let none = call.again(&["attach"]).run();
    says(&none, 2, &["no run is active"]);
}

#[test]
fn processes_are_known_and_stopped() {
    let call = run(&["-d", "--format", "json"], &job(2, SCRIPT));
    let started = call.run();
    assert_eq!(started.code, Some(0), "{started:?}");
    let ready: Value = serde_json::from_str(&started.stdout).expect("stdout is JSON");
    assert_eq!(ready["job"], "j");
    let status = until(&call, &["status", "j", "--format", "json"], |status| {
        let status: Value = serde_json::from_str(&status.stdout).unwrap_or_default();
        let pods = status["processes"].as_array().map_or(0, Vec::len);
        pods == 2 && status["processes"][1]["pids"][0].is_u64()
    });
    let status: Value = serde_json::from_str(&status.stdout).expect("stdout is JSON");
    let worker = &status["processes"][1];
    assert_eq!(
        (&worker["pod"], &worker["rank"]),
        (&"j-worker-0".into(), &1.into())
    );
    let command = std::fs::read_to_string(format!("/proc/{}/cmdline", worker["pids"][0]));
    assert!(command.expect("it runs").contains("while ! test -e go"));
    let page = call.again(&["status", "j"]).run();
    let line = format!("worker-0 (rank 1)  {}", worker["pids"][0]);
    assert!(page.stdout.contains(&line), "{}", page.stdout);
    let list = call.again(&["ps", "--format", "json"]).run();
    let list: Value = serde_json::from_str(&list.stdout).expect("stdout is JSON");
    assert_eq!(list["runs"][0]["processes"][1]["pids"], worker["pids"]);

    until(&call, &["logs", "j"], |logs| {
        logs.stdout.matches("ready").count() == 2
    });
    let stopped = call.again(&["stop"]).run();
    says(
        &stopped,
        0,
        &[
            "stopping job `j`: its pods get SIGTERM",
            "job `j` was stopped after",
        ],
    );
    let logs = call.again(&["logs", "j"]).run();
    assert_eq!(logs.stdout.matches("saved").count(), 2, "{}", logs.stdout);
    let again = call.again(&["stop", "j"]).run();
    says(
        &again,
        0,
        &["job `j` has already ended (Stopped), nothing to stop"],
    );
    says(
        &call.again(&["stop", "--all"]).run(),
        0,
        &["no run is active"],
    );
    says(&call.again(&["stop"]).run(), 2, &["no run is active"]);
    says(
        &call.again(&["attach", "j"]).run(),
        1,
        &["j was stopped after"],
    );
}

#[test]
fn a_run_that_does_not_listen_is_ended_at_once() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let call = run(
        &["-d"],
        &job(1, script).replace("Seconds: 5", "Seconds: 600"),
    );
    assert_eq!(call.run().code, Some(0));
    until(&call, &["logs", "j"], |logs| logs.stdout.contains("ready"));
    let ended = call.again(&["stop", "--all", "--now"]).run();
    says(
        &ended,
        0,
        &["killing all pods of job `j`", "job `j` was stopped after"],
    );
}

#[test]
fn nohup_run_outlives_its_terminal() {
    let call = run(&[], &job(1, SCRIPT));
    let bare = call.command();
    // As `nohup` starts it.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(bare.get_program())
        .args(bare.get_args())
        .current_dir(call.folder());
    let go = call.folder().join("go");
    let (code, stdout, stderr) = interrupted_by(&mut command, |pid| {
        send("-HUP", pid);
        std::fs::write(go, "").expect("the folder takes files");
    });
    assert_eq!(code, Some(0), "{stdout}\n{stderr}");
    assert!(stdout.contains("over"), "{stdout}");
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the engine is there");
    let state = stat.rsplit_once(") ").expect("its name is in brackets").1;
    state.starts_with('T')
}

#[test]
fn stop_all_stops_the_others_of_a_stopped_engine() {
    let call = run(&["-d", "--format", "json"], &job(1, SCRIPT));
    let started = call.run();
    assert_eq!(started.code, Some(0), "{started:?}");
    let ready: Value = serde_json::from_str(&started.stdout).expect("stdout is JSON");
    let pid = ready["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    let pid = pid.expect("the engine has a process");
    let other = [
        "run",
        "--name",
        "k",
        "-d",
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 600",
    ];
    says(&call.again(&other).run(), 0, &[]);
    until(&call, &["logs", "j"], |logs| logs.stdout.contains("ready"));
    until(&call, &["logs", "k"], |logs| logs.stdout.contains("ready"));
    send("-STOP", pid);
    while !is_stopped(pid) {
        thread::yield_now();
    }
    let stopped = call.again(&["stop", "--all", "--now"]).run();
    send("-CONT", pid);
    let last = call.again(&["stop", "j", "--now"]).run();
    says(
        &stopped,
        2,
        &["job `k` was stopped after", "the engine of job `j`"],
    );
    says(&last, 0, &["job `j` was stopped after"]);
}

#[test]
fn a_stopped_engine_is_reported() {
    let call = run(&["-d", "--format", "json"], &job(1, SCRIPT));
    let started = call.run();
    assert_eq!(started.code, Some(0), "{started:?}");
    let ready: Value = serde_json::from_str(&started.stdout).expect("stdout is JSON");
    let pid = ready["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    let pid = pid.expect("the engine has a process");
    until(&call, &["logs", "j"], |logs| logs.stdout.contains("ready"));
    send("-STOP", pid);
    // The signal is only sent; each thread stops once it has a processor.
    while !is_stopped(pid) {
        thread::yield_now();
    }
    let asked: Vec<Outcome> = [
        &["stop", "j"][..],
        &["stop", "--all", "--now"],
        &["suspend", "j"],
        &["restart", "j"],
        &["stacks", "j"],
        &["exec", "j", "--rank", "0", "--", "true"],
        &["delete", "j"],
    ]
    .iter()
    .map(|words| call.again(words).run())
    .collect();
    send("-CONT", pid);
    let stopped = call.again(&["stop", "j"]).run();
    for outcome in asked {
        let engine = format!("the engine of job `j`, process {pid}, is stopped");
        let hint = format!("`kill -CONT {pid}` continues it");
        says(&outcome, 2, &[&engine, &hint]);
    }
    says(&stopped, 0, &["job `j` was stopped after"]);
}

#[test]
fn stop_reports_a_killed_engine() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let job = job(1, script).replace("Seconds: 5", "Seconds: 600");
    let call = run(&["-d", "--format", "json"], &job);
    let started = call.run();
    assert_eq!(started.code, Some(0), "{started:?}");
    let ready: Value = serde_json::from_str(&started.stdout).expect("stdout is JSON");
    let pid = ready["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    until(&call, &["logs", "j"], |logs| logs.stdout.contains("ready"));
    let mut stop = call
        .again(&["stop", "j"])
        .command()
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let mut stderr = BufReader::new(stop.stderr.take().expect("stderr is piped"));
    let mut text = String::new();
    stderr.read_line(&mut text).expect("stderr is UTF-8");
    assert!(text.starts_with("stopping job `j`"), "{text}");
    send("-KILL", pid.expect("the engine has a process"));
    let rest = std::io::read_to_string(stderr).expect("stderr is UTF-8");
    assert_eq!(stop.wait().expect("it ends").code(), Some(0), "{rest}");
    assert!(rest.contains("(Interrupted)"), "{rest}");
    assert!(!rest.contains("was stopped"), "{rest}");
}

#[test]
fn pods_of_a_killed_engine_are_lost() {
    let call = run(&["-d", "--format", "json"], &job(1, SCRIPT));
    let started = call.run();
    assert_eq!(started.code, Some(0), "{started:?}");
    let ready: Value = serde_json::from_str(&started.stdout).expect("stdout is JSON");
    let pid = ready["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    until(&call, &["status", "j"], |page| {
        page.stdout.contains("Master 1 (1 active)")
    });
    send("-KILL", pid.expect("the engine has a process"));
    let page = until(&call, &["status", "j"], |page| {
        page.stdout.contains("Interrupted")
    });
    assert!(page.stdout.contains("Master 1 (1 lost)"), "{page:?}");
    let why = call.again(&["explain", "j"]).run();
    assert_eq!(why.code, Some(1), "{why:?}");
}
