//! Gangs and their seats, with the cluster's own scheduler.

use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{
    harness::{TestNamespace, alone_on_cluster, ends, holds, on_cluster, pytorch},
    nodes::node,
};

/// Nodes of eight GPUs that only this test uses.
pub(crate) struct Rack {
    nodes: Api<DynamicObject>,
    pub(crate) names: Vec<String>,
}

impl Rack {
    pub(crate) async fn new(fixture: &TestNamespace, count: u32) -> Self {
        let names: Vec<String> = (0..count)
            .map(|at| format!("{}-{at}", fixture.namespace))
            .collect();
        let mut nodes = None;
        for name in &names {
            nodes = Some(node(fixture, name).await);
        }
        Self {
            nodes: nodes.expect("a rack has nodes"),
            names,
        }
    }

    pub(crate) async fn cordon(&self, name: &str, cordoned: bool) {
        let change = json!({"spec": {"unschedulable": cordoned}});
        self.nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(&change))
            .await
            .unwrap();
    }

    pub(crate) async fn remove(self) {
        for name in &self.names {
            self.nodes
                .delete(name, &DeleteParams::default())
                .await
                .unwrap();
        }
    }
}

/// Ties a pod template to the nodes of this test, with all GPUs of one.
fn whole_node(fixture: &TestNamespace, role: &mut Value) {
    let pod = &mut role["template"]["spec"];
    pod["nodeSelector"] = json!({"test.trainyard.dev/for": fixture.namespace});
    pod["tolerations"] = json!([{"key": "test.trainyard.dev/for", "operator": "Exists"}]);
    pod["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 8}});
}

/// A gang of a master and `workers` workers, each with a node of its own.
pub(crate) fn gang(
    fixture: &TestNamespace,
    name: &str,
    workers: u32,
    annotations: &Value,
) -> Value {
    let mut job = pytorch(name, workers, annotations);
    for role in ["Master", "Worker"] {
        let role = &mut job["spec"]["pytorchReplicaSpecs"][role];
        if !role.is_null() {
            whole_node(fixture, role);
        }
    }
    job
}

/// The pods of `job` that have a node.
pub(crate) async fn seated(fixture: &TestNamespace, job: &str) -> usize {
    let pods = fixture.pod_map().await;
    let of_job = pods.values().filter(|pod| {
        pod["metadata"]["labels"]["training.kubeflow.org/job-name"] == job
            && pod["spec"]["nodeName"].is_string()
    });
    of_job.count()
}

async fn waits(fixture: &TestNamespace, job: &str) -> String {
    let status = fixture
        .until_status("PyTorchJob", job, "it waits for seats", |status| {
            let waiting = &status["trainyard"]["waiting"];
            waiting["code"] == "WaitingForSeats"
                && waiting["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("needs"))
        })
        .await;
    let message = &status["trainyard"]["waiting"]["message"];
    message.as_str().unwrap_or_default().to_owned()
}

#[test]
fn job_without_room_holds_no_nodes() {
    on_cluster("room-for-one", |fixture| async move {
        let rack = Rack::new(&fixture, 3).await;
        let operator = fixture.operator().await;
        fixture.put(&gang(&fixture, "first", 1, &json!({}))).await;
        fixture.until_running(2, 1).await;
        fixture.put(&gang(&fixture, "second", 1, &json!({}))).await;
        let why = waits(&fixture, "second").await;
        assert!(why.contains("first"), "names who holds the seats: {why}");
        assert_eq!(seated(&fixture, "second").await, 0);
        // The node that is left is kept for the gang, and not taken: a pod of anybody gets it.
        let mut role =
            json!({"template": {"spec": {"containers": [{"name": "c", "image": "test"}]}}});
        whole_node(&fixture, &mut role);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "anybody"},
            "spec": role["template"]["spec"]});
        let pod: DynamicObject = serde_json::from_value(pod).unwrap();
        fixture
            .pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
        fixture
            .until("the pod of anybody runs", || async {
                let pod = fixture.pods().get("anybody").await.unwrap();
                (pod.data["status"]["phase"] == "Running").then_some(())
            })
            .await;
        fixture
            .jobs("PyTorchJob")
            .delete("first", &DeleteParams::background())
            .await
            .unwrap();
        fixture
            .until_status("PyTorchJob", "second", "it runs", |status| {
                status["replicaStatuses"]["Worker"]["active"] == 1 && holds(status, "Running")
            })
            .await;
        let status = fixture.status("PyTorchJob", "second").await;
        assert_eq!(status["trainyard"]["attempt"], 1, "{status:#}");
        operator.stop().await;
        rack.remove().await;
    });
}

