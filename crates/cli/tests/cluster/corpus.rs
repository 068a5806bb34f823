//! The linter and the webhook never disagree: every job there is goes through both.
//!
//! What the schema of a definition refuses never reaches the webhook. Of such a job the linter must have
//! found an error, too.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use trainyard_core::{
    finding::{Finding, Severity},
    lint, spec,
};
use trainyard_kube::crd;

use crate::{
    hooks::Hooks,
    namespace::{TestNamespace, on_cluster},
    operator::May,
};

/// The root of the project.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The cluster drops a field that it does not know before anybody is asked, and says so itself.
const UNKNOWN_FIELD: &str = "TY106";

/// A job and where it is from.
struct Sample {
    from: String,
    job: Value,
}

/// Every job of `text` that an operator would be asked to run.
fn jobs(from: &str, text: &[u8]) -> Vec<Sample> {
    let file = spec::read(text).unwrap_or_else(|finding| panic!("{from}: {finding:?}"));
    let documents = file.documents.iter();
    let runs = |kind: spec::Kind| spec::Kind::ALL.contains(&kind);
    let jobs = documents.filter(|document| document.job_kind().is_some_and(runs));
    let sample = |document: &spec::Document| Sample {
        from: from.to_owned(),
        job: document.tree.to_json(),
    };
    jobs.map(sample).collect()
}

fn files_below(folder: &Path, found: &mut Vec<Sample>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|end| end == "yaml") {
            let from = path.display().to_string();
            found.extend(jobs(&from, &fs::read(path).unwrap()));
        }
    }
}

/// A job that breaks a rule of the contract: what is changed in which job.
const BROKEN: &[(&str, &str, &str)] = &[
    (
        "examples/pytorchjob.yaml",
        "name: pytorch\n",
        "name: trainer\n",
    ),
    (
        "examples/pytorchjob.yaml",
        "restartPolicy: OnFailure",
        "restartPolicy: Onfailure",
    ),
    ("examples/pytorchjob.yaml", "replicas: 1", "replicas: 2"),
    ("examples/pytorchjob.yaml", "Master:", "Mastre:"),
    (
        "examples/pytorchjob-elastic.yaml",
        "minReplicas: ",
        "minReplicas: 9",
    ),
    ("examples/pytorchjob-elastic.yaml", "Worker:", "Master:"),
    ("examples/mpijob-v1.yaml", "Launcher:", "Chief:"),
    (
        "examples/mpijob-v2beta1.yaml",
        "slotsPerWorker: ",
        "slotsPerWorker: -",
    ),
    (
        "examples/tfjob.yaml",
        "kind: TFJob",
        "kind: TFJob\nunknown: field",
    ),
    ("examples/xgboostjob.yaml", "Master:", "Worker2:"),
    (
        "examples/jaxjob.yaml",
        "metadata:",
        "metadata:\n  annotations: {trainyard.dev/budget: much}",
    ),
    ("examples/jaxjob.yaml", "replicas: ", "replicas: -"),
    ("examples/jaxjob.yaml", "replicas: ", "replicas: x"),
];

fn corpus() -> Vec<Sample> {
    let mut found = Vec::new();
    for folder in ["examples", "testdata/spec", "testdata/lint"] {
        files_below(&Path::new(ROOT).join(folder), &mut found);
    }
    for (file, old, new) in BROKEN {
        let text = fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
        assert!(text.contains(old), "{file} has no `{old}`");
        let from = format!("{file} with `{new}`");
        found.extend(jobs(&from, text.replacen(old, new, 1).as_bytes()));
    }
    found
}

/// What is said of a job.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// Codes of what refuses it.
    refusals: BTreeSet<String>,
    /// Codes of warnings.
    warnings: BTreeSet<String>,
}

/// What the linter says of a file that holds the job and nothing else.
fn linted(job: &Value) -> Said {
    let file = spec::read(job.to_string().as_bytes()).unwrap();
    let found = lint::review(&[&file], None).concat();
    let codes = |severity: Severity| -> BTreeSet<String> {
        let of = |finding: &&Finding| finding.severity == severity;
        found
            .iter()
            .filter(of)
            .map(|it| it.code.to_owned())
            .collect()
    };
    Said {
        refusals: codes(Severity::Error),
        warnings: codes(Severity::Warning),
    }
}

impl Said {
    /// Whether both say the same; a webhook returns only the first of very many warnings.
    fn agrees_with(&self, lint: &Self) -> bool {
        let few = self.warnings.len() < 9;
        self.refusals == lint.refusals
            && self.warnings.is_subset(&lint.warnings)
            && (self.warnings.len() == lint.warnings.len() || !few)
    }
}

