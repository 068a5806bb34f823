//! Gangs whose nodes are looked at before they start.

use std::{collections::BTreeMap, time::Duration};

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use trainyard_core::{
    launch::preflight,
    probe::{NodeRecord, Outcome, Source},
    spec,
};

use crate::{
    fabrics::{on_fabric, put_macvlan, remove_fabric},
    harness::{TestNamespace, alone_on_cluster, example, on_cluster, on_real_nodes, pytorch},
    placement::{Rack, gang},
};

const KIND: &str = "PyTorchJob";
const IMAGE: &str = "trainyard.test/trainyard:test";
const RECORD: &str = "trainyard.dev/preflight";
const TAINT: &str = "trainyard.dev/probation";

async fn operator(fixture: &TestNamespace) -> crate::harness::Running {
    fixture
        .operator_with(|options| {
            options.cluster.agent_image = Some(IMAGE.to_owned());
            options.gate.sets_up_within = Duration::from_secs(8);
            options.gate.probation_lasts = Duration::from_secs(3);
        })
        .await
}

/// The example that requires a preflight, one rank on each of two real nodes.
fn two_nodes() -> Value {
    let mut job = example("preflight/job.yaml");
    assert_eq!(job["metadata"]["annotations"][RECORD], "required");
    job["metadata"]["name"] = json!("smoke");
    for (role, node) in [("Master", "node-a"), ("Worker", "node-b")] {
        let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
        pod["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        pod["containers"][0]["imagePullPolicy"] = json!("Never");
        if role == "Master" {
            pod["volumes"][0] = json!({"name": "checkpoints", "emptyDir": {}});
        }
    }
    job
}

/// One rank, which either node may have.
fn one_node() -> Value {
    let mut job = two_nodes();
    let roles = job["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap();
    roles.remove("Worker");
    let pod = &mut job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
    pod["nodeSelector"] = json!({"test.trainyard.dev/node": "real"});
    job
}

async fn node(fixture: &TestNamespace, name: &str) -> Value {
    let node = fixture.whole("", "v1", "Node").get(name).await.unwrap();
    serde_json::to_value(node).unwrap()
}

async fn edit_node(fixture: &TestNamespace, name: &str, change: Value) {
    let nodes = fixture.whole("", "v1", "Node");
    let params = PatchParams::default();
    nodes
        .patch(name, &params, &Patch::Merge(&change))
        .await
        .unwrap();
}

/// Forgets what other tests have found on real nodes.
async fn forget(fixture: &TestNamespace) {
    let nothing = json!({"metadata": {"annotations": {RECORD: null}}});
    for name in ["node-a", "node-b"] {
        edit_node(fixture, name, nothing.clone()).await;
    }
}

fn is_on_probation(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TAINT))
}

/// The pods of jobs that have a node.
async fn ranks(fixture: &TestNamespace) -> BTreeMap<String, Value> {
    let mut pods = fixture.pod_map().await;
    pods.retain(|name, pod| !name.contains("preflight-") && pod["spec"]["nodeName"].is_string());
    pods
}

async fn until_waits_because(fixture: &TestNamespace, job: &str, words: &str) -> Value {
    let what = format!("it waits because of {words}");
    fixture
        .until_status(KIND, job, &what, |status| {
            let waiting = &status["trainyard"]["waiting"];
            waiting["message"]
                .as_str()
                .is_some_and(|message| message.contains(words))
        })
        .await
}

