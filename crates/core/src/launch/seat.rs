//! How a pod is gated, and how it is bound to its node.
//!
//! A new pod is bound by a required node affinity on the node's own name, which lets the scheduler check
//! one node instead of all. A pod that exists may only be narrowed, so one that was gated is bound by
//! its node selector.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSchedulingGate, PodSpec,
};
use serde_json::{Value, json};

use super::LaunchedPod;
use crate::{job::Seat, spec::annotation};

/// The gate that holds a pod back until its gang has seats.
pub const GATE: &str = "trainyard.dev/seat";
/// The label by which a node selector names a node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Makes `pod` fit for `seat`.
pub fn take_seat(pod: &mut LaunchedPod, seat: &Seat) {
    let (spec, annotations) = match pod {
        LaunchedPod::Pod(pod) => (
            pod.spec.get_or_insert_default(),
            pod.metadata.annotations.get_or_insert_default(),
        ),
        LaunchedPod::Job(job) => {
            let template = &mut job.spec.get_or_insert_default().template;
            let metadata = template.metadata.get_or_insert_default();
            (
                template.spec.get_or_insert_default(),
                metadata.annotations.get_or_insert_default(),
            )
        }
    };
    match seat {
        Seat::Open => {}
        Seat::Gated => spec
            .scheduling_gates
            .get_or_insert_default()
            .push(PodSchedulingGate {
                name: GATE.to_owned(),
            }),
        Seat::Node(node) => {
            tie(spec, node);
            annotations.insert(annotation::SEAT.to_owned(), node.clone());
        }
    }
    if annotations.is_empty() {
        forget_empty_annotations(pod);
    }
}

fn forget_empty_annotations(pod: &mut LaunchedPod) {
    let metadata = match pod {
        LaunchedPod::Pod(pod) => Some(&mut pod.metadata),
        LaunchedPod::Job(job) => job
            .spec
            .as_mut()
            .and_then(|spec| spec.template.metadata.as_mut()),
    };
    if let Some(metadata) = metadata {
        metadata.annotations = None;
    }
}

/// The change, as a strategic merge, that ungates the incarnation `uid` of a pod.
pub fn release(uid: &str, node: &str, hostname: &str) -> Value {
    let selector = BTreeMap::from([(HOSTNAME, hostname)]);
    json!({
        "metadata": {"uid": uid, "annotations": {annotation::SEAT: node}},
        "spec": {
            "nodeSelector": selector,
            "schedulingGates": [{"$patch": "delete", "name": GATE}],
        },
    })
}

/// Adds the node's name to every alternative that the pod's own affinity has.
pub(super) fn tie(spec: &mut PodSpec, node: &str) {
    let name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let affinity = spec.affinity.get_or_insert_default();
    let affinity = affinity.node_affinity.get_or_insert_default();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields.get_or_insert_default().push(name.clone());
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pod(spec: &Value) -> LaunchedPod {
        LaunchedPod::Pod(Box::new(Pod {
            spec: Some(serde_json::from_value(spec.clone()).unwrap()),
            ..Pod::default()
        }))
    }

    fn taken(spec: &Value, seat: &Seat) -> Value {
        let mut pod = pod(spec);
        take_seat(&mut pod, seat);
        match pod {
            LaunchedPod::Pod(pod) => serde_json::to_value(pod).unwrap(),
            LaunchedPod::Job(_) => panic!("a pod became a Job"),
        }
    }

    #[test]
    fn a_pod_without_a_seat_is_left_as_it_is() {
        let spec = json!({"containers": []});
        let open = taken(&spec, &Seat::Open);
        assert_eq!(open["spec"], spec);
        assert!(open["metadata"].get("annotations").is_none());
    }

    #[test]
    fn a_pod_that_is_held_back_keeps_the_gates_of_others() {
        let spec = json!({"containers": [], "schedulingGates": [{"name": "other/gate"}]});
        let gated = taken(&spec, &Seat::Gated);
        assert_eq!(
            gated["spec"]["schedulingGates"],
            json!([{"name": "other/gate"}, {"name": GATE}])
        );
    }

    #[test]
    fn a_seat_narrows_every_alternative_of_the_pods_own() {
        let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
        let rack = json!({"key": "rack", "operator": "In", "values": ["r"]});
        let terms = json!([{"matchExpressions": [zone]}, {"matchExpressions": [rack]}]);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let own = json!({"containers": [], "affinity": {"nodeAffinity": {required:
            {"nodeSelectorTerms": terms}}}});
        let seat = Seat::Node("n7".to_owned());
        let tied = json!([{"key": "metadata.name", "operator": "In", "values": ["n7"]}]);
        for (name, spec, want) in [
            (
                "none",
                json!({"containers": []}),
                json!([{"matchFields": tied}]),
            ),
            (
                "two",
                own,
                json!([{"matchExpressions": [zone], "matchFields": tied},
                    {"matchExpressions": [rack], "matchFields": tied}]),
            ),
        ] {
            let pod = taken(&spec, &seat);
            let found = &pod["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"];
            assert_eq!(*found, want, "{name}");
            assert_eq!(pod["metadata"]["annotations"][annotation::SEAT], "n7");
        }
    }
}
