//! Objects for tests.

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use super::{
    Server,
    world::{Name, World, stamp, text},
};
use crate::{Options, ProgressSource, clock, convert, crd, operator::Lease, path::stored_as};

/// The namespace of the jobs of tests.
pub(crate) const NAMESPACE: &str = "n";

/// What an operator of most tests is given: no nodes, no placement, no lease.
pub(crate) fn options() -> Options {
    let mut options = Options {
        nodes: false,
        placement: false,
        // Tests count the reads of logs.
        progress: ProgressSource::Off,
        ..Options::default()
    };
    // For launchers of `MPIJob` v1 without an agent.
    options.cluster.launcher_rights = true;
    options
}

/// A lease for an operator called `identity`.
pub(crate) fn lease(identity: &str) -> Lease {
    Lease {
        namespace: "trainyard-system".to_owned(),
        name: "trainyard".to_owned(),
        identity: identity.to_owned(),
    }
}

/// The name of the lease of [`lease`].
pub(crate) fn lease_name() -> Name {
    let resource = "/apis/coordination.k8s.io/v1/leases";
    let name = (resource, "trainyard-system", "trainyard");
    (name.0.to_owned(), name.1.to_owned(), name.2.to_owned())
}

/// A job of `kind` with `workers` workers, and what leads them where the kind needs that.
pub(crate) fn job(kind: Kind, name: &str, workers: u32) -> Value {
    let role = |replicas: u32, policy: &str| {
        json!({"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [
            {"name": kind.container(), "image": "test", "command": ["train"]},
        ]}}})
    };
    let worker = role(workers, "OnFailure");
    let roles = match kind {
        Kind::MpiV1 | Kind::MpiV2 => json!({"Launcher": role(1, "Never"), "Worker": worker}),
        Kind::XgBoost | Kind::Paddle => json!({"Master": role(1, "OnFailure"), "Worker": worker}),
        Kind::PyTorch | Kind::Tf | Kind::Jax | Kind::Train => json!({"Worker": worker}),
    };
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {kind.replica_map(): roles}})
}

/// A `TrainJob` of `nodes` nodes and the runtime that it names.
pub(crate) fn train_job(name: &str, nodes: u32, runtime: &str) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"image": "test", "numNodes": nodes}}})
}

/// The name of a job.
pub(crate) fn job_name(kind: Kind, name: &str) -> Name {
    let version = crd::version(stored_as(kind));
    let resource = format!("/apis/{}/{version}/{}", kind.group(), crd::plural(kind));
    (resource, NAMESPACE.to_owned(), name.to_owned())
}

/// The name of a pod.
pub(crate) fn pod_name(name: &str) -> Name {
    let resource = "/api/v1/pods".to_owned();
    (resource, NAMESPACE.to_owned(), name.to_owned())
}

/// How many pods run.
pub(crate) fn running(world: &World) -> usize {
    let runs = |pod: &&std::sync::Arc<Value>| text(pod, "/status/phase") == "Running";
    world.pods().filter(runs).count()
}

/// Whether a job has a condition that is true.
pub(crate) fn has_condition(world: &World, job: &Name, kind: &str) -> bool {
    let Some(job) = world.objects.get(job) else {
        return false;
    };
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

impl Server {
    /// Stores a job as the API server would: an `MPIJob` of v2beta1 in the version that is stored.
    pub(crate) fn add_job(&self, job: Value) -> Value {
        let kind = Kind::find(text(&job, "/apiVersion"), text(&job, "/kind")).unwrap();
        let stored = stored_as(kind);
        let job = if kind == stored {
            job
        } else {
            convert::convert(&job, stored.api_version()).unwrap()
        };
        let (resource, namespace, _) = job_name(kind, "");
        let (group, plural) = resource.rsplit_once('/').unwrap();
        self.add(&format!("{group}/namespaces/{namespace}/{plural}"), job)
    }

    /// Stores nodes that are ready: `node-0`, `node-1`, …
    pub(crate) fn add_nodes(&self, count: u32) {
        for index in 0..count {
            self.add_node(index);
        }
    }

    /// Stores one of them.
    pub(crate) fn add_node(&self, index: u32) {
        let name = format!("node-{index}");
        let now = stamp(clock::now());
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": now,
                    "lastTransitionTime": now}],
            },
        });
        self.add("/api/v1/nodes", node);
    }

    /// Makes a node ready or not.
    pub(crate) fn set_node_ready(&self, node: &str, ready: bool) {
        let name = ("/api/v1/nodes".to_owned(), String::new(), node.to_owned());
        self.with(|world| {
            world.change(&name, |node| {
                let status = if ready { "True" } else { "Unknown" };
                let condition = &mut node["status"]["conditions"][0];
                condition["status"] = status.into();
                condition["lastTransitionTime"] = stamp(clock::now()).into();
            });
            if ready {
                world.kubelet.silent.remove(node);
            } else {
                world.kubelet.silent.insert(node.to_owned());
            }
        });
    }

    /// What the log of a pod says.
    pub(crate) fn set_log(&self, pod: &str, log: &str) {
        let key = format!("{NAMESPACE}/{pod}");
        self.with(|world| {
            let times = vec![clock::now(); log.lines().count()];
            world.kubelet.log_times.insert(key.clone(), times);
            world.kubelet.logs.insert(key, log.to_owned());
        });
    }

    /// A pod writes one more line now.
    pub(crate) fn add_line(&self, pod: &str, line: &str) {
        let key = format!("{NAMESPACE}/{pod}");
        self.with(|world| {
            let times = world.kubelet.log_times.entry(key.clone()).or_default();
            times.push(clock::now());
            let log = world.kubelet.logs.entry(key).or_default();
            log.push_str(line);
            log.push('\n');
        });
    }
}
