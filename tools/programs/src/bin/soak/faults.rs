//! The faults of the schedule, carried out. Each ends with everything back in place.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    cluster::{self, Answer, NODE, POD, Piece, ask},
    invariants,
    operators::Operator,
    schedule::{Fault, Planned},
    world::World,
};

/// What the fixture may take to be back. Beyond that it is at fault, and no operator.
const BACK: Duration = Duration::from_mins(2);
/// How long a leader is waited for, before a fault of it is left out.
const ELECTED: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(300);
const MANAGED: &str = "kwok.x-k8s.io/node";

/// Carries out all of them; returns when the last one is over.
pub(crate) async fn run(world: &Arc<World>, schedule: Vec<Planned>) {
    let mut faults = JoinSet::new();
    for planned in schedule {
        let at = world.began + Duration::from_secs(planned.at);
        tokio::time::sleep_until(at.into()).await;
        let world = Arc::clone(world);
        faults.spawn(async move {
            match apply(&world, planned).await {
                Ok(true) => {
                    *world
                        .counts()
                        .faults
                        .entry(planned.fault.name())
                        .or_default() += 1;
                }
                Ok(false) => {}
                Err(error) => world.broke(&format!(
                    "the cluster itself: {}: {error}",
                    planned.fault.name()
                )),
            }
        });
    }
    while faults.join_next().await.is_some() {}
}

/// Whether it could be carried out. The error is about the fixture.
async fn apply(world: &World, planned: Planned) -> Result<bool, String> {
    let lasts = Duration::from_secs(planned.lasts);
    match planned.fault {
        Fault::ApiKill => {
            let _turn = world.control_plane.lock().await;
            kill_api_server(world, lasts).await?;
        }
        Fault::ApiPause => {
            let _turn = world.control_plane.lock().await;
            pause(&world.api_server, lasts).await;
        }
        Fault::EtcdPause => {
            let _turn = world.control_plane.lock().await;
            pause(&world.etcd, lasts).await;
        }
        Fault::NodeSilent | Fault::NodeDeleted => {
            return lose_node(world, planned, lasts).await;
        }
        Fault::OperatorKill => {
            let killable = &world.operators[..world.operators.len() - 1];
            // The leader, where it may be killed; else in turns.
            let leader = world.leader().await;
            let leader = killable
                .iter()
                .find(|operator| leader.is_some_and(|leader| leader.name == operator.name));
            let turn = usize::try_from(planned.which).unwrap_or(0) % killable.len();
            let operator = leader.unwrap_or(&killable[turn]);
            let _turn = operator.turn.lock().await;
            if let Some(ended) = operator.ended() {
                world.broke(&ended);
                return Ok(false);
            }
            operator.kill();
            tokio::time::sleep(lasts).await;
            operator.spawn().map_err(|error| error.to_string())?;
        }
        Fault::LeaderPause => {
            let Some(leader) = next_leader(world).await else {
                return Ok(false);
            };
            let _turn = leader.turn.lock().await;
            leader.signal("STOP");
            tokio::time::sleep(lasts).await;
            leader.signal("CONT");
        }
        Fault::SilentWatches => {
            let leader = world.leader().await;
            let never_killed = world.operators.last();
            let hit = if planned.which.is_multiple_of(3) {
                never_killed
            } else {
                leader.or(never_killed)
            };
            let Some(operator) = hit else {
                return Ok(false);
            };
            operator.proxy.go_silent(lasts);
        }
    }
    Ok(true)
}

/// The leader, once there is one again.
async fn next_leader(world: &World) -> Option<&Operator> {
    let end = Instant::now() + ELECTED;
    loop {
        match world.leader().await {
            None if Instant::now() < end => tokio::time::sleep(LOOK).await,
            leader => return leader,
        }
    }
}

async fn pause(piece: &Piece, lasts: Duration) {
    piece.signal("STOP");
    tokio::time::sleep(lasts).await;
    piece.signal("CONT");
}