#[test]
fn launcher_starts_after_workers_are_assigned() {
    on_cluster("launcher", |fixture| async move {
        let rack = Rack::new(&fixture, 2).await;
        let operator = fixture
            .operator_with(|options| options.cluster.launcher_rights = true)
            .await;
        fixture.put(&gang(&fixture, "before", 1, &json!({}))).await;
        fixture.until_running(2, 1).await;
        let role = |replicas: u32, annotations: Value| {
            json!({"replicas": replicas, "restartPolicy": "Never", "template": {
                "metadata": {"annotations": annotations},
                "spec": {"containers": [{"name": "mpi", "image": "test", "command": ["mpirun"]}]}}})
        };
        let mut launcher = role(1, ends(0, "200ms"));
        let mut worker = role(2, json!({}));
        whole_node(&fixture, &mut worker);
        whole_node(&fixture, &mut launcher);
        launcher["template"]["spec"]["containers"][0]["resources"] = json!({});
        fixture
            .put(&json!({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
            "metadata": {"name": "ranks"},
            "spec": {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker}}}))
            .await;
        fixture
            .until_status("MPIJob", "ranks", "it waits for seats", |status| {
                status["trainyard"]["waiting"]["code"] == "WaitingForSeats"
            })
            .await;
        assert_eq!(seated(&fixture, "ranks").await, 0);
        fixture
            .jobs("PyTorchJob")
            .delete("before", &DeleteParams::background())
            .await
            .unwrap();
        fixture
            .until_status("MPIJob", "ranks", "it succeeds", |status| {
                holds(status, "Succeeded")
            })
            .await;
        operator.stop().await;
        rack.remove().await;
    });
}

#[test]
fn drained_gang_goes_before_waiting_gangs() {
    on_cluster("drained", |fixture| async move {
        let rack = Rack::new(&fixture, 2).await;
        let operator = fixture.operator().await;
        fixture.put(&gang(&fixture, "first", 1, &json!({}))).await;
        fixture.until_running(2, 1).await;
        fixture.put(&gang(&fixture, "second", 1, &json!({}))).await;
        waits(&fixture, "second").await;
        let drained = &rack.names[0];
        rack.cordon(drained, true).await;
        let pods = fixture.pod_map().await;
        let on_it = pods
            .values()
            .find(|pod| pod["spec"]["nodeName"] == **drained);
        let name = on_it.and_then(|pod| pod["metadata"]["name"].as_str());
        fixture
            .pods()
            .delete(name.expect("a pod is there"), &DeleteParams::default())
            .await
            .unwrap();
        waits(&fixture, "first").await;
        rack.cordon(drained, false).await;
        fixture
            .until_status("PyTorchJob", "first", "its second attempt runs", |status| {
                status["trainyard"]["attempt"] == 2
                    && status["replicaStatuses"]["Worker"]["active"] == 1
                    && holds(status, "Running")
            })
            .await;
        assert_eq!(seated(&fixture, "second").await, 0);
        operator.stop().await;
        rack.remove().await;
    });
}

