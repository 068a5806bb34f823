//! Upstream's example manifests under both operators: every difference is one that `docs/differences.md` explains.
//!
//! Each operator has a namespace of its own on the same simulated nodes. What they made is compared twice: when every job
//! runs, and when every job has ended. `differences.txt` lists what may differ, with the heading that explains it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::objects::{self, Difference};
use crate::{
    hooks,
    namespace::{TestNamespace, alone_on_real_nodes, kubectl, suite_folder},
    operator::May,
};

/// What may differ.
const ALLOWED: &str = include_str!("differences.txt");
/// What explains it.
const DOCUMENT: &str = include_str!("../../../../../docs/differences.md");
/// What the Go operator needs to find, and how it is started.
const PEER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../xtask/src/bench/operator"
);
/// An example of a version that no operator of today serves.
const TOO_OLD: &str = "xgboostjob_v1alpha1_rabit_test.yaml";
/// The kinds of the examples.
const KINDS: &str = "pytorchjobs,tfjobs,xgboostjobs,paddlejobs,jaxjobs,mpijobs.v1.kubeflow.org";
/// What operators make for jobs.
const MADE: &str = "pods,services,configmaps,secrets,serviceaccounts,roles,rolebindings,\
    horizontalpodautoscalers,jobs.batch";

/// The Go operator, for as long as this value lives.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Peer {
    /// Starts it for one namespace.
    fn start(fixture: &TestNamespace) -> Self {
        kubectl(&["apply", "--filename", &format!("{PEER}/peer.yaml")]);
        let log = fs::File::create(fixture.new_file("go.log")).unwrap();
        let child = Command::new("sh")
            .arg(format!("{PEER}/peer.sh"))
            .arg(suite_folder().join("upstream/training-operator"))
            .args(["--namespace", &fixture.namespace])
            .args(["--kube-api-qps", "500", "--kube-api-burst", "1000"])
            .args(["--metrics-bind-address", "127.0.0.1:18080"])
            .args(["--health-probe-bind-address", "127.0.0.1:18081"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

/// Every job of upstream's examples, on simulated nodes, each under a name of its own.
fn examples() -> Vec<Value> {
    let mut files = Vec::new();
    files_below(&suite_folder().join("upstream/examples"), &mut files);
    let mut names = BTreeSet::new();
    let mut jobs = Vec::new();
    for text in files {
        for mut job in hooks::objects(text.as_bytes()) {
            let is_job = job["apiVersion"] == "kubeflow.org/v1";
            if !is_job {
                continue;
            }
            let metadata = job["metadata"].as_object_mut().unwrap();
            metadata.remove("namespace");
            let mut name = metadata["name"].as_str().unwrap().to_owned();
            while !names.insert(name.clone()) {
                name.push_str("-again");
            }
            metadata["name"] = json!(name);
            for template in templates(&mut job) {
                template["spec"]["nodeSelector"] = json!({"test.trainyard.dev/node": "simulated"});
            }
            jobs.push(job);
        }
    }
    jobs
}

fn files_below(folder: &Path, found: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|end| end == "yaml") && !path.ends_with(TOO_OLD) {
            let text = fs::read_to_string(&path).unwrap();
            if text.contains("kubeflow.org/v1") {
                found.push(text);
            }
        }
    }
}

fn templates(job: &mut Value) -> Vec<&mut Value> {
    let fields = job["spec"].as_object_mut().unwrap().iter_mut();
    let roles = fields.filter(|(name, _)| name.ends_with("ReplicaSpecs"));
    roles
        .flat_map(|(_, roles)| roles.as_object_mut().unwrap().values_mut())
        .map(|role| &mut role["template"])
        .collect()
}

/// The claims that the jobs mount.
fn claims(jobs: &mut [Value]) -> BTreeSet<String> {
    let mut claims = BTreeSet::new();
    for template in jobs.iter_mut().flat_map(templates) {
        for volume in template["spec"]["volumes"].as_array().into_iter().flatten() {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
            claims.extend(claim.map(str::to_owned));
        }
    }
    claims
}

/// Makes the claims, with volumes that exist in name only: nothing is mounted on a simulated node.
fn provide(fixture: &TestNamespace, claims: &BTreeSet<String>) {
    for claim in claims {
        let volume = format!("{}-{claim}", fixture.namespace);
        let common = json!({"accessModes": ["ReadWriteMany"], "storageClassName": ""});
        let mut spec = common.clone();
        spec["capacity"] = json!({"storage": "1Gi"});
        spec["hostPath"] = json!({"path": "/nowhere"});
        spec["claimRef"] = json!({"namespace": fixture.namespace, "name": claim});
        fixture.put(
            &json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": spec}),
        );
        let mut spec = common;
        spec["volumeName"] = json!(volume);
        spec["resources"] = json!({"requests": {"storage": "1Gi"}});
        fixture.put(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim}, "spec": spec}));
    }
    fixture.wait("the claims are bound", || {
        let all = list(fixture, "persistentvolumeclaims");
        let bound = all.iter().all(|claim| claim["status"]["phase"] == "Bound");
        bound.then_some(())
    });
}

