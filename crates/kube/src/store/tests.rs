use std::time::Duration;

use serde_json::{Value, json};
use trainyard_core::{gang::PodKey, job::NodeHealth, spec::job_from_value};

use super::*;
use crate::view::{LeaseView, NodeView, RoomView};

fn job() -> (JobKey, JobView, Job) {
    let template = json!({"spec": {"containers": [{"name": "pytorch", "image": "i"}]}});
    let object = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
    });
    let job = job_from_value(&object).job.unwrap();
    let view: JobView = serde_json::from_value(object).unwrap();
    let key = JobKey {
        kind: Kind::PyTorch,
        namespace: "n".into(),
        name: "j".into(),
    };
    (key, view, job)
}

fn pod(uid: &str, version: u64, attempt: u32, more: Value) -> PodView {
    let mut object = json!({
        "metadata": {
            "name": "j-worker-0", "namespace": "n", "uid": uid,
            "resourceVersion": version.to_string(),
            "labels": {
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/job-name": "j",
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": "0",
                "trainyard.dev/attempt": attempt.to_string(),
            },
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j",
                "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": "node", "containers": [{"name": "pytorch"}]},
        "status": {"phase": "Running"},
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    serde_json::from_value(object).unwrap()
}

fn seen(store: &Store) -> Vec<(String, u32)> {
    let (key, view, job) = job();
    let observed = store.observe(&key, &view, &job).unwrap();
    observed
        .pods
        .into_iter()
        .map(|pod| (pod.uid, pod.attempt))
        .collect()
}

#[test]
fn late_event_of_old_pod_does_not_hide_new_pod() {
    let mut store = Store::default();
    store.update_pods(News::All(vec![pod("old", 10, 1, json!({}))], 10));
    // The operator has deleted the old pod and made the next; the feed is behind.
    store.remember_pod(&pod("new", 30, 2, json!({})));
    assert_eq!(seen(&store), [("new".to_owned(), 2)]);
    store.update_pods(News::Is(pod(
        "old",
        15,
        1,
        json!({"status": {"phase": "Failed"}}),
    )));
    assert_eq!(seen(&store), [("new".to_owned(), 2)]);
    store.update_pods(News::Gone(pod("old", 20, 1, json!({}))));
    assert_eq!(seen(&store), [("new".to_owned(), 2)]);
    store.update_pods(News::Is(pod("new", 30, 2, json!({}))));
    store.update_pods(News::Gone(pod("new", 40, 2, json!({}))));
    assert_eq!(seen(&store), []);
}

#[test]
fn created_then_deleted_pod_does_not_return() {
    let mut store = Store::default();
    store.update_pods(News::All(Vec::new(), 10));
    store.update_pods(News::Is(pod("brief", 20, 1, json!({}))));
    store.update_pods(News::Gone(pod("brief", 30, 1, json!({}))));
    // The answer to its creation comes only now.
    store.remember_pod(&pod("brief", 20, 1, json!({})));
    assert_eq!(seen(&store), []);
}

#[test]
fn a_pod_of_another_owner_is_not_counted() {
    let mut store = Store::default();
    let mut foreign = pod("theirs", 20, 1, json!({}));
    foreign.metadata.owner_references.clear();
    store.update_pods(News::All(vec![foreign], 20));
    assert_eq!(seen(&store), []);
}

#[test]
fn deleted_node_updates_the_jobs_on_it() {
    let mut store = Store::default();
    let (key, view, job) = job();
    let node: NodeView = serde_json::from_value(json!({"metadata": {"name": "node"}})).unwrap();
    store.update_nodes(News::All(vec![node.clone()], 5));
    store.update_pods(News::All(vec![pod("p", 10, 1, json!({}))], 10));
    assert!(store.observe(&key, &view, &job).unwrap().nodes.is_empty());
    assert_eq!(
        store.update_nodes(News::Gone(node)),
        std::slice::from_ref(&key)
    );
    let nodes = store.observe(&key, &view, &job).unwrap().nodes;
    assert_eq!(nodes.get("node"), Some(&NodeHealth::Deleted));
}

#[test]
fn write_response_does_not_restore_deleted_job() {
    let (key, view, _) = job();
    let mut store = Store::default();
    store.update_jobs(News::All(vec![view.clone()], 1), &[Kind::PyTorch]);
    let mut newer = view.clone();
    newer.metadata.resource_version = 5;
    store.remember_job(&key, newer.clone());
    assert_eq!(store.job(&key).unwrap().metadata.resource_version, 5);
    store.remember_job(&key, view);
    assert_eq!(store.job(&key).unwrap().metadata.resource_version, 5);
    store.update_jobs(News::Gone(newer.clone()), &[Kind::PyTorch]);
    store.remember_job(&key, newer);
    assert!(store.job(&key).is_none());
}

#[test]
fn create_response_does_not_restore_deleted_service() {
    let (key, view, job) = job();
    let service = |version: u64| {
        let mut bare = Bare {
            metadata: pod("s", version, 1, json!({})).metadata,
        };
        bare.metadata.name = "j-worker-0".to_owned();
        bare
    };
    let mut store = Store::default();
    let services = |store: &Store| store.observe(&key, &view, &job).unwrap().services.len();
    store.update_services(News::All(Vec::new(), 10));
    store.remember_service(service(20));
    assert_eq!(services(&store), 1);
    store.update_services(News::Gone(service(30)));
    store.remember_service(service(20));
    assert_eq!(services(&store), 0);
}

#[test]
fn pod_of_two_watches_leaves_no_resources_taken() {
    let mut store = Store {
        namespace: Some("n".to_owned()),
        ..Store::default()
    };
    let (_, view, _) = job();
    let room = |version: u64, namespace: &str| -> RoomView {
        serde_json::from_value(json!({
            "metadata": {
                "name": "j-worker-0", "namespace": namespace, "uid": "p",
                "resourceVersion": version.to_string(),
                "labels": {
                    "training.kubeflow.org/operator-name": "pytorchjob-controller",
                    "training.kubeflow.org/job-name": "j",
                },
            },
            "spec": {"nodeName": "node", "containers": [{"name": "pytorch"}]},
            "status": {"phase": "Running"},
        }))
        .unwrap()
    };
    store.update_jobs(News::All(vec![view.clone()], 1), &[Kind::PyTorch]);
    store.update_pods(News::All(vec![pod("p", 10, 1, json!({}))], 10));
    store.update_room(News::Is(room(10, "n")));
    assert_eq!(store.fleet.queue.snapshot().pods.len(), 1);
    // The job goes, then its pod; the feed of everybody's pods is behind.
    store.update_jobs(News::Gone(view), &[Kind::PyTorch]);
    store.update_pods(News::Gone(pod("p", 12, 1, json!({}))));
    store.update_room(News::Is(room(11, "n")));
    store.update_room(News::Gone(room(12, "n")));
    assert_eq!(store.fleet.queue.snapshot().pods.len(), 0);
    // The jobs of other namespaces are followed by nobody here: their pods come and go by this feed alone.
    store.update_room(News::Is(room(13, "elsewhere")));
    assert_eq!(store.fleet.queue.snapshot().pods.len(), 1);
    store.update_room(News::Gone(room(14, "elsewhere")));
    assert_eq!(store.fleet.queue.snapshot().pods.len(), 0);
}

#[test]
fn node_stays_usable_while_leases_are_unread() {
    let mut store = Store::default();
    let node: NodeView = serde_json::from_value(json!({"metadata": {"name": "node"}})).unwrap();
    store.update_nodes(News::All(vec![node.clone()], 5));
    let lease: LeaseView = serde_json::from_value(json!({
        "metadata": {"name": "node"},
        "spec": {"renewTime": "2026-01-01T00:00:00Z", "leaseDurationSeconds": 40},
    }))
    .unwrap();
    let ready = |store: &Store| store.fleet.queue.snapshot().nodes["node"].ready;
    let begin = Instant::now();
    let read = |store: &mut Store, second: u64| {
        let now = begin + Duration::from_secs(second);
        store.update_leases(std::slice::from_ref(&lease), now, Timestamp::UNIX_EPOCH);
    };
    read(&mut store, 0);
    // Nothing waits and nothing runs for an hour; then the node's object changes, and leases are read again.
    store.update_nodes(News::Is(node.clone()));
    assert!(ready(&store));
    read(&mut store, 3_600);
    assert!(ready(&store));
    for second in [3_610, 3_620, 3_630] {
        read(&mut store, second);
    }
    assert!(!ready(&store), "silent for 40 s that count");
    store.update_nodes(News::Is(node));
    assert!(!ready(&store), "its object has nothing new");
}

/// A pod of a batch Job on `node`, with these labels.
fn batch_pod(name: &str, node: &str, version: u64, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels,
            "resourceVersion": version.to_string(),
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "b",
                "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    })
}

fn nodes_with_pods(store: &Store) -> Vec<String> {
    let pods = store.fleet.queue.snapshot().pods.values();
    let mut nodes: Vec<String> = pods.map(|pod| pod.node.clone()).collect();
    nodes.sort();
    nodes
}

#[test]
fn every_pod_of_a_batch_job_takes_room() {
    let read = |value: Value| serde_json::from_value::<RoomView>(value).unwrap();
    let mut store = Store::default();
    let pods = ["a", "b"].map(|node| read(batch_pod(node, node, 1, &json!({}))));
    store.update_room(News::All(pods.to_vec(), 1));
    assert_eq!(nodes_with_pods(&store), ["a", "b"]);
    store.update_room(News::Gone(pods[0].clone()));
    assert_eq!(nodes_with_pods(&store), ["b"]);
}

#[test]
fn pods_labelled_as_a_launcher_take_room_each() {
    let labels = json!({"training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "j"});
    let read = |name: &str, node: &str, version: u64, phase: &str| {
        let mut pod = batch_pod(name, node, version, &labels);
        pod["status"]["phase"] = phase.into();
        serde_json::from_value::<PodView>(pod).unwrap()
    };
    let mut store = Store::default();
    let first = read("one", "a", 1, "Running");
    store.update_pods(News::All(vec![first, read("two", "b", 2, "Running")], 2));
    assert_eq!(nodes_with_pods(&store), ["a", "b"]);
    // The first ends; the other keeps its room, under the name by which placement looks for it.
    store.update_pods(News::Is(read("one", "a", 3, "Failed")));
    assert_eq!(nodes_with_pods(&store), ["b"]);
    store.update_pods(News::Is(read("two", "b", 4, "Running")));
    assert_eq!(nodes_with_pods(&store), ["b"]);
    let key = PodKey {
        namespace: "n".to_owned(),
        name: "sweep".to_owned(),
    };
    assert!(store.fleet.queue.snapshot().pods.contains_key(&key));
    store.update_pods(News::Gone(read("one", "a", 5, "Failed")));
    assert_eq!(nodes_with_pods(&store), ["b"]);
    store.update_pods(News::Gone(read("two", "b", 6, "Running")));
    assert_eq!(nodes_with_pods(&store), <[&str; 0]>::default());
}

#[test]
fn no_pod_hides_another_by_the_name_of_its_owner() {
    let labels = json!({"training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "j"});
    let launcher = |owner: &str, version: u64| {
        let mut pod = batch_pod("l", "b", version, &labels);
        pod["metadata"]["ownerReferences"][0]["name"] = owner.into();
        serde_json::from_value::<PodView>(pod).unwrap()
    };
    let mut pending = batch_pod("pending", "", 1, &labels);
    pending["status"]["phase"] = "Pending".into();
    let pending: PodView = serde_json::from_value(pending).unwrap();
    let sweep = batch_pod("sweep", "a", 1, &json!({}));
    let sweep: RoomView = serde_json::from_value(sweep).unwrap();

    // Its owner has the name of a pod that runs.
    let mut store = Store::default();
    store.update_room(News::Is(sweep.clone()));
    store.update_pods(News::Is(pending));
    assert_eq!(nodes_with_pods(&store), ["a"]);
    store.update_pods(News::Is(launcher("sweep", 2)));
    assert_eq!(nodes_with_pods(&store), ["a", "b"]);
    store.update_room(News::Gone(sweep.clone()));
    assert_eq!(nodes_with_pods(&store), ["b"]);

    // It was there first.
    let mut store = Store::default();
    store.update_pods(News::Is(launcher("sweep", 1)));
    store.update_room(News::Is(sweep));
    assert_eq!(nodes_with_pods(&store), ["a", "b"]);
    store.update_pods(News::Gone(launcher("sweep", 2)));
    assert_eq!(nodes_with_pods(&store), ["a"]);

    // Its owner is edited.
    let mut store = Store::default();
    for (version, owner) in (1..).zip(["x", "y", "l", "z"]) {
        store.update_pods(News::Is(launcher(owner, version)));
        assert_eq!(nodes_with_pods(&store), ["b"], "{owner}");
    }
    store.update_pods(News::Gone(launcher("z", 5)));
    assert_eq!(nodes_with_pods(&store), <[&str; 0]>::default());
}

#[test]
fn a_pod_that_loses_its_labels_takes_room_still() {
    let labels = json!({"training.kubeflow.org/operator-name": "pytorchjob-controller"});
    let ours = |version: u64| {
        let pod = batch_pod("p", "a", version, &labels);
        serde_json::from_value::<PodView>(pod).unwrap()
    };
    let other: RoomView = serde_json::from_value(batch_pod("p", "a", 2, &json!({}))).unwrap();
    let mut store = Store::default();
    store.update_pods(News::Is(ours(1)));
    store.update_pods(News::Gone(ours(2)));
    store.update_room(News::Is(other.clone()));
    assert_eq!(nodes_with_pods(&store), ["a"]);
    // The watch of the other pods is ahead.
    let mut store = Store::default();
    let mut plain = ours(1);
    plain.metadata.owner_references.clear();
    store.update_pods(News::Is(plain.clone()));
    store.update_room(News::Is(other));
    store.update_pods(News::Gone(plain));
    assert_eq!(nodes_with_pods(&store), ["a"]);
}

#[test]
fn a_job_whose_version_is_edited_is_one_job() {
    let kinds = [Kind::MpiV1, Kind::MpiV2];
    let view = |mark: &str| -> JobView {
        serde_json::from_value(json!({
            "apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "annotations": {"trainyard.dev/created-as": mark}},
            "spec": {},
        }))
        .unwrap()
    };
    let key = |kind| JobKey { kind, ..job().0 };
    let mut store = Store::default();
    store.update_jobs(News::All(vec![view("v1")], 1), &kinds);
    let changed = store.update_jobs(News::Is(view("v2beta1")), &kinds);
    assert_eq!(store.job_keys(), [key(Kind::MpiV2)]);
    assert!(changed.contains(&key(Kind::MpiV1)), "it is forgotten");
    assert!(changed.contains(&key(Kind::MpiV2)));
    store.update_jobs(News::Gone(view("v1")), &kinds);
    assert_eq!(store.job_keys(), []);
}
