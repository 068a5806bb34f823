//! Statuses of other versions, of other controllers, and of nobody.

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use super::super::{
    Server, job, job_name, options, pod_name, running,
    world::{World, text},
};

fn status(world: &World, name: &str) -> Value {
    let job = &world.objects[&job_name(Kind::PyTorch, name)];
    job.get("status").cloned().unwrap_or_default()
}

fn set_status(server: &Server, name: &str, status: &Value) {
    let name = job_name(Kind::PyTorch, name);
    server.with(|world| world.change(&name, |job| job["status"] = status.clone()));
}

/// The messages of the events with that reason on a job.
fn events(world: &World, job: &str, reason: &str) -> Vec<String> {
    let events = world.all("/api/v1/events");
    events
        .filter(|event| text(event, "/reason") == reason)
        .filter(|event| text(event, "/involvedObject/name") == job)
        .map(|event| text(event, "/message").to_owned())
        .collect()
}

fn condition(kind: &str) -> Value {
    let at = "2027-01-15T08:00:00Z";
    json!({"type": kind, "status": "True", "reason": kind, "message": kind, "lastUpdateTime": at,
        "lastTransitionTime": at})
}

#[tokio::test(start_paused = true)]
async fn foreign_condition_keeps_job_ended() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "done", 2));
    let stored = json!({
        "conditions": [condition("Created"), condition("Succeeded"), condition("QuotaReserved")],
        "completionTime": "2027-01-15T08:00:00Z",
        "trainyard": {"attempt": 2, "spent": {"user": 1, "vendor": 4}, "newField": {"a": 1}},
    });
    set_status(&server, "done", &stored);
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "other", 1));
    server
        .wait("the other job runs", |world| running(world) == 1)
        .await;
    let kept = server.see(|world| status(world, "done"));
    assert_eq!(kept, stored);
    let pods = server.see(|world| world.pods().count());
    assert_eq!(pods, 1, "no pod for the job that has ended");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn garbage_is_reported_and_left() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "garbage", 2));
    let mut stored = json!({
        "conditions": [condition("Created")],
        "trainyard": {"attempt": "three", "spent": {"user": 2}},
    });
    set_status(&server, "garbage", &stored);
    let operator = server.operator(options());
    server
        .wait("an event says so", |world| {
            !events(world, "garbage", "StatusUnreadable").is_empty()
        })
        .await;
    server.add_job(job(Kind::PyTorch, "other", 1));
    server
        .wait("the other job runs", |world| running(world) == 1)
        .await;
    let (kept, emitted, pods) = server.see(|world| {
        let emitted = events(world, "garbage", "StatusUnreadable");
        (status(world, "garbage"), emitted, world.pods().count())
    });
    assert_eq!((kept, pods), (stored.clone(), 1));
    assert_eq!(
        emitted,
        [
            "`status.trainyard.attempt` cannot be read (invalid type: string \"three\", expected u32); the status is \
             left as it is and nothing is done for the job"
        ],
    );
    let counted = "trainyard_job_status_unreadable{kind=\"PyTorchJob\",job_namespace=\"n\",job=\"garbage\"} 1";
    let metrics = || operator.operator.metrics().text();
    assert!(metrics().contains(counted), "{}", metrics());

    // Somebody corrects it, and the job goes on with the budget that it had.
    stored["trainyard"]["attempt"] = json!(3);
    set_status(&server, "garbage", &stored);
    server
        .wait("it has its pods", |world| running(world) == 3)
        .await;
    let spent = server.see(|world| status(world, "garbage")["trainyard"]["spent"]["user"].clone());
    assert_eq!(spent, json!(2));
    assert!(!metrics().contains(counted), "{}", metrics());
    operator.stop().await;
}

/// Its time to live is over long ago. Deleting it would delete the only copy of what is wrong with it.
#[tokio::test(start_paused = true)]
async fn corrected_garbage_status_lets_ttl_delete() {
    let server = Server::new();
    let mut object = job(Kind::PyTorch, "ended", 2);
    object["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = json!(1);
    server.add_job(object);
    let mut stored = json!({
        "conditions": [condition("Created"), condition("Succeeded")],
        "completionTime": "2020-01-15T08:00:00Z",
        "trainyard": {"attempt": "three"},
    });
    set_status(&server, "ended", &stored);
    let operator = server.operator(options());
    server
        .wait("an event says so", |world| {
            !events(world, "ended", "StatusUnreadable").is_empty()
        })
        .await;
    // Whoever is looked at after it has its pods: it had its turn.
    server.add_job(job(Kind::PyTorch, "other", 1));
    server
        .wait("the other job runs", |world| running(world) == 1)
        .await;
    let name = job_name(Kind::PyTorch, "ended");
    assert_eq!(server.see(|world| status(world, "ended")), stored);
    stored["trainyard"]["attempt"] = json!(3);
    set_status(&server, "ended", &stored);
    server
        .wait("it is deleted", |world| !world.objects.contains_key(&name))
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restart_keeps_what_another_version_wrote() {
    let server = Server::new();
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("it runs", |world| {
            running(world) == 2 && status(world, "a")["trainyard"]["whole"] != json!(null)
                || running(world) == 2 && status(world, "a")["trainyard"]["formed"] == json!(true)
        })
        .await;
    let foreign = condition("PowerCapped");
    let name = job_name(Kind::PyTorch, "a");
    server.with(|world| {
        world.change(&name, |job| {
            let status = &mut job["status"];
            status["conditions"]
                .as_array_mut()
                .unwrap()
                .insert(1, foreign.clone());
            status["trainyard"]["energy"] = json!({"joules": 12});
            status["trainyard"]["spent"]["vendor"] = json!(7);
            status["trainyard"]["ledger"]["open"]["phase"] = json!("cooling");
            status["trainyard"]["waiting"] =
                json!({"code": "WaitingForPower", "message": "no power"});
        });
    });
    server.with(|world| world.end_pod(&pod_name("a-worker-0"), 1));
    server
        .wait("the next attempt runs", |world| {
            let status = status(world, "a");
            running(world) == 2
                && status["trainyard"]["attempt"] == json!(2)
                && status["trainyard"]["waiting"]["code"] == json!("Training")
        })
        .await;
    let after = server.see(|world| status(world, "a"));
    assert_eq!(after["conditions"][1], foreign);
    assert_eq!(after["trainyard"]["energy"], json!({"joules": 12}));
    assert_eq!(after["trainyard"]["spent"]["vendor"], json!(7));
    assert!(
        after["trainyard"]["ledger"]["attempts"][0]["millis"]["other"].is_u64(),
        "{after}"
    );
    operator.stop().await;
}
