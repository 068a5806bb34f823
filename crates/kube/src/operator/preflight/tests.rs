//! What a tenant can do with the reports of his preflights, against a scripted API server.

use std::sync::Arc;

use serde_json::{Value, json};
use trainyard_core::spec::{Kind, Role};

use super::*;
use crate::{
    Options,
    scripted::{
        Fault, Server, Verb, job, job_name, options, pod_name,
        rule::Rule,
        world::{Name, text},
    },
};

const LEAD: &str = "a-preflight-1-0";
const OWN: &str = "trainyard-system";

fn with_nodes() -> Options {
    let mut options = Options {
        nodes: true,
        placement: true,
        own_namespace: Some(OWN.to_owned()),
        ..options()
    };
    options.cluster.agent_image = Some("trainyard:1".to_owned());
    options
}

/// A job of one rank that must be on `node-1`, and requires a preflight.
fn gated() -> Value {
    let mut job = job(Kind::PyTorch, "a", 1);
    job["metadata"]["annotations"] = json!({"trainyard.dev/preflight": "required"});
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] =
        json!({"kubernetes.io/hostname": "node-1"});
    job
}

fn check(name: &str, outcome: &str) -> Value {
    json!({"name": name, "layer": "devices", "outcome": outcome, "found": "3 uncorrected", "needed": "none",
        "owner": "platform"})
}

fn log(nodes: &[(&str, Vec<Value>)]) -> String {
    let nodes = nodes
        .iter()
        .map(|(node, checks)| ((*node).to_owned(), json!({"checks": checks})));
    let nodes: serde_json::Map<String, Value> = nodes.collect();
    format!("{}{}\n", preflight::MARKER, json!({"nodes": nodes}))
}

fn trial_pod() -> Name {
    let resource = "/api/v1/pods".to_owned();
    (resource, OWN.to_owned(), "preflight-trial-1-0".to_owned())
}

/// Lets the pod `name` write `log` and end well, once it is there.
async fn ends_with(server: &Server, name: &Name, log: &str) {
    let key = format!("{}/{}", name.1, name.2);
    server.with(|world| world.kubelet.logs.insert(key, log.to_owned()));
    let is_there = |world: &crate::scripted::world::World| world.objects.contains_key(name);
    server
        .wait(&format!("`{}` is there", name.2), is_there)
        .await;
    server.with(|world| world.end_pod(name, 0));
}

/// Waits until the job says that it waits because of `words`.
async fn waits_because(server: &Server, words: &str) {
    let name = job_name(Kind::PyTorch, "a");
    server
        .wait(&format!("the status says: {words}"), |world| {
            let job = world.objects.get(&name);
            job.is_some_and(|job| text(job, "/status/trainyard/waiting/message").contains(words))
        })
        .await;
}

/// The changes of nodes that were asked for.
fn marks(server: &Server) -> Vec<(String, Value)> {
    server.see(|world| {
        let calls = world.calls.iter();
        let writes = calls.filter(|call| {
            !matches!(call.verb, Verb::Get | Verb::List | Verb::Watch)
                && call.path.contains("/nodes")
        });
        writes
            .map(|call| (call.path.clone(), call.body.clone()))
            .collect()
    })
}

fn counts(operator: &Operator, line: &str) -> bool {
    operator.metrics().text().lines().any(|known| known == line)
}

