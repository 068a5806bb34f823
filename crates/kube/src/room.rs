//! How much room nodes have and pods take, in the words of placement.

use k8s_openapi::api::core::v1::{Container, Node, NodeSpec, NodeStatus, PodSpec, Taint};
use trainyard_core::{
    gang::{self, PodKey, Resident, Resources},
    probe::PROBATION_UNTIL,
    spec::annotation,
};

use crate::{
    key::JobKey,
    view::{ContainerSpecView, Meta, NodeView, PodView, RoomView},
};

/// The name by which placement knows a pod. That of a launcher whose batch Job made it is the Job's: the
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
    let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    if pod.spec.node_name.is_empty() || ended {
        return None;
    }
    let spec = PodSpec {
        containers: pod.spec.containers.iter().map(container).collect(),
        init_containers: Some(pod.spec.init_containers.iter().map(container).collect()),
        overhead: pod.spec.overhead.clone(),
        ..PodSpec::default()
    };
    Some(Resident {
        node: pod.spec.node_name.clone(),
        gang: Some(job.gang()),
        requests: Resources::of_pod(&spec),
        priority: pod.spec.priority.unwrap_or(0),
        labels: pod.metadata.labels.clone(),
        leaving: pod.metadata.deletion_timestamp.is_some(),
        anti_affinity: Vec::new(),
    })
}

fn container(view: &ContainerSpecView) -> Container {
    Container {
        resources: view.resources.clone(),
        restart_policy: view.restart_policy.clone(),
        ..Container::default()
    }
}

/// The room that a pod of anybody takes.
pub(crate) fn of_others(view: &RoomView) -> Option<Resident> {
    let spec = view.pod.spec.as_ref()?;
    let node = spec.node_name.clone().filter(|node| !node.is_empty())?;
    if matches!(view.pod.status.phase.as_str(), "Succeeded" | "Failed") {
        return None;
    }
    let anti = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
        .and_then(|anti| {
            anti.required_during_scheduling_ignored_during_execution
                .clone()
        });
    Some(Resident {
        node,
        gang: None,
        requests: Resources::of_pod(spec),
        priority: spec.priority.unwrap_or(0),
        labels: view.metadata.labels.clone(),
        leaving: view.metadata.deletion_timestamp.is_some(),
        anti_affinity: anti.unwrap_or_default(),
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
