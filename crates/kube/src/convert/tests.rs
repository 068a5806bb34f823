use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use trainyard_core::spec::wire;

use super::*;

const V1: &str = "kubeflow.org/v1";
const V2: &str = "kubeflow.org/v2beta1";

fn job(api_version: &str, annotations: Value, spec: Value) -> Value {
    let mut metadata = Map::from_iter([("name".to_owned(), json!("pi"))]);
    if annotations
        .as_object()
        .is_some_and(|entries| !entries.is_empty())
    {
        metadata.insert("annotations".into(), annotations);
    }
    let mut object = json!({ "apiVersion": api_version, "kind": "MPIJob" });
    object["metadata"] = Value::Object(metadata);
    object["spec"] = spec;
    object
}

#[test]
fn fields_of_one_version_are_kept_in_the_other() {
    let roles = json!({ "Launcher": { "replicas": 1 } });
    let cases = [
        (
            "nothing that differs",
            job(
                V1,
                json!({}),
                json!({ "slotsPerWorker": 2, "mpiReplicaSpecs": roles }),
            ),
            job(
                V2,
                json!({ CREATED_AS: "v1" }),
                json!({ "slotsPerWorker": 2, "mpiReplicaSpecs": roles }),
            ),
        ),
        (
            "fields of v1",
            job(
                V1,
                json!({ "a": "b" }),
                json!({ "cleanPodPolicy": "All", "mainContainer": "mpi" }),
            ),
            job(
                V2,
                json!({
                    "a": "b",
                    V1_FIELDS: r#"{"cleanPodPolicy":"All","mainContainer":"mpi"}"#,
                    CREATED_AS: "v1",
                }),
                json!({}),
            ),
        ),
        (
            "fields of v2beta1",
            job(
                V2,
                json!({}),
                json!({ "runLauncherAsWorker": true, "mpiImplementation": "Intel" }),
            ),
            job(
                V1,
                json!({
                    V2BETA1_FIELDS: r#"{"runLauncherAsWorker":true,"mpiImplementation":"Intel"}"#,
                    CREATED_AS: "v2beta1",
                }),
                json!({}),
            ),
        ),
    ];
    for (name, before, after) in cases {
        let to = after["apiVersion"].as_str().unwrap_or_default();
        let back = before["apiVersion"].as_str().unwrap_or_default();
        assert_eq!(convert(&before, to).as_ref(), Ok(&after), "{name}");
        assert_eq!(convert(&after, back).as_ref(), Ok(&before), "{name}, back");
        assert_eq!(created_as(&before), created_as(&after), "{name}");
        assert_eq!(as_created(&after), Ok(before), "{name}");
    }
}

#[test]
fn an_edited_annotation_is_left_alone() {
    let broken = job(
        V1,
        json!({ V2BETA1_FIELDS: "{not json" }),
        json!({ "slotsPerWorker": 1 }),
    );
    let converted = convert(&broken, V2).expect("it can still be read");
    assert_eq!(
        converted.pointer("/spec"),
        Some(&json!({ "slotsPerWorker": 1 }))
    );
    assert_eq!(convert(&converted, V1), Ok(broken));
    let strange = job(V1, json!({ CREATED_AS: "v7" }), json!({}));
    assert_eq!(created_as(&strange), Some(Kind::MpiV1));
}

#[test]
fn written_field_wins_over_stored_one() {
    let both = job(
        V1,
        json!({ V2BETA1_FIELDS: r#"{"slotsPerWorker":9,"mpiImplementation":"MPICH"}"# }),
        json!({ "slotsPerWorker": 2 }),
    );
    let converted = convert(&both, V2).expect("it is an MPIJob");
    let want = json!({ "slotsPerWorker": 2, "mpiImplementation": "MPICH" });
    assert_eq!(converted.pointer("/spec"), Some(&want));
}

/// The names of the fields of a spec, from the type itself.
fn fields_of<T: Default + for<'de> Deserialize<'de> + Serialize>(all: &Value) -> Vec<String> {
    let read: T = serde_json::from_value(all.clone()).unwrap_or_default();
    let written = serde_json::to_value(read).unwrap_or_default();
    written
        .as_object()
        .map(|map| map.keys().cloned().collect())
        .unwrap_or_default()
}

#[test]
fn the_lists_of_fields_are_those_of_the_types() {
    let all = json!({
        "slotsPerWorker": 1, "cleanPodPolicy": "", "mainContainer": "", "runPolicy": {},
        "mpiReplicaSpecs": {}, "runLauncherAsWorker": true, "sshAuthMountPath": "",
        "launcherCreationPolicy": "", "mpiImplementation": "",
    });
    let first = fields_of::<wire::MpiJobV1Spec>(&all);
    let second = fields_of::<wire::MpiJobV2Spec>(&all);
    let only = |own: &[String], other: &[String]| {
        let mut names: Vec<String> = own
            .iter()
            .filter(|name| !other.contains(name))
            .cloned()
            .collect();
        names.sort_unstable();
        names
    };
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(only(&first, &second), sorted(ONLY_V1));
    assert_eq!(only(&second, &first), sorted(ONLY_V2BETA1));
}

fn answered(request: &Value) -> Value {
    let body = review(request.to_string().as_bytes());
    serde_json::from_slice(&body).expect("an answer is JSON")
}

#[test]
fn a_review_is_answered() {
    let request = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": { "uid": "u-1", "desiredAPIVersion": V2,
            "objects": [job(V1, json!({}), json!({})), job(V2, json!({}), json!({}))] } });
    let answer = answered(&request);
    assert_eq!(answer.pointer("/response/uid"), Some(&json!("u-1")));
    assert_eq!(
        answer.pointer("/response/result/status"),
        Some(&json!("Success"))
    );
    let want = json!([
        job(V2, json!({ CREATED_AS: "v1" }), json!({})),
        job(V2, json!({}), json!({})),
    ]);
    assert_eq!(answer.pointer("/response/convertedObjects"), Some(&want));
}