#[tokio::test(start_paused = true)]
async fn forged_reports_name_nobody_elses_nodes() {
    let all: Vec<String> = (0..20).map(|node| format!("node-{node}")).collect();
    let all: Vec<(&str, Vec<Value>)> = all
        .iter()
        .map(|node| (node.as_str(), vec![check("gpu-ecc", "fail")]))
        .collect();
    let odd = "node-5/status?dryRun=All&";
    let well = || vec![check("gpu-ecc", "pass")];
    let wrong = "which is not one of its 1 assigned nodes";
    let large = "x".repeat(300 << 10);
    let cases = [
        ("20 nodes", log(&all), wrong, "wrong_node"),
        (
            "a path",
            log(&[("node-1", well()), (odd, well())]),
            wrong,
            "wrong_node",
        ),
        (
            "another node that failed is fit",
            log(&[("node-1", well()), ("node-7", well())]),
            wrong,
            "wrong_node",
        ),
        (
            "300 kB",
            format!("{large}\n{}", log(&[("node-1", well())])),
            "larger than 256 kB",
            "too_large",
        ),
        (
            "no report",
            format!("{}[]\n", preflight::MARKER),
            "the report cannot be read",
            "unreadable",
        ),
    ];
    for (name, log, words, label) in cases {
        let server = Server::new();
        server.add_nodes(20);
        let operator = server.operator(with_nodes());
        server.add_job(gated());
        ends_with(&server, &pod_name(LEAD), &log).await;
        waits_because(&server, words).await;
        assert_eq!(marks(&server), [], "{name}");
        let line = format!("trainyard_preflight_reports_rejected_total{{reason=\"{label}\"}} 1");
        assert!(counts(&operator.operator, &line), "{name}: {line}");
        operator.stop().await;
        assert_eq!(marks(&server), [], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn blamed_node_is_tried_and_only_the_trial_marks_it() {
    let seen = |outcome: &str| vec![check("gpu-model", "pass"), check("gpu-ecc", outcome)];
    for (outcome, tainted) in [("pass", false), ("fail", true)] {
        let server = Server::new();
        server.add_nodes(20);
        let operator = server.operator(with_nodes());
        server.add_job(gated());
        let mut forged = check("gpu-ecc", "fail");
        forged["subject"] = "A".repeat(100_000).into();
        let log_of_job = log(&[("node-1", vec![forged])]);
        ends_with(&server, &pod_name(LEAD), &log_of_job).await;
        waits_because(&server, "failed the preflight").await;
        assert_eq!(marks(&server), [], "a job's word marks nothing");
        // The operator's own pod, in its own image and namespace.
        let trial = trial_pod();
        server
            .wait("the trial begins", |world| {
                world.objects.contains_key(&trial)
            })
            .await;
        let pod = server.see(|world| world.objects[&trial].clone());
        assert_eq!(text(&pod, "/spec/containers/0/image"), "trainyard:1");
        assert_eq!(marks(&server), [], "{outcome}: nor does its beginning");
        ends_with(&server, &trial, &log(&[("node-1", seen(outcome))])).await;
        server
            .wait("what the trial found is on the node", |world| {
                let node = world.get("/api/v1/nodes", "", "node-1").unwrap();
                let kept = text(&node, "/metadata/annotations/trainyard.dev~1preflight");
                let taint = text(&node, "/spec/taints/0/key") == probe::PROBATION;
                kept.contains(r#""by":"operator""#) && taint == tainted
            })
            .await;
        for (path, body) in marks(&server) {
            assert_eq!(path, "/api/v1/nodes/node-1", "{body}");
            assert!(body.to_string().len() < 2_000, "{body}");
        }
        let came = if tainted { "unfit" } else { "fit" };
        for line in [
            "trainyard_nodes_blamed_total{result=\"queued\"} 1".to_owned(),
            format!("trainyard_node_trials_total{{cause=\"blamed\",outcome=\"{came}\"}} 1"),
        ] {
            assert!(counts(&operator.operator, &line), "{line}");
        }
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_others_are_neither_believed_nor_deleted() {
    let good = log(&[("node-1", vec![check("gpu-ecc", "pass")])]);
    let words = "is not the one that was created for the preflight";
    let line = "trainyard_preflight_reports_rejected_total{reason=\"wrong_pod\"} 1";
    // Somebody has a pod of that name already.
    let server = Server::new();
    server.add_nodes(3);
    let foreign = json!({"metadata": {"name": LEAD, "labels": {"trainyard.dev/preflight": "1"}},
        "spec": {"containers": [{"name": "preflight"}]}});
    server.add("/api/v1/namespaces/n/pods", foreign);
    let operator = server.operator(with_nodes());
    server.add_job(gated());
    waits_because(&server, words).await;
    assert!(counts(&operator.operator, line));
    operator.stop().await;
    assert!(server.see(|world| world.objects.contains_key(&pod_name(LEAD))));
    // Somebody replaces ours while its log is read.
    let server = Server::new();
    server.add_nodes(3);
    let replace = Fault::Hook(Arc::new(|world| {
        let name = pod_name(LEAD);
        let there = world.objects.get(&name).cloned();
        let mut other = there.as_deref().cloned().unwrap_or_default();
        other["metadata"]["uid"] = "other".into();
        world.put(&name, None);
        world.put(&name, Some(other));
    }));
    server.on(Rule::new(Verb::Log, LEAD, replace).times(1));
    let operator = server.operator(with_nodes());
    server.add_job(gated());
    ends_with(&server, &pod_name(LEAD), &good).await;
    waits_because(&server, words).await;
    assert!(counts(&operator.operator, line));
    assert_eq!(marks(&server), []);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_preflight_pods_are_reported_at_once() {
    let server = Server::new();
    let operator = Operator::new(server.client(), with_nodes());
    let job = trainyard_core::spec::job_from_value(&gated()).job.unwrap();
    let key = JobKey {
        kind: Kind::PyTorch,
        namespace: "n".into(),
        name: "a".into(),
    };
    let status = JobStatus::default();
    // A role that the job has not.
    let seats = [("node-1".to_owned(), Slot::new(Role::Chief, 0))].into();
    operator.start_preflight(&key, "u", &job, &status, 1, &seats);
    let PreflightRun::Ended(1, Err(why)) = operator.flights.run(&key, "u", &status) else {
        panic!("it has not ended");
    };
    assert!(why.starts_with("cannot build its pods: "), "{why}");
}

#[test]
fn what_a_job_found_is_remembered_for_that_job() {
    let flights = Flights::default();
    let key = |name: &str| JobKey {
        kind: Kind::PyTorch,
        namespace: "n".into(),
        name: name.into(),
    };
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let record = |until: i64| NodeRecord {
        outcome: probe::Outcome::Pass,
        check: String::new(),
        why: String::new(),
        at: now,
        until: Timestamp::from_second(1_800_000_000 + until).unwrap(),
        covers: "f".to_owned(),
        by: Source::Job,
    };
    flights.remember(&key("a"), "u", [("n1".to_owned(), record(60))].into(), now);
    let knows = |name: &str, uid: &str, covers: &str, node: &str| {
        flights.remembered(&key(name), uid, covers, node).is_some()
    };
    for (name, known, want) in [
        ("its own later attempt", knows("a", "u", "f", "n1"), true),
        ("another job", knows("b", "u", "f", "n1"), false),
        ("one of the same name", knows("a", "v", "f", "n1"), false),
        ("edited to need more", knows("a", "u", "g", "n1"), false),
        ("another node", knows("a", "u", "f", "n2"), false),
    ] {
        assert_eq!(known, want, "{name}");
    }
    let later = Timestamp::from_second(1_800_000_060).unwrap();
    let many = (0..REMEMBERED + 9).map(|node| (format!("m{node}"), record(600)));
    flights.remember(&key("a"), "u", many.collect(), later);
    assert!(!knows("a", "u", "f", "n1"), "too old");
    assert_eq!(flights.own()[&key("a")].records.len(), REMEMBERED);
    flights.forget(&key("a"));
    assert!(flights.own().is_empty());
}
