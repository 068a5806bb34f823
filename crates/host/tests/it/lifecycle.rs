//! Attempts, restarts, stops.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Harness, container, sh};

#[test]
fn a_job_succeeds_and_its_logs_are_kept() {
    let harness = Harness::new(3, sh("echo to out; echo to err >&2"));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0));
    let report = ended.report();
    assert_eq!(report["outcome"], "succeeded");
    assert_eq!(report["attempts"], 1);
    assert_eq!(report["failures"], json!([]));

    let store = trainyard_host::store::Store::open(harness.path().join(".trainyard")).unwrap();
    assert_eq!(store.jobs().unwrap(), ["j"]);
    let run = store.latest("j").unwrap();
    assert!(!run.is_live());
    assert_eq!(run.record().unwrap().kind, "PyTorchJob");
    assert_eq!(run.report().unwrap().unwrap().run_id, run.id);
    assert_eq!(run.attempts().unwrap(), [1]);
    let logs = run.logs(1).unwrap();
    assert_eq!(logs.len(), 3);
    let mut lines = logs[0].last_lines(9).unwrap();
    lines.sort();
    assert_eq!(lines, ["to err", "to out"]);
}

#[test]
fn failed_rank_restarts_gang() {
    // Worker 0 waits in the first attempt, so that it is the engine that ends it.
    let script = "[ $ATTEMPT = 2 ] && exit 0
        [ $HOSTNAME = j-worker-1 ] && echo out of luck && exit 7
        exec sleep 100";
    let harness = Harness::new(2, sh(script));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    let report = ended.report();
    assert_eq!(report["attempts"], 2);
    assert_eq!(report["spent"]["user"], 1);
    let failure = &report["failures"][0];
    assert_eq!(failure["pod"], "j-worker-1");
    assert_eq!(failure["rank"], 1);
    assert_eq!(failure["code"], 7);
    assert_eq!(failure["lastLines"], json!(["out of luck"]));
    assert_eq!(report["failures"].as_array().unwrap().len(), 1);
    let said = |what: &dyn Fn(&serde_json::Value) -> bool| ended.seen.iter().position(what);
    let failed = said(&|line| line["failed"]["pod"] == "j-worker-1");
    let lines = said(&|line| line["text"].as_str() == Some("out of luck\n"));
    assert!(lines < failed && lines.is_some(), "its lines come before");
    let restarting = said(&|line| line["event"] == "PyTorchJobRestarting");
    assert!(failed < restarting, "{failed:?} {restarting:?}");
    for (pod, stopped) in [("Worker 0", true), ("Worker 1", false)] {
        let end = said(&|line| line["ended"] == pod && line["attempt"] == 1);
        assert_eq!(ended.seen[end.unwrap()]["stopped"], stopped, "{pod}");
    }
}