#[test]
fn passed_preflight_starts_only_its_own_gang() {
    on_real_nodes("preflight", |fixture| async move {
        let operator = operator(&fixture).await;
        forget(&fixture).await;
        fixture.put(&two_nodes()).await;
        let status = fixture.until_condition(KIND, "smoke", "Succeeded").await;
        assert_eq!(status["trainyard"]["preflight"]["round"], 1, "{status:#}");
        assert_eq!(status["trainyard"]["attempt"], 1, "{status:#}");
        fixture
            .until_event("smoke", |reason, _| reason == "PyTorchJobPreflightPassed")
            .await;
        fixture
            .until("no pod of the preflight is left", || async {
                (fixture.pod_map().await.len() == ranks(&fixture).await.len()).then_some(())
            })
            .await;
        for name in ["node-a", "node-b"] {
            let node = node(&fixture, name).await;
            let notes = &node["metadata"]["annotations"];
            assert_eq!(notes[RECORD], Value::Null, "{name}: no node is written to");
            assert!(!is_on_probation(&node), "{name}");
        }
        let mut again = two_nodes();
        again["metadata"]["name"] = json!("again");
        fixture.put(&again).await;
        let status = fixture.until_condition(KIND, "again", "Running").await;
        // A job that believed what pods of another reported would need no round of its own.
        let rounds = status["trainyard"]["preflight"]["round"].as_u64();
        let events = fixture.events("again").await;
        assert!(rounds >= Some(1), "{events:#?} {status:#}");
        operator.stop().await;
    });
}

#[test]
fn job_without_fit_nodes_reports_why() {
    on_real_nodes("unfit", |fixture| async move {
        let operator = operator(&fixture).await;
        forget(&fixture).await;
        put_macvlan(&fixture, "10.77.3.0/24").await;
        // The pods get `net1`, and are set to use another.
        let mut job = on_fabric(&fixture, two_nodes());
        for role in ["Master", "Worker"] {
            let container =
                &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"][0];
            container["env"] = json!([{"name": "NCCL_SOCKET_IFNAME", "value": "=ib0"}]);
        }
        fixture.put(&job).await;
        let status = until_waits_because(&fixture, "smoke", "`interface`").await;
        let waiting = &status["trainyard"]["waiting"];
        assert_eq!(waiting["code"], "WaitingForPreflight", "{status:#}");
        let message = waiting["message"].as_str().unwrap();
        assert!(
            message.contains("all 2 nodes") && message.contains("ib0"),
            "{message}"
        );
        assert!(ranks(&fixture).await.is_empty(), "nothing has started");
        for name in ["node-a", "node-b"] {
            assert!(
                !is_on_probation(&node(&fixture, name).await),
                "{name} is not to blame"
            );
        }
        let mut right = on_fabric(&fixture, two_nodes());
        right["metadata"]["name"] = json!("right");
        fixture.put(&right).await;
        fixture.until_condition(KIND, "right", "Running").await;
        remove_fabric(&fixture).await;
        operator.stop().await;
    });
}

#[test]
fn preflight_finds_small_shm_and_missing_volume() {
    on_real_nodes("needs", |fixture| async move {
        let operator = operator(&fixture).await;
        forget(&fixture).await;
        let mut small = one_node();
        small["metadata"]["name"] = json!("small");
        let pod = &mut small["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
        let shm = json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}});
        pod["volumes"].as_array_mut().unwrap().push(shm);
        let container = &mut pod["containers"][0];
        let mounts = container["volumeMounts"].as_array_mut().unwrap();
        mounts.push(json!({"name": "shm", "mountPath": "/dev/shm"}));
        container["resources"] = json!({"limits": {"memory": "192Mi"}});
        let mut missing = one_node();
        missing["metadata"]["name"] = json!("missing");
        let pod = &mut missing["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
        pod["volumes"][0] = json!({"name": "checkpoints", "hostPath":
            {"path": "/nowhere/checkpoints", "type": "Directory"}});
        for (name, job, check) in [
            ("small", small, "`shm`"),
            ("missing", missing, "`pod-starts`"),
        ] {
            fixture.put(&job).await;
            fixture
                .until("an event says why", || async {
                    let events = fixture.events(name).await;
                    let wanted = |(reason, message): &(String, String)| {
                        reason == "PyTorchJobUnfitNodes" && message.contains(check)
                    };
                    events.iter().any(wanted).then_some(())
                })
                .await;
            assert!(
                ranks(&fixture).await.is_empty(),
                "{name}: nothing has started"
            );
        }
        let status = fixture.status(KIND, "small").await;
        assert_eq!(
            status["trainyard"]["spent"],
            json!({"user": 0, "platform": 0,
            "infrastructure": 0, "preemption": 0}),
            "{status:#}"
        );
        for name in ["node-a", "node-b"] {
            assert!(
                !is_on_probation(&node(&fixture, name).await),
                "{name} is not to blame"
            );
        }
        operator.stop().await;
    });
}

