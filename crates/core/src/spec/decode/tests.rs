use std::{cell::RefCell, collections::BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::spec::{
    Role, check, job_from_value, read, to_yaml,
    wire::{self, Object},
};

const EVERY_FIELD: &str = include_str!("../../../../../testdata/spec/every-field.yaml");

type PyTorchJob = Object<wire::PyTorchJobSpec>;

/// Decodes a container written as YAML; the findings as `code path: message | hint`.
fn container_findings(text: &str) -> Vec<String> {
    let file = read(text.as_bytes()).unwrap();
    let collector = Collector::default();
    let tree = &file.documents[0].tree;
    let _container: k8s_openapi::api::core::v1::Container = decode(tree, &file.text, &collector);
    let line = |finding: Finding| {
        let hint = finding
            .hint
            .map(|hint| format!(" | {hint}"))
            .unwrap_or_default();
        format!(
            "{} {}: {}{hint}",
            finding.code, finding.path, finding.message
        )
    };
    collector.finish().into_iter().map(line).collect()
}

#[test]
fn wrong_types_are_named_with_what_was_written() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "right",
            "name: a\nports: [{containerPort: 1}]\nstdin: yes\nenv: [{name: a, value: \"yes\"}]",
            &[],
        ),
        (
            "boolean for text",
            "env: [{name: a, value: yes}]",
            &[
                "TY104 env[0].value: `value` must be a string, found the boolean `yes` | quote it to make it a string: `\"yes\"`",
            ],
        ),
        (
            "number for text",
            "args: [a, 0x10, 1.50]",
            &[
                "TY104 args[1]: item 2 of `args` must be a string, found the number `0x10` | quote it to make it a string: `\"0x10\"`",
                "TY104 args[2]: item 3 of `args` must be a string, found the number `1.50` | quote it to make it a string: `\"1.50\"`",
            ],
        ),
        (
            "nothing for an item",
            "args: [~]",
            &[
                "TY104 args[0]: item 1 of `args` must be a string, found nothing | an empty string is written `\"\"`",
            ],
        ),
        (
            "nothing for a field",
            "args:\nname:\nports:\nresources:\n",
            &[],
        ),
        (
            "text for a number",
            "ports: [{containerPort: web}]",
            &[
                "TY104 ports[0].containerPort: `containerPort` must be a whole number, found the string `web`",
            ],
        ),
        (
            "quoted number",
            "ports: [{containerPort: \"80\"}]",
            &[
                "TY104 ports[0].containerPort: `containerPort` must be a whole number, found the string `\"80\"` | remove the quotes",
            ],
        ),
        ("whole float", "ports: [{containerPort: 80.0}]", &[]),
        (
            "float",
            "ports: [{containerPort: 80.5}]",
            &[
                "TY104 ports[0].containerPort: `containerPort` must be a whole number, found the number `80.5`",
            ],
        ),
        (
            "beyond 32 bits",
            "ports: [{containerPort: 2147483648}]",
            &[
                "TY105 ports[0].containerPort: `containerPort` must be a whole number from -2147483648 to 2147483647, found `2147483648`",
            ],
        ),
        (
            "text for a boolean",
            "tty: \"true\"",
            &[
                "TY104 tty: `tty` must be a boolean, found the string `\"true\"` | remove the quotes",
            ],
        ),
        (
            "map for a list",
            "env: {a: b}",
            &["TY104 env: `env` must be a list, found a map | begin each item with `- `"],
        ),
        (
            "text for a list",
            "command: run me",
            &[
                "TY104 command: `command` must be a list, found the string `run me` | write one item as `[…]` or on a line with `- `",
            ],
        ),
        (
            "list for a map",
            "resources: [a]",
            &["TY104 resources: `resources` must be a map, found a list"],
        ),
        (
            "quantities",
            "resources: {limits: {a: 1, b: 0.5, c: 8Gi, d: 1e3, e: 100m, f: \"2\"}}",
            &[],
        ),
        (
            "bad quantity",
            "resources: {limits: {memory: 8GB}}",
            &[
                "TY104 resources.limits.memory: `memory` must be a quantity such as `4`, `500m` or `8Gi`, found `8GB`",
            ],
        ),
        (
            "boolean quantity",
            "resources: {limits: {cpu: on}}",
            &[
                "TY104 resources.limits.cpu: `cpu` must be a quantity such as `4` or `8Gi`, found the boolean `on`",
            ],
        ),
        (
            "port by name and number",
            "readinessProbe: {httpGet: {port: web}, tcpSocket: {port: 80}}",
            &[],
        ),
        (
            "port by neither",
            "readinessProbe: {httpGet: {port: [1]}}",
            &[
                "TY104 readinessProbe.httpGet.port: `port` is not valid: invalid type: sequence, expected IntOrString",
            ],
        ),
        (
            "unknown field",
            "imgae: a",
            &[
                "TY106 imgae: the document has no field `imgae`, it is ignored | did you mean `image`?",
            ],
        ),
        (
            "wrong case",
            "Env: []",
            &[
                "TY106 Env: the document has no field `Env`, it is ignored | write it as `env`, upper and lower case matter",
            ],
        ),
        (
            "unknown and far",
            "resources: {gpu: 8}",
            &["TY106 resources.gpu: `resources` has no field `gpu`, it is ignored"],
        ),
        (
            "all of them",
            "a1: 1\nname: 2\nstdin: x\nenv: [1, {value: 2}]",
            &[
                "TY106 a1: the document has no field `a1`, it is ignored",
                "TY104 name: `name` must be a string, found the number `2` | quote it to make it a string: `\"2\"`",
                "TY104 stdin: `stdin` must be a boolean, found the string `x`",
                "TY104 env[0]: item 1 of `env` must be a map, found the number `1`",
                "TY104 env[1].value: `value` must be a string, found the number `2` | quote it to make it a string: `\"2\"`",
            ],
        ),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .map(|(name, text, want)| (name, container_findings(text), want))
        .filter(|(_, found, want)| found != *want)
        .map(|(name, found, want)| format!("{name}\n found {found:#?}\n want  {want:#?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn findings_of_one_document_are_bounded() {
    let keys: Vec<String> = (0..2_000).map(|index| format!("k{index}: 1")).collect();
    let found = container_findings(&keys.join("\n"));
    assert_eq!(found.len(), 501);
    assert_eq!(
        found[500],
        "TY142 : 1500 more findings of this document are not shown"
    );
    let items = format!("env: [{}]", "{},".repeat(31_000));
    assert_eq!(
        container_findings(&items),
        ["TY006 : the document has more than 30000 objects in it"]
    );
}

/// Every path of a tree, with the value of its leaves. Numbers are compared as text, because a
/// quantity written as a number becomes a string.
fn paths(value: &serde_json::Value, path: &str, into: &mut BTreeSet<String>) {
    use serde_json::Value as Json;
    match value {
        Json::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                paths(inner, &format!("{path}.{key}"), into);
            }
        }
        Json::Array(items) if !items.is_empty() => {
            for (index, inner) in items.iter().enumerate() {
                paths(inner, &format!("{path}[{index}]"), into);
            }
        }
        Json::String(text) => {
            into.insert(format!("{path} = {text}"));
        }
        other => {
            into.insert(format!("{path} = {other}"));
        }
    }
}

