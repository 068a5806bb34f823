//! Puts jobs into a cluster and measures the operator that manages them.
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

/// Jobs are spread over this many. In one alone, two controllers of the cluster look at all of its Services at each
/// change of each pod, and thousands of both make that what is measured.
const NAMESPACES: u32 = 20;
/// Calls of this program under way at once.
const AT_ONCE: usize = 16;

struct Plan {
    /// Jobs that have ended; where there are any, only the operator's start over them is measured.
    finished: u32,
    jobs: u32,
    pods: u32,
    gang: u32,
    /// GPUs of each pod.
    gpus: u32,
    /// Only the time until all pods have a node is measured.
    binding: bool,
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
        gpus: number("--gpus", 0),
        binding: flags.contains_key("--until-bound"),
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
    if plan.binding {
        return bind(&client, &plan).await;
    }
    let before = operator.usage(&plan);

    eprintln!("{} jobs of {} pods", plan.jobs, plan.pods);
    let names = names(&plan);
    let began = Instant::now();
    let created = create(&client, &plan, &names);
    let watched = until_running(&client, names.iter().cloned().collect(), &plan, began);
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
    jobs(&client, "gang")
        .create(&PostParams::default(), &job("gang", plan.gang - 1, 0))
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

fn names(plan: &Plan) -> Vec<String> {
    let numbers = 0..plan.jobs;
    numbers.map(|number| format!("load-{number:05}")).collect()
}

/// Puts the jobs in.
async fn create(client: &Client, plan: &Plan, names: &[String]) {
    let created = stream::iter(names).map(|name| {
        let (jobs, job) = (jobs(client, name), job(name, plan.pods - 1, plan.gpus));
        async move {
            jobs.create(&PostParams::default(), &job).await.unwrap();
        }
    });
    created.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// Puts the jobs in, and measures until all of their pods have a node.
async fn bind(client: &Client, plan: &Plan) {
    let wanted = usize::try_from(plan.jobs * plan.pods).unwrap();
    eprintln!(
        "{} jobs of {} pods, until all have a node",
        plan.jobs, plan.pods
    );
    let names = names(plan);
    let pods = everywhere(client, &POD);
    let began = Instant::now();
    let watched = async {
        let mut bound: BTreeSet<String> = BTreeSet::new();
        let mut printed = Instant::now();
        while bound.len() < wanted {
            let params = WatchParams::default()
                .fields("spec.nodeName!=")
                .timeout(280)
                .disable_bookmarks();
            let mut events = pin!(pods.watch_metadata(&params, "0").await.unwrap());
            while let Ok(Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod))) =
                events.try_next().await
            {
                let name = pod.metadata.name.unwrap_or_default();
                if name.starts_with("load-") {
                    bound.insert(name);
                }
                if printed.elapsed() > Duration::from_secs(10) {
                    printed = Instant::now();
                    let seconds = began.elapsed();
                    eprintln!(
                        "{} of {wanted} have a node after {seconds:.0?}",
                        bound.len()
                    );
                }
                if bound.len() == wanted {
                    break;
                }
            }
            assert!(
                began.elapsed() < plan.patience,
                "{} pods have a node",
                bound.len()
            );
        }
        began.elapsed()
    };
    let ((), taken) = futures::join!(create(client, plan, &names), watched);
    println!(
        "{}",
        json!({"pods": wanted, "boundSeconds": taken.as_secs_f64()})
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
            let jobs = jobs(client, name);
            let mut job = job(name, plan.pods - 1, 0);
            // Pods that have not ended would be deleted otherwise, and rightly so; of those that have ended, the
            // cluster itself deletes what is beyond 12,500.
            job.data["spec"]["runPolicy"]["cleanPodPolicy"] = json!("None");
            let made = jobs.create(&PostParams::default(), &job).await.unwrap();
            let status = json!({"status": ended(name, plan.pods)});
            jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
                .await
                .unwrap();
            let pods = beside(client, &POD, name);
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
    // No job is looked at before all of them and their pods are listed.
    let mut listed = 0.0;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let passes = counted(plan, "trainyard_passes_total").unwrap_or(0);
        if passes >= u64::from(plan.finished) {
            break;
        }
        if passes == 0 {
            listed = operator.usage_without_requests().cpu;
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
            "listSeconds": listed,
            "cpuSeconds": usage.cpu - listed,
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
    let pods = beside(client, &POD, "gang");
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
    let jobs = everywhere(client, &JOB);
    let all = missing.len();
    let mut printed = Instant::now();
    while !missing.is_empty() {
        let params = WatchParams::default().timeout(280).disable_bookmarks();
        // From the beginning each time: what was seen last may be too old to go on from, and a watch from there
        // ends at once, again and again.
        let mut events = pin!(jobs.watch(&params, "0").await.unwrap());
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(job) | WatchEvent::Modified(job)) = event else {
                break;
            };
            if runs(&job.data["status"]) {
                missing.remove(job.metadata.name.as_deref().unwrap_or_default());
            }
            if printed.elapsed() > Duration::from_secs(10) {
                printed = Instant::now();
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

/// Group, version, kind and plural.
type Resource = [&'static str; 4];
const JOB: Resource = ["kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"];
const POD: Resource = ["", "v1", "Pod", "pods"];

fn resource([group, version, kind, plural]: &Resource) -> ApiResource {
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    (*plural).clone_into(&mut resource.plural);
    resource
}

fn everywhere(client: &Client, of: &Resource) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(of))
}

/// In the namespace of the job called `job`.
fn beside(client: &Client, of: &Resource, job: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &namespace_of(job), &resource(of))
}

fn jobs(client: &Client, job: &str) -> Api<DynamicObject> {
    beside(client, &JOB, job)
}

/// The namespace of a job, by the number in its name.
fn namespace_of(job: &str) -> String {
    let number = job.rsplit('-').next().and_then(|text| text.parse().ok());
    namespace(number.unwrap_or(0_u32) % NAMESPACES)
}

fn namespace(number: u32) -> String {
    format!("load-{number:02}")
}

fn job(name: &str, workers: u32, gpus: u32) -> DynamicObject {
    let role = |replicas: u32| {
        let mut resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        if gpus > 0 {
            resources["limits"] = json!({"nvidia.com/gpu": gpus});
        }
        json!({"replicas": replicas, "restartPolicy": "OnFailure", "template": {"spec": {
            "containers": [{"name": "pytorch", "image": "load", "command": ["train"],
                "resources": resources}]}}})
    };
    serde_json::from_value(json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(workers)}},
    }))
    .unwrap()
}

async fn prepare(client: &Client) {
    let namespaces = everywhere(client, &["", "v1", "Namespace", "namespaces"]);
    for name in (0..NAMESPACES).map(namespace) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        namespaces
            .create(
                &PostParams::default(),
                &serde_json::from_value(object).unwrap(),
            )
            .await
            .unwrap();
        let account = resource(&["", "v1", "ServiceAccount", "serviceaccounts"]);
        let accounts = Api::<DynamicObject>::namespaced_with(client.clone(), &name, &account);
        while accounts.get_opt("default").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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
        jobs(&client, "first")
            .create(&PostParams::default(), &job("first", 1, 0))
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
