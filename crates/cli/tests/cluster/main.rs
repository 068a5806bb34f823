//! The commands as their users meet them, on a real cluster.
//!
//! The suite `cluster` of `cargo xtask test` brings the cluster; without one every test says that it
//! is skipped.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on says why and ends"
)]

mod corpus;
mod dashboard;
mod deploy;
mod doctor;
mod explain;
mod hooks;
mod in_place;
mod installed;
mod kueue;
mod lint;
mod namespace;
mod operator;
mod preflight;
mod shadow;
mod spans;
mod trainjob;
mod upstream;
mod webhooks;

use std::{fs, process::Command};

use serde_json::{Value, json};

use self::namespace::{TestNamespace, on_cluster, on_real_nodes};

/// A `PyTorchJob` of three workers that run on simulated nodes until they are asked to end.
fn job(name: &str) -> Value {
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {
            "runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {"Worker": {
                "replicas": 3, "restartPolicy": "OnFailure",
                "template": {
                    "metadata": {"annotations": {}},
                    "spec": {
                        "nodeSelector": {"test.trainyard.dev/node": "simulated"},
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "pytorch", "image": "example.com/train:1"}],
                    },
                },
            }},
        },
    })
}

/// The template of the workers.
fn template(job: &mut Value) -> &mut Value {
    &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
}

