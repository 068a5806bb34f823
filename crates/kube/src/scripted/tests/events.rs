//! Events on jobs: one object for what repeats, a bound for gangs, and no pass that waits for them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use trainyard_core::spec::Kind;

use crate::scripted::{
    Fault, Server, Verb, job, job_name, make::has_condition, options, pod_name, rule::Rule,
    running, text, world::World,
};

/// The Events of a reason, as message and count.
fn events(world: &World, reason: &str) -> Vec<(String, u64)> {
    let events = world.all("/api/v1/events");
    events
        .filter(|event| text(event, "/reason") == reason)
        .map(|event| (text(event, "/message").to_owned(), count(event)))
        .collect()
}

fn count(event: &serde_json::Value) -> u64 {
    event["count"].as_u64().unwrap_or_default()
}

fn total(world: &World, reason: &str) -> u64 {
    events(world, reason).iter().map(|(_, count)| count).sum()
}

#[tokio::test(start_paused = true)]
async fn small_jobs_have_an_event_for_each_pod() {
    let server = Server::new();
    let operator = server.operator(options());
    let mut object = job(Kind::PyTorch, "a", 2);
    object["spec"]["runPolicy"] = json!({"cleanPodPolicy": "All"});
    server.add_job(object);
    server
        .wait("two pods are reported", |world| {
            total(world, "SuccessfulCreatePod") == 2
        })
        .await;
    server.see(|world| {
        let mut created = events(world, "SuccessfulCreatePod");
        created.sort();
        let want = [0, 1].map(|at| (format!("Created pod: a-worker-{at}"), 1));
        assert_eq!(created, want);
    });
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    for worker in ["a-worker-0", "a-worker-1"] {
        server.with(|world| world.end_pod(&pod_name(worker), 0));
    }
    server
        .wait("both are deleted", |world| {
            total(world, "SuccessfulDeletePod") == 2
        })
        .await;
    server.see(|world| {
        let mut exits = events(world, "ExitedWithCode");
        exits.sort();
        let want = [0, 1].map(|at| (format!("Pod: n.a-worker-{at} exited with code 0"), 1));
        assert_eq!(exits, want);
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_has_one_event_for_each_reason() {
    let server = Server::new();
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 40));
    server
        .wait("all pods are reported", |world| {
            total(world, "SuccessfulCreatePod") == 40
        })
        .await;
    server.see(|world| {
        let created = events(world, "SuccessfulCreatePod");
        assert_eq!(created.len(), 1, "{created:?}");
        assert!(created[0].0.starts_with("Created pods: a-worker-"));
        assert!(created[0].0.ends_with(" and 37 more"), "{created:?}");
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_is_one_object_across_restarts() {
    let server = Server::new();
    server.on(Rule::new(Verb::Create, "/pods", Fault::status(403)));
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("it was tried several times", |world| {
            total(world, "FailedCreatePod") >= 6
        })
        .await;
    operator.kill();
    let before = server.see(|world| total(world, "FailedCreatePod"));
    let operator = server.operator(options());
    server
        .wait("another operator counts on", |world| {
            total(world, "FailedCreatePod") >= before + 4
        })
        .await;
    server.see(|world| {
        let failed = events(world, "FailedCreatePod");
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].0, "Error creating: forbidden: exceeded quota");
        assert_eq!(events(world, "Refused").len(), 1);
    });
    server.heal();
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_exit_is_counted_once_across_restarts() {
    let server = Server::new();
    let operator = server.operator(options());
    server.add_job(job(Kind::Tf, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    server.with(|world| world.end_pod(&pod_name("a-worker-1"), 0));
    server
        .wait("the exit is reported", |world| {
            total(world, "ExitedWithCode") == 1
        })
        .await;
    operator.kill();
    let operator = server.operator(options());
    tokio::time::sleep(Duration::from_mins(1)).await;
    server.see(|world| assert_eq!(total(world, "ExitedWithCode"), 1));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_counts_nothing_twice() {
    for fault in [Fault::Lost, Fault::Torn, Fault::Unfinished] {
        let server = Server::new();
        server.on(Rule::new(Verb::Create, "/events", fault.clone()).times(2));
        let operator = server.operator(options());
        server.add_job(job(Kind::PyTorch, "a", 2));
        let name = job_name(Kind::PyTorch, "a");
        server
            .wait("it runs", |world| has_condition(world, &name, "Running"))
            .await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        server.see(|world| {
            let created = events(world, "SuccessfulCreatePod");
            assert_eq!(created.len(), 2, "{fault:?} {created:?}");
            assert!(created.iter().all(|(_, count)| *count == 1), "{created:?}");
        });
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_pass_waits_for_events() {
    let faults = [
        Fault::status(403),
        Fault::status(409),
        Fault::status(500),
        Fault::Silent,
        Fault::Cut,
    ];
    for fault in faults {
        let server = Server::new();
        server.on(Rule::new(Verb::Create, "/events", fault.clone()));
        let operator = server.operator(options());
        server.add_job(job(Kind::PyTorch, "a", 2));
        let began = Instant::now();
        let name = job_name(Kind::PyTorch, "a");
        server
            .wait("it runs", |world| has_condition(world, &name, "Running"))
            .await;
        assert!(began.elapsed() < Duration::from_secs(5), "{fault:?}");
        tokio::time::sleep(Duration::from_mins(10)).await;
        let tries = server.see(|world| world.asked(Verb::Create, "/events").count());
        assert!((2..=6).contains(&tries), "{fault:?}: {tries} tries");
        operator.stop().await;
    }
}
