//! Job files held against a real cluster.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use crate::{
    job,
    namespace::{TestNamespace, on_cluster},
    template,
};

/// The codes of what the cluster does not have for these objects, and of claims for one node.
fn missing(fixture: &TestNamespace, objects: &[&Value]) -> BTreeSet<String> {
    let path = fixture.new_file("job.yaml");
    let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
    fs::write(&path, text.join("\n---\n")).unwrap();
    let path = path.display().to_string();
    let outcome = fixture.trainyard(&["lint", &path, "--format", "json"]);
    assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:?}");
    let report = outcome.json();
    let codes = report["findings"].as_array().unwrap().iter();
    let codes = codes.map(|finding| finding["code"].as_str().unwrap());
    let codes = codes.filter(|code| code.starts_with("TY8") || *code == "TY402");
    codes.map(str::to_owned).collect()
}

#[test]
fn lint_finds_what_cluster_lacks() {
    on_cluster("needs", |fixture| {
        let mut job = job("needs");
        let claim = |name: &str, class: &str| {
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": {"requests": {"storage": "1Gi"}}}})
        };
        let annotations = &mut template(&mut job)["metadata"]["annotations"];
        annotations["k8s.v1.cni.cncf.io/networks"] = json!("rail-a");
        let pod = &mut template(&mut job)["spec"];
        pod["nodeSelector"] = json!({"test.trainyard.dev/node": "imaginary"});
        pod["priorityClassName"] = json!("urgent");
        pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        pod["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 16}});
        let scratch = claim("scratch", "imaginary");
        let all = ["TY801", "TY802", "TY803", "TY804", "TY805", "TY806"];
        assert_eq!(
            missing(fixture, &[&job, &scratch]),
            all.map(str::to_owned).into()
        );

        // What is there counts as what the files bring; a claim of the cluster may still be for one node.
        fixture.put(&claim("data", ""));
        let pod = &mut template(&mut job)["spec"];
        pod["nodeSelector"] = json!({"test.trainyard.dev/node": "simulated"});
        pod["priorityClassName"] = json!("system-cluster-critical");
        pod["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 8}});
        let annotations = &mut template(&mut job)["metadata"]["annotations"];
        *annotations = json!({});
        assert_eq!(missing(fixture, &[&job]), ["TY402".to_owned()].into());
    });
}
