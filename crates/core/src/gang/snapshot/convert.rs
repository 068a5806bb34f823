//! From the objects of a cluster to a [`Snapshot`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};

use super::{GangKey, Node, PodKey, Resident, Resources, Snapshot, Taint, TaintEffect, Topology};
use crate::{
    launch::pod_label,
    probe::{NodeRecord, PROBATION_UNTIL},
    spec::{Kind, annotation},
};

impl Snapshot {
    /// The cluster of these nodes and pods, with the levels that the labels show.
    pub fn of<'a>(
        nodes: impl IntoIterator<Item = &'a KubeNode>,
        pods: impl IntoIterator<Item = &'a Pod>,
    ) -> Self {
        let mut snapshot = Self::default();
        for node in nodes {
            let name = node.metadata.name.clone().unwrap_or_default();
            snapshot.nodes.insert(name, Node::of(node));
        }
        for pod in pods {
            if let Some((key, resident)) = Resident::of(pod) {
                snapshot.pods.insert(key, resident);
            }
        }
        snapshot.detect_topology();
        snapshot
    }

    /// Detects the levels again; to be called when nodes or their labels have changed.
    pub fn detect_topology(&mut self) {
        (self.topology, self.warnings) = Topology::detect(self.placed_labels());
    }

    /// Takes these label keys for the levels, from wide to narrow.
    pub fn set_topology<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) {
        let topology = Topology::of_keys(keys);
        self.warnings = topology.disagreements(&self.placed_labels());
        self.topology = topology;
    }

    /// The labels of the nodes whose place matters: those with accelerators, or all where there are none.
    fn placed_labels(&self) -> Vec<&BTreeMap<String, String>> {
        let computes = |node: &&Node| node.allocatable.accelerators() > 0;
        let mut nodes: Vec<&Node> = self.nodes.values().filter(computes).collect();
        if nodes.is_empty() {
            nodes = self.nodes.values().collect();
        }
        nodes.into_iter().map(|node| &node.labels).collect()
    }
}

impl Node {
    /// What counts of a node.
    pub fn of(node: &KubeNode) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let taints = spec.and_then(|spec| spec.taints.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let allocatable = status
            .and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()))
            .map(Resources::of_quantities);
        // A node in a file often has no conditions; in a cluster one without is not up yet, but then
        // it has no allocatable either.
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready")
            .is_none_or(|condition| condition.status == "True");
        let annotations = node.metadata.annotations.as_ref();
        let noted = |key: &str| annotations.and_then(|all| all.get(key));
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints
                .into_iter()
                .flatten()
                .filter_map(|taint| {
                    Some(Taint {
                        key: taint.key.clone(),
                        value: taint.value.clone().unwrap_or_default(),
                        effect: effect(&taint.effect)?,
                    })
                })
                .collect(),
            unschedulable: spec.and_then(|spec| spec.unschedulable) == Some(true),
            ready,
            allocatable: allocatable.unwrap_or_default(),
            preflight: noted(annotation::PREFLIGHT)
                .and_then(|text| NodeRecord::parse(text))
                .map(Box::new),
            probation_until: noted(PROBATION_UNTIL).and_then(|text| text.parse().ok()),
        }
    }
}

fn effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// Whether a daemon set made the pod.
fn is_daemon(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.kind == "DaemonSet")
}

impl Resident {
    /// What counts of a pod; none where it has no node, or has ended.
    pub fn of(pod: &Pod) -> Option<(PodKey, Self)> {
        let spec = pod.spec.as_ref()?;
        let node = spec.node_name.clone().filter(|name| !name.is_empty())?;
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let gang = labels
            .get(pod_label::OPERATOR_NAME)
            .zip(labels.get(pod_label::JOB_NAME))
            .and_then(|(controller, job)| {
                let kind = Kind::READ
                    .into_iter()
                    .find(|kind| kind.controller() == controller)?;
                Some(GangKey {
                    kind,
                    namespace: namespace.clone(),
                    name: job.clone(),
                })
            });
        let anti_affinity = spec
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
            .and_then(|anti| {
                anti.required_during_scheduling_ignored_during_execution
                    .clone()
            });
        let key = PodKey {
            namespace,
            name: pod.metadata.name.clone().unwrap_or_default(),
        };
        let resident = Self {
            node,
            gang,
            requests: Resources::of_pod(spec),
            priority: spec.priority.unwrap_or(0),
            labels,
            leaving: pod.metadata.deletion_timestamp.is_some(),
            anti_affinity: anti_affinity.unwrap_or_default(),
            daemon: is_daemon(pod),
        };
        Some((key, resident))
    }
}
