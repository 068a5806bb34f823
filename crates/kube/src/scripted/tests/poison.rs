//! Jobs that make a pass panic.

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use super::super::{
    Server, job, job_name, options, running,
    world::{World, text},
};
use crate::poison::PANICS_ON;

fn poisonous(name: &str) -> Value {
    let mut job = job(Kind::PyTorch, name, 2);
    job["metadata"]["annotations"] = json!({PANICS_ON: "every pass"});
    job
}

fn is_set_aside(world: &World, name: &str) -> bool {
    let job = &world.objects[&job_name(Kind::PyTorch, name)];
    text(job, "/status/trainyard/waiting/code") == "SetAside"
}

#[tokio::test(start_paused = true)]
async fn a_job_that_panics_costs_no_other_job() {
    let server = Server::new();
    let operator = server.operator(options());
    server.add_job(poisonous("bad"));
    for name in ["a", "b", "c"] {
        server.add_job(job(Kind::PyTorch, name, 1));
    }
    server
        .wait("the others run, and it is set aside", |world| {
            running(world) == 3 && is_set_aside(world, "bad")
        })
        .await;
    let metrics = || operator.operator.metrics().text();
    let set_aside =
        "trainyard_job_set_aside{kind=\"PyTorchJob\",job_namespace=\"n\",job=\"bad\"} 1";
    assert!(metrics().contains(set_aside), "{}", metrics());
    assert!(
        metrics().contains("trainyard_pass_panics_total 3"),
        "{}",
        metrics()
    );

    // News about it does not make it be processed again.
    let name = job_name(Kind::PyTorch, "bad");
    let noted = |note: &str| {
        server.with(|world| {
            world.change(&name, |job| {
                job["metadata"]["labels"] = json!({"note": note});
            });
        });
    };
    noted("x");
    server.add_job(job(Kind::PyTorch, "d", 1));
    server
        .wait("the next job runs", |world| running(world) == 4)
        .await;
    assert!(
        metrics().contains("trainyard_pass_panics_total 3"),
        "{}",
        metrics()
    );
    let messages = server.see(|world| {
        let events = world.all("/api/v1/events");
        let set_aside = events.filter(|event| text(event, "/reason") == "JobSetAside");
        set_aside
            .map(|event| text(event, "/message").to_owned())
            .collect::<Vec<_>>()
    });
    assert_eq!(
        messages,
        [
            "3 passes over this job in a row panicked (last: tripped by a test); the job is set aside until its spec or a \
             `trainyard.dev/` annotation changes, or the operator is upgraded"
        ]
    );

    // Its author corrects it.
    server.with(|world| {
        world.change(&name, |job| {
            job["metadata"]["annotations"] = json!({});
        });
    });
    server.wait("it runs", |world| running(world) == 6).await;
    assert!(server.see(|world| !is_set_aside(world, "bad")));
    assert!(!metrics().contains(set_aside), "{}", metrics());
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_aside_job_keeps_its_status() {
    let server = Server::new();
    server.add_job(poisonous("bad"));
    let name = job_name(Kind::PyTorch, "bad");
    let stored = json!({
        "conditions": [{"type": "Foreign", "status": "True"}],
        "trainyard": {"attempt": 3, "spent": {"user": 2}, "newField": 1},
    });
    server.with(|world| world.change(&name, |job| job["status"] = stored.clone()));
    let operator = server.operator(options());
    server
        .wait("it is set aside", |world| is_set_aside(world, "bad"))
        .await;
    let mut after = server.see(|world| world.objects[&name]["status"].clone());
    after["trainyard"]
        .as_object_mut()
        .unwrap()
        .remove("waiting");
    assert_eq!(after, stored);
    operator.stop().await;
}