#[test]
fn nodes_taken_by_another_scheduler_are_replaced() {
    on_cluster("raced", |fixture| async move {
        let rack = Rack::new(&fixture, 2).await;
        let operator = fixture.operator().await;
        // What placement does not look at: a port of the host that is taken on the first node.
        let mut job = gang(&fixture, "ports", 0, &json!({}));
        let pod = &mut job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
        pod["hostNetwork"] = json!(true);
        pod["containers"][0]["ports"] =
            json!([{"name": "pytorchjob-port", "containerPort": 7777, "hostPort": 7777}]);
        let blocker = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "blocker"},
            "spec": {"nodeName": rack.names[0], "hostNetwork": true,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "test",
                    "ports": [{"containerPort": 7777, "hostPort": 7777}]}]}});
        let blocker: DynamicObject = serde_json::from_value(blocker).unwrap();
        fixture
            .pods()
            .create(&PostParams::default(), &blocker)
            .await
            .unwrap();
        fixture.put(&job).await;
        let status = fixture
            .until_status("PyTorchJob", "ports", "it runs", |status| {
                holds(status, "Running")
            })
            .await;
        assert_eq!(
            status["trainyard"]["spent"]["user"], 0,
            "nobody pays: {status:#}"
        );
        operator.stop().await;
        rack.remove().await;
    });
}

#[test]
fn preemption_evicts_and_restarts_the_victim() {
    on_cluster("preempts", |fixture| async move {
        let rack = Rack::new(&fixture, 2).await;
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": fixture.namespace}, "value": 1_000});
        let classes = fixture.whole("scheduling.k8s.io", "v1", "PriorityClass");
        let class: DynamicObject = serde_json::from_value(class).unwrap();
        classes
            .create(&PostParams::default(), &class)
            .await
            .unwrap();
        let operator = fixture.operator().await;
        fixture.put(&gang(&fixture, "cheap", 1, &json!({}))).await;
        fixture.until_running(2, 1).await;

        let mut urgent = gang(&fixture, "urgent", 1, &json!({}));
        urgent["metadata"]["annotations"] = json!({"trainyard.dev/preemption": "lower-priority"});
        for role in ["Master", "Worker"] {
            let pod = &mut urgent["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
            pod["priorityClassName"] = json!(fixture.namespace);
        }
        fixture.put(&urgent).await;
        fixture
            .until_status("PyTorchJob", "urgent", "it runs", |status| {
                holds(status, "Running")
            })
            .await;
        assert_eq!(seated(&fixture, "cheap").await, 0, "nothing of it is left");
        let why = waits(&fixture, "cheap").await;
        assert!(why.contains("urgent"), "names who holds the seats: {why}");
        let status = fixture.status("PyTorchJob", "cheap").await;
        let spent = &status["trainyard"]["spent"];
        assert_eq!(
            (&spent["preemption"], &spent["user"]),
            (&json!(1), &json!(0))
        );
        fixture
            .until_event("cheap", |reason, message| {
                reason == "PyTorchJobPreempted" && message.contains("priority 1000 is above 0")
            })
            .await;

        fixture
            .jobs("PyTorchJob")
            .delete("urgent", &DeleteParams::default())
            .await
            .unwrap();
        fixture
            .until_status("PyTorchJob", "cheap", "it runs again", |status| {
                status["trainyard"]["attempt"] == 2 && holds(status, "Running")
            })
            .await;
        operator.stop().await;
        classes
            .delete(&fixture.namespace, &DeleteParams::default())
            .await
            .unwrap();
        rack.remove().await;
    });
}

#[test]
fn a_hundred_gangs_over_room_for_ten_all_finish() {
    alone_on_cluster("hundred", |fixture| async move {
        let rack = Rack::new(&fixture, 10).await;
        let operator = fixture.operator().await;
        for number in 0..100 {
            let mut job = gang(&fixture, &format!("gang-{number}"), 1, &ends(0, "100ms"));
            for role in ["Master", "Worker"] {
                let pod = &mut job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
                pod["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 4}});
            }
            fixture.put(&job).await;
        }
        for number in 0..100 {
            let name = format!("gang-{number}");
            fixture
                .until_status_within(
                    Duration::from_mins(4),
                    "PyTorchJob",
                    &name,
                    "it succeeds",
                    |status| holds(status, "Succeeded"),
                )
                .await;
        }
        operator.stop().await;
        rack.remove().await;
    });
}
