//! What a runtime says is either done or named with what happens instead.

use super::{POD, Severity, TRAINER, node, set, with_runtime};
use crate::{
    finding::Finding,
    spec::{Role, check, read},
};

/// A runtime whose `JobSet` has these fields, whose node has these of a batch Job, and whose template has this metadata.
fn runtime(of_set: &str, of_job: &str, metadata: &str) -> String {
    let job = node().replace("spec: {template", &format!("spec: {{{of_job} template"));
    set(&job)
        .replace(
            "spec: {replicatedJobs",
            &format!("spec: {{{of_set} replicatedJobs"),
        )
        .replacen(
            "template: {spec",
            &format!("template: {{{metadata} spec"),
            1,
        )
}

#[test]
fn ignored_fields_are_named_with_what_happens() {
    let set_fields = [
        (
            "suspend: true,",
            "`suspend` has no effect here: `spec.suspend`",
        ),
        (
            "managedBy: x.y/z,",
            "`managedBy` has no effect here: no JobSet is created",
        ),
        (
            "ttlSecondsAfterFinished: 5,",
            "`ttlSecondsAfterFinished` has no effect here: the pods stay",
        ),
        (
            "failurePolicy: {rules: [{action: FailJobSet}]},",
            "`failurePolicy.rules` has no effect here: every failure",
        ),
        (
            "failurePolicy: {restartStrategy: InPlaceRestart},",
            "InPlaceRestart` has no effect here: all pods are deleted",
        ),
    ];
    let job_fields = [
        (
            "completions: 4, parallelism: 1,",
            "`completions: 4` of job `node` has no effect here",
        ),
        (
            "completions: 4,",
            "`completions: 4` of job `node` has no effect here",
        ),
        (
            "parallelism: 3,",
            "`parallelism: 3` of job `node` has no effect here: `numNodes`",
        ),
        (
            "activeDeadlineSeconds: 5,",
            "`activeDeadlineSeconds` of job `node` has no effect here: `spec.activeDeadlineSeconds`",
        ),
        (
            "podFailurePolicy: {rules: []},",
            "`podFailurePolicy` of job `node` has no effect here: failures",
        ),
        (
            "ttlSecondsAfterFinished: 5,",
            "`ttlSecondsAfterFinished` of job `node` has no effect here: the pods stay",
        ),
        (
            "backoffLimitPerIndex: 1,",
            "`backoffLimitPerIndex` of job `node` has no effect here",
        ),
        (
            "maxFailedIndexes: 1,",
            "`maxFailedIndexes` of job `node` has no effect here",
        ),
        (
            "podReplacementPolicy: Failed,",
            "`podReplacementPolicy` of job `node` has no effect here",
        ),
        (
            "successPolicy: {rules: []},",
            "`successPolicy` of job `node` has no effect here",
        ),
        (
            "manualSelector: true,",
            "`manualSelector` of job `node` has no effect here",
        ),
        (
            "suspend: false,",
            "`suspend` of job `node` has no effect here",
        ),
    ];
    let metadata = [
        (
            "annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}",
            "annotation `alpha.jobset.sigs.k8s.io/exclusive-topology` has no effect here: other jobs",
        ),
        (
            "annotations: {alpha.jobset.sigs.k8s.io/node-selector: 'true'}",
            "annotation `alpha.jobset.sigs.k8s.io/node-selector` has no effect here: the pods go",
        ),
    ];
    let of_job = [
        (
            "annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}",
            "exclusive-topology` of job `node` has no effect here",
        ),
        (
            "annotations: {team: a}",
            "`template.metadata` of job `node` (`team`) has no effect here: no batch Job",
        ),
        (
            "name: x",
            "`template.metadata` of job `node` (`name`) has no effect here",
        ),
        (
            "labels: {trainer.kubeflow.org/trainjob-ancestor-step: train}",
            "trainjob-ancestor-step: train` of job `launcher` has no effect here: the step must be",
        ),
    ];
    let mut cases: Vec<(String, &str)> = Vec::new();
    cases.extend(set_fields.map(|(field, want)| (runtime(field, "", ""), want)));
    cases.extend(job_fields.map(|(field, want)| (runtime("", field, ""), want)));
    cases.extend(
        metadata.map(|(field, want)| (runtime("", "", &format!("metadata: {{{field}}},")), want)),
    );
    for (field, want) in of_job {
        let (other, of_node) = if field.starts_with("labels: ") {
            (
                format!(", {{name: launcher, template: {{metadata: {{{field}}}, {POD}}}}}"),
                node(),
            )
        } else {
            let more = format!("metadata: {{{field}, labels");
            (
                String::new(),
                node().replacen("metadata: {labels", &more, 1),
            )
        };
        cases.push((set(&format!("{of_node}{other}")), want));
    }
    let restarts = runtime("failurePolicy: {maxRestarts: 2},", "backoffLimit: 3,", "");
    cases.push((
        restarts,
        "`backoffLimit` of job `node` has no effect here: `maxRestarts`",
    ));
    for (runtime, want) in cases {
        let (job, findings) = with_runtime("  trainer: {}", &runtime);
        assert!(job.is_some(), "{runtime}: {findings:?}");
        let is_it = |(severity, message): &&(Severity, String)| {
            *severity == Severity::Warning && message.starts_with("TY179") && message.contains(want)
        };
        let found = findings.iter().filter(is_it).count();
        assert!(found == 1 && findings.len() == 1, "{want}: {findings:?}");
    }
}

