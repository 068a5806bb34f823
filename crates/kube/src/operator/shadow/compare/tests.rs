use jiff::Timestamp;
use serde_json::json;
use trainyard_core::job::ConditionType;

use super::*;

/// Path, ours, theirs.
type Printed = (String, String, String);
/// Name, ours, theirs, what is printed.
type Case = (&'static str, Value, Value, Vec<Printed>);

/// The difference of two pods whose only container is `ours` and `theirs`.
fn containers(ours: &Value, theirs: &Value) -> Vec<Printed> {
    let pod = |container: &Value| json!({"spec": {"containers": [container]}});
    printed(&objects(&pod(ours), &pod(theirs)))
}

fn printed(found: &[Difference]) -> Vec<Printed> {
    let cut = |path: &str| path.replace("spec.containers[c].", "");
    found
        .iter()
        .map(|it| (cut(&it.path), it.ours.clone(), it.theirs.clone()))
        .collect()
}

fn line(path: &str, ours: &str, theirs: &str) -> Printed {
    (path.to_owned(), ours.to_owned(), theirs.to_owned())
}

#[test]
fn what_of_a_container_counts() {
    let c = |fields: Value| {
        let mut container = json!({"name": "c"});
        for (key, value) in fields.as_object().unwrap() {
            container[key] = value.clone();
        }
        container
    };
    let env = |items: &[(&str, &str)]| {
        let items: Vec<Value> = items
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        json!({"env": items})
    };
    let token = json!({"volumeMounts": [{"name": "kube-api-access-x", "mountPath": TOKEN_PATH}]});
    let limits = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu}}});
    let cases: [Case; 15] = [
        (
            "the same",
            json!({"image": "i"}),
            json!({"image": "i"}),
            vec![],
        ),
        (
            "defaults of the server",
            json!({"image": "i"}),
            json!({"image": "i", "terminationMessagePath": "/dev/termination-log"}),
            vec![],
        ),
        (
            "another image",
            json!({"image": "i"}),
            json!({"image": "k"}),
            vec![line("image", "i", "k")],
        ),
        (
            "a missing image",
            json!({"image": "i"}),
            json!({}),
            vec![line("image", "i", "")],
        ),
        (
            "another value",
            env(&[("RANK", "1")]),
            env(&[("RANK", "0")]),
            vec![line("env[RANK].value", "1", "0")],
        ),
        (
            "another order",
            env(&[("A", "1"), ("B", "2")]),
            env(&[("B", "2"), ("A", "1")]),
            vec![],
        ),
        (
            "a variable only of theirs",
            env(&[("A", "1")]),
            env(&[("A", "1"), ("B", "2")]),
            vec![line("env[B]", "", r#"{"name":"B","value":"2"}"#)],
        ),
        (
            "variables only of theirs",
            json!({}),
            env(&[("B", "2")]),
            vec![line("env[B]", "", r#"{"name":"B","value":"2"}"#)],
        ),
        (
            "a variable only of ours",
            env(&[("A", "1")]),
            json!({}),
            vec![line("env", r#"[{"name":"A","value":"1"}]"#, "")],
        ),
        (
            "an empty value that is left out",
            json!({"env": [{"name": "A", "value": ""}]}),
            json!({"env": [{"name": "A"}]}),
            vec![],
        ),
        (
            "the same JSON, written otherwise",
            env(&[("TF_CONFIG", r#"{"a":1,"b":2}"#)]),
            env(&[("TF_CONFIG", r#"{"b":2, "a":1}"#)]),
            vec![],
        ),
        ("the token of the pod", json!({}), token, vec![]),
        ("the same amount", limits("1"), limits("1000m"), vec![]),
        (
            "another amount",
            limits("1"),
            limits("2"),
            vec![line("resources.limits.cpu", "1", "2")],
        ),
        (
            "arguments",
            json!({"args": ["a", "b"]}),
            json!({"args": ["a", "c"]}),
            vec![line("args[1]", "b", "c")],
        ),
    ];
    for (name, ours, theirs, want) in cases {
        assert_eq!(containers(&c(ours), &c(theirs)), want, "{name}");
    }
}

#[test]
fn what_of_the_rest_counts() {
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let job = "training.kubeflow.org/job-name";
    let cases: [Case; 8] = [
        (
            "what the server writes",
            json!({"metadata": {"name": "p"}, "spec": {}}),
            json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
                "spec": {"nodeName": "n", "tolerations": [{"key": "k"}]}, "status": {"phase": "x"}}),
            vec![],
        ),
        (
            "our attempt",
            labels(json!({"trainyard.dev/attempt": "1"})),
            labels(json!({})),
            vec![],
        ),
        (
            "a label of the contract",
            labels(json!({job: "a"})),
            labels(json!({job: "b"})),
            vec![line(
                "metadata.labels[training.kubeflow.org/job-name]",
                "a",
                "b",
            )],
        ),
        (
            "a label of their gang scheduler",
            labels(json!({})),
            labels(json!({"scheduling.x-k8s.io/pod-group": "g"})),
            vec![line(
                "metadata.labels[scheduling.x-k8s.io/pod-group]",
                "",
                "g",
            )],
        ),
        (
            "a label of somebody else",
            labels(json!({})),
            labels(json!({"topology.example.com/zone": "z", "notkubeflow.org/a": "b"})),
            vec![],
        ),
        (
            "an init container of theirs",
            json!({"spec": {"restartPolicy": "Never"}}),
            json!({"spec": {"restartPolicy": "Never", "initContainers": [{"name": "init-pytorch"}]}}),
            vec![line(
                "spec.initContainers[init-pytorch]",
                "",
                r#"{"name":"init-pytorch"}"#,
            )],
        ),
        (
            "a selector",
            json!({"spec": {"selector": {"a": "1"}}}),
            json!({"spec": {"selector": {"a": "1", "b": "2"}, "clusterIPs": ["None"]}}),
            vec![line("spec.selector.b", "", "2")],
        ),
        (
            "a toleration",
            json!({"spec": {"tolerations": [{"key": "gpu"}]}}),
            json!({"spec": {"tolerations": [{"key": "not-ready"}]}}),
            vec![line("spec.tolerations", r#"{"key":"gpu"}"#, "")],
        ),
    ];
    for (name, ours, theirs, want) in cases {
        assert_eq!(printed(&objects(&ours, &theirs)), want, "{name}");
    }
}

#[test]
fn conditions_are_compared_without_their_times() {
    let condition = |kind, status, reason: &str, second| Condition {
        kind,
        status,
        reason: reason.to_owned(),
        message: "m".to_owned(),
        last_update_time: Timestamp::from_second(second).unwrap(),
        last_transition_time: Timestamp::from_second(second).unwrap(),
    };
    let created = |second| condition(ConditionType::Created, ConditionStatus::True, "C", second);
    let running = |status| condition(ConditionType::Running, status, "R", 0);
    assert_eq!(conditions(&[created(1)], &[created(2)]), []);
    let ours = [created(1), running(ConditionStatus::True)];
    let theirs = [running(ConditionStatus::False)];
    let want = [
        line("status.conditions[Created]", "True C: m", ""),
        line("status.conditions[Running]", "True R: m", "False R: m"),
    ];
    assert_eq!(printed(&conditions(&ours, &theirs)), want);
}