/// The same job on real nodes, running `script`.
fn on_nodes(name: &str, script: &str) -> Value {
    let mut job = job(name);
    let pod = &mut template(&mut job)["spec"];
    pod["nodeSelector"] = json!({"test.trainyard.dev/node": "real"});
    pod["terminationGracePeriodSeconds"] = json!(1);
    pod["containers"][0]["image"] = json!("trainyard.test/tools:test");
    pod["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
    pod["containers"][0]["command"] = json!(["sh", "-c", script]);
    job
}

#[test]
fn job_lifecycle_commands() {
    on_cluster("control", |fixture| {
        let _operator = fixture.operator();
        fixture.put(&job("good"));
        fixture.until_status("good", |status| status["state"] == "Running");

        // As a plugin, which kubectl finds by its name.
        let list = fixture.plugin(&["ps"]);
        assert_eq!(list.code, Some(0), "{list:?}");
        let row = list.stdout.lines().find(|line| line.starts_with("good "));
        let row = row.unwrap_or_else(|| panic!("{list:?}"));
        assert!(
            row.contains("PyTorchJob") && row.contains("Running"),
            "{row}"
        );
        let list = fixture.trainyard(&["ps", "--format", "json"]).json();
        assert_eq!(list["version"], 1);
        assert_eq!(list["runs"][0]["job"], "good");
        assert_eq!(list["runs"][0]["live"], true);

        let asked = fixture.trainyard(&["restart", "pytorchjob/good"]);
        assert_eq!(asked.code, Some(0), "{asked:?}");
        let status = fixture.until_status("good", |status| {
            status["state"] == "Running" && status["attempts"] == 2
        });
        assert_eq!(status["budget"]["user"]["spent"], 0, "{status:#}");
        assert_eq!(status["budget"]["platform"]["spent"], 0, "{status:#}");
        assert_eq!(status["places"][0]["attempt"], 2, "{status:#}");

        let asked = fixture.plugin(&["suspend", "good"]);
        assert_eq!(asked.code, Some(0), "{asked:?}");
        assert!(
            asked.stderr.contains("`kubectl trainyard resume good -n "),
            "{asked:?}"
        );
        fixture.until_cause("good", "Suspended");
        let refused = fixture.trainyard(&["restart", "good"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let asked = fixture.trainyard(&["resume", "good"]);
        assert_eq!(asked.code, Some(0), "{asked:?}");
        fixture.until_status("good", |status| {
            status["state"] == "Running" && status["attempts"] == 3
        });

        let gone = fixture.trainyard(&["delete", "good"]);
        assert_eq!(gone.code, Some(0), "{gone:?}");
        let left = fixture.kubectl(&["get", "pods,pytorchjobs", "-o", "name"]);
        assert_eq!(left, "", "what is left");
        let unknown = fixture.trainyard(&["status", "good"]);
        assert_eq!(unknown.code, Some(2), "{unknown:?}");
    });
}

#[test]
fn explain_covers_every_wait_and_failure() {
    on_cluster("explain", |fixture| {
        let _operator = fixture.operator();
        let mut seats = job("seats");
        template(&mut seats)["spec"]["containers"][0]["resources"] =
            json!({"limits": {"nvidia.com/gpu": 64}});
        let mut account = job("account");
        template(&mut account)["spec"]["serviceAccountName"] = json!("nobody");
        let mut gated = job("gated");
        template(&mut gated)["spec"]["schedulingGates"] =
            json!([{"name": "kueue.x-k8s.io/admission"}]);
        let mut claim = job("claim");
        template(&mut claim)["spec"]["volumes"] =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        let mut scheduler = job("scheduler");
        template(&mut scheduler)["spec"]["schedulerName"] = json!("nobody");
        let mut invalid = job("invalid");
        template(&mut invalid)["spec"]["containers"][0]["name"] = json!("other");
        let mut foreign = job("foreign");
        foreign["spec"]["runPolicy"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
        let mut fails = job("fails");
        template(&mut fails)["metadata"]["annotations"] =
            json!({"test.trainyard.dev/exit-code": "3"});
        let cases = [
            (seats, "Unschedulable", "needs 3 nodes with 64 free GPUs"),
            (account, "ServiceAccountMissing", "nobody"),
            (gated, "Gated", "kueue.x-k8s.io/admission"),
            (claim, "VolumeClaim", "`data`"),
            (scheduler, "NoScheduler", "`nobody`"),
            (invalid, "InvalidSpec", "must be named `pytorch`"),
            (foreign, "ManagedElsewhere", "multikueue"),
            (fails, "ContainerFailed", "exit code 3; all 3 attempts"),
        ];
        for (job, ..) in &cases {
            fixture.put(job);
        }
        for (job, cause, words) in &cases {
            let name = job["metadata"]["name"].as_str().unwrap();
            let answer = fixture.until_cause(name, cause);
            let sentence = answer["sentence"].as_str().unwrap();
            assert!(sentence.contains(words), "{name}: {answer:#}");
        }
        let failed = fixture.trainyard(&["explain", "fails"]);
        assert_eq!(failed.code, Some(1), "{failed:?}");
        let refused = fixture.trainyard(&["restart", "fails"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("cannot be changed"), "{refused:?}");
    });
}

#[test]
fn api_server_refusal_is_explained() {
    on_cluster("refused", |fixture| {
        let _operator = fixture.operator();
        fixture.kubectl(&["create", "quota", "team", "--hard=pods=0"]);
        fixture.put(&job("quota"));
        let answer = fixture.until_cause("quota", "QuotaExceeded");
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(
            sentence.contains("`team`: `pods` needs 1 more, 0 of 0 are used"),
            "{answer:#}"
        );
        fixture.kubectl(&["delete", "quota", "team"]);
        fixture.until_status("quota", |status| status["state"] == "Running");

        let name = format!("{}.test.example", fixture.namespace);
        fixture.put(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
            "webhooks": [{
                "name": name,
                // Port 9 of the machine: nobody listens.
                "clientConfig": {"url": "https://127.0.0.1:9/"},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {
                    "kubernetes.io/metadata.name": fixture.namespace}},
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 2,
            }],
        }));
        fixture.put(&job("hooked"));
        let answer = fixture.until_cause("hooked", "WebhookDown");
        assert!(
            answer["sentence"].as_str().unwrap().contains(&name),
            "{answer:#}"
        );
        fixture.kubectl(&["delete", "validatingwebhookconfiguration", &name]);
        fixture.until_status("hooked", |status| status["state"] == "Running");
    });
}

#[test]
fn a_job_that_nobody_looks_after_says_so() {
    on_cluster("nobody", |fixture| {
        fixture.put(&job("alone"));
        let answer = fixture.until_cause("alone", "NoOperator");
        assert_eq!(answer["standing"], "waits");
    });
}

/// The files of the archive that `debug` writes of a job, with their texts.
pub(crate) fn archive_of(fixture: &TestNamespace, job: &str) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive.tar.gz");
    let outcome = fixture.trainyard(&["debug", job, "--output", &path.display().to_string()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&path).arg("-C").arg(folder.path());
    assert!(tar.status().unwrap().success());
    fs::remove_file(&path).unwrap();
    let mut files = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.display().to_string(), text));
            }
        }
    }
    files
}