#[test]
fn unconvertible_objects_are_refused_with_a_message() {
    let with = |version: &str, objects: Value| json!({ "request": { "uid": "u", "desiredAPIVersion": version, "objects": objects } });
    let other = json!([{ "apiVersion": V1, "kind": "TFJob", "metadata": { "name": "t" } }]);
    let scalar = json!([job(V1, json!({}), json!(7))]);
    let cases = [
        (json!({}), "missing field `request`"),
        (
            with(V2, other),
            "object 0, `t`: cannot convert `TFJob` of `kubeflow.org/v1`",
        ),
        (
            with("kubeflow.org/v9", json!([job(V1, json!({}), json!({}))])),
            "object 0, `pi`: cannot convert to `kubeflow.org/v9`",
        ),
        (
            with(V2, scalar),
            "object 0, `pi`: cannot convert an `MPIJob` whose `spec` is not a map",
        ),
        (
            with(V2, json!(["word"])),
            "object 0, `without a name`: cannot convert ``",
        ),
    ];
    for (request, want) in cases {
        let answer = answered(&request);
        assert_eq!(
            answer.pointer("/response/result/status"),
            Some(&json!("Failed"))
        );
        let message = answer
            .pointer("/response/result/message")
            .and_then(Value::as_str);
        let message = message.unwrap_or_default();
        assert!(message.contains(want), "{message}");
    }
    let answer: Value = serde_json::from_slice(&review(b"\xff")).expect("an answer is JSON");
    assert_eq!(
        answer.pointer("/response/result/status"),
        Some(&json!("Failed"))
    );
}

#[test]
fn an_answer_is_bounded() {
    // Each of these grows to more than twice its size.
    let small = format!(r#"{{"apiVersion":"{V1}","kind":"MPIJob"}}"#);
    let body = |count: usize| {
        let objects = vec![small.as_str(); count].join(",");
        let request =
            r#"{"request":{"uid":"u","desiredAPIVersion":"kubeflow.org/v2beta1","objects":["#;
        format!("{request}{objects}]}}}}").into_bytes()
    };
    let few: Value = serde_json::from_slice(&review(&body(1_000))).unwrap();
    let converted = few.pointer("/response/convertedObjects").unwrap();
    assert_eq!(converted.as_array().unwrap().len(), 1_000);
    let answer = review(&body(100_000));
    let text = String::from_utf8(answer).unwrap();
    assert!(
        text.contains("the converted objects have more than"),
        "{} bytes",
        text.len()
    );
}

#[test]
fn fields_in_an_annotation_are_bounded() {
    let hostile = format!(r#"{{"mainContainer":[{}[]]}}"#, "[],".repeat(100_000));
    let job = job(V2, json!({ V1_FIELDS: hostile.as_str() }), json!({}));
    let there = convert(&job, V1).unwrap();
    assert_eq!(there["spec"], json!({}));
    assert_eq!(there["metadata"]["annotations"][V1_FIELDS], hostile);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// A spec with any of the fields of `names`, with any values.
fn any_spec(names: Vec<&'static str>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(prop::sample::select(names), any_value(), 0..9)
        .prop_map(|map| json!(map))
}

fn any_job() -> impl Strategy<Value = Value> {
    let shared = ["slotsPerWorker", "runPolicy", "mpiReplicaSpecs"];
    let of = |own: &[&'static str]| [&shared[..], own].concat();
    let annotations =
        || prop::collection::btree_map("[a-z]{1,5}", ".{0,5}", 0..3).prop_map(|map| json!(map));
    prop_oneof![
        (annotations(), any_spec(of(ONLY_V1))).prop_map(|(annotations, spec)| job(
            V1,
            annotations,
            spec
        )),
        (annotations(), any_spec(of(ONLY_V2BETA1))).prop_map(|(annotations, spec)| job(
            V2,
            annotations,
            spec
        )),
    ]
}

proptest! {
    #[test]
    fn there_and_back_is_the_same(job in any_job(), status in any_value(), edit in any_value()) {
        let mut job = job;
        job["status"] = status;
        let own = job["apiVersion"].as_str().unwrap_or_default().to_owned();
        let other = if own == V1 { V2 } else { V1 };
        let there = convert(&job, other).expect("a map is converted");
        prop_assert_eq!(there["apiVersion"].as_str(), Some(other));
        prop_assert_eq!(created_as(&there), created_as(&job));
        prop_assert_eq!(&convert(&there, &own).expect("it comes back"), &job);
        prop_assert_eq!(&as_created(&there).expect("it comes back"), &job);

        // An edit of a shared field through the other version arrives, and changes nothing else.
        let mut edited = there;
        edited["spec"]["runPolicy"] = edit.clone();
        let mut want = job.clone();
        want["spec"]["runPolicy"] = edit;
        prop_assert_eq!(convert(&edited, &own).expect("it comes back"), want);
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..64), value in any_value()) {
        review(&body);
        review(json!({ "request": { "uid": "u", "desiredAPIVersion": V1, "objects": [value] } })
            .to_string()
            .as_bytes());
    }
}