#[test]
fn words_and_names_that_nothing_knows_are_errors() {
    let claim =
        |name: &str| format!("volumeClaimPolicies: [{{templates: [{{metadata: {{{name}}}}}]}}],");
    let long = "a".repeat(62);
    let cases = [
        (
            runtime("startupPolicy: {startupPolicyOrder: Sorted},", "", ""),
            "unknown `startupPolicyOrder` `Sorted`; expected `AnyOrder` or `InOrder`",
        ),
        (
            runtime("failurePolicy: {restartStrategy: Slow},", "", ""),
            "unknown `failurePolicy.restartStrategy` `Slow`",
        ),
        (
            runtime("failurePolicy: {maxRestarts: -1},", "", ""),
            "`failurePolicy.maxRestarts` must be a number from 0, found -1",
        ),
        (
            runtime("", "backoffLimit: -2,", ""),
            "`backoffLimit` of job `node` must be a number from 0, found -2",
        ),
        (
            runtime("", "completionMode: NonIndexed,", ""),
            "`completionMode` of job `node` must be `Indexed`, found `NonIndexed`",
        ),
        (
            runtime("network: {subdomain: A_b},", "", ""),
            "invalid `network.subdomain` `A_b`",
        ),
        (
            runtime("coordinator: {replicatedJob: node, jobIndex: 1},", "", ""),
            "`coordinator.jobIndex` must be 0",
        ),
        (
            runtime(&claim("name: Data"), "", ""),
            "invalid name `Data` of a claim",
        ),
        (
            runtime(&claim("labels: {}"), "", ""),
            "a claim of `volumeClaimPolicies` has no name",
        ),
        (
            runtime(&claim(&format!("name: {long}")), "", ""),
            "64 characters, at most 63",
        ),
        (
            set(&node()).replace("image: i}]", "image: i}, {name: A_b, image: i}]"),
            "invalid name `A_b` of a container of job `node`",
        ),
        (
            set(&node()).replace("image: i}]", "image: i}, {name: node, image: i}]"),
            "job `node` has two containers named `node`",
        ),
        (
            set(&node()).replace("{containers", "{restartPolicy: Always, containers"),
            "`restartPolicy` of the pods of job `node` must be",
        ),
    ];
    for (runtime, want) in cases {
        let (job, findings) = with_runtime("  trainer: {}", &runtime);
        assert!(job.is_none(), "{want}");
        assert!(
            findings.len() == 1 && findings[0].1.contains(want),
            "{want}: {findings:?}"
        );
    }
}

