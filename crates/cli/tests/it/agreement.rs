//! `lint`, `render` and `run` accept the same files, and refuse the others for the same reason.

use crate::call::{Call, Outcome};

/// A job that ends at once.
fn job(metadata: &str) -> String {
    format!(
        "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {{{metadata}}}\nspec:\n  jaxReplicaSpecs:\n    \
         Worker:\n      template: {{spec: {{containers: [{{name: jax, image: 'i:1', command: ['true']}}]}}}}\n"
    )
}

fn object(version: &str, kind: &str) -> String {
    format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n")
}

/// What a command makes of a file.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    /// With the rules that say why.
    Refused(Vec<String>),
}

fn verdict(outcome: &Outcome) -> Verdict {
    if outcome.code == Some(0) {
        return Verdict::Accepted;
    }
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    let codes = said.split("error[").skip(1);
    let mut codes: Vec<String> = codes
        .filter_map(|rest| Some(rest.split_once(']')?.0.to_owned()))
        .collect();
    codes.dedup();
    Verdict::Refused(codes)
}

fn verdicts(text: &str) -> [(&'static str, Verdict); 3] {
    let call = |words: &[&str]| Call::new(words).file("job.yaml", text).run();
    [
        ("lint", verdict(&call(&["lint", "job.yaml"]))),
        ("render", verdict(&call(&["render", "job.yaml"]))),
        ("run", verdict(&call(&["run", "job.yaml", "--cpu"]))),
    ]
}

#[test]
fn the_three_agree() {
    let plain = || job("name: j");
    let beside = |other: String| format!("{}---\n{other}", plain());
    let refused = |code: &str| Verdict::Refused(vec![code.to_owned()]);
    let cases = [
        ("a job", plain(), Verdict::Accepted),
        (
            "a name that the cluster makes",
            job("generateName: j-"),
            Verdict::Accepted,
        ),
        (
            "a name that cannot be made",
            job("generateName: J_"),
            refused("TY107"),
        ),
        ("no name", job("labels: {a: b}"), refused("TY107")),
        (
            "a companion",
            beside(object("v1", "ConfigMap")),
            Verdict::Accepted,
        ),
        (
            "a ComputeDomain",
            beside(object("resource.nvidia.com/v1beta1", "ComputeDomain")),
            Verdict::Accepted,
        ),
        (
            "a Deployment",
            beside(object("apps/v1", "Deployment")),
            Verdict::Accepted,
        ),
        (
            "a Deployment first",
            format!("{}---\n{}", object("apps/v1", "Deployment"), plain()),
            Verdict::Accepted,
        ),
        (
            "a Notebook",
            beside(object("kubeflow.org/v1", "Notebook")),
            Verdict::Accepted,
        ),
        (
            "a job of a kind that is gone",
            beside(object("kubeflow.org/v1", "MXJob")),
            refused("TY101"),
        ),
        (
            "a typo in a kind",
            beside(object("kubeflow.org/v1", "TFJbo")),
            refused("TY101"),
        ),
        (
            "another version",
            beside(object("kubeflow.org/v1beta2", "TFJob")),
            refused("TY103"),
        ),
        ("a list", beside(object("v1", "List")), refused("TY102")),
        (
            "a document that is not an object",
            beside("replicas: 3\n".to_owned()),
            refused("TY101"),
        ),
        ("the same job twice", beside(plain()), refused("TY140")),
        (
            "only a Deployment",
            object("apps/v1", "Deployment"),
            refused("TY101"),
        ),
        ("nothing", String::new(), refused("TY001")),
        ("no YAML", "a: [\n".to_owned(), refused("TY007")),
    ];
    let mut wrong = Vec::new();
    for (name, text, want) in cases {
        for (command, found) in verdicts(&text) {
            if found != want {
                wrong.push(format!("{name}: {command} says {found:?}, wanted {want:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `lint` judges an object for what it is; `render` and `run` need a job.
#[test]
fn objects_without_a_job() {
    let wrapper = format!(
        "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {{name: w}}\nspec:\n  components:\n  - template:\n      {}",
        job("name: j").trim_end().replace('\n', "\n      ")
    );
    let cases = [(object("v1", "ConfigMap"), "TY145"), (wrapper, "TY101")];
    for (text, code) in cases {
        let [lint, render, run] = verdicts(&text);
        assert_eq!(lint.1, Verdict::Accepted, "{text}");
        for (command, found) in [render, run] {
            assert_eq!(
                found,
                Verdict::Refused(vec![code.to_owned()]),
                "{command} {text}"
            );
        }
    }
    let policy =
        "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: c}\nspec: {driver: {}}\n";
    let lint = Call::new(&["lint", "-"]).stdin(policy).run();
    assert_eq!(lint.code, Some(0), "{lint:?}");
    let note = "note: ClusterPolicy `c` is not a training job and is not linted";
    assert!(lint.stderr.contains(note), "{}", lint.stderr);
}

/// All three judge several jobs in the same way; `run` starts the one that is chosen.
#[test]
fn several_jobs() {
    let text = format!("{}---\n{}", job("name: a"), job("name: b"));
    let call = |words: &[&str]| Call::new(words).file("job.yaml", &text).run();
    assert_eq!(call(&["lint", "job.yaml"]).code, Some(0));
    let rendered = call(&["render", "job.yaml"]);
    assert!(
        rendered.stdout.contains("name: a-worker-0")
            && rendered.stdout.contains("name: b-worker-0")
    );
    let all = call(&["run", "job.yaml"]);
    assert_eq!(all.code, Some(2));
    assert!(
        all.stderr.contains("choose one with `--job NAME`"),
        "{}",
        all.stderr
    );
    for name in ["a", "b"] {
        let one = call(&["run", "job.yaml", "--job", name]);
        assert_eq!(one.code, Some(0), "{}", one.stderr);
    }
}

#[test]
fn what_is_passed_over_is_said() {
    let text = format!(
        "{}---\n{}",
        job("generateName: train-"),
        object("resource.nvidia.com/v1beta1", "ComputeDomain")
    );
    let call = |words: &[&str]| Call::new(words).file("job.yaml", &text).run();
    let lint = call(&["lint", "job.yaml"]);
    let note = "note: ComputeDomain `x` is not a training job and is not linted";
    assert!(lint.stderr.contains(note), "{}", lint.stderr);

    let render = call(&["render", "job.yaml"]);
    assert!(
        render.stdout.contains("kind: ComputeDomain"),
        "{}",
        render.stdout
    );
    assert!(
        render.stdout.contains("name: train-xxxxx-worker-0"),
        "{}",
        render.stdout
    );
    assert!(
        render
            .stderr
            .contains("note: ComputeDomain `x` is not a training job and is printed as is")
    );
    assert_eq!(
        render.stdout,
        call(&["render", "job.yaml"]).stdout,
        "the name is stable"
    );

    let run = call(&["run", "job.yaml"]);
    assert!(
        run.stderr
            .contains("note: ComputeDomain `x` is not a training job and is not started here")
    );
    let named = |outcome: &Outcome| {
        let (_, rest) = outcome
            .stderr
            .split_once("note: `generateName` becomes `train-")?;
        Some(rest.get(..5)?.to_owned())
    };
    let (first, second) = (named(&run), named(&call(&["run", "job.yaml"])));
    assert!(first.is_some() && first != second, "{first:?} {second:?}");
}

/// Files that are named together are judged together: the others need not hold a job.
#[test]
fn files_beside_the_job() {
    let call = |words: &[&str]| {
        Call::new(words)
            .file("job.yaml", job("name: j"))
            .file("web.yaml", object("apps/v1", "Deployment"))
            .file("values.yaml", "replicas: 3\n")
            .run()
    };
    let lint = call(&["lint", "job.yaml", "web.yaml", "values.yaml"]);
    let run = call(&["run", "job.yaml", "-f", "web.yaml", "-f", "values.yaml"]);
    assert_eq!(
        (lint.code, run.code),
        (Some(0), Some(0)),
        "{lint:?} {run:?}"
    );
    for outcome in [lint, run] {
        let note =
            "note: Deployment `x`, the document without a kind on line 1 are not training jobs";
        assert!(outcome.stderr.contains(note), "{}", outcome.stderr);
    }
}