#[test]
fn logs_of_real_pods() {
    on_real_nodes("logs", |fixture| {
        let _operator = fixture.operator();
        let script = "for i in 1 2 3; do echo step $i of $HOSTNAME; sleep 0.3; done";
        fixture.put(&on_nodes("talks", script));
        let followed = fixture.trainyard(&["logs", "talks", "--follow"]);
        assert_eq!(followed.code, Some(0), "{followed:?}");
        for index in 0..3 {
            for step in 1..=3 {
                let line = format!("[worker-{index}] step {step} of talks-worker-{index}\n");
                let count = followed.stdout.matches(&line).count();
                assert_eq!(count, 1, "{line}: {followed:?}");
            }
        }
        let one = fixture.trainyard(&["logs", "talks", "--rank", "1"]);
        assert!(
            one.stdout.starts_with("step 1 of talks-worker-1\n"),
            "{one:?}"
        );

        let script =
            "echo begin; [ $HOSTNAME = crash-worker-2 ] && { echo the cause; exit 7; }; sleep 600";
        let mut crash = on_nodes("crash", script);
        crash["spec"]["runPolicy"]["backoffLimit"] = json!(1);
        fixture.put(&crash);
        let answer = fixture.until_cause("crash", "ContainerFailed");
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(
            sentence.contains("`crash-worker-2` ended with exit code 7"),
            "{answer:#}"
        );
        let first = fixture.trainyard(&["logs", "crash", "--first-failure"]);
        assert_eq!(first.stdout, "begin\nthe cause\n", "{first:?}");
        let gone = fixture.trainyard(&["logs", "crash", "--attempt", "9"]);
        assert_eq!(gone.code, Some(2), "{gone:?}");
        let archive = archive_of(fixture, "crash");
        for (part, words) in [
            ("job.json", "\"backoffLimit\": 1"),
            ("explain.txt", "`crash-worker-2` ended with exit code 7"),
            ("doctor.txt", "crash-worker-2"),
            ("crash-worker-2", "the cause"),
            ("README.txt", "stacks: the job has ended"),
        ] {
            let parts = archive.iter().filter(|(name, _)| name.contains(part));
            let texts: String = parts.map(|(_, text)| text.as_str()).collect();
            assert!(texts.contains(words), "{words} not in {part}: {texts}");
        }

        let mut secret = on_nodes("secret", "true");
        template(&mut secret)["spec"]["containers"][0]["env"] = json!([{"name": "KEY",
            "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "k"}}}]);
        let mut image = on_nodes("image", "true");
        template(&mut image)["spec"]["containers"][0]["image"] = json!("nosuch.invalid/train:1");
        fixture.put(&secret);
        fixture.put(&image);
        let answer = fixture.until_cause("secret", "ContainerConfig");
        assert!(
            answer["sentence"].as_str().unwrap().contains("`wandb`"),
            "{answer:#}"
        );
        let answer = fixture.until_cause("image", "ImagePull");
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(sentence.contains("`nosuch.invalid/train:1`"), "{answer:#}");
    });
}