fn list(fixture: &TestNamespace, kinds: &str) -> Vec<Value> {
    let text = fixture.kubectl(&["get", kinds, "--output=json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Waits until every job of both has one of `conditions`.
fn until_all(tests: [&TestNamespace; 2], conditions: &[&str]) {
    for fixture in tests {
        let left = std::cell::Cell::new(Vec::new());
        fixture.wait_or(
            || {
                let jobs = list(fixture, KINDS);
                let waiting: Vec<Value> = jobs
                    .into_iter()
                    .filter(|job| !conditions.iter().any(|one| objects::holds(job, one)))
                    .map(|job| json!([job["metadata"]["name"], job["status"]]))
                    .collect();
                let done = waiting.is_empty().then_some(());
                left.set(waiting);
                done
            },
            || format!("not {conditions:?}: {:#?}", left.take()),
        );
    }
}

/// One line of what may differ.
struct Allowed {
    /// `running`, `ended`, or `any`.
    phase: &'static str,
    /// Whether it depends on the order in which things happen.
    may_be_absent: bool,
    object: &'static str,
    path: &'static str,
    heading: &'static str,
}

fn allowed() -> Vec<Allowed> {
    let lines = ALLOWED
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [phase, object, path, heading] = parts[..] else {
                panic!("four parts are needed: {line}");
            };
            let stated = phase.strip_prefix('?');
            Allowed {
                phase: stated.unwrap_or(phase),
                may_be_absent: stated.is_some(),
                object,
                path,
                heading,
            }
        })
        .collect()
}

/// Which line explains a difference.
fn explains(allowed: &Allowed, phase: &str, difference: &Difference) -> bool {
    (allowed.phase == "any" || allowed.phase == phase)
        && objects::matches(allowed.object, &difference.object)
        && objects::matches(allowed.path, &difference.path)
}

/// Compares what both made until nothing is unexplained: events and counts arrive a little later than conditions.
fn compare(theirs: &TestNamespace, ours: &TestNamespace, phase: &str, seen: &mut [bool]) {
    let allowed = allowed();
    let unexplained = std::cell::Cell::new((BTreeMap::new(), Vec::new()));
    let kinds = format!("{MADE},{KINDS},events");
    theirs.wait_or(
        || {
            let [theirs, ours] = [theirs, ours]
                .map(|fixture| objects::flat(&fixture.namespace, phase, &list(fixture, &kinds)));
            let mut left = BTreeMap::new();
            for difference in objects::differences(&theirs, &ours) {
                let at = allowed
                    .iter()
                    .position(|one| explains(one, phase, &difference));
                if let Some(at) = at {
                    seen[at] = true;
                } else {
                    let key = format!("{} | {}", difference.object, difference.path);
                    left.insert(key, difference.detail);
                }
            }
            let missing = stale(&allowed, phase, seen);
            let done = (left.is_empty() && missing.is_empty()).then_some(());
            unexplained.set((left, missing));
            done
        },
        || {
            let (left, missing) = unexplained.take();
            format!(
                "{phase}: no line of differences.txt explains {left:#?}, and nothing differs as these lines say: {missing:#?}"
            )
        },
    );
}

/// The lines that must have been met by now and were not. Those for any phase have until the end.
fn stale(allowed: &[Allowed], phase: &str, seen: &[bool]) -> Vec<String> {
    let is_due = |one: &Allowed| one.phase == phase || (phase == "ended" && one.phase == "any");
    allowed
        .iter()
        .zip(seen)
        .filter(|(one, seen)| is_due(one) && !one.may_be_absent && !**seen)
        .map(|(one, _)| format!("{} | {}", one.object, one.path))
        .collect()
}

/// Ends the pods that `chosen` selects with exit code 0. An operator may delete some of them meanwhile, which `kubectl annotate` takes
/// for a failure: the others are then annotated by the next call.
fn end_pods(fixture: &TestNamespace, chosen: &str) {
    let words = ["annotate", "pods", chosen, "test.trainyard.dev/exit-code=0"];
    fixture.wait("every pod is annotated", || {
        let mut command = Command::new("kubectl");
        command.args(words).arg("--overwrite");
        let output = command
            .args(["--namespace", &fixture.namespace])
            .output()
            .unwrap();
        output.status.success().then_some(())
    });
}

#[test]
fn example_manifests_differ_only_as_documented() {
    alone_on_real_nodes("examples", |fixture| {
        let _hooks = hooks::alone(fixture);
        let theirs = fixture.beside("go");
        let peer = Peer::start(&theirs);
        let operator = fixture.operator_with(
            May::Act,
            &[
                "--no-leader-elect",
                "--agent-image=trainyard.test/trainyard:test",
            ],
        );
        let mut jobs = examples();
        assert!(jobs.len() >= 19, "{} jobs", jobs.len());
        let claims = claims(&mut jobs);
        let jobs = json!({"apiVersion": "v1", "kind": "List", "items": jobs});
        for fixture in [&theirs, fixture] {
            provide(fixture, &claims);
            fixture.put(&jobs);
        }
        let mut seen = vec![false; allowed().len()];
        until_all([&theirs, fixture], &["Running"]);
        compare(&theirs, fixture, "running", &mut seen);
        // Those first that decide about the job, so that the same happens in the same order.
        let leaders = "--selector=training.kubeflow.org/replica-type in (master,chief,launcher)";
        for chosen in [leaders, "--all"] {
            for fixture in [&theirs, fixture] {
                end_pods(fixture, chosen);
            }
            if chosen == leaders {
                for fixture in [&theirs, fixture] {
                    fixture.wait("the leaders have ended", || {
                        let pods = fixture.kubectl(&["get", "pods", leaders, "--output=json"]);
                        let pods: Value = serde_json::from_str(&pods).unwrap();
                        let mut pods = pods["items"].as_array().unwrap().iter();
                        pods.all(|pod| pod["status"]["phase"] == "Succeeded")
                            .then_some(())
                    });
                }
            }
        }
        until_all([&theirs, fixture], &["Succeeded", "Failed"]);
        compare(&theirs, fixture, "ended", &mut seen);
        drop(peer);
        operator.stop();
        for fixture in [&theirs, fixture] {
            for claim in &claims {
                let volume = format!("pv/{}-{claim}", fixture.namespace);
                kubectl(&["delete", &volume, "--wait=false"]);
            }
        }
        let webhook = "validatingwebhookconfiguration/validator.training-operator.kubeflow.org";
        kubectl(&["delete", webhook]);
        theirs.clear();
    });
}

#[test]
fn every_allowed_difference_is_documented() {
    let headings: BTreeSet<&str> = DOCUMENT
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    for one in allowed() {
        assert!(
            headings.contains(one.heading),
            "no heading `{}` in docs/differences.md",
            one.heading
        );
        assert!(
            ["any", "running", "ended"].contains(&one.phase),
            "{}",
            one.phase
        );
    }
}