/// Whether the definition says what the linter says, where it says a rule of ours in CEL.
fn is_a_sentence_of_lint(message: &str, job: &Value) -> bool {
    let Some((_, quoted)) = message.split_once(": TY") else {
        return true;
    };
    let quoted = format!("TY{}", quoted.split([',', ']']).next().unwrap_or_default());
    let found = lint::review_object(job, None);
    let sentence = |finding: &Finding| format!("{}: {}", finding.code, finding.message);
    found
        .iter()
        .any(|finding| sentence(finding).starts_with(&quoted))
}

/// The API server without its certificates and tokens.
struct Proxy {
    child: Child,
    address: String,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Proxy {
    fn new() -> Self {
        let mut child = Command::new("kubectl")
            .args(["proxy", "--port=0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address }
    }

    /// Head and body of the answer to whether `job` would be made.
    fn try_to_make(&self, namespace: &str, job: &Value) -> (String, String) {
        let text = |key: &str| job[key].as_str().unwrap();
        let kind = spec::Kind::find(text("apiVersion"), text("kind")).unwrap();
        let path = format!(
            "/apis/{}/namespaces/{namespace}/{}?dryRun=All&fieldValidation=Warn",
            text("apiVersion"),
            crd::plural(kind),
        );
        let body = job.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

/// What the API server says of a job, and who refuses it.
enum Answer {
    /// The webhook was asked.
    Judged(Said),
    /// The schema refuses it before.
    Schema(String),
}

/// The code at the beginning of a line.
fn code(line: &str) -> Option<String> {
    let word = line.split(' ').next()?.trim_end_matches(':');
    let digits = word.strip_prefix("TY")?;
    let is_code = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_code.then(|| word.to_owned())
}

fn answered(fixture: &TestNamespace, proxy: &Proxy, job: &Value) -> Answer {
    let (head, body) = proxy.try_to_make(&fixture.namespace, job);
    let lines = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let text = value.strip_prefix("299 - \"")?;
        (name == "Warning").then_some(text)
    });
    let mut said = Said {
        warnings: lines.filter_map(code).collect(),
        ..Said::default()
    };
    if head.contains(" 201 ") {
        return Answer::Judged(said);
    }
    let answer: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{head}\n{body}"));
    let message = answer["message"].as_str().unwrap();
    let Some((_, reasons)) = message.split_once("denied the request: ") else {
        return Answer::Schema(message.to_owned());
    };
    let reasons = reasons.lines();
    let reasons = reasons.map(|line| line.strip_prefix("- ").unwrap_or(line));
    said.refusals = reasons.filter_map(code).collect();
    assert!(!said.refusals.is_empty(), "{message}");
    Answer::Judged(said)
}

#[test]
fn linter_and_webhook_agree() {
    on_cluster("corpus", |fixture| {
        let hooks = Hooks::new(fixture);
        let operator = fixture.operator_with(May::Act, &["--no-leader-elect", "--webhook-bind=:0"]);
        hooks.lead_to("only", &operator);
        hooks.until_asked();
        let proxy = Proxy::new();
        let corpus = corpus();
        assert!(corpus.len() > 150, "{} jobs", corpus.len());
        // A job of the newer form is converted, too, which is asked for elsewhere.
        fixture.wait("the API server converts", || {
            let newer = corpus
                .iter()
                .find(|sample| sample.from.ends_with("mpijob-v2beta1.yaml"));
            let (head, _) = proxy.try_to_make(&fixture.namespace, &newer.unwrap().job);
            (!head.contains(" 500 ")).then_some(())
        });
        let (mut taken, mut refused, mut by_schema) = (0, 0, Vec::new());
        let mut differ = Vec::new();
        for sample in &corpus {
            for profile in [None, Some("production")] {
                let mut job = sample.job.clone();
                job["metadata"]["namespace"] = json!(fixture.namespace);
                if let Some(profile) = profile {
                    job["metadata"]["annotations"]["trainyard.dev/profile"] = json!(profile);
                }
                let mut want = linted(&job);
                want.warnings.remove(UNKNOWN_FIELD);
                let from = &sample.from;
                match answered(fixture, &proxy, &job) {
                    Answer::Judged(said) => {
                        if !said.agrees_with(&want) {
                            differ.push(format!("{from}: the webhook {said:?}, lint {want:?}"));
                        }
                        let count = if said.refusals.is_empty() {
                            &mut taken
                        } else {
                            &mut refused
                        };
                        *count += 1;
                    }
                    Answer::Schema(message) => {
                        if want.refusals.is_empty() || !is_a_sentence_of_lint(&message, &job) {
                            differ.push(format!("{from}: the schema {message}, lint {want:?}"));
                        }
                        by_schema.push((from.clone(), message));
                    }
                }
            }
        }
        assert!(differ.is_empty(), "{}", differ.join("\n"));
        eprintln!(
            "{} jobs, each in two profiles: {taken} taken, {refused} refused, {} by the schema \
             before the webhook was asked",
            corpus.len(),
            by_schema.len()
        );
        for (from, message) in &by_schema {
            eprintln!("by the schema: {from}: {message}");
        }
        assert!(taken > 100 && refused > 20, "{taken} {refused}");
    });
}
