//! Passes of which a call fails.

use std::sync::Arc;

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use crate::scripted::{
    Fault, Server, Verb, job, job_name, make::has_condition, options, pod_name, rule::Rule,
    running, text, world::Change,
};

fn made(change: &Change, resource: &str) -> bool {
    change.name.0 == resource && change.before.is_none()
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_whatever_fails_once() {
    let faults = [
        Fault::status(409),
        Fault::status(422),
        Fault::status(500),
        Fault::status(504),
        Fault::retry_after(3),
        Fault::Cut,
        Fault::Lost,
        Fault::Silent,
        Fault::Unfinished,
        Fault::Torn,
        Fault::Garbage("no JSON".to_owned()),
    ];
    for fault in faults {
        for (verb, path) in [
            (Verb::Patch, "/status"),
            (Verb::Create, "/pods"),
            (Verb::Create, "/services"),
            (Verb::Create, "/events"),
        ] {
            let server = Server::new();
            server.on(Rule::new(verb, path, fault.clone()).times(1));
            let operator = server.operator(options());
            server.add_job(job(Kind::PyTorch, "a", 2));
            let name = job_name(Kind::PyTorch, "a");
            let what = format!("{fault:?} of {verb:?} {path}");
            server
                .wait(&what, |world| has_condition(world, &name, "Running"))
                .await;
            let pods = server.see(|world| {
                let changes = world.changes.iter();
                changes
                    .filter(|change| made(change, "/api/v1/pods"))
                    .count()
            });
            assert_eq!(pods, 2, "{what}");
            operator.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_before_pods_are_made() {
    let server = Server::new();
    server.on(Rule::new(Verb::Patch, "/status", Fault::status(409)).times(3));
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    server.see(|world| {
        let status = |change: &&Change| {
            let after = change.after.as_deref();
            after.is_some_and(|job| job.pointer("/status/trainyard/attempt") == Some(&json!(1)))
        };
        let status = world.changes.iter().find(status).unwrap().version;
        let mut pods = world
            .changes
            .iter()
            .filter(|change| made(change, "/api/v1/pods"));
        assert!(pods.all(|pod| pod.version > status));
    });
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_in_the_status_and_one_event() {
    let server = Server::new();
    server.on(Rule::new(Verb::Create, "/pods", Fault::status(403)));
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 1));
    let name = job_name(Kind::PyTorch, "a");
    let waiting = |job: &Arc<Value>| {
        let found = job.pointer("/status/trainyard/waiting");
        found.is_some_and(|found| found.to_string().contains("exceeded quota"))
    };
    server
        .wait("the status names the quota", |world| {
            world.objects.get(&name).is_some_and(waiting)
        })
        .await;
    let events = server.see(|world| {
        let events = world.all("/api/v1/events");
        events
            .filter(|event| text(event, "/reason") == "Refused")
            .count()
    });
    assert_eq!(events, 1);
    server.heal();
    server
        .wait("the pod runs", |world| running(world) == 1)
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_owns_is_not_taken() {
    let server = Server::new();
    let other = json!({"metadata": {"name": "a-worker-0", "labels": {}},
        "spec": {"schedulingGates": [{"name": "test"}], "containers": []}});
    server.add("/api/v1/namespaces/n/pods", other);
    let stored = || server.see(|world| world.objects.get(&pod_name("a-worker-0")).cloned());
    let before = stored();
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 1));
    let name = job_name(Kind::PyTorch, "a");
    server
        .wait("the status says whose it is", |world| {
            let job = world.objects.get(&name);
            job.is_some_and(|job| {
                job["status"]
                    .to_string()
                    .contains("it exists and belongs to no job")
            })
        })
        .await;
    assert!(before.is_some());
    assert_eq!(stored(), before);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_restarts_the_gang_within_its_budget() {
    let server = Server::new();
    let operator = server.operator(options());
    let mut object = job(Kind::PyTorch, "a", 2);
    object["spec"]["runPolicy"] = json!({"backoffLimit": 2, "cleanPodPolicy": "None"});
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode".into();
    server.add_job(object);
    let name = job_name(Kind::PyTorch, "a");
    for attempt in 1..=2_u64 {
        server
            .wait("the attempt runs", |world| {
                let job = world.objects.get(&name);
                let at = job.and_then(|job| job.pointer("/status/trainyard/attempt")?.as_u64());
                at == Some(attempt) && running(world) == 2
            })
            .await;
        server.with(|world| world.end_pod(&pod_name("a-worker-1"), 137));
    }
    server
        .wait("the job fails", |world| {
            has_condition(world, &name, "Failed")
        })
        .await;
    operator.stop().await;
}
