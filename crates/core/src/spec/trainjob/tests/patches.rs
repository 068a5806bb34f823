//! A patch is merged with the pod of the runtime as Kubernetes merges a strategic merge patch.

use serde_json::{Value, json};

use super::{TRAINER, of_spec, outcome};
use crate::{
    finding::Severity,
    spec::{Job, Role},
};

/// The job of a runtime whose nodes have `pod`, patched with `patch`, and what was found.
fn patched(pod: &str, patch: &str) -> (Option<Job>, Vec<(Severity, String)>) {
    outcome(&format!(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: t}}\nspec:\n  \
         runtimeRef: {{name: r}}\n  trainer: {{}}\n  runtimePatches: [{{manager: a.b/c, trainingRuntimeSpec: {{template: \
         {{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {{spec: {patch}}}}}}}}}]}}}}}}}}]\n---\n\
         apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {{name: r}}\nspec: \
         {{mlPolicy: {{torch: {{}}}}, template: {{spec: {{replicatedJobs: [{{name: node, template: {{{TRAINER}, spec: \
         {{template: {{spec: {pod}}}}}}}}}]}}}}}}\n"
    ))
}

#[test]
fn patches_are_merged_field_by_field() {
    let node = "containers: [{name: node, image: i}]";
    let in_node = |fields: &str| format!("{{containers: [{{name: node, image: i, {fields}}}]}}");
    let of_node = |fields: &str| format!("{{containers: [{{name: node, {fields}}}]}}");
    // What is compared, the pod of the runtime, the patch, and what becomes of both.
    let cases: [(&str, String, String, Value); 11] = [
        (
            "/securityContext",
            format!("{{{node}, securityContext: {{fsGroup: 1000, runAsUser: 5, supplementalGroups: [1, 2]}}}}"),
            "{securityContext: {runAsUser: 7, supplementalGroups: [3]}}".to_owned(),
            json!({"fsGroup": 1000, "runAsUser": 7, "supplementalGroups": [3]}),
        ),
        (
            "/securityContext/seLinuxOptions",
            format!("{{{node}, securityContext: {{seLinuxOptions: {{level: a, role: b}}}}}}"),
            "{securityContext: {seLinuxOptions: {level: c}}}".to_owned(),
            json!({"level": "c", "role": "b"}),
        ),
        (
            "/containers/0/securityContext",
            in_node("securityContext: {privileged: true, capabilities: {add: [IPC_LOCK], drop: [ALL]}}"),
            of_node("securityContext: {capabilities: {add: [SYS_PTRACE]}, runAsUser: 1}"),
            json!({"privileged": true, "runAsUser": 1, "capabilities": {"add": ["SYS_PTRACE"], "drop": ["ALL"]}}),
        ),
        (
            "/affinity",
            format!("{{{node}, affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: h}}]}}}}}}"),
            "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: k, operator: Exists}]}]}}}}".to_owned(),
            json!({
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}]},
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}},
            }),
        ),
        (
            "/tolerations",
            format!("{{{node}, tolerations: [{{key: a}}, {{key: b}}]}}"),
            "{tolerations: [{key: c}]}".to_owned(),
            json!([{"key": "c"}]),
        ),
        (
            "/nodeSelector",
            format!("{{{node}, nodeSelector: {{a: b, c: d}}}}"),
            "{nodeSelector: {c: e}}".to_owned(),
            json!({"a": "b", "c": "e"}),
        ),
        (
            "/volumes",
            format!("{{{node}, volumes: [{{name: v, emptyDir: {{medium: Memory}}}}, {{name: w, emptyDir: {{}}}}]}}"),
            "{volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}, {name: x, emptyDir: {}}]}".to_owned(),
            json!([
                {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "w", "emptyDir": {}},
                {"name": "x", "emptyDir": {}},
            ]),
        ),
        (
            "/containers/0/volumeMounts",
            in_node("volumeMounts: [{name: v, mountPath: /a, readOnly: true}]"),
            of_node("volumeMounts: [{name: w, mountPath: /a}, {name: w, mountPath: /b}]"),
            json!([
                {"name": "w", "mountPath": "/a", "readOnly": true},
                {"name": "w", "mountPath": "/b"},
            ]),
        ),
        (
            "/imagePullSecrets",
            format!("{{{node}, imagePullSecrets: [{{name: a}}]}}"),
            "{imagePullSecrets: [{name: b}, {name: a}]}".to_owned(),
            json!([{"name": "a"}, {"name": "b"}]),
        ),
        (
            "/containers/1/env",
            "{containers: [{name: node, image: i}, {name: side, image: i, env: [{name: A, value: a}, {name: B, value: b}]}]}".to_owned(),
            "{containers: [{name: side, env: [{name: B, value: c}, {name: C, value: d}]}]}".to_owned(),
            json!([{"name": "A", "value": "a"}, {"name": "B", "value": "c"}, {"name": "C", "value": "d"}]),
        ),
        (
            "/initContainers/0/env",
            format!("{{{node}, initContainers: [{{name: first, image: i, env: [{{name: A, value: a}}]}}]}}"),
            "{initContainers: [{name: first, env: [{name: B, value: b}]}]}".to_owned(),
            json!([{"name": "A", "value": "a"}, {"name": "B", "value": "b"}]),
        ),
    ];
    for (path, pod, patch, want) in cases {
        let (job, findings) = patched(&pod, &patch);
        assert!(findings.is_empty(), "{path}: {findings:?}");
        let job = job.unwrap();
        let found = serde_json::to_value(&job.roles[&Role::Node].template.spec).unwrap();
        assert_eq!(found.pointer(path), Some(&want), "{path}");
    }
}

#[test]
fn patches_that_no_cluster_takes_are_errors() {
    let node = "containers: [{name: node, image: i}]";
    let cases = [
        (
            format!("{{{node}, volumes: [{{name: v, emptyDir: {{}}}}]}}"),
            "{volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}",
            "volume `v` of job `node` would have 2 sources, `emptyDir`, `persistentVolumeClaim`",
        ),
        (
            "{containers: [{name: node, image: i}, {name: side, image: i, env: [{name: A, value: a}]}]}".to_owned(),
            "{containers: [{name: side, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}",
            "variable `A` of container `side` would have both `value` and `valueFrom`",
        ),
        (
            format!("{{{node}}}"),
            "{containers: [{name: node}, {name: node}]}",
            "the list names the container `node` twice",
        ),
    ];
    for (pod, patch, want) in cases {
        let (job, findings) = patched(&pod, patch);
        assert!(job.is_none(), "{want}");
        assert!(
            findings.len() == 1 && findings[0].1.contains(want),
            "{want}: {findings:?}"
        );
    }
}

#[test]
fn at_most_sixteen_patches_are_applied() {
    let patch = |index: usize| {
        format!(
            "{{manager: a.b/c{index}, trainingRuntimeSpec: {{template: {{spec: {{replicatedJobs: [{{name: none}}]}}}}}}}}"
        )
    };
    let patches: Vec<String> = (0..40).map(patch).collect();
    let (job, findings) = of_spec(&format!(
        "  runtimeRef: {{name: torch-distributed}}\n  runtimePatches: [{}]\n",
        patches.join(", ")
    ));
    assert!(job.is_none());
    assert_eq!(
        findings.len(),
        17,
        "one for each of 16, and one for their number: {findings:?}"
    );
}
