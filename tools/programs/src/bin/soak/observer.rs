//! Looks at all pods and all operators while the run goes on, samples memory, and prints progress.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;

use crate::{
    cluster::{self, JOBS, POD},
    invariants,
    memory::Sample,
    operators::Operator,
    plan::NAMESPACES,
    schedule::QUIET_FROM,
    world::World,
};

const LOOK: Duration = Duration::from_secs(2);
const PROGRESS: Duration = Duration::from_secs(30);
/// A pod of an earlier attempt is being deleted by then, whatever happens: longer than a lease, a paused leader and an outage.
const STALE: Duration = Duration::from_mins(3);

/// How long a pod without any time left may still be there before it is deleted again.
const HALF_DONE: Duration = Duration::from_secs(5);

/// Programs of the cluster may end by themselves this often. The scheduler of Kubernetes 1.35 does on purpose when a pod was deleted
/// and made again on another node while its watch was down: it takes the two for one that moved (`cache.go`, `UpdatePod`). Seen
/// three times in 20 minutes.
const RESTARTS: u32 = 20;

/// Observes until something is broken.
pub(crate) async fn observe(world: &World) {
    let mut stale: BTreeMap<String, Instant> = BTreeMap::new();
    let mut half_done: BTreeMap<String, Instant> = BTreeMap::new();
    let mut quiet: Vec<Sample> = Vec::new();
    let mut printed = Instant::now();
    loop {
        for operator in &world.operators {
            if let Some(ended) = operator.ended() {
                return world.broke(&ended);
            }
        }
        if let Err(broken) = keep_running(world).await {
            return world.broke(&broken);
        }
        if let Some((pods, attempts)) = snapshot(world).await {
            if let Err(broken) = invariants::look_at_pods(&pods, &attempts) {
                return world.broke(&broken);
            }
            finish_deletions(world, &pods, &mut half_done).await;
            let now: BTreeSet<String> = invariants::stale_pods(&pods, &attempts);
            stale.retain(|uid, _| now.contains(uid));
            for uid in now {
                let since = *stale.entry(uid.clone()).or_insert_with(Instant::now);
                if since.elapsed() > STALE {
                    let pod = pods.iter().find(|pod| pod["metadata"]["uid"] == *uid);
                    let name = pod.map(|pod| pod["metadata"]["name"].to_string());
                    return world.broke(&format!(
                        "pod {name:?} belongs to an earlier attempt and still runs after {STALE:?}"
                    ));
                }
            }
        }
        sample(world, &mut quiet);
        if printed.elapsed() >= PROGRESS {
            printed = Instant::now();
            progress(world);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Starts programs of the cluster again that ended by themselves, as a kubelet does with those of a control plane. That of etcd
/// is the end of the run, and so is one that does not stay.
async fn keep_running(world: &World) -> Result<(), String> {
    if !world.etcd.runs() {
        return Err(format!("the cluster itself: {}", world.etcd.last_words()));
    }
    for piece in world.others.iter().filter(|piece| !piece.runs()) {
        let words = piece.last_words();
        eprintln!("the cluster itself: {words}");
        let restarts = {
            let mut counts = world.counts();
            counts.restarts += 1;
            counts.restarts
        };
        if restarts > RESTARTS {
            return Err(format!("the cluster itself: {words}"));
        }
        piece.start().await;
    }
    Ok(())
}

/// Deletes pods again that are marked as having no time left and are still there: the API server deletes a pod in two writes, first
/// its last seconds and then the object, and whoever is killed or loses etcd in between leaves the first. A kubelet tries until a pod
/// is gone; the simulated one leaves such pods alone.
async fn finish_deletions(world: &World, pods: &[Value], since: &mut BTreeMap<String, Instant>) {
    let text =
        |pod: &Value, key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
    let left: Vec<&Value> = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionGracePeriodSeconds"] == 0)
        .collect();
    let uids: BTreeSet<String> = left.iter().map(|pod| text(pod, "uid")).collect();
    since.retain(|uid, _| uids.contains(uid));
    for pod in left {
        let uid = text(pod, "uid");
        if since
            .entry(uid.clone())
            .or_insert_with(Instant::now)
            .elapsed()
            < HALF_DONE
        {
            continue;
        }
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(uid),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        let api = cluster::api(&world.client, &POD, Some(&text(pod, "namespace")));
        // What was not done is tried again at the next look.
        drop(cluster::ask(api.delete(&text(pod, "name"), &params)).await);
    }
}

/// All pods of jobs, and then the attempts of all jobs.
async fn snapshot(world: &World) -> Option<(Vec<Value>, BTreeMap<String, u64>)> {
    let mut pods = Vec::new();
    for namespace in NAMESPACES {
        let label = "training.kubeflow.org/job-name";
        pods.extend(cluster::list(&world.client, &POD, Some(namespace), label).await?);
    }
    let mut attempts = BTreeMap::new();
    for resource in &JOBS {
        for job in cluster::list(&world.client, resource, None, "").await? {
            let name = job["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let attempt = job["status"]["trainyard"]["attempt"].as_u64().unwrap_or(0);
            attempts.insert(name, attempt);
        }
    }
    Some((pods, attempts))
}

/// One figure a minute: the median of the samples in its quiet end.
fn sample(world: &World, quiet: &mut Vec<Sample>) {
    let second = world.began.elapsed().as_secs() % 60;
    if second >= QUIET_FROM {
        let pid = world.operators.last().and_then(Operator::pid);
        quiet.extend(pid.and_then(Sample::of));
    } else if !quiet.is_empty() {
        let figure = Sample::median(quiet);
        quiet.clear();
        world.counts().memory.push(figure);
    }
}

fn progress(world: &World) {
    let counts = world.counts();
    let done: u32 = counts.jobs.values().sum();
    let faults: u32 = counts.faults.values().sum();
    let memory = counts.memory.last().map_or(0.0, |it| it.resident / 1e6);
    eprintln!(
        "{:>5} s: {done} jobs done, {} under way, {faults} faults, memory {memory:.1} MB",
        world.began.elapsed().as_secs(),
        counts.live.len(),
    );
}