async fn kill_api_server(world: &World, lasts: Duration) -> Result<(), String> {
    let piece = &world.api_server;
    piece.signal("KILL");
    until("the API server to end", || async { !piece.runs() }).await?;
    tokio::time::sleep(lasts).await;
    until("the API server to be back", || async {
        // The port of the one before may not be free at once, and a new one then ends by itself.
        if !piece.runs() {
            piece.start().await;
            tokio::time::sleep(LOOK).await;
        }
        matches!(ask(world.client.apiserver_version()).await, Answer::Ok(_))
    })
    .await
}

async fn until<F: Future<Output = bool>>(what: &str, done: impl Fn() -> F) -> Result<(), String> {
    let end = Instant::now() + BACK;
    while !done().await {
        if Instant::now() > end {
            return Err(format!("waited {BACK:?} for {what}"));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// A node stops reporting or is deleted, and comes back.
async fn lose_node(world: &World, planned: Planned, lasts: Duration) -> Result<bool, String> {
    let out = || {
        world
            .nodes_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    };
    let Some(node) = victim(world, planned.which).await else {
        return Ok(false);
    };
    let name = name_of(node).to_owned();
    if !out().insert(name.clone()) {
        return Ok(false);
    }
    let nodes = cluster::api(&world.client, &NODE, None);
    if planned.fault == Fault::NodeDeleted {
        until("a node to be deleted", || async {
            drop(ask(nodes.delete(&name, &DeleteParams::default())).await);
            matches!(ask(nodes.get_opt(&name)).await, Answer::Ok(None))
        })
        .await?;
        tokio::time::sleep(lasts).await;
        until("a node to be made", || async {
            matches!(
                cluster::create(&world.client, &NODE, None, again(node)).await,
                Answer::Ok(())
            )
        })
        .await?;
    } else {
        until("a node to be silent", || silence(world, &name)).await?;
        tokio::time::sleep(lasts).await;
        let back = json!({"metadata": {"annotations": {MANAGED: "simulated"}}});
        let (params, back) = (PatchParams::default(), Patch::Merge(&back));
        until("a node to be managed", || async {
            matches!(ask(nodes.patch(&name, &params, &back)).await, Answer::Ok(_))
        })
        .await?;
    }
    until("a node to be ready", || async {
        matches!(ask(nodes.get_opt(&name)).await, Answer::Ok(Some(node)) if is_ready(&node.data))
    })
    .await?;
    out().remove(&name);
    Ok(true)
}

fn name_of(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}

/// A node with pods, where there is one: losing any other harms nobody.
async fn victim(world: &World, which: u64) -> Option<&Value> {
    let pods = cluster::list(&world.client, &POD, None, "")
        .await
        .unwrap_or_default();
    let used = |node: &&Value| {
        let on_it =
            |pod: &Value| invariants::is_live(pod) && pod["spec"]["nodeName"] == *name_of(node);
        pods.iter().any(on_it)
    };
    let mut nodes: Vec<&Value> = world.nodes.iter().filter(used).collect();
    if nodes.is_empty() {
        nodes = world.nodes.iter().collect();
    }
    let at = usize::try_from(which).ok()?.checked_rem(nodes.len())?;
    nodes.get(at).copied()
}

/// Nobody speaks for the node any more, and the cluster says so.
async fn silence(world: &World, name: &str) -> bool {
    let nodes = cluster::api(&world.client, &NODE, None);
    let quiet = json!({"metadata": {"annotations": {MANAGED: null}}});
    let params = PatchParams::default();
    if !matches!(
        ask(nodes.patch(name, &params, &Patch::Merge(&quiet))).await,
        Answer::Ok(_)
    ) {
        return false;
    }
    let since = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown",
        "reason": "NodeStatusUnknown", "lastHeartbeatTime": since, "lastTransitionTime": since}]}});
    matches!(
        ask(nodes.patch_status(name, &params, &Patch::Merge(&silent))).await,
        Answer::Ok(_)
    )
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    })
}

/// The node as it was made, without what the cluster added.
fn again(node: &Value) -> Value {
    json!({
        "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"],
            "annotations": {MANAGED: "simulated"}},
        "status": {"capacity": node["status"]["capacity"],
            "allocatable": node["status"]["allocatable"], "nodeInfo": node["status"]["nodeInfo"]},
    })
}
