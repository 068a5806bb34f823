//! Who is evicted, with the real operator.

mod room;

use std::time::Duration;

use serde_json::{Value, json};
use trainyard_core::{gang::PreemptionScope, spec::Kind};

use crate::{
    Options,
    scripted::{
        Fault, Server, Verb, job,
        rule::Rule,
        world::{World, text},
    },
};

const JOBS: &str = "/apis/kubeflow.org/v1/pytorchjobs";

/// A job that needs all GPUs of a node, with these fields in its pods.
fn add(server: &Server, (namespace, name): (&str, &str), pod: &Value, policy: &Value) {
    let mut job = job(Kind::PyTorch, name, 1);
    job["metadata"]["namespace"] = namespace.into();
    if namespace != "team-a" {
        job["metadata"]["annotations"] = json!({"trainyard.dev/preemption": "lower-priority"});
    }
    job["spec"]["runPolicy"]["schedulingPolicy"] = policy.clone();
    let spec = &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
    spec["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "8"}});
    for (key, value) in pod.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let path = format!("/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs");
    server.add(&path, job);
}

/// A cluster of one node on which `team-a/pretrain` runs with class `gold`.
async fn occupied(preemption: PreemptionScope) -> (Server, crate::scripted::Running) {
    let server = Server::new();
    server.add_nodes(1);
    server.add_class("gold", 1_000_000);
    server.add_class("system-node-critical", 2_000_001_000);
    let operator = server.operator(Options {
        preemption,
        ..Options::default()
    });
    let gold = json!({"priorityClassName": "gold"});
    add(&server, ("team-a", "pretrain"), &gold, &json!({}));
    server.wait("the victim runs", victim_runs).await;
    (server, operator)
}

fn victim_runs(world: &World) -> bool {
    let pod = world.get("/api/v1/pods", "team-a", "pretrain-worker-0");
    pod.is_some_and(|pod| text(&pod, "/status/phase") == "Running")
}

fn evictions(world: &World) -> usize {
    let deleted = world.asked(Verb::Delete, "/namespaces/team-a/pods");
    deleted.count()
}

/// What a job of `evil` says that it waits for.
fn waiting(world: &World, name: &str) -> String {
    let job = world.get(JOBS, "evil", name);
    job.map(|job| job["status"].to_string()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn job_whose_pods_are_refused_evicts_nobody() {
    for scope in [PreemptionScope::Namespace, PreemptionScope::Cluster] {
        let (server, operator) = occupied(scope).await;
        let quota = Fault::status(403);
        server.on(Rule::new(Verb::Create, "/namespaces/evil/pods", quota));
        let critical = json!({"priorityClass": "system-node-critical"});
        let attacks = [
            ("control", json!({}), json!({})),
            ("policy", json!({}), critical),
            (
                "class",
                json!({"priorityClassName": "system-node-critical"}),
                json!({}),
            ),
            ("number", json!({"priority": i32::MAX}), json!({})),
            (
                "unknown",
                json!({"priority": i32::MAX, "priorityClassName": "no-such-class"}),
                json!({}),
            ),
        ];
        for (name, pod, policy) in attacks {
            add(&server, ("evil", name), &pod, &policy);
            let refused = |world: &World| waiting(world, name).contains("exceeded quota");
            server.wait("the author sees the refusal", refused).await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        server.see(|world| {
            assert_eq!(evictions(world), 0, "{scope}");
            assert!(victim_runs(world), "{scope}");
        });
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn admitted_pods_evict_as_far_as_the_scope_reaches() {
    let across = "preemption across namespaces is off";
    let (critical, never) = ("system-node-critical", "patient");
    let cases = [
        (PreemptionScope::Off, critical, "preemption is off", 1),
        (PreemptionScope::Namespace, critical, across, 1),
        (
            PreemptionScope::Cluster,
            never,
            "preemptionPolicy: Never",
            0,
        ),
        (PreemptionScope::Cluster, critical, "", 0),
    ];
    for (scope, class, sentence, refused) in cases {
        let (server, operator) = occupied(scope).await;
        server.add_class_that_never_preempts(never, 2_000_000);
        let class = json!({"priorityClassName": class});
        add(&server, ("evil", "x"), &class, &json!({}));
        if sentence.is_empty() {
            let evicts = |world: &World| evictions(world) > 0;
            server.wait("the victim is evicted", evicts).await;
            let runs = |world: &World| {
                let pod = world.get("/api/v1/pods", "evil", "x-worker-0");
                pod.is_some_and(|pod| text(&pod, "/status/phase") == "Running")
            };
            server.wait("the other runs", runs).await;
        } else {
            let says = |world: &World| waiting(world, "x").contains(sentence);
            server.wait("it says why it waits", says).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            server.see(|world| assert_eq!(evictions(world), 0, "{scope}"));
        }
        let metrics = operator.operator.metrics().text();
        let count = format!("trainyard_preemptions_refused_total {refused}\n");
        assert!(metrics.contains(&count), "{scope}: {metrics}");
        operator.stop().await;
    }
}
