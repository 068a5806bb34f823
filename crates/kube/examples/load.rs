//! Puts jobs into a cluster and measures the operator that looks after them.
//!
//! `cargo xtask bench operator` runs it inside the test cluster, once for each operator. It starts the
//! operator itself, so that its processor time and its memory can be read, and prints one JSON object.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool of the benches that ends at the first surprise"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    pin::pin,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

const NAMESPACE: &str = "load";
/// Calls of this program under way at once.
const AT_ONCE: usize = 16;

struct Plan {
    /// Jobs that have ended; where there are any, only the operator's start over them is measured.
    finished: u32,
    jobs: u32,
    pods: u32,
    gang: u32,
    patience: Duration,
    metrics: String,
    counter: String,
    operator: Vec<String>,
}

fn main() {
    let plan = plan();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(plan));
}

fn plan() -> Plan {
    let mut words = std::env::args().skip(1);
    let mut flags = BTreeMap::new();
    let mut operator = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            operator = words.by_ref().collect();
        } else {
            flags.insert(word.clone(), words.next().unwrap_or_default());
        }
    }
    let number = |flag: &str, default: u32| {
        flags
            .get(flag)
            .map_or(default, |text| text.parse().unwrap())
    };
    Plan {
        finished: number("--finished", 0),
        jobs: number("--jobs", 1_000),
        pods: number("--pods", 8),
        gang: number("--gang", 64),
        patience: Duration::from_secs(number("--patience", 3_600).into()),
        metrics: flags.get("--metrics").cloned().unwrap_or_default(),
        counter: flags.get("--counter").cloned().unwrap_or_default(),
        operator,
    }
}

async fn measure(plan: Plan) {
    let client = Client::try_default().await.unwrap();
    prepare(&client).await;
    if plan.finished > 0 {
        return resync(&client, &plan).await;
    }
    let operator = Operator::start(&plan.operator);
    operator.settle(&plan).await;
    let before = operator.usage(&plan);

    eprintln!("{} jobs of {} pods", plan.jobs, plan.pods);
    let names: Vec<String> = (0..plan.jobs)
        .map(|number| format!("load-{number:05}"))
        .collect();
    let began = Instant::now();
    let created = stream::iter(names.clone())
        .map(|name| {
            let (jobs, job) = (jobs(&client), job(&name, plan.pods - 1));
            async move {
                jobs.create(&PostParams::default(), &job).await.unwrap();
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>();
    let watched = until_running(&client, names.into_iter().collect(), &plan, began);
    let (creation, running) = futures::join!(
        async {
            created.await;
            began.elapsed()
        },
        watched
    );
    let after = operator.usage(&plan);

    eprintln!("a gang of {} pods loses one", plan.gang);
    let gang = BTreeSet::from(["gang".to_owned()]);
    let start = Instant::now();
    jobs(&client)
        .create(&PostParams::default(), &job("gang", plan.gang - 1))
        .await
        .unwrap();
    until_running(&client, gang, &plan, start).await;
    let recovery = recover(&client, &plan).await;

    println!(
        "{}",
        json!({
            "jobs": plan.jobs,
            "createdSeconds": creation.as_secs_f64(),
            "runningSeconds": running.as_secs_f64(),
            "cpuSeconds": after.cpu - before.cpu,
            "peakRssBytes": after.peak,
            "requests": after.requests - before.requests,
            "gangSeconds": recovery.as_secs_f64(),
        })
    );
}

/// Puts jobs in that have ended, with their pods, and starts the operator over them.
async fn resync(client: &Client, plan: &Plan) {
    let names: Vec<String> = (0..plan.finished)
        .map(|number| format!("done-{number:05}"))
        .collect();
    eprintln!("{} ended jobs of {} pods", plan.finished, plan.pods);
    let made = stream::iter(&names)
        .map(|name| async move {
            let jobs = jobs(client);
            let made = jobs
                .create(&PostParams::default(), &job(name, plan.pods - 1))
                .await
                .unwrap();
            let status = json!({"status": ended(name, plan.pods)});
            jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
                .await
                .unwrap();
            let pods = api(client, "", "v1", "Pod", "pods");
            for index in 0..plan.pods {
                let pod = pod(
                    name,
                    made.metadata.uid.as_deref().unwrap_or_default(),
                    index,
                );
                pods.create(&PostParams::default(), &pod).await.unwrap();
            }
        })
        .buffer_unordered(AT_ONCE);
    let mut made = pin!(made);
    let mut count = 0_u32;
    while made.next().await.is_some() {
        count += 1;
        if count.is_multiple_of(1_000) {
            eprintln!("{count} are there");
        }
    }
    let operator = Operator::start(&plan.operator);
    let end = Instant::now() + plan.patience;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let passes = counted(plan, "trainyard_passes_total").unwrap_or(0);
        if passes >= u64::from(plan.finished) {
            break;
        }
        assert!(Instant::now() < end, "{passes} passes only");
    }
    // The first of its figures that are taken every few seconds.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let usage = operator.usage_without_requests();
    let writes = counted(plan, "trainyard_api_calls_total").unwrap_or(0);
    println!(
        "{}",
        json!({
            "finished": plan.finished,
            "pods": plan.finished * plan.pods,
            "cpuSeconds": usage.cpu,
            "peakRssBytes": usage.peak,
            "calls": writes,
        })
    );
}

/// A status as the operator leaves it behind.
fn ended(name: &str, pods: u32) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": format!("PyTorchJob{kind}"),
            "message": format!("PyTorchJob {name} is {kind}."),
            "lastUpdateTime": time, "lastTransitionTime": time})
    };
    json!({
        "conditions": [condition("Created", "True"), condition("Running", "False"), condition("Succeeded", "True")],
        "replicaStatuses": {"Master": {"succeeded": 1}, "Worker": {"succeeded": pods - 1}},
        "startTime": time, "completionTime": time,
    })
}

