use serde_json::json;

use super::*;

fn node(value: serde_json::Value) -> Node {
    Node::of(&serde_json::from_value(value).unwrap())
}

fn constraints(value: &serde_json::Value) -> Constraints {
    let mut spec = json!({"containers": []});
    spec.as_object_mut()
        .unwrap()
        .extend(value.as_object().unwrap().clone());
    Constraints::of(&serde_json::from_value(spec).unwrap())
}

#[test]
fn what_keeps_a_pod_away() {
    let labels = json!({"metadata": {"labels": {"pool": "train", "generation": "7"}}});
    let tainted = |effect: &str| json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": effect}]}});
    let tolerate = |toleration: serde_json::Value| json!({"tolerations": [toleration]});
    let affinity = |term: serde_json::Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [term]}}}})
    };
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let taint = || Some(Bar::Taint("gpu".to_owned()));
    let quarantined = json!({"spec": {"taints": [
        {"key": "trainyard.dev/quarantined", "effect": "NoSchedule"}]}});
    let probation = json!({"spec": {"taints": [
        {"key": "trainyard.dev/probation", "value": "link-speed", "effect": "NoSchedule"}]}});
    let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let cases = [
        ("nothing said", labels.clone(), json!({}), None),
        ("not ready", silent, json!({}), Some(Bar::NotReady)),
        (
            "quarantined, tolerated",
            quarantined,
            tolerate(json!({"operator": "Exists"})),
            Some(Bar::Quarantined),
        ),
        (
            "on probation, tolerated",
            probation,
            tolerate(json!({"operator": "Exists"})),
            Some(Bar::Probation),
        ),
        (
            "cordoned",
            json!({"spec": {"unschedulable": true}}),
            json!({}),
            Some(Bar::Cordoned),
        ),
        (
            "cordoned, tolerated",
            json!({"spec": {"unschedulable": true}}),
            tolerate(json!({"operator": "Exists"})),
            None,
        ),
        ("tainted", tainted("NoSchedule"), json!({}), taint()),
        (
            "tainted for running pods",
            tainted("NoExecute"),
            json!({}),
            taint(),
        ),
        (
            "tainted softly",
            tainted("PreferNoSchedule"),
            json!({}),
            None,
        ),
        (
            "taint tolerated",
            tainted("NoSchedule"),
            tolerate(json!({"key": "gpu", "value": "yes"})),
            None,
        ),
        (
            "another value tolerated",
            tainted("NoSchedule"),
            tolerate(json!({"key": "gpu", "value": "no"})),
            taint(),
        ),
        (
            "another effect tolerated",
            tainted("NoSchedule"),
            tolerate(json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"})),
            taint(),
        ),
        (
            "selected",
            labels.clone(),
            json!({"nodeSelector": {"pool": "train"}}),
            None,
        ),
        (
            "not selected",
            labels.clone(),
            json!({"nodeSelector": {"pool": "serve"}}),
            Some(Bar::Selector),
        ),
        (
            "in",
            labels.clone(),
            affinity(expression("pool", "In", &["serve", "train"])),
            None,
        ),
        (
            "not in",
            labels.clone(),
            affinity(expression("pool", "NotIn", &["train"])),
            Some(Bar::Affinity),
        ),
        (
            "not in, absent",
            labels.clone(),
            affinity(expression("rack", "NotIn", &["r"])),
            None,
        ),
        (
            "greater",
            labels.clone(),
            affinity(expression("generation", "Gt", &["6"])),
            None,
        ),
        (
            "not greater",
            labels.clone(),
            affinity(expression("generation", "Gt", &["7"])),
            Some(Bar::Affinity),
        ),
        (
            "empty term",
            labels.clone(),
            affinity(json!({})),
            Some(Bar::Affinity),
        ),
        (
            "by name",
            labels.clone(),
            affinity(
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}),
            ),
            None,
        ),
        (
            "by another name",
            labels,
            affinity(
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}),
            ),
            Some(Bar::Affinity),
        ),
    ];
    for (case, of_node, of_pod, want) in cases {
        let got = Bar::find("n1", &node(of_node), &constraints(&of_pod));
        assert_eq!(got, want, "{case}");
    }
}