fn all_paths(value: &serde_json::Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    paths(value, "", &mut all);
    all
}

#[test]
fn every_field_of_a_pod_template_survives() {
    let file = read(EVERY_FIELD.as_bytes()).unwrap();
    let checked = check(&file.documents[0]);
    let codes: Vec<&str> = checked
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(codes, ["TY126"], "{:#?}", checked.findings);
    let job = checked.job.unwrap();
    let template = serde_json::to_value(&job.roles[&Role::Worker].template).unwrap();
    let written = file.documents[0].tree.to_json();
    let written = &written["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    let (written, kept) = (all_paths(written), all_paths(&template));
    // Quantities keep their text, which for a float is not what JSON makes of it.
    let quantities =
        |text: &String| text.contains("limits.cpu") || text.contains("limits.ephemeral-storage");
    let lost: Vec<&String> = written
        .difference(&kept)
        .filter(|text| !quantities(text))
        .collect();
    let added: Vec<&String> = kept
        .difference(&written)
        .filter(|text| !quantities(text))
        .collect();
    assert_eq!((lost, added), (vec![], vec![]));
    assert!(
        kept.contains(".spec.containers[0].resources.limits.cpu = 0.10"),
        "{kept:#?}"
    );
    assert!(kept.contains(".spec.containers[0].resources.limits.ephemeral-storage = 1e9"));
    assert!(written.len() > 800, "{}", written.len());
}

thread_local! {
    static FIELDS: RefCell<(BTreeSet<String>, BTreeSet<String>)> = RefCell::default();
}

/// Notes which fields of which struct a document has, and which there are.
pub(super) fn note_fields(entries: &[Entry], name: &str, fields: &[&str]) {
    FIELDS.with_borrow_mut(|(known, used)| {
        known.extend(fields.iter().map(|field| format!("{name}.{field}")));
        used.extend(entries.iter().map(|entry| format!("{name}.{}", entry.key)));
    });
}

#[test]
fn the_fixture_has_every_field_there_is() {
    let file = read(EVERY_FIELD.as_bytes()).unwrap();
    FIELDS.take();
    check(&file.documents[0]);
    let (known, used) = FIELDS.take();
    let elsewhere = |field: &&String| {
        // Metrics of an autoscaler are not part of a pod; the others are the job's own.
        !field.contains("Metric")
            && !field.starts_with("PyTorchJobSpec.")
            && !field.starts_with("Object.")
            && *field != "ElasticPolicy.nProcPerNode"
    };
    let missing: Vec<&String> = known.difference(&used).filter(elsewhere).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn objects_of_the_api_go_through_the_same_rules() {
    let file = read(EVERY_FIELD.as_bytes()).unwrap();
    let tree = file.documents[0].tree.to_json();
    let from_file = check(&file.documents[0]);
    let mut from_api = job_from_value(&tree);
    for finding in &mut from_api.findings {
        assert_eq!(finding.span, Span::default());
    }
    let codes = |findings: &[Finding]| {
        findings
            .iter()
            .map(|finding| finding.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(codes(&from_api.findings), codes(&from_file.findings));
    let replicas = |job: Option<crate::spec::Job>| job.map(|job| job.replicas());
    assert_eq!(replicas(from_api.job), replicas(from_file.job));

    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let checked = job_from_value(&json!({"a": deep}));
    assert_eq!(codes(&checked.findings), ["TY005"]);
}

fn wire_of(text: &str) -> PyTorchJob {
    let file = read(text.as_bytes()).unwrap();
    let collector = Collector::default();
    let object = decode(&file.documents[0].tree, &file.text, &collector);
    assert!(!collector.failed(), "{:#?}", collector.finish());
    object
}

#[test]
fn job_round_trips() {
    let object = wire_of(EVERY_FIELD);
    let json = serde_json::to_value(&object).unwrap();
    assert_eq!(wire_of(&to_yaml(&json)), object);
    assert_eq!(wire_of(&json.to_string()), object);
    assert_eq!(
        wire_of(&serde_json::to_string_pretty(&json).unwrap()),
        object
    );
    assert_eq!(serde_json::from_value::<PyTorchJob>(json).unwrap(), object);
}

#[test]
fn the_run_policy_fields_are_those_of_its_type() {
    let text = wire::RUN_POLICY_FIELDS
        .map(|field| format!("{field}: 1"))
        .join("\n");
    let file = read(text.as_bytes()).unwrap();
    let collector = Collector::default();
    let _policy: wire::RunPolicy = decode(&file.documents[0].tree, "", &collector);
    let codes: Vec<&str> = collector
        .finish()
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert!(!codes.contains(&"TY106"), "{codes:?}");
}

fn any_role() -> impl Strategy<Value = wire::ReplicaSpec> {
    let env = prop::collection::vec(("[A-Z_]{1,8}", prop::option::of(any::<String>())), 0..4);
    let args = prop::collection::vec(any::<String>(), 0..4);
    (
        prop::option::of(any::<i64>()),
        prop::option::of("\\PC{0,8}"),
        env,
        args,
    )
        .prop_map(|(replicas, restart_policy, env, args)| {
            let env: Vec<_> = env
                .into_iter()
                .map(|(name, value)| match value {
                    Some(value) => json!({"name": name, "value": value}),
                    None => json!({"name": name}),
                })
                .collect();
            let template =
                json!({"spec": {"containers": [{"name": "a", "env": env, "args": args}]}});
            wire::ReplicaSpec {
                replicas,
                restart_policy,
                template: serde_json::from_value(template).ok(),
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn jobs_survive_being_written_and_read(
        name in "\\PC{0,12}",
        roles in prop::collection::btree_map("[A-Za-z.]{1,8}", any_role(), 0..3),
        annotations in prop::collection::btree_map(any::<String>(), any::<String>(), 0..3),
        nproc in prop::option::of(any::<String>()),
    ) {
        let object = PyTorchJob {
            api_version: "kubeflow.org/v1".to_owned(),
            kind: "PyTorchJob".to_owned(),
            metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                name: Some(name),
                annotations: Some(annotations),
                ..Default::default()
            },
            spec: wire::PyTorchJobSpec {
                pytorch_replica_specs: Some(roles),
                nproc_per_node: nproc,
                ..wire::PyTorchJobSpec::default()
            },
            status: None,
        };
        let json = serde_json::to_value(&object).unwrap();
        prop_assert_eq!(&wire_of(&to_yaml(&json)), &object);
        prop_assert_eq!(&wire_of(&json.to_string()), &object);
    }
}
