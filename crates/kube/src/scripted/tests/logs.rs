//! Logs that cannot be read: of pods that failed, and of those that run.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use trainyard_core::spec::Kind;

use crate::scripted::{
    Fault, Server, Verb, job, job_name, options, pod_name, rule::Rule, running, world::World,
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

#[tokio::test(start_paused = true)]
async fn a_job_is_not_held_up_by_logs_that_tell_no_transport() {
    for fault in [
        Fault::Silent,
        Fault::status(500),
        Fault::Unfinished,
        Fault::Cut,
    ] {
        let server = Server::new();
        server.on(Rule::new(Verb::Log, "/log", fault.clone()));
        let operator = server.operator(options());
        let mut object = job(Kind::PyTorch, "a", 2);
        let container = &mut object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
            [0];
        container["env"] = json!([{"name": "NCCL_DEBUG", "value": "INFO"}]);
        server.add_job(object);
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
                crate::scripted::make::has_condition(world, &name, "Succeeded")
            })
            .await;
        operator.stop().await;
    }
}