#[test]
fn blamed_node_gets_an_operator_trial() {
    on_real_nodes("blamed", |fixture| async move {
        let operator = operator(&fixture).await;
        forget(&fixture).await;
        // A folder of the node is made for root: one of the two ranks may write there, the other may not.
        let mut job = two_nodes();
        for (role, user) in [("Master", 0), ("Worker", 65_532)] {
            let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
            pod["securityContext"] = json!({"runAsUser": user});
            pod["volumes"] = json!([{"name": "checkpoints", "hostPath": {
                "path": format!("/tmp/{}-{user}", fixture.namespace), "type": "DirectoryOrCreate"}}]);
            pod["containers"][0]["volumeMounts"] =
                json!([{"name": "checkpoints", "mountPath": "/checkpoints"}]);
        }
        fixture.put(&job).await;
        let status =
            until_waits_because(&fixture, "smoke", "failed the preflight (`node-b`)").await;
        let message = status["trainyard"]["waiting"]["message"].as_str().unwrap();
        assert!(message.contains("node"), "{message}");
        assert!(ranks(&fixture).await.is_empty(), "nothing has started");
        // Its own trial finds the node well, and says so on the node.
        let record = fixture
            .until("the operator has tried node-b itself", || async {
                let node = node(&fixture, "node-b").await;
                assert!(!is_on_probation(&node), "a job blames it, and no trial");
                let record = node["metadata"]["annotations"][RECORD].as_str();
                record.map(|record| NodeRecord::parse(record).unwrap())
            })
            .await;
        assert_eq!(record.by, Source::Operator, "{record:?}");
        assert!(record.outcome < Outcome::Fail, "{record:?}");
        let metrics = operator.operator.metrics().text();
        for line in [
            "trainyard_nodes_blamed_total{result=\"queued\"} 1",
            "trainyard_node_trials_total{cause=\"blamed\",outcome=\"fit\"} 1",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
        operator.stop().await;
        forget(&fixture).await;
    });
}

#[test]
fn a_node_on_probation_comes_back_once_it_passes() {
    on_real_nodes("probation", |fixture| async move {
        let operator = operator(&fixture).await;
        forget(&fixture).await;
        // As a trial that failed leaves it.
        let until = jiff::Timestamp::now().to_string();
        let there = node(&fixture, "node-b").await["spec"]["taints"].clone();
        let mut taints = there.as_array().cloned().unwrap_or_default();
        taints.push(json!({"key": TAINT, "value": "gpu-ecc", "effect": "NoSchedule"}));
        let change = json!({
            "metadata": {"annotations": {"trainyard.dev/probation-until": until}},
            "spec": {"taints": taints},
        });
        edit_node(&fixture, "node-b", change).await;
        fixture
            .until("node-b is back", || async {
                (!is_on_probation(&node(&fixture, "node-b").await)).then_some(())
            })
            .await;
        let notes = node(&fixture, "node-b").await["metadata"]["annotations"].clone();
        assert_eq!(
            notes["trainyard.dev/probation-until"],
            Value::Null,
            "{notes:#}"
        );
        operator.stop().await;
        forget(&fixture).await;
    });
}

#[test]
fn preflight_swaps_node_that_failed_before() {
    on_cluster("swapped", |fixture| async move {
        let operator = operator(&fixture).await;
        let rack = Rack::new(&fixture, 2).await;
        let mut job = pytorch("j", 0, &json!({}));
        job["metadata"]["annotations"] = json!({RECORD: "required"});
        job["metadata"]["namespace"] = json!(fixture.namespace);
        let pod = &mut job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
        pod["nodeSelector"] = json!({"test.trainyard.dev/for": fixture.namespace});
        pod["tolerations"] = json!([{"key": "test.trainyard.dev/for", "operator": "Exists"}]);
        pod["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 8}});
        let parsed = spec::job_from_value(&job).job.unwrap();
        let record = |outcome: Outcome| {
            let now = jiff::Timestamp::now();
            NodeRecord {
                outcome,
                check: "link-speed".to_owned(),
                why: "`link-speed` found 10 Gbit/s, needs 100 Gbit/s".to_owned(),
                at: now,
                until: now + Duration::from_hours(1),
                covers: preflight::covers(&parsed, None),
                by: Source::Operator,
            }
        };
        let put = |name: String, outcome: Outcome| {
            let change = json!({"metadata": {"annotations": {RECORD: record(outcome).text()}}});
            let fixture = &fixture;
            async move { edit_node(fixture, &name, change).await }
        };
        // Both failed: there is no other seat, and the job says so.
        for name in &rack.names {
            put(name.clone(), Outcome::Fail).await;
        }
        fixture.put(&job).await;
        until_waits_because(&fixture, "j", "2 of its earlier nodes failed the preflight").await;
        // One of them passes.
        put(rack.names[1].clone(), Outcome::Pass).await;
        job["metadata"]["name"] = json!("k");
        fixture.put(&job).await;
        fixture.until_condition(KIND, "k", "Running").await;
        let pods = fixture.pod_map().await;
        assert_eq!(
            pods["k-master-0"]["spec"]["nodeName"],
            rack.names[1].as_str(),
            "{pods:#?}"
        );
        let status = fixture.status(KIND, "k").await;
        assert_eq!(status["trainyard"]["attempt"], 1, "{status:#}");
        operator.stop().await;
        rack.remove().await;
    });
}

/// Alone, for every operator would see another level of the topology.
#[test]
fn leader_gets_the_domains_of_its_nodes() {
    alone_on_cluster("located", |fixture| async move {
        let rack = Rack::new(&fixture, 2).await;
        for (name, zone) in rack.names.iter().zip(["zone-1", "zone-2"]) {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            edit_node(&fixture, name, json!({"metadata": {"labels": labels}})).await;
        }
        // It begins with nodes that have their labels.
        let operator = operator(&fixture).await;
        let mut job = gang(&fixture, "j", 1, &json!({}));
        job["metadata"]["annotations"] = json!({RECORD: "required"});
        fixture.put(&job).await;
        let domains = fixture
            .until("a leader gets domains", || async {
                let pods = fixture.pod_map().await;
                let variables = pods
                    .values()
                    .filter_map(|pod| pod["spec"]["containers"][0]["env"].as_array())
                    .flatten();
                let mut values = variables
                    .filter(|variable| variable["name"] == preflight::variable_name::TOPOLOGY)
                    .filter_map(|variable| variable["value"].as_str())
                    .filter(|value| !value.is_empty());
                values.next().map(str::to_owned)
            })
            .await;
        let want = json!({rack.names[0].as_str(): ["zone-1"], rack.names[1].as_str(): ["zone-2"]});
        let domains: Value = serde_json::from_str(&domains).unwrap();
        assert_eq!(domains, want);
        // Pods of nodes that are gone would never leave.
        fixture
            .jobs(KIND)
            .delete("j", &DeleteParams::default())
            .await
            .unwrap();
        fixture
            .until("the pods are gone", || async {
                fixture.pod_map().await.is_empty().then_some(())
            })
            .await;
        operator.stop().await;
        rack.remove().await;
    });
}