#[test]
fn a_pod_that_is_killed_from_outside_has_failed() {
    let script = "[ $ATTEMPT = 2 ] && exit 0; echo up; exec sleep 100";
    let harness = Harness::new(1, sh(script));
    let mut run = harness.start();
    let started = run.wait_for("a pod", |line| !line["started"].is_null());
    run.wait_for_output("Worker 0", "up");
    let pid = nix::unistd::Pid::from_raw(started["pid"].as_i64().unwrap().try_into().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    let ended = run.finish();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    let failure = &ended.report()["failures"][0];
    assert_eq!(failure["pod"], "j-worker-0");
    assert_eq!(failure["signal"], "SIGKILL");
    assert_eq!(failure["lastLines"], json!(["up"]));
}

#[test]
fn killed_keeper_restarts_job() {
    let script = "[ $ATTEMPT = 2 ] && exit 0; echo up; exec sleep 100";
    let harness = Harness::new(2, sh(script));
    let mut run = harness.start();
    let started = run.wait_for("a pod", |line| !line["started"].is_null());
    for pod in ["Worker 0", "Worker 1"] {
        run.wait_for_output(pod, "up");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", started["pid"])).unwrap();
    let keeper = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let keeper: i32 = keeper.unwrap().trim().parse().unwrap();
    assert_ne!(keeper, i32::try_from(run.child.id()).unwrap());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    let ended = run.finish();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    let failures = &ended.report()["failures"];
    assert_eq!(failures.as_array().unwrap().len(), 1);
    assert_eq!(failures[0]["signal"], "SIGKILL");
    assert_eq!(failures[0]["lastLines"], json!(["up"]));
}

#[test]
fn a_stream_that_someone_else_holds_is_not_waited_for() {
    // The program hands its output over to this test and ends.
    let script = "echo whole; printf part; until [ -e held ]; do sleep 0.02; done";
    let harness = Harness::new(1, sh(script));
    let mut run = harness.start();
    let started = run.wait_for("a pod", |line| !line["started"].is_null());
    run.wait_for_output("Worker 0", "whole");
    let first: i32 = started["pid"].as_i64().unwrap().try_into().unwrap();
    let children = format!("/proc/{first}/task/{first}/children");
    let program: i32 = std::fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let stream = format!("/proc/{program}/fd/1");
    let held = std::fs::OpenOptions::new()
        .write(true)
        .open(stream)
        .unwrap();
    std::fs::write(harness.path().join("held"), "").unwrap();
    let ended = run.finish();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    assert_eq!(ended.output(1)["Worker 0"], "whole\npart");
    drop(held);
}

#[test]
fn a_backoff_limit_of_three_means_three_attempts() {
    let harness = Harness::new(1, sh("echo again >> tries; exit 1")).set("backoffLimit", json!(3));
    let ended = harness.run();
    assert_eq!(ended.code, Some(1));
    assert_eq!(harness.read("tries").lines().count(), 3);
    let report = ended.report();
    assert_eq!(report["outcome"], "failed");
    assert_eq!(report["attempts"], 3);
    assert_eq!(report["failures"].as_array().unwrap().len(), 3);
}

#[test]
fn without_restarts_one_failure_fails_the_job() {
    let harness = Harness::new(
        2,
        sh("[ $HOSTNAME = j-worker-1 ] && kill -SEGV $$$$; exec sleep 100"),
    );
    let ended = harness.policy("Never").run();
    assert_eq!(ended.code, Some(1));
    let failure = &ended.report()["failures"][0];
    assert_eq!(failure["code"], 139);
    assert_eq!(failure["signal"], "SIGSEGV");
    assert_eq!(failure["outOfMemory"], false);
}

#[test]
fn init_containers_run_in_order_and_sidecars_beside() {
    let init = |name: &str, script: &str| json!({"name": name, "command": ["sh", "-c", script]});
    let mut sidecar = init(
        "sidecar",
        "echo sidecar >> order; trap 'echo left >> order; exit' TERM; while :; do sleep 0.02; done",
    );
    sidecar["restartPolicy"] = json!("Always");
    let template = json!({"spec": {
        "initContainers": [
            init("first", "sleep 0.1; echo first >> order"),
            sidecar,
            init("second", "until grep -q sidecar order; do :; done; echo second >> order"),
        ],
        "containers": [container("echo main >> order")],
    }});
    let harness = Harness::new(1, template);
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    assert_eq!(
        harness.read("order"),
        "first\nsidecar\nsecond\nmain\nleft\n"
    );
}

#[test]
fn an_init_container_that_fails_fails_the_pod() {
    let init = json!({"name": "init", "command": ["sh", "-c", "echo no data; exit 3"]});
    let template =
        json!({"spec": {"initContainers": [init], "containers": [container("touch ran")]}});
    let harness = Harness::new(1, template).policy("Never");
    let ended = harness.run();
    assert_eq!(ended.code, Some(1));
    let failure = &ended.report()["failures"][0];
    assert_eq!(
        (&failure["container"], &failure["code"]),
        (&json!("init"), &json!(3))
    );
    assert_eq!(failure["lastLines"], json!(["no data"]));
    assert!(!harness.path().join("ran").exists());
}

#[test]
fn the_first_request_to_stop_lets_ranks_save() {
    // The shell that runs the program does not pass signals on by itself.
    let program =
        "trap 'echo saved > saved-$HOSTNAME; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let harness = Harness::new(
        2,
        sh(&format!("sh -c '{}'; true", program.replace('\'', "'\\''"))),
    );
    let mut run = harness.start();
    run.wait_for_output("Worker 0", "up");
    run.wait_for_output("Worker 1", "up");
    run.signal(Signal::SIGINT);
    let ended = run.finish();
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.report()["outcome"], "stopped");
    for pod in ["j-worker-0", "j-worker-1"] {
        assert_eq!(harness.read(&format!("saved-{pod}")), "saved\n", "{pod}");
    }
}

#[test]
fn second_stop_request_kills_ranks() {
    let harness = Harness::new(1, sh("trap '' TERM; echo up; while :; do sleep 0.02; done"));
    let mut run = harness.start();
    run.wait_for_output("Worker 0", "up");
    run.signal(Signal::SIGTERM);
    run.wait_for("suspended", |line| {
        line["event"]
            .as_str()
            .is_some_and(|event| event.contains("Suspended"))
            || line["status"].to_string().contains("Suspended")
    });
    run.signal(Signal::SIGTERM);
    let ended = run.finish();
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.report()["outcome"], "stopped");
}

