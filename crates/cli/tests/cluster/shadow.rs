//! An operator in shadow beside one that acts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    job,
    namespace::{TestNamespace, on_cluster},
    operator::{May, Operator},
};

/// Waits until the shadow has compared all `count` objects of the job once more.
fn until_compared(fixture: &TestNamespace, shadow: &Operator, count: usize) {
    let before = shadow.said("Compared").len();
    fixture.wait("the shadow has compared the job", || {
        let compared = shadow.said("Compared");
        let last = compared.last().filter(|_| compared.len() > before)?;
        (last["objects"] == count).then_some(())
    });
}

/// The version of every object of the namespace that an operator could have changed.
fn versions(fixture: &TestNamespace) -> BTreeMap<String, String> {
    let kinds = "pytorchjobs,pods,services,configmaps,secrets,events,leases,jobs,roles,rolebindings,\
                 serviceaccounts,horizontalpodautoscalers";
    let text = fixture.kubectl(&["get", kinds, "--output=json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let name = format!("{} {}", item["kind"], item["metadata"]["name"]);
            (name, text(&item["metadata"]["resourceVersion"]))
        })
        .collect()
}

#[test]
fn shadow_reports_pod_difference_once() {
    on_cluster("shadow", |fixture| {
        let operator = fixture.operator();
        // Ranks get the world size from a master.
        let mut watched = job("watched");
        let roles = &mut watched["spec"]["pytorchReplicaSpecs"];
        roles["Worker"]["replicas"] = json!(2);
        roles["Master"] = roles["Worker"].clone();
        roles["Master"]["replicas"] = json!(1);
        fixture.put(&watched);
        fixture.until_status("watched", |status| status["state"] == "Running");
        operator.stop();
        let shadow = fixture.operator_with(May::Look, &["--shadow", "-v"]);
        let before = versions(fixture);
        // Three pods and their Services, all as they should be.
        until_compared(fixture, &shadow, 6);
        assert_eq!(shadow.said("Differs"), Vec::<Value>::new());
        assert_eq!(versions(fixture), before, "the shadow changed something");

        // Another pod takes the place of one that was compared.
        let pod = fixture.kubectl(&["get", "pod", "watched-worker-1", "--output=json"]);
        let mut pod: Value = serde_json::from_str(&pod).unwrap();
        let metadata = pod["metadata"].take();
        pod["metadata"] = json!({"name": metadata["name"], "labels": metadata["labels"],
            "annotations": metadata["annotations"], "ownerReferences": metadata["ownerReferences"]});
        pod["status"] = Value::Null;
        pod["spec"]["nodeName"] = Value::Null;
        let variables = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        let size = variables
            .iter_mut()
            .find(|variable| variable["name"] == "WORLD_SIZE")
            .unwrap();
        assert_eq!(size["value"], "3");
        size["value"] = json!("99");
        fixture.kubectl(&[
            "delete",
            "pod",
            "watched-worker-1",
            "--grace-period=0",
            "--force",
        ]);
        fixture.put(&pod);
        let lines = fixture.wait("the tampered variable is reported", || {
            let lines = shadow.said("Differs");
            let reported = lines.iter().any(|line| line["theirs"] == "99");
            reported.then_some(lines)
        });
        let line = lines.iter().find(|line| line["theirs"] == "99").unwrap();
        assert_eq!(
            line["path"],
            "spec.containers[pytorch].env[WORLD_SIZE].value"
        );
        assert_eq!(line["ours"], "3", "{line}");
        assert_eq!(line["name"], "watched-worker-1", "{line}");
        // The other pods and Services, and whatever was not there, are untouched.
        let after = versions(fixture);
        let changed: Vec<&String> = after
            .iter()
            .filter(|(name, version)| {
                before.get(*name) != Some(*version) && !name.contains("watched-worker-1")
            })
            .map(|(name, _)| name)
            .collect();
        assert_eq!(changed, Vec::<&String>::new());
        shadow.stop();
    });
}
