//! `trainyard debug` of a job on a cluster, with an API server of this test.

use serde_json::{Value, json};

use crate::{
    call::{Call, Outcome},
    in_cluster::api::{Api, job, pod},
    inspect::unpacked,
};

const JOBS: &str = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs";
const PODS: &str = "/api/v1/namespaces/team-a/pods";
const EVENTS: &str = "/api/v1/namespaces/team-a/events";

/// A cluster with the job `mnist`, which has a secret in a variable that it logs, and an event.
fn cluster() -> Api {
    let api = Api::start();
    let mut mnist = job("team-a", "mnist");
    let containers = "/spec/pytorchReplicaSpecs/Worker/template/spec/containers/0";
    *mnist.pointer_mut(containers).expect("it has one") = json!({"name": "pytorch", "image": "i",
        "env": [{"name": "HF_TOKEN", "value": "hunter2-hunter2"}, {"name": "NCCL_DEBUG", "value": "INFO"}]});
    mnist["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    api.put(JOBS, &mnist);
    let mut worker = pod("team-a", "mnist", "node-1");
    worker["spec"]["containers"][0]["env"] =
        json!([{"name": "WANDB_API_KEY", "value": "opensesame"}]);
    api.put(PODS, &worker);
    api.put(
        EVENTS,
        &json!({"apiVersion": "v1", "kind": "Event", "reason": "FailedScheduling",
            "metadata": {"name": "e", "namespace": "team-a", "uid": "e"}, "type": "Warning",
            "message": "0/3 nodes are available", "lastTimestamp": "2026-11-18T10:00:01Z",
            "involvedObject": {"kind": "Pod", "name": "mnist-worker-0", "uid": "uid-mnist-worker-0"}}),
    );
    api.log("login with hunter2-hunter2 and opensesame");
    api
}

/// The call, and what it ended with.
fn debug(api: &Api, words: &[&str]) -> (Call, Outcome) {
    let fixed = [
        "debug",
        "mnist",
        "-n",
        "team-a",
        "--kubeconfig",
        "kubeconfig",
    ];
    let call = Call::new(&[&fixed, words].concat()).file("kubeconfig", api.kubeconfig());
    let outcome = call.run();
    (call, outcome)
}

/// The text of a file; empty where there is none of that name.
fn content<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
    let found = files.iter().find(|(known, _)| known == name);
    found.map_or("", |(_, text)| text)
}

#[test]
fn archive_of_a_cluster_job_has_everything_but_secrets() {
    let api = cluster();
    let (call, outcome) = debug(&api, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let files = unpacked(&call, "team-a-mnist-debug.tar.gz", "team-a-mnist");
    for (name, text) in &files {
        for secret in ["hunter2", "opensesame"] {
            assert!(!text.contains(secret), "{secret} in {name}: {text}");
        }
    }
    let object: Value = serde_json::from_str(content(&files, "job.json")).expect("JSON");
    assert_eq!(object["kind"], "PyTorchJob", "{object}");
    assert_eq!(object["metadata"]["managedFields"], Value::Null, "{object}");
    assert!(content(&files, "job.json").contains("INFO"), "{object}");
    let pods: Value = serde_json::from_str(content(&files, "pods.json")).expect("JSON");
    assert_eq!(pods[0]["spec"]["nodeName"], "node-1", "{pods}");
    for (name, part) in [
        ("status.txt", "Succeeded"),
        ("status.json", "\"version\": 1"),
        ("explain.txt", "mnist"),
        ("explain.json", "\"version\": 1"),
        ("events.txt", "FailedScheduling  0/3 nodes are available"),
        ("doctor.txt", "inconclusive"),
        (
            "logs/attempt-1/mnist-worker-0/pytorch.log",
            "login with [redacted HF_TOKEN]",
        ),
        ("README.txt", "stacks: the job has ended"),
    ] {
        let text = content(&files, name);
        assert!(text.contains(part), "{part} not in {name}: {text}");
    }
    assert_eq!(api.calls("/secrets"), [""; 0], "a Secret was read");
}

#[test]
fn what_may_not_be_read_is_left_out_and_named() {
    let api = cluster();
    api.forbid("/pods");
    api.forbid("/events");
    let (call, outcome) = debug(&api, &["-o", "a.tar.gz"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("left out: "), "{outcome:?}");
    let files = unpacked(&call, "a.tar.gz", "team-a-mnist");
    let readme = content(&files, "README.txt");
    for part in [
        "pods, their logs and their stacks: ",
        "some events: ",
        "doctor.txt: ",
    ] {
        assert!(readme.contains(part), "{part} not in {readme}");
    }
    assert!(content(&files, "status.txt").contains("Succeeded"));
    assert!(
        !files.iter().any(|(name, _)| name.starts_with("logs/")),
        "{readme}"
    );
}

#[test]
fn unknown_job_leaves_no_archive() {
    let api = Api::start();
    api.put(JOBS, &job("team-a", "other"));
    let (call, outcome) = debug(&api, &[]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains("no job `mnist` in namespace `team-a`"),
        "{outcome:?}"
    );
    assert!(!call.folder().join("team-a-mnist-debug.tar.gz").exists());
}
