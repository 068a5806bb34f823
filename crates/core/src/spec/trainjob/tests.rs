//! What is refused, in one sentence each, and what resolves.

mod bounds;
mod ignored;
mod patches;
mod recipes;

use crate::{
    finding::Severity,
    spec::{BUNDLED, Job, Role, check, read},
};

const JOB: &str =
    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n";

/// The first document's job and its findings: severity, code and message.
fn outcome(text: &str) -> (Option<Job>, Vec<(Severity, String)>) {
    let file = read(text.as_bytes()).unwrap();
    let checked = check(&file.documents[0]);
    let findings = checked.findings.into_iter();
    (
        checked.job,
        findings
            .map(|it| (it.severity, format!("{} {}", it.code, it.message)))
            .collect(),
    )
}

fn of_spec(spec: &str) -> (Option<Job>, Vec<(Severity, String)>) {
    outcome(&format!("{JOB}{spec}"))
}

/// A job, and a runtime `r` with this `spec`.
fn with_runtime(job: &str, spec: &str) -> (Option<Job>, Vec<(Severity, String)>) {
    outcome(&format!(
        "{JOB}  runtimeRef: {{name: r}}\n{job}\n---\napiVersion: trainer.kubeflow.org/v1alpha1\n\
         kind: ClusterTrainingRuntime\nmetadata: {{name: r}}\nspec: {spec}\n"
    ))
}

const TRAINER: &str = "metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}";
const POD: &str = "spec: {template: {spec: {containers: [{name: node, image: i}]}}}";

fn set(jobs: &str) -> String {
    format!("{{mlPolicy: {{torch: {{}}}}, template: {{spec: {{replicatedJobs: [{jobs}]}}}}}}")
}

fn node() -> String {
    format!("{{name: node, template: {{{TRAINER}, {POD}}}}}")
}

#[test]
fn bundled_runtimes_resolve_without_findings() {
    for (name, _) in BUNDLED {
        let (job, findings) = of_spec(&format!(
            "  runtimeRef: {{name: {name}}}\n  trainer: {{numNodes: 2}}\n"
        ));
        assert!(findings.is_empty(), "{name}: {findings:?}");
        let job = job.unwrap();
        let nodes = job.role_replicas(Role::Node) + job.role_replicas(Role::Launcher);
        assert_eq!(nodes, 2, "{name}");
    }
}

#[test]
fn mistakes_get_one_sentence_each() {
    let initializer = format!(
        "{{name: dataset-initializer, template: {{{}}}}}, {}",
        POD.replace("name: node", "name: dataset-initializer"),
        node()
    );
    let cases = [
        (
            "runtime",
            of_spec("  runtimeRef: {name: torch-distribted}\n"),
            "TY175 the ClusterTrainingRuntime `torch-distribted` is missing",
        ),
        (
            "kind",
            of_spec("  runtimeRef: {name: r, kind: Foo}\n"),
            "TY175 `runtimeRef.kind` must be",
        ),
        (
            "no reference",
            of_spec("  trainer: {}\n"),
            "TY175 `runtimeRef.name` is missing",
        ),
        (
            "two trainers",
            with_runtime(
                "",
                &set(&format!(
                    "{}, {}",
                    node(),
                    node().replace("name: node, template", "name: launcher, template")
                )),
            ),
            "it has 2 trainers, `node`, `launcher`, and may have one",
        ),
        (
            "no trainer",
            with_runtime("", &set(&node().replace(TRAINER, "metadata: {}"))),
            "no job is the trainer",
        ),
        (
            "another job",
            with_runtime(
                "",
                &set(&format!("{}, {{name: extra, template: {{{POD}}}}}", node())),
            ),
            "the job `extra` is not supported",
        ),
        (
            "two policies",
            with_runtime("", &set(&node()).replace("torch: {}", "torch: {}, jax: {}")),
            "has 2 policies, `torch` and `jax`",
        ),
        (
            "mpi without launcher",
            with_runtime("", &set(&node()).replace("torch: {}", "mpi: {}")),
            "the policy `mpi` needs a job `launcher`",
        ),
        (
            "trainer that gets no variables",
            with_runtime(
                "",
                &set(&node().replace("name: node, template", "name: launcher, template")),
            ),
            "the trainer is the job `node`, found `launcher`",
        ),
        (
            "what becomes of claims",
            with_runtime(
                "",
                &set(&node()).replace(
                    "replicatedJobs",
                    "volumeClaimPolicies: [{templates: [], retentionPolicy: {whenDeleted: Keep}}], replicatedJobs",
                ),
            ),
            "`retentionPolicy.whenDeleted` must be",
        ),
        (
            "initializer without job",
            of_spec(
                "  runtimeRef: {name: torch-distributed}\n  initializer: {dataset: {storageUri: 'hf://a/b'}}\n",
            ),
            "has no job `dataset-initializer`",
        ),
        (
            "initializer without volume",
            with_runtime(
                "  initializer: {dataset: {storageUri: 'hf://a/b'}}",
                &set(&initializer),
            ),
            "mount no common volume",
        ),
        (
            "reserved",
            of_spec(
                "  runtimeRef: {name: torch-distributed}\n  trainer: {env: [{name: PET_NNODES, value: '2'}]}\n",
            ),
            "TY178 `trainer.env` sets `PET_NNODES`",
        ),
        (
            "processes",
            of_spec("  runtimeRef: {name: torch-distributed}\n  trainer: {numProcPerNode: 0}\n"),
            "`numProcPerNode` must be a number from 1, found `0`",
        ),
        (
            "patched job",
            of_spec(
                "  runtimeRef: {name: torch-distributed}\n  runtimePatches: [{manager: a.b/c, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: nodes}]}}}}]\n",
            ),
            "the runtime has no job `nodes`, it has `node`",
        ),
        (
            "patched container",
            of_spec(
                "  runtimeRef: {name: torch-distributed}\n  runtimePatches: [{manager: a.b/c, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: x}]}}}}}]}}}}]\n",
            ),
            "has no such container `x`",
        ),
        (
            "patched variables",
            of_spec(
                "  runtimeRef: {name: torch-distributed}\n  runtimePatches: [{manager: a.b/c, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: node, env: [{name: A, value: b}]}]}}}}}]}}}}]\n",
            ),
            "variables of the container `node` cannot be patched",
        ),
        (
            "old overrides",
            of_spec("  runtimeRef: {name: torch-distributed}\n  podTemplateOverrides: []\n"),
            "TY177 `podTemplateOverrides` is not read",
        ),
    ];
    for (name, (job, findings), want) in cases {
        let errors: Vec<&String> = findings
            .iter()
            .filter(|(severity, _)| *severity == Severity::Error)
            .map(|(_, message)| message)
            .collect();
        assert!(job.is_none(), "{name}");
        assert!(
            errors.len() == 1 && errors[0].contains(want),
            "{name}: {findings:?}"
        );
    }
}

