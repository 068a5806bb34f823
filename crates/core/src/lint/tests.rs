use super::*;
use crate::spec::read;

const JOB: &str = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: j}\nspec:\n  jaxReplicaSpecs:\n    Worker:\n      template: {spec: {containers: [{name: jax, image: i}]}}\n";

fn found(text: &str) -> Vec<String> {
    let file = read(text.as_bytes()).unwrap_or_else(|finding| panic!("{finding:?}\n{text}"));
    let line = |finding: &Finding| {
        let hint = finding.hint.as_deref().map(|hint| format!(" | {hint}"));
        format!(
            "{} {}:{} {}{}",
            finding.code,
            finding.span.line,
            finding.span.column,
            finding.message,
            hint.unwrap_or_default()
        )
    };
    lint(&file).iter().map(line).collect()
}

#[test]
fn files_are_judged_as_a_whole() {
    const KINDS: &str = "the supported kinds are `PyTorchJob`, `TFJob`, `MPIJob`, `XGBoostJob`, `PaddleJob`, `JAXJob`, `TrainJob`";
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
    let other = JOB.replace("name: j}", "name: k}");
    let elsewhere = JOB.replace("name: j}", "name: j, namespace: team}");
    let stated = JOB.replace("name: j}", "name: j, namespace: default}");
    let broken = JOB.replace("image: i", "imag: i");
    let cases: Vec<(&str, String, Vec<String>)> = vec![
        ("a job", JOB.to_owned(), vec![]),
        ("a job and its config", format!("{config}---\n{JOB}"), vec![]),
        ("two jobs", format!("{JOB}---\n{other}"), vec![]),
        ("two namespaces", format!("{JOB}---\n{elsewhere}"), vec![]),
        (
            "the same job twice",
            format!("{JOB}---\n{stated}"),
            vec!["TY140 11:18 JAXJob `j` of namespace `default` is already in this file, on line 3 | give one of the two another name".to_owned()],
        ),
        (
            "findings of both in order",
            format!("{broken}---\n{}", broken.replace("name: j}", "name: k}")),
            vec![
                "TY123 7:39 the container `jax` has no image".to_owned(),
                "TY106 7:50 `spec.jaxReplicaSpecs.Worker.template.spec.containers[0]` has no field `imag`, it is ignored | did you mean `image`?".to_owned(),
                "TY123 15:39 the container `jax` has no image".to_owned(),
                "TY106 15:50 `spec.jaxReplicaSpecs.Worker.template.spec.containers[0]` has no field `imag`, it is ignored | did you mean `image`?".to_owned(),
            ],
        ),
        (
            "only config",
            config.to_owned(),
            vec![format!("TY145 1:1 the file has no job in it, only objects that go with one | {KINDS}")],
        ),
        (
            "another kind",
            "apiVersion: apps/v1\nkind: Deployment\n".to_owned(),
            vec![format!("TY101 2:7 `Deployment` of apiVersion `apps/v1` is not a supported job | {KINDS}")],
        ),
        (
            "a job inside of another object",
            format!("apiVersion: example.com/v1\nkind: Wrapper\nspec:\n  parts:\n  - template:\n      {}", JOB.replace('\n', "\n      ")),
            vec!["TY101 2:7 `Wrapper` of apiVersion `example.com/v1` is not a supported job | write the JAXJob at `spec.parts[0].template` as a document of its own to check it".to_owned()],
        ),
        (
            "placeholders",
            JOB.replace("name: j}", "name: \"${NAME}\", namespace: <team>}"),
            vec!["TY148 3:18 2 values are placeholders, the first is `${NAME}` | fill the file in first, such as with `envsubst < FILE | trainyard lint -`".to_owned()],
        ),
        (
            "a name that the cluster makes",
            JOB.replace("name: j}", "generateName: j-}"),
            vec![],
        ),
        (
            "a job and objects of others",
            format!("{JOB}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n---\napiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata: {{name: c}}\n"),
            vec![],
        ),
        (
            "a job and no object",
            format!("{JOB}---\nreplicas: 4\n"),
            vec![format!("TY101 9:1 the document has no `kind` | {KINDS}")],
        ),
        (
            "a misspelled kind",
            JOB.replace("JAXJob", "JaxJobs"),
            vec![format!("TY101 2:7 `JaxJobs` of apiVersion `kubeflow.org/v1` is not a supported job | did you mean `JAXJob`? {KINDS}")],
        ),
        (
            "no kind",
            "a: 1\n".to_owned(),
            vec![format!("TY101 1:1 the document has no `kind` | {KINDS}")],
        ),
        (
            "no version",
            "kind: JAXJob\n".to_owned(),
            vec![format!("TY101 1:1 the document has no `apiVersion` | {KINDS}")],
        ),
        (
            "a version that is gone",
            JOB.replace("kubeflow.org/v1", "kubeflow.org/v1beta1"),
            vec!["TY103 1:13 `JAXJob` is not supported in apiVersion `kubeflow.org/v1beta1` | write `apiVersion: kubeflow.org/v1`".to_owned()],
        ),
        (
            "a kind of two versions",
            "apiVersion: kubeflow.org/v1alpha2\nkind: MPIJob\n".to_owned(),
            vec!["TY103 1:13 `MPIJob` is not supported in apiVersion `kubeflow.org/v1alpha2` | write `apiVersion: kubeflow.org/v1` or `apiVersion: kubeflow.org/v2beta1`".to_owned()],
        ),
        (
            "a list",
            "apiVersion: v1\nkind: List\nitems: []\n".to_owned(),
            vec!["TY102 2:7 `List` wraps several objects in one, which is not supported | write each object as a document of its own, separated by `---`".to_owned()],
        ),
        (
            "a list of jobs",
            "apiVersion: kubeflow.org/v1\nkind: JAXJobList\nitems: []\n".to_owned(),
            vec!["TY102 2:7 `JAXJobList` wraps several objects in one, which is not supported | write each object as a document of its own, separated by `---`".to_owned()],
        ),
    ];
    let wrong: Vec<String> = cases
        .into_iter()
        .map(|(name, text, want)| (name, found(&text), want))
        .filter(|(_, found, want)| found != want)
        .map(|(name, found, want)| format!("{name}\n found {found:#?}\n want  {want:#?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

mod objects;
mod rules;
