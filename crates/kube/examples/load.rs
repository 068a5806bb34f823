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
    let mut version = "0".to_owned();
    let mut told = Instant::now();
    while !missing.is_empty() {
        let params = WatchParams::default().timeout(280);
        let mut events = pin!(jobs.watch(&params, &version).await.unwrap());
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(job) | WatchEvent::Modified(job)) = event else {
                break;
            };
            version = job.metadata.resource_version.clone().unwrap_or_default();
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
            requests: requests(plan),
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The sum of a counter on the operator's page of metrics.
fn requests(plan: &Plan) -> u64 {
    use std::io::{Read as _, Write as _};
    if plan.metrics.is_empty() {
        return 0;
    }
    let mut stream = std::net::TcpStream::connect(&plan.metrics).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: load\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let counted: f64 = text
        .lines()
        .filter(|line| line.starts_with(plan.counter.as_str()))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    assert!(
        counted > 0.0,
        "no `{}` on the page of metrics",
        plan.counter
    );
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of calls"
    )]
    let counted = counted as u64;
    counted
}
