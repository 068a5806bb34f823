//! How much room nodes have and pods take, in the words of placement.

use k8s_openapi::api::core::v1::{Container, Node, NodeSpec, NodeStatus, PodSpec, Taint};
use trainyard_core::{
    gang::{self, PodKey, Resident, Resources},
    probe::PROBATION_UNTIL,
    spec::annotation,
};

use crate::{
    key::JobKey,
    view::{ContainerSpecView, Meta, NodeView, PodSpecView, PodView, RoomView},
};

/// The name of a pod.
pub(crate) fn own_key(meta: &Meta) -> PodKey {
    PodKey {
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
    }
}

/// The name by which placement looks for a pod of ours. That of a launcher whose batch Job made it is the Job's: the
/// pod's own ends in letters that nobody can foresee.
pub(crate) fn key_of(meta: &Meta) -> PodKey {
    let mut owners = meta.owner_references.iter();
    let batch = owners.find(|owner| owner.controller == Some(true) && owner.kind == "Job");
    PodKey {
        namespace: meta.namespace.clone(),
        name: batch.map_or(&meta.name, |owner| &owner.name).clone(),
    }
}

/// The room that a pod of ours takes; none where it has no node, or has ended.
pub(crate) fn of_ours(pod: &PodView, job: &JobKey) -> Option<Resident> {
    let node = &pod.spec.node_name;
    (!node.is_empty()).then(|| resident(pod, job, node))?
}

/// The room that a pod of ours will take as soon as the scheduler binds it to the node that it was assigned.
pub(crate) fn of_unbound(pod: &PodView, job: &JobKey) -> Option<Resident> {
    let node = pod.metadata.notes.seat.as_deref()?;
    let waits = pod.spec.node_name.is_empty() && pod.spec.scheduling_gates.is_empty();
    waits.then(|| resident(pod, job, node))?
}

fn resident(pod: &PodView, job: &JobKey, node: &str) -> Option<Resident> {
    let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    (!ended).then(|| Resident {
        node: node.to_owned(),
        gang: Some(job.gang()),
        requests: requests(&pod.spec),
        priority: pod.spec.priority.unwrap_or(0),
        labels: pod.metadata.labels.clone(),
        leaving: pod.metadata.deletion_timestamp.is_some(),
        anti_affinity: Vec::new(),
        daemon: false,
    })
}

/// What a pod asks a node for.
pub(crate) fn requests(spec: &PodSpecView) -> Resources {
    Resources::of_pod(&PodSpec {
        containers: spec.containers.iter().map(container).collect(),
        init_containers: Some(spec.init_containers.iter().map(container).collect()),
        overhead: spec.overhead.clone(),
        host_network: Some(spec.host_network),
        resources: spec.resources.clone(),
        ..PodSpec::default()
    })
}

fn container(view: &ContainerSpecView) -> Container {
    Container {
        resources: view.resources.clone(),
        restart_policy: view.restart_policy.clone(),
        ports: Some(view.ports.clone()),
        ..Container::default()
    }
}

/// The resources that any pod uses.
pub(crate) fn of_others(view: &RoomView) -> Option<Resident> {
    let ended = matches!(view.status.phase.as_str(), "Succeeded" | "Failed");
    if view.spec.node_name.is_empty() || ended {
        return None;
    }
    let anti = &view.spec.affinity.pod_anti_affinity;
    Some(Resident {
        node: view.spec.node_name.clone(),
        gang: None,
        requests: requests(&view.spec),
        priority: view.spec.priority.unwrap_or(0),
        labels: view.metadata.labels.clone(),
        leaving: view.metadata.deletion_timestamp.is_some(),
        anti_affinity: anti
            .required_during_scheduling_ignored_during_execution
            .clone(),
        daemon: false,
    })
}

/// The node as placement sees it; whether it answers is known by more signs than its object has.
pub(crate) fn of_node(view: &NodeView, answers: bool) -> gang::Node {
    let taints = view.spec.taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()),
        effect: taint.effect.clone(),
        time_added: None,
    });
    let mut node = Node {
        spec: Some(NodeSpec {
            taints: Some(taints.collect()),
            unschedulable: Some(view.spec.unschedulable),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            allocatable: Some(view.status.allocatable.clone()),
            ..NodeStatus::default()
        }),
        ..Node::default()
    };
    node.metadata.labels = Some(view.metadata.labels.clone());
    let notes = &view.metadata.notes;
    let notes = [
        (annotation::PREFLIGHT, &notes.preflight),
        (PROBATION_UNTIL, &notes.probation_until),
    ];
    let notes = notes
        .into_iter()
        .filter_map(|(key, text)| Some((key.to_owned(), text.as_deref()?.to_owned())));
    node.metadata.annotations = Some(notes.collect());
    gang::Node {
        ready: answers,
        ..gang::Node::of(&node)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use trainyard_core::spec::Kind;

    use super::*;

    #[test]
    fn pod_view_determines_its_room() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": "web"}},
            "spec": {
                "nodeName": "node-1",
                "priority": 7,
                "hostNetwork": true,
                "overhead": {"memory": "1Mi"},
                "resources": {"requests": {"cpu": "9"}},
                "initContainers": [{
                    "name": "s", "image": "i", "restartPolicy": "Always",
                    "resources": {"requests": {"memory": "1Gi"}}, "ports": [{"containerPort": 9100}],
                }],
                "containers": [{
                    "name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "UDP"}],
                    "resources": {"limits": {"nvidia.com/gpu": "2"}},
                }],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
                ]}},
            },
            "status": {"phase": "Running"},
        });
        let whole: Pod = serde_json::from_value(pod.clone()).unwrap();
        let whole = Resources::of_pod(&whole.spec.unwrap());
        let others = of_others(&serde_json::from_value(pod.clone()).unwrap()).unwrap();
        assert_eq!(others.requests, whole);
        assert_eq!((others.node.as_str(), others.priority), ("node-1", 7));
        assert_eq!(
            others.anti_affinity[0].topology_key,
            "kubernetes.io/hostname"
        );
        let job = JobKey {
            kind: Kind::PyTorch,
            namespace: "n".into(),
            name: "j".into(),
        };
        let ours = of_ours(&serde_json::from_value(pod).unwrap(), &job).unwrap();
        assert_eq!(ours.requests, whole);
    }

    #[test]
    fn unbound_pods_take_room_on_their_assigned_node() {
        let job = JobKey {
            kind: Kind::PyTorch,
            namespace: "n".into(),
            name: "j".into(),
        };
        let cases = [
            ("waits for the scheduler", json!({}), "Pending", Some("a")),
            (
                "is gated",
                json!({"schedulingGates": [{"name": "g"}]}),
                "Pending",
                None,
            ),
            ("is bound", json!({"nodeName": "a"}), "Pending", None),
            ("has ended", json!({}), "Failed", None),
        ];
        for (name, spec, phase, want) in cases {
            let pod = json!({
                "metadata": {"name": "p", "annotations": {"trainyard.dev/seat": "a"}},
                "spec": spec, "status": {"phase": phase},
            });
            let found = of_unbound(&serde_json::from_value(pod).unwrap(), &job);
            let node = found.as_ref().map(|resident| resident.node.as_str());
            assert_eq!(node, want, "{name}");
        }
    }
}