/// A pod that nobody will ever schedule.
fn pod(job: &str, uid: &str, index: u32) -> DynamicObject {
    let (role, number) = if index == 0 {
        ("master", 0)
    } else {
        ("worker", index - 1)
    };
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{job}-{role}-{number}"),
            "labels": {
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/job-name": job,
                "training.kubeflow.org/replica-type": role,
                "training.kubeflow.org/replica-index": number.to_string(),
                "trainyard.dev/attempt": "1",
            },
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job,
                "uid": uid, "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"schedulerName": "nobody", "containers": [{"name": "pytorch", "image": "load"}]},
    }))
    .unwrap()
}

/// One pod of the gang fails; the time until all of them run, newly or still.
async fn recover(client: &Client, plan: &Plan) -> Duration {
    let pods = api(client, "", "v1", "Pod", "pods");
    let victim = "gang-worker-7";
    let uid = pods.get(victim).await.unwrap().metadata.uid;
    let status = json!({"status": {"phase": "Failed", "containerStatuses": [{
        "name": "pytorch", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "started": false,
        "state": {"terminated": {"exitCode": 137, "reason": "Error",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}}}]}});
    let began = Instant::now();
    pods.patch_status(victim, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    loop {
        let selector = ListParams::default().labels("training.kubeflow.org/job-name=gang");
        let all = pods.list(&selector).await.unwrap();
        let running = all.items.iter().filter(|pod| {
            pod.data["status"]["phase"] == "Running" && pod.metadata.deletion_timestamp.is_none()
        });
        let replaced = all
            .items
            .iter()
            .any(|pod| pod.metadata.name.as_deref() == Some(victim) && pod.metadata.uid != uid);
        if replaced && running.count() == plan.gang as usize {
            return began.elapsed();
        }
        assert!(
            began.elapsed() < plan.patience,
            "the gang did not come back"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The time from `began` until every job of `missing` is Running.
async fn until_running(
    client: &Client,
    mut missing: BTreeSet<String>,
    plan: &Plan,
    began: Instant,
) -> Duration {
    let jobs = jobs(client);
    let all = missing.len();
    let mut told = Instant::now();
    while !missing.is_empty() {
        let params = WatchParams::default().timeout(280);
        // From the beginning each time: what was seen last may be too old to go on from, and a watch from there
        // ends at once, for ever.
        let mut events = pin!(jobs.watch(&params, "0").await.unwrap());
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(job) | WatchEvent::Modified(job)) = event else {
                break;
            };
            if runs(&job.data["status"]) {
                missing.remove(job.metadata.name.as_deref().unwrap_or_default());
            }
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!(
                    "{} of {all} run after {:.0?}",
                    all - missing.len(),
                    began.elapsed()
                );
            }
            if missing.is_empty() {
                break;
            }
        }
        assert!(
            began.elapsed() < plan.patience,
            "{} jobs do not run",
            missing.len()
        );
    }
    began.elapsed()
}

fn runs(status: &Value) -> bool {
    status["conditions"].as_array().is_some_and(|conditions| {
        conditions
            .iter()
            .any(|one| one["type"] == "Running" && one["status"] == "True")
    })
}

fn api(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    plural.clone_into(&mut resource.plural);
    if kind == "Namespace" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    }
}

