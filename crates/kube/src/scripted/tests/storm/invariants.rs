//! What must hold of every change that was stored, whatever failed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::scripted::{
    text,
    world::{Change, World},
};

/// What is known of a job while the changes are read.
#[derive(Debug, Default)]
struct Known {
    attempt: u64,
    ended: Option<&'static str>,
}

/// Whether every job has ended.
pub(super) fn all_ended(world: &World) -> bool {
    let mut jobs = world.objects.iter();
    jobs.all(|(name, job)| !is_job(&name.0) || ended(job).is_some())
}

fn is_job(resource: &str) -> bool {
    resource.starts_with("/apis/kubeflow.org/")
}

fn ended(job: &Value) -> Option<&'static str> {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |kind: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == kind && one["status"] == "True")
    };
    ["Succeeded", "Failed"].into_iter().find(|kind| holds(kind))
}

fn number(object: &Value, pointer: &str) -> u64 {
    object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// Reads every change in order; the error is the first thing that does not hold.
pub(super) fn check(world: &World) -> Result<(), String> {
    let mut jobs: BTreeMap<String, Known> = BTreeMap::new();
    let mut alive: BTreeMap<[String; 3], String> = BTreeMap::new();
    let mut taken = Taken::default();
    for change in &world.changes {
        let resource = change.name.0.as_str();
        let checked = if is_job(resource) {
            check_job(change, &mut jobs)
        } else if resource == "/api/v1/pods" {
            check_pod(change, &jobs, &mut alive).and_then(|()| taken.check(change))
        } else {
            Ok(())
        };
        checked.map_err(|why| format!("{why} (version {}, {})", change.version, change.name.2))?;
    }
    for (name, object) in &world.objects {
        let kept = ["/events", "/leases", "/nodes"];
        let kept = kept.iter().any(|kind| name.0.ends_with(kind));
        if !kept {
            let owners = object.pointer("/metadata/ownerReferences");
            return Err(format!(
                "{} {} is left, owned by {owners:?}",
                name.0, name.2
            ));
        }
    }
    Ok(())
}

/// The GPUs that pods hold on each node, by pod.
#[derive(Debug, Default)]
struct Taken(BTreeMap<String, BTreeMap<String, u64>>);

impl Taken {
    /// No node carries pods with more GPUs than it has.
    fn check(&mut self, change: &Change) -> Result<(), String> {
        let Some(pod) = change.after.as_deref().or(change.before.as_deref()) else {
            return Ok(());
        };
        let node = text(pod, "/spec/nodeName");
        let uid = text(pod, "/metadata/uid");
        let held = self.0.entry(node.to_owned()).or_default();
        let over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        if node.is_empty() || change.after.is_none() || over {
            held.remove(uid);
            return Ok(());
        }
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let gpus = |container: &Value| {
            let limit = text(container, "/resources/limits/nvidia.com~1gpu");
            limit.parse::<u64>().unwrap_or(0)
        };
        held.insert(
            uid.to_owned(),
            containers.into_iter().flatten().map(gpus).sum(),
        );
        let sum: u64 = held.values().sum();
        if sum > 8 {
            return Err(format!("{node} has 8 GPUs, and its pods hold {sum}"));
        }
        Ok(())
    }
}

fn check_job(change: &Change, jobs: &mut BTreeMap<String, Known>) -> Result<(), String> {
    let Some(job) = change.after.as_deref() else {
        return Ok(());
    };
    let known = jobs
        .entry(text(job, "/metadata/uid").to_owned())
        .or_default();
    let attempt = number(job, "/status/trainyard/attempt");
    if attempt < known.attempt {
        return Err(format!("attempt {attempt} after {}", known.attempt));
    }
    known.attempt = attempt;
    let end = ended(job);
    if known.ended.is_some() && end != known.ended {
        return Err(format!("it was {:?} and is {end:?}", known.ended));
    }
    known.ended = end;
    let limit = number(job, "/spec/runPolicy/backoffLimit").max(1);
    let spent = number(job, "/status/trainyard/spent/user");
    if spent > limit {
        return Err(format!("{spent} failures of {limit} are counted"));
    }
    Ok(())
}

fn check_pod(
    change: &Change,
    jobs: &BTreeMap<String, Known>,
    alive: &mut BTreeMap<[String; 3], String>,
) -> Result<(), String> {
    let Some(pod) = change.after.as_deref().or(change.before.as_deref()) else {
        return Ok(());
    };
    let label = |key: &str| {
        let key = key.replace('/', "~1");
        text(pod, &format!("/metadata/labels/{key}")).to_owned()
    };
    let owner = text(pod, "/metadata/ownerReferences/0/uid").to_owned();
    let slot = [
        owner.clone(),
        label("training.kubeflow.org/replica-type"),
        label("training.kubeflow.org/replica-index"),
    ];
    let uid = text(pod, "/metadata/uid");
    let over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    if change.after.is_none() || over {
        if alive.get(&slot).is_some_and(|there| there == uid) {
            alive.remove(&slot);
        }
        return Ok(());
    }
    if let Some(there) = alive.insert(slot.clone(), uid.to_owned())
        && there != uid
    {
        return Err(format!("two pods of {slot:?} at once"));
    }
    // The pod of a launcher belongs to its batch Job.
    let Some(job) = jobs.get(&owner).filter(|_| change.before.is_none()) else {
        return Ok(());
    };
    let attempt: u64 = label("trainyard.dev/attempt").parse().unwrap_or(0);
    if attempt > job.attempt {
        let stored = job.attempt;
        return Err(format!(
            "a pod of attempt {attempt} while attempt {stored} is stored"
        ));
    }
    if attempt < job.attempt {
        let stored = job.attempt;
        return Err(format!(
            "a pod of old attempt {attempt} while {stored} is stored"
        ));
    }
    if let Some(end) = job.ended {
        return Err(format!("a pod for a job that has {end}"));
    }
    Ok(())
}