#[test]
fn names_that_are_too_long_are_refused() {
    let name = "a".repeat(60);
    let text = JOB.replace("name: t", &format!("name: {name}"));
    let (job, findings) = outcome(&format!(
        "{text}  runtimeRef: {{name: torchtune-llama3.2-1b}}\n"
    ));
    assert!(
        job.is_none()
            && findings
                .iter()
                .any(|(_, message)| message.contains("make 84")),
        "{findings:?}"
    );
}

#[test]
fn a_runtime_of_the_file_wins() {
    let text = format!(
        "{JOB}  runtimeRef: {{name: torch-distributed}}\n---\napiVersion: trainer.kubeflow.org/v1alpha1\n\
         kind: ClusterTrainingRuntime\nmetadata: {{name: torch-distributed}}\nspec: {}\n",
        set(&node()).replace("torch: {}", "numNodes: 3")
    );
    let (job, findings) = outcome(&text);
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(job.unwrap().role_replicas(Role::Node), 3);
}

#[test]
fn fields_without_effect_are_warned_about() {
    let (job, findings) = of_spec(
        "  runtimeRef: {name: torch-distributed}\n  labels: {a: b}\n  annotations: {c: d}\n",
    );
    assert!(job.is_some());
    let words: Vec<&str> = findings
        .iter()
        .map(|(_, message)| message.as_str())
        .collect();
    assert_eq!(words.len(), 2, "{words:?}");
    for (word, field) in words.iter().zip(["labels", "annotations"]) {
        let want = format!("TY179 `spec.{field}` has no effect");
        assert!(word.starts_with(&want), "{word}");
    }
}

#[test]
fn hostnames_that_are_switched_off_need_no_service() {
    let off = set(&node()).replace(
        "replicatedJobs",
        "network: {enableDNSHostnames: false}, replicatedJobs",
    );
    let (job, findings) = with_runtime("", &off);
    assert!(findings.is_empty(), "{findings:?}");
    assert!(!job.unwrap().train().unwrap().has_service);
}

#[test]
fn memory_of_gpus_is_no_gpu() {
    let (job, findings) = of_spec(
        "  runtimeRef: {name: xgboost-distributed}\n  trainer:\n    numNodes: 2\n    \
         resourcesPerNode: {limits: {nvidia.com/gpu: 2, nvidia.com/gpumem: 16000, nvidia.com/mig-1g.10gb: 1}}\n",
    );
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(job.unwrap().train().unwrap().gpus, 3);
    let huge = "{nvidia.com/gpu: '18446744073709551615', amd.com/gpu: 1}";
    let (job, _) = of_spec(&format!(
        "  runtimeRef: {{name: xgboost-distributed}}\n  trainer: {{resourcesPerNode: {{limits: {huge}}}}}\n"
    ));
    assert!(job.is_none_or(|job| job.train().unwrap().gpus == u64::MAX));
}

#[test]
fn a_trainer_without_a_value_is_none() {
    let (job, findings) = of_spec("  runtimeRef: {name: torch-distributed}\n  trainer:\n");
    assert!(findings.is_empty(), "{findings:?}");
    assert!(!job.unwrap().train().unwrap().wired);
}