fn jobs(client: &Client) -> Api<DynamicObject> {
    api(client, "kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
}

fn job(name: &str, workers: u32) -> DynamicObject {
    let role = |replicas: u32| {
        json!({"replicas": replicas, "restartPolicy": "OnFailure", "template": {"spec": {
            "containers": [{"name": "pytorch", "image": "load", "command": ["train"],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}})
    };
    serde_json::from_value(json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(workers)}},
    }))
    .unwrap()
}

async fn prepare(client: &Client) {
    let namespaces = api(client, "", "v1", "Namespace", "namespaces");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let accounts = api(client, "", "v1", "ServiceAccount", "serviceaccounts");
    while accounts.get_opt("default").await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What an operator has used so far.
struct Usage {
    cpu: f64,
    peak: u64,
    requests: u64,
}

struct Operator(Child);

impl Operator {
    fn start(words: &[String]) -> Self {
        let (program, words) = words.split_first().unwrap();
        let log = fs::File::create("/tmp/load-operator.log").unwrap();
        let child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits until a job of one pod runs: the operator is up.
    async fn settle(&self, plan: &Plan) {
        let client = Client::try_default().await.unwrap();
        jobs(&client)
            .create(&PostParams::default(), &job("first", 1))
            .await
            .unwrap();
        let first = BTreeSet::from(["first".to_owned()]);
        until_running(&client, first, plan, Instant::now()).await;
    }

    fn usage(&self, plan: &Plan) -> Usage {
        Usage {
            requests: requests(plan),
            ..self.usage_without_requests()
        }
    }

    fn usage_without_requests(&self) -> Usage {
        let id = self.0.id();
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks: f64 = [11, 12]
            .iter()
            .map(|at| fields[*at].parse::<f64>().unwrap())
            .sum();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        Usage {
            cpu: ticks / 100.0,
            peak: kilobytes << 10,
            requests: 0,
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Calls that the operator has made.
fn requests(plan: &Plan) -> u64 {
    if plan.metrics.is_empty() {
        return 0;
    }
    let counted = counted(plan, &plan.counter).unwrap_or(0);
    assert!(counted > 0, "no `{}` on the page of metrics", plan.counter);
    counted
}

/// The sum of a counter on the operator's page of metrics, once it answers.
fn counted(plan: &Plan, counter: &str) -> Option<u64> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(&plan.metrics).ok()?;
    let request = "GET /metrics HTTP/1.1\r\nHost: load\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let sum: f64 = text
        .lines()
        .filter(|line| line.starts_with(counter))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of calls"
    )]
    let sum = sum as u64;
    Some(sum)
}
