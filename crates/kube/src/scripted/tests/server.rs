//! The server answers as the API does.

use std::time::Duration;

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use crate::scripted::{
    Fault, Server, Verb, job, job_name, make::has_condition, options, pod_name, rule::Rule, running,
};

#[tokio::test(start_paused = true)]
async fn jobs_of_every_kind_run_and_succeed() {
    for kind in Kind::ALL {
        let server = Server::new();
        let operator = server.operator(options());
        server.add_job(job(kind, "a", 2));
        let name = job_name(kind, "a");
        server
            .wait("the job runs", |world| {
                has_condition(world, &name, "Running")
            })
            .await;
        server.with(|world| {
            let pods: Vec<_> = world
                .pods()
                .map(|pod| pod["metadata"]["name"].clone())
                .collect();
            for pod in pods {
                world.end_pod(&pod_name(pod.as_str().unwrap()), 0);
            }
        });
        server
            .wait("the job succeeds", |world| {
                has_condition(world, &name, "Succeeded")
            })
            .await;
        server
            .with(|world| world.remove(&name, &json!({})))
            .unwrap();
        operator.stop().await;
        let left = server.see(|world| {
            let objects = world.objects.keys();
            objects
                .filter(|name| !name.0.ends_with("/events"))
                .cloned()
                .collect::<Vec<_>>()
        });
        assert_eq!(left, [], "{kind:?}");
    }
}

#[tokio::test]
async fn it_can_be_reached_over_tcp() {
    let server = Server::new();
    let client = server.listen().await;
    let operator = server.operator_with(client, options());
    server.add_job(job(Kind::PyTorch, "a", 2));
    server
        .wait("two pods run", |world| running(world) == 2)
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_a_write_that_was_done() {
    let server = Server::new();
    server.on(Rule::new(Verb::Create, "/pods", Fault::Lost).times(1));
    server.on(Rule::new(Verb::Create, "/pods", Fault::Cut)
        .skip(2)
        .times(1));
    let operator = server.operator(options());
    server.add_job(job(Kind::PyTorch, "a", 3));
    server
        .wait("three pods run", |world| running(world) == 3)
        .await;
    let made = server.see(|world| {
        let made = world.changes.iter();
        made.filter(|change| change.name.0 == "/api/v1/pods" && change.before.is_none())
            .count()
    });
    assert_eq!(made, 3, "none was made twice");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pages_and_watches_are_those_of_the_api() {
    let server = Server::new();
    let client = server.client();
    for index in 0..5 {
        let map = json!({"metadata": {"name": format!("c{index}")}});
        server.add("/api/v1/namespaces/n/configmaps", map);
    }
    let get = |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request::<Value>(request)
    };
    let first = get("/api/v1/configmaps?limit=3").await.unwrap();
    assert_eq!(first["items"].as_array().unwrap().len(), 3);
    let more = first["metadata"]["continue"].as_str().unwrap();
    let rest = get(&format!("/api/v1/configmaps?limit=3&continue={more}")).await;
    let rest = rest.unwrap();
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
    assert_eq!(rest["metadata"]["continue"], "");
    server.compact();
    let old = get("/api/v1/configmaps?watch=true&resourceVersion=1")
        .await
        .unwrap();
    assert_eq!(old["object"]["code"], 410);
    let ahead = get("/api/v1/configmaps?watch=true&resourceVersion=9999").await;
    let Err(kube::Error::Api(status)) = ahead else {
        panic!("{ahead:?}")
    };
    assert_eq!(
        (status.code, &*status.reason),
        (504, "ResourceVersionTooLarge")
    );
    server.on(Rule::new(Verb::Get, "c1", Fault::Silent));
    let silent = get("/api/v1/namespaces/n/configmaps/c1");
    let silent = tokio::time::timeout(Duration::from_mins(10), silent).await;
    assert!(silent.is_err());
}