#[test]
fn initializers_keep_their_backoff_limit() {
    let initializer = |name: &str, limit: &str| {
        format!(
            "{{name: {name}, template: {{{}}}}}",
            POD.replace("name: node", &format!("name: {name}"))
                .replace("spec: {template", &format!("spec: {{{limit} template"))
        )
    };
    let jobs = format!(
        "{}, {}, {}",
        initializer("dataset-initializer", "backoffLimit: 2,"),
        initializer("model-initializer", ""),
        node().replace("spec: {template", "spec: {backoffLimit: 4, template")
    );
    let (job, findings) = with_runtime("", &set(&jobs));
    assert!(findings.is_empty(), "{findings:?}");
    let job = job.unwrap();
    let retries = &job.train().unwrap().retries;
    assert_eq!(retries[&Role::DatasetInitializer], 2);
    assert_eq!(retries[&Role::ModelInitializer], 6);
    assert_eq!(job.run_policy.backoff_limit, Some(5));
}

#[test]
fn mistakes_of_a_runtime_have_their_position() {
    let text = format!(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: t}}\nspec:\n  runtimeRef: {{name: r}}\n\
         ---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {{name: r}}\nspec:\n  \
         template:\n    spec:\n      suspend: true\n      replicatedJobs:\n      - name: node\n        replicas: 3\n        \
         template: {{{TRAINER}, {POD}}}\n      - name: other\n"
    );
    let file = read(text.as_bytes()).unwrap();
    let findings: Vec<Finding> = check(&file.documents[0]).findings;
    let at = |line: usize| {
        findings
            .iter()
            .any(|it| it.message.contains(&format!("(line {line}:")))
    };
    for line in [13, 16, 18] {
        assert!(at(line), "line {line}: {findings:?}");
    }
}

#[test]
fn numbers_of_nodes_have_clear_sentences() {
    let cases = [
        (
            "  trainer: {numNodes: 0}",
            "mlPolicy: {torch: {}}",
            true,
            "TY117 `numNodes` is 0: no node runs",
        ),
        (
            "  trainer: {numNodes: -2}",
            "mlPolicy: {torch: {}}",
            false,
            "TY115 `numNodes` must be a number from 0 to 100000, found -2",
        ),
        (
            "",
            "mlPolicy: {numNodes: 0, torch: {}}",
            true,
            "`mlPolicy.numNodes` is 0, and the job states no `numNodes`",
        ),
        (
            "",
            "mlPolicy: {numNodes: -1, torch: {}}",
            false,
            "`mlPolicy.numNodes` must be a number from 0 to 100000, found -1",
        ),
    ];
    for (job, policy, runs, want) in cases {
        let runtime = set(&node()).replace("mlPolicy: {torch: {}}", policy);
        let (job, findings) = with_runtime(job, &runtime);
        assert_eq!(job.is_some(), runs, "{want}: {findings:?}");
        assert!(
            findings.len() == 1 && findings[0].1.contains(want),
            "{want}: {findings:?}"
        );
    }
}

#[test]
fn only_variables_of_the_policy_are_reserved() {
    let all = [
        "PET_NNODES",
        "DMLC_TASK_ID",
        "OMPI_MCA_plm_rsh_args",
        "JAX_PROCESS_ID",
    ];
    let cases: [(&str, &[&str]); 4] = [
        ("torch: {}", &["PET_NNODES"]),
        ("xgboost: {}", &["DMLC_TASK_ID"]),
        ("jax: {}", &[]),
        ("numNodes: 1", &[]),
    ];
    for (policy, reserved) in cases {
        let runtime = set(&node()).replace("torch: {}", policy);
        for name in all {
            let (job, findings) = with_runtime(
                &format!("  trainer: {{env: [{{name: {name}, value: a}}]}}"),
                &runtime,
            );
            assert_eq!(
                job.is_none(),
                reserved.contains(&name),
                "{policy} {name}: {findings:?}"
            );
        }
    }
}
