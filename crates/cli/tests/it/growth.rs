//! `trainyard explain` of a job that waits for nodes, on a cluster whose nodes come and go.

use serde_json::{Value, json};

use crate::{
    call::{Call, Outcome},
    in_cluster::api::{Api, job},
};

const JOBS: &str = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs";
const NODES: &str = "/api/v1/nodes";
const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";

/// A cluster with one node of 8 GPUs of the pool `gpu`, and a job of two pods of 8 GPUs that waits.
fn cluster(limit: i64) -> Api {
    cluster_with(limit, POOLS)
}

fn cluster_with(limit: i64, pools: &str) -> Api {
    let api = Api::start();
    let mut waiting = job("team-a", "mnist");
    let worker = &mut waiting["spec"]["pytorchReplicaSpecs"]["Worker"];
    worker["replicas"] = json!(2);
    worker["template"]["spec"]["containers"][0]["resources"] =
        json!({"limits": {"nvidia.com/gpu": 8}});
    waiting["status"] = json!({"conditions": [], "trainyard": {"attempt": 1,
        "waiting": {"code": "WaitingForSeats", "message": "needs 2 nodes with 8 free GPUs"}}});
    api.put(JOBS, &waiting);
    let labels = json!({"karpenter.sh/nodepool": "gpu", "node.kubernetes.io/instance-type": "p5"});
    let allocatable = json!({"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"});
    api.put(
        NODES,
        &json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-1", "uid": "node-1", "labels": labels},
            "status": {"allocatable": allocatable}}),
    );
    let types =
        json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5"]}]);
    api.put(
        pools,
        &json!({"kind": "NodePool",
            "metadata": {"name": "gpu", "uid": "pool"},
            "spec": {"limits": {"nvidia.com/gpu": limit}, "template": {"spec": {"requirements": types}}},
            "status": {"resources": {"nvidia.com/gpu": "8"}}}),
    );
    api
}

fn explain(api: &Api, words: &[&str]) -> Outcome {
    let fixed = [
        "explain",
        "mnist",
        "--cluster",
        "-n",
        "team-a",
        "--kubeconfig",
        "kubeconfig",
    ];
    let call = Call::new(&[&fixed, words].concat()).file("kubeconfig", api.kubeconfig());
    call.run()
}

/// The text without line breaks.
fn flat(outcome: &Outcome) -> String {
    let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn explain_names_the_scale_up() {
    let api = cluster(64);
    let text = flat(&explain(&api, &[]));
    let want = "scale-up fits after a scale-up: 1 node `p5` of pool `gpu` (8 GPUs each); 1 of 2 pods on nodes that exist";
    assert!(text.contains(want), "{text}");
    let json = explain(&api, &["--format", "json"]).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let capacity = &json["capacity"];
    assert_eq!(capacity["answer"], "fitsAfterScaleUp", "{json}");
    assert_eq!(capacity["order"]["parts"][0]["nodes"], 1, "{json}");
}

#[test]
fn explain_names_the_limit_of_the_pool() {
    let text = flat(&explain(&cluster(8), &[]));
    let want = "never fits: pool `gpu` is limited to 8 GPUs, 8 used: room for 0 pods of the gang";
    assert!(text.contains(want), "{text}");
}

#[test]
fn explain_says_what_it_may_not_read() {
    let api = cluster(64);
    api.forbid("/karpenter.sh/");
    let text = flat(&explain(&api, &[]));
    let want = "scale-up not all is known about nodes that could be added: cannot list NodePools";
    assert!(text.contains(want), "{text}");
}

#[test]
fn explain_never_says_never_of_what_it_may_not_read() {
    let api = cluster(8);
    api.forbid("cluster-autoscaler-status");
    let text = flat(&explain(&api, &[]));
    assert!(!text.contains("never fits"), "{text}");
    let want = "may fit after a scale-up; not all that could add nodes was read: cannot get the status of the Cluster Autoscaler";
    assert!(text.contains(want), "{text}");
}

#[test]
fn explain_without_an_autoscaler_is_as_before() {
    let api = Api::start();
    let mut waiting = job("team-a", "mnist");
    waiting["status"] = json!({"conditions": [], "trainyard": {"attempt": 1,
        "waiting": {"code": "WaitingForSeats", "message": "needs 2 nodes"}}});
    api.put(JOBS, &waiting);
    let outcome = explain(&api, &["--format", "json"]);
    let json: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(json["capacity"], Value::Null, "{json}");
    assert_eq!(json["standing"], "waits", "{json}");
}

#[test]
fn explain_counts_jobs_that_wait_longer() {
    let api = cluster(16);
    let text = flat(&explain(&api, &[]));
    assert!(
        text.contains("scale-up fits after a scale-up: 1 node"),
        "{text}"
    );
    let mut older = job("team-a", "older");
    older["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    let worker = &mut older["spec"]["pytorchReplicaSpecs"]["Worker"];
    worker["replicas"] = json!(2);
    worker["template"]["spec"]["containers"][0]["resources"] =
        json!({"limits": {"nvidia.com/gpu": 8}});
    older["status"] = json!({"conditions": [], "trainyard": {"attempt": 1,
        "waiting": {"code": "WaitingForSeats", "message": "needs 2 nodes with 8 free GPUs"}}});
    api.put(&JOBS.replace("/namespaces/team-a", ""), &older);
    let text = flat(&explain(&api, &[]));
    assert!(
        text.contains("scale-up fits when other gangs have ended"),
        "{text}"
    );
}

#[test]
fn explain_reads_older_versions_of_karpenter() {
    let api = cluster_with(64, &POOLS.replace("/v1/", "/v1beta1/"));
    let text = flat(&explain(&api, &[]));
    assert!(
        text.contains("scale-up fits after a scale-up: 1 node"),
        "{text}"
    );
}