#[test]
fn rank_ignoring_sigterm_is_killed() {
    let mut template = sh("trap '' TERM; echo up; while :; do sleep 0.02; done");
    template["spec"]["terminationGracePeriodSeconds"] = json!(1);
    let harness = Harness::new(1, template);
    let mut run = harness.start();
    run.wait_for_output("Worker 0", "up");
    let asked = Instant::now();
    run.signal(Signal::SIGTERM);
    let ended = run.finish();
    let took = asked.elapsed();
    assert_eq!(ended.report()["outcome"], "stopped");
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_run_can_be_stopped_from_another_terminal() {
    let harness = Harness::new(1, sh("echo up; exec sleep 100"));
    let mut run = harness.start();
    run.wait_for_output("Worker 0", "up");
    let store = trainyard_host::store::Store::open(harness.path().join(".trainyard")).unwrap();
    let folder = store.latest("j").unwrap();
    assert!(folder.is_live());
    assert_eq!(folder.status().unwrap().trainyard.attempt, 1);
    folder.request_stop(false).unwrap();
    assert_eq!(run.finish().report()["outcome"], "stopped");
    let error = folder.request_stop(false).unwrap_err().to_string();
    assert_eq!(error, "job `j` is not running");
}

#[test]
fn container_restarts_in_place_by_policy() {
    // A `TFJob` restarts pods one by one, so the pod's own policy holds.
    let script = "echo x >> tries; [ $(wc -l < tries) -ge 2 ] || exit 5";
    let harness = Harness::new(1, sh(script)).set("kind", json!("TFJob"));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    assert_eq!(harness.read("tries").lines().count(), 2);
    assert_eq!(ended.report()["attempts"], 1);
    assert_eq!(ended.report()["spent"]["user"], 1);
}

#[test]
fn leftovers_do_not_reach_next_container() {
    // A launcher that is killed leaves ranks in sessions of their own behind.
    let script = "[ -e left ] || { setsid sleep 1000 & echo $! > left; kill -9 $$; }; \
                  for wait in $(seq 100); do kill -0 $(cat left) || exit 0; sleep 0.1; done; exit 7";
    let harness = Harness::new(1, sh(script)).set("kind", json!("TFJob"));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    assert_eq!(ended.report()["spent"]["user"], 1);
}

#[test]
fn failure_and_progress_readable_live_and_after_crash() {
    let script = "[ $ATTEMPT = 1 ] && [ $HOSTNAME = j-worker-1 ] && {
            echo out of luck; printf 'no newline'; exit 7; }
        [ $ATTEMPT = 1 ] && exec sleep 100
        for step in 1 2 3; do echo step $step loss 0.$step; done; exec sleep 100";
    let harness = Harness::new(2, sh(script));
    let mut run = harness.start();
    run.wait_for("the second attempt", |line| {
        line["running"] == "Worker 0" && line["attempt"] == 2
    });
    let store = trainyard_host::store::Store::open(harness.path().join(".trainyard")).unwrap();
    let folder = store.latest("j").unwrap();
    let failed = |folder: &trainyard_host::store::RunFolder| {
        let failures = folder.failures().unwrap();
        assert_eq!(failures.len(), 1);
        let first = &failures[0];
        assert_eq!((first.pod.as_str(), first.code), ("j-worker-1", 7));
        assert_eq!(first.last_lines, ["out of luck", "no newline"]);
    };
    failed(&folder);
    crate::harness::until("the last step", || {
        let progress = folder.progress().unwrap();
        progress.is_some_and(|progress| {
            (progress.attempt, progress.step, progress.loss) == (2, 3, Some(0.3))
        })
    });

    run.signal(Signal::SIGKILL);
    drop(run);
    assert!(folder.report().unwrap().is_none());
    failed(&folder);
    assert_eq!(folder.progress().unwrap().unwrap().furthest_step, 3);
}

#[test]
fn failure_lines_end_before_container_restart() {
    let script =
        "echo x >> tries; [ $(wc -l < tries) -ge 2 ] || { echo first; exit 5; }; echo second";
    let harness = Harness::new(1, sh(script)).set("kind", json!("TFJob"));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    let failure = &ended.report()["failures"][0];
    assert_eq!(failure["lastLines"], json!(["first"]));
}
