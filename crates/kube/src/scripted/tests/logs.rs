//! Logs that cannot be read: of pods that failed, and of those that run.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use trainyard_core::spec::Kind;

use crate::scripted::{
    Fault, Server, Verb, job, job_name, make::has_condition, options, pod_name, rule::Rule,
    running, world::World,
};

fn attempt(world: &World) -> u64 {
    let job = world.objects.get(&job_name(Kind::PyTorch, "a"));
    job.and_then(|job| job.pointer("/status/trainyard/attempt")?.as_u64())
        .unwrap_or(0)
}

async fn fails(server: &Server, exit: i32) -> Duration {
    let before = server.see(attempt);
    server.with(|world| world.end_pod(&pod_name("a-worker-0"), exit));
    let began = Instant::now();
    server
        .wait("the next attempt", |world| attempt(world) == before + 1)
        .await;
    let took = began.elapsed();
    server.wait("it runs", |world| running(world) == 2).await;
    took
}

fn restarts() -> serde_json::Value {
    let mut object = job(Kind::PyTorch, "a", 2);
    object["spec"]["runPolicy"] = json!({"backoffLimit": 50});
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode".into();
    object
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_holds_no_restart_up() {
    let cases = [
        ("there is one", Fault::Hook(std::sync::Arc::new(|_| ()))),
        ("404", Fault::status(404)),
        ("500", Fault::status(500)),
        ("cut", Fault::Cut),
        ("half of it", Fault::Unfinished),
        ("silence", Fault::Silent),
    ];
    for (name, fault) in cases {
        let server = Server::new();
        server.set_log("a-worker-0", "CUDA error: out of memory\n");
        server.on(Rule::new(Verb::Log, "/log", fault));
        let operator = server.operator(options());
        server.add_job(restarts());
        server
            .wait("two pods run", |world| running(world) == 2)
            .await;
        let took = fails(&server, 137).await;
        assert!(took <= Duration::from_secs(20), "{name}: {took:?}");
        let asked = server.see(|world| world.asked(Verb::Log, "a-worker-0").count());
        assert!((1..=2).contains(&asked), "{name}: asked {asked} times");
        operator.stop().await;
    }
}

/// Without a log the last line of a supervised program is in the status of its pod.
#[tokio::test(start_paused = true)]
async fn last_line_in_the_pod_stands_in_for_a_log() {
    let line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB";
    let words = |attempt: u32| {
        json!({"attempt": attempt, "how": "ended", "code": 1, "lastLine": line}).to_string()
    };
    let cases = [
        ("of its supervisor", words(1), true),
        ("of another attempt", words(2), false),
        ("of the program", line.to_owned(), false),
        ("none", String::new(), false),
    ];
    for (name, message, explained) in cases {
        let server = Server::new();
        server.on(Rule::new(Verb::Log, "/log", Fault::status(404)));
        let operator = server.operator(options());
        let mut object = restarts();
        object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure".into();
        server.add_job(object);
        server
            .wait("two pods run", |world| running(world) == 2)
            .await;
        server.with(|world| world.end_pod_saying(&pod_name("a-worker-0"), 1, &message));
        server
            .wait("the failure is handled", |world| attempt(world) == 2)
            .await;
        let label = server.see(|world| {
            let job = world.objects.get(&job_name(Kind::PyTorch, "a"))?;
            let label = job.pointer("/status/trainyard/lastFailure/verdict/label")?;
            label.as_str().map(str::to_owned)
        });
        let found = label.as_deref() == Some("cuda_oom");
        assert_eq!(found, explained, "{name}: {label:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_three_silent_logs_none_is_asked_for() {
    let server = Server::new();
    server.on(Rule::new(Verb::Log, "a-worker-0/log", Fault::Silent));
    let operator = server.operator(options());
    server.add_job(restarts());
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    let mut asked = Vec::new();
    for _ in 0..3 {
        fails(&server, 137).await;
        asked.push(server.see(|world| world.asked(Verb::Log, "a-worker-0").count()));
    }
    assert!(asked.is_sorted(), "{asked:?}");
    assert!(
        asked[2] >= 3,
        "each failure is asked about at first: {asked:?}"
    );
    operator.stop().await;
}

/// The label of the verdict on the last failure of the job of these tests.
fn verdict(world: &World) -> Option<String> {
    let job = world.objects.get(&job_name(Kind::PyTorch, "a"))?;
    let label = job.pointer("/status/trainyard/lastFailure/verdict/label")?;
    label.as_str().map(str::to_owned)
}

/// Pods of one team on a node that does not respond, or that its own pods keep busy, cost no other team its verdicts.
#[tokio::test(start_paused = true)]
async fn silent_logs_of_one_namespace_blind_no_other() {
    let pods = "/api/v1/pods";
    for (name, pause) in [("at the same moment", 0), ("soon after", 5)] {
        let server = Server::new();
        server.set_log(
            "a-worker-0",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n",
        );
        server.on(Rule::new(Verb::Log, "/namespaces/evil/", Fault::Silent));
        let operator = server.operator(options());
        let mut object = restarts();
        object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure".into();
        server.add_job(object);
        for at in 0..20 {
            let mut object = job(Kind::PyTorch, &format!("e-{at}"), 1);
            object["metadata"]["namespace"] = "evil".into();
            server.add("/apis/kubeflow.org/v1/namespaces/evil/pytorchjobs", object);
        }
        server
            .wait("all pods run", |world| running(world) == 22)
            .await;
        server.with(|world| {
            for at in 0..20 {
                let pod = format!("e-{at}-worker-0");
                world.end_pod(&(pods.to_owned(), "evil".to_owned(), pod), 1);
            }
        });
        server
            .wait("their logs are asked for", |world| {
                world.asked(Verb::Log, "/namespaces/evil/").count() >= 3
            })
            .await;
        tokio::time::sleep(Duration::from_secs(pause)).await;
        server.with(|world| world.end_pod(&pod_name("a-worker-0"), 1));
        server
            .wait("the failure is handled", |world| attempt(world) == 2)
            .await;
        assert_eq!(server.see(verdict).as_deref(), Some("cuda_oom"), "{name}");
        operator.stop().await;
    }
}

/// What is kept of the pods beside the one that failed first, where other teams' pods are on nodes that do not respond.
#[tokio::test(start_paused = true)]
async fn silent_logs_of_one_namespace_cost_no_excerpts() {
    let server = Server::new();
    server.set_log("a-worker-0", "Traceback\n");
    server.set_log("a-worker-1", "the other rank's last words\n");
    server.on(Rule::new(Verb::Log, "/namespaces/evil/", Fault::Silent));
    let operator = server.operator(options());
    let mut object = restarts();
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure".into();
    server.add_job(object);
    for at in 0..20 {
        let mut object = job(Kind::PyTorch, &format!("e-{at}"), 2);
        object["metadata"]["namespace"] = "evil".into();
        server.add("/apis/kubeflow.org/v1/namespaces/evil/pytorchjobs", object);
    }
    server
        .wait("all pods run", |world| running(world) == 42)
        .await;
    server.with(|world| {
        for at in 0..20 {
            let pod = format!("e-{at}-worker-0");
            world.end_pod(&("/api/v1/pods".to_owned(), "evil".to_owned(), pod), 1);
        }
    });
    // Some of them failed first, and the logs of their other pods are read.
    let others = |world: &World| {
        let asked = world.asked(Verb::Log, "/namespaces/evil/");
        asked.filter(|call| call.path.contains("worker-1")).count()
    };
    server
        .wait("their other pods are asked", |world| others(world) >= 2)
        .await;
    server.with(|world| world.end_pod(&pod_name("a-worker-0"), 1));
    let began = Instant::now();
    server
        .wait("what the other pod wrote is kept", |world| {
            let kept = world.all("/api/v1/configmaps");
            let mut texts = kept.filter_map(|map| {
                let data = map.get("data")?.as_object()?;
                data.get("attempt-1.a-worker-1.log")?.as_str()
            });
            texts.any(|text| text.contains("last words"))
        })
        .await;
    // Theirs are waited for twice as long.
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn logs_without_transport_do_not_block_the_job() {
    for fault in [
        Fault::Silent,
        Fault::status(500),
        Fault::Unfinished,
        Fault::Cut,
    ] {
        let server = Server::new();
        server.on(Rule::new(Verb::Log, "/log", fault.clone()));
        let operator = server.operator(options());
        server.add_job(asks_for_transport());
        server
            .wait("two pods run", |world| running(world) == 2)
            .await;
        server
            .wait("logs are asked for", |world| {
                world.asked(Verb::Log, "/log").count() >= 4
            })
            .await;
        // Less and less often, and no longer than a quarter of an hour.
        tokio::time::sleep(Duration::from_hours(1)).await;
        let asked = server.see(|world| world.asked(Verb::Log, "/log").count());
        assert!(asked < 80, "{fault:?}: {asked}");
        server.with(|world| {
            world.end_pod(&pod_name("a-worker-0"), 0);
            world.end_pod(&pod_name("a-worker-1"), 0);
        });
        let name = job_name(Kind::PyTorch, "a");
        server
            .wait("the job succeeds", |world| {
                has_condition(world, &name, "Succeeded")
            })
            .await;
        operator.stop().await;
    }
}

/// A job whose ranks are asked what they talk over.
fn asks_for_transport() -> serde_json::Value {
    let mut object = job(Kind::PyTorch, "a", 2);
    let container =
        &mut object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "NCCL_DEBUG", "value": "INFO"}]);
    object
}

/// What a rank of two writes once it has met the other.
fn channels(rank: u32) -> String {
    let (host, other) = (format!("a-worker-{rank}"), 1 - rank);
    format!(
        "{host}:9:9 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init START\n\
         {host}:9:9 [0] NCCL INFO Channel 00/0 : {rank}[0] -> {other}[0] [send] via NET/IB/0/GDRDMA\n"
    )
}

#[tokio::test(start_paused = true)]
async fn long_logs_are_read_from_their_end() {
    let chatter = "loading a shard of the data\n".repeat(50_000);
    assert!(chatter.len() > 1 << 20);
    let name = job_name(Kind::PyTorch, "a");
    let verified = move |world: &World| has_condition(world, &name, "TransportVerified");
    let server = Server::new();
    for rank in 0..2 {
        server.set_log(&format!("a-worker-{rank}"), &chatter);
    }
    let operator = server.operator(options());
    server.add_job(asks_for_transport());
    server
        .wait("the ends of both are read", |world| {
            let ends = world.asked(Verb::Log, "/log");
            let ends = ends.filter(|call| call.query.contains_key("tailLines"));
            ends.count() >= 2
        })
        .await;
    assert!(!server.see(&verified), "no rank has reported yet");
    for rank in 0..2 {
        let log = format!("{chatter}{}", channels(rank));
        server.set_log(&format!("a-worker-{rank}"), &log);
    }
    server.wait("both have reported", &verified).await;
    operator.stop().await;
}

fn status_of(server: &Server) -> serde_json::Value {
    let name = job_name(Kind::PyTorch, "a");
    server.see(|world| world.objects[&name]["status"].clone())
}

/// Lets worker 0 end with code 2 until the job has failed; how many attempts that took, at most four.
async fn attempts_until_failed(policy: serde_json::Value) -> (u64, serde_json::Value) {
    let server = Server::new();
    let typo = "python: can't open file '/app/trian.py': [Errno 2] No such file or directory\n";
    server.set_log("a-worker-0", typo);
    let operator = server.operator(options());
    let mut object = job(Kind::PyTorch, "a", 2);
    object["spec"]["runPolicy"] = policy;
    server.add_job(object);
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    let failed = |world: &World| has_condition(world, &job_name(Kind::PyTorch, "a"), "Failed");
    for _ in 0..4 {
        let before = server.see(attempt);
        server.with(|world| world.end_pod(&pod_name("a-worker-0"), 2));
        server
            .wait("the next attempt, or the end", |world| {
                failed(world) || attempt(world) == before + 1 && running(world) == 2
            })
            .await;
        if server.see(failed) {
            break;
        }
    }
    let made = server.see(attempt);
    let status = status_of(&server);
    operator.stop().await;
    (made, status)
}

#[tokio::test(start_paused = true)]
async fn two_equal_failures_end_a_job_without_a_limit() {
    let (made, status) = attempts_until_failed(json!({})).await;
    assert_eq!(made, 2, "{status:#}");
    let last = &status["trainyard"]["lastFailure"];
    assert_eq!(last["verdict"]["label"], "data_path_missing", "{status:#}");
    assert_eq!(last["sinceAttempt"], 1, "{status:#}");
    let conditions = status["conditions"].as_array().expect("conditions");
    let message = conditions.last().and_then(|last| last["message"].as_str());
    let message = message.unwrap_or_default();
    for part in [
        "attempts 1 and 2 ended with the same error",
        "trian.py",
        "set `backoffLimit`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let (made, status) = attempts_until_failed(json!({"backoffLimit": 3})).await;
    assert_eq!(made, 3, "the budget rules where one is set: {status:#}");
}

#[tokio::test(start_paused = true)]
async fn oom_killed_pod_explains_peer_failure() {
    let server = Server::new();
    let closed = "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:4711\n";
    server.set_log("a-worker-0", closed);
    server.set_log("a-worker-1", "step 3 loss 1.0\n");
    let operator = server.operator(options());
    let mut object = job(Kind::PyTorch, "a", 2);
    let container =
        &mut object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    container["resources"] = json!({"limits": {"memory": "1Gi"}});
    server.add_job(object);
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    let before = server.see(attempt);
    server.with(|world| {
        let killed = pod_name("a-worker-1");
        world.end_pod(&killed, 137);
        world.change(&killed, |pod| {
            pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] =
                "OOMKilled".into();
        });
        world.end_pod(&pod_name("a-worker-0"), 1);
    });
    server
        .wait("the next attempt", |world| attempt(world) == before + 1)
        .await;
    let status = status_of(&server);
    let last = &status["trainyard"]["lastFailure"];
    assert_eq!(last["pod"], "a-worker-1", "{status:#}");
    assert_eq!(last["verdict"]["label"], "host_oom_killed", "{status:#}");
    let sentence = last["verdict"]["sentence"].as_str().unwrap_or_default();
    assert!(sentence.contains("limit of 1Gi"), "{sentence}");
    operator.stop().await;
}

/// A `TFJob`, whose pods restart alone.
fn restarts_alone(policy: serde_json::Value) -> serde_json::Value {
    let mut object = job(Kind::Tf, "a", 2);
    object["spec"]["runPolicy"] = policy;
    object
}

/// Lets the container of worker 0 end with code 2 until the job has failed; how often it ended, at most four times, and
/// the status and what was read by then.
async fn ends_until_failed(
    policy: serde_json::Value,
    logs: &[&str],
    waits: bool,
) -> (usize, serde_json::Value, Vec<bool>) {
    let server = Server::new();
    let operator = server.operator(options());
    server.add_job(restarts_alone(policy));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    let name = job_name(Kind::Tf, "a");
    let failed = |world: &World| has_condition(world, &name, "Failed");
    let pod = pod_name("a-worker-0");
    let mut made = 0;
    for log in logs.iter().cycle().take(4) {
        made += 1;
        server.set_log("a-worker-0", log);
        let reads = |world: &World| world.asked(Verb::Log, "a-worker-0").count();
        let before = server.see(reads);
        server.with(|world| {
            world.end_in_place(&pod, 2);
            if !waits {
                world.start_in_place(&pod);
            }
        });
        server
            .wait("its log is read", |world| reads(world) > before)
            .await;
        if waits {
            // Whatever follows from the end has followed by then.
            tokio::time::sleep(Duration::from_secs(10)).await;
            if !server.see(failed) {
                server.with(|world| world.start_in_place(&pod));
            }
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        if server.see(failed) {
            break;
        }
    }
    let previous = server.see(|world| {
        let asked = world.asked(Verb::Log, "a-worker-0");
        let previous = asked.map(|call| call.query.get("previous").is_some_and(|it| it == "true"));
        previous.collect()
    });
    let status = server.see(|world| world.objects[&name]["status"].clone());
    operator.stop().await;
    (made, status, previous)
}

const TYPO: &str = "python: can't open file '/app/trian.py': [Errno 2] No such file or directory\n";

#[tokio::test(start_paused = true)]
async fn two_equal_pod_failures_end_a_job_without_limit() {
    for waits in [true, false] {
        let (made, status, previous) = ends_until_failed(json!({}), &[TYPO], waits).await;
        assert_eq!(made, 2, "{status:#}");
        assert_eq!(previous, [!waits; 2], "each end is read once");
        assert_eq!(status["trainyard"]["attempt"], 1, "{status:#}");
        assert_eq!(status["trainyard"]["spent"]["user"], 2, "{status:#}");
        let last = &status["trainyard"]["lastFailure"];
        assert_eq!(last["pod"], "a-worker-0", "{status:#}");
        assert_eq!(last["verdict"]["label"], "data_path_missing", "{status:#}");
        let conditions = status["conditions"].as_array().expect("conditions");
        let message = conditions.last().and_then(|last| last["message"].as_str());
        let message = message.unwrap_or_default();
        for part in [
            "pod `a-worker-0` ended twice in a row with the same error",
            "trian.py",
            "set `backoffLimit`",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pod_restart_continues_if_rule_does_not_apply() {
    let other = "torchrun: error: unrecognized arguments: --nporc=2\n";
    let (made, status, _) = ends_until_failed(json!({"backoffLimit": 3}), &[TYPO], true).await;
    assert_eq!(made, 3, "the budget rules where one is set: {status:#}");
    let (made, status, _) = ends_until_failed(json!({}), &[TYPO, other], true).await;
    assert_eq!(made, 4, "no two in a row are equal: {status:#}");
    let (made, status, _) = ends_until_failed(json!({}), &["step 1 loss 2.0\n"], true).await;
    assert_eq!(made, 4, "nobody knows why: {status:#}");
    assert_eq!(status["trainyard"]["spent"]["user"], 4, "{status:#}");
}
