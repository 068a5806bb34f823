//! Work that grows with what is written and not with its square: each of these would take minutes otherwise.

use std::fmt::Write as _;

use super::{node, of_spec, set};
use crate::spec::{check, read, share_runtimes};

#[test]
fn many_jobs_of_one_runtime_are_read_quickly() {
    let variables: Vec<String> = (0..400)
        .map(|at| format!("{{name: V{at}, value: a}}"))
        .collect();
    let runtime = set(&node()).replace(
        "image: i",
        &format!("image: i, env: [{}]", variables.join(", ")),
    );
    let runtime = format!(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {{name: r}}\nspec: {runtime}\n"
    );
    let jobs = |first: usize| {
        let mut text = String::new();
        for at in first..first + 1000 {
            write!(
                text,
                "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: t{at}}}\nspec: {{runtimeRef: {{name: r}}}}\n"
            )
            .unwrap();
        }
        text
    };
    let texts = [runtime, jobs(0), jobs(1000)];
    let mut files = texts.map(|text| read(text.as_bytes()).unwrap());
    share_runtimes(files.iter_mut().flat_map(|file| &mut file.documents));
    let documents = files.iter().flat_map(|file| &file.documents);
    let jobs = documents.filter_map(|document| check(document).job);
    assert_eq!(jobs.count(), 2000);
}

#[test]
fn many_variables_are_merged_quickly() {
    let variables: Vec<String> = (0..5000)
        .map(|at| format!("{{name: V{at}, value: a}}"))
        .collect();
    let env = variables.join(", ");
    let (job, findings) = of_spec(&format!(
        "  runtimeRef: {{name: torchtune-llama3.2-1b}}\n  trainer: {{env: [{env}]}}\n  initializer: {{model: {{storageUri: 'hf://a/b', env: [{env}]}}}}\n"
    ));
    assert!(job.is_none());
    for (field, (_, message)) in ["trainer.env", "initializer.model.env"]
        .iter()
        .zip(&findings)
    {
        let want = format!("`{field}` has 5000 variables, at most 128 are allowed");
        assert!(message.contains(&want), "{message}");
    }
    assert_eq!(findings.len(), 2, "{findings:?}");
}

#[test]
fn many_missing_runtimes_are_named_shortly() {
    let mut text = String::new();
    for at in 0..400 {
        write!(
            text,
            "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: t{at}}}\nspec: {{runtimeRef: {{name: ours-{at}}}}}\n\
             ---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {{name: hours-{at}}}\nspec: {{}}\n"
        )
        .unwrap();
    }
    let file = read(text.as_bytes()).unwrap();
    for document in file
        .documents
        .iter()
        .filter(|document| document.job_kind().is_some())
    {
        let findings = check(document).findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].message.contains("and 392 more"), "{findings:?}");
        assert!(
            findings[0]
                .hint
                .as_deref()
                .unwrap_or_default()
                .contains("did you mean `"),
            "{findings:?}"
        );
    }
}

#[test]
fn missing_runtimes_have_a_hint() {
    let found = |reference: &str, runtime: &str| {
        let text = format!(
            "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: t}}\nspec:\n  runtimeRef: {{{reference}}}\n\
             ---\napiVersion: trainer.kubeflow.org/v1alpha1\n{runtime}\nspec: {}\n",
            set(&node())
        );
        let file = read(text.as_bytes()).unwrap();
        check(&file.documents[0]).findings[0]
            .hint
            .clone()
            .unwrap_or_default()
    };
    let cases = [
        (
            "name: mine",
            "kind: ClusterTrainingRuntime\nmetadata: {name: mime}",
            "did you mean `mime`?",
        ),
        (
            "name: mine",
            "kind: TrainingRuntime\nmetadata: {name: mine}",
            "write `runtimeRef.kind: TrainingRuntime`",
        ),
        (
            "name: mine, kind: TrainingRuntime",
            "kind: TrainingRuntime\nmetadata: {name: mine, namespace: other}",
            "it is in namespace `other`",
        ),
        (
            "name: torch-distributed, kind: TrainingRuntime",
            "kind: TrainingRuntime\nmetadata: {name: far}",
            "is built in as a ClusterTrainingRuntime",
        ),
        (
            "name: quite-another",
            "kind: TrainingRuntime\nmetadata: {name: far}",
            "`kubectl get clustertrainingruntime quite-another -o yaml` prints it",
        ),
    ];
    for (reference, runtime, want) in cases {
        let hint = found(reference, runtime);
        assert!(hint.contains(want), "{reference}: {hint}");
    }
}
