//! The status of a `TrainJob`, as its SDK, Kueue and dashboards read it.
//!
//! Kubeflow's SDK takes a job for running only while it has no condition, so the outer part has `Suspended`, `Complete`
//! and `Failed` and nothing else, and the counts of `jobsStatus`, in batch Jobs of one each. All that other kinds have in
//! the outer part is inside `status.trainyard`, in fields of the same names.
//!
//! Invariants: what is decided is read from `status.trainyard` alone, but for the end of a job that another controller ran; conditions
//! and fields of others stay.

use serde_json::{Map, Value, json};

use super::{ConditionStatus, ConditionType, FailedBy, JobStatus, Unreadable, read};
use crate::{
    job::conditions,
    spec::{Job, Role, Success},
};

/// The fields of the outer part that are inside.
const INSIDE: [&str; 4] = [
    "conditions",
    "replicaStatuses",
    "startTime",
    "completionTime",
];
/// The conditions of ours in the outer part.
const OUTSIDE: [&str; 3] = ["Suspended", "Complete", "Failed"];

/// Reads the stored status of a `TrainJob`.
pub fn read_train(stored: &Value) -> Result<JobStatus, Unreadable> {
    let Value::Object(outer) = stored else {
        return read(stored);
    };
    let mut inner = Map::new();
    match outer.get("trainyard") {
        Some(Value::Object(record)) => {
            let mut record = record.clone();
            for key in INSIDE {
                if let Some(value) = record.shift_remove(key) {
                    inner.insert(key.to_owned(), value);
                }
            }
            inner.insert("trainyard".to_owned(), Value::Object(record));
        }
        None | Some(Value::Null) => {}
        Some(other) => {
            inner.insert("trainyard".to_owned(), other.clone());
        }
    }
    if !inner.contains_key("conditions")
        && let Some(end) = end_of_another(outer)
    {
        inner.insert("conditions".to_owned(), json!([end]));
    }
    if inner.is_empty() {
        return Ok(JobStatus::default());
    }
    read(&Value::Object(inner))
}

/// The end of a job that another controller ran: it must not run again.
fn end_of_another(outer: &Map<String, Value>) -> Option<Value> {
    let conditions = outer.get("conditions")?.as_array()?;
    let (condition, kind) = conditions.iter().find_map(|condition| {
        let kind = match condition.get("type")?.as_str()? {
            "Complete" => ConditionType::Succeeded,
            "Failed" => ConditionType::Failed,
            _ => return None,
        };
        (condition.get("status")? == "True").then_some((condition, kind))
    })?;
    let mut end = condition.clone();
    end["type"] = json!(kind.name());
    Some(end)
}

/// `status` as it is stored on a `TrainJob` that has `stored` now. Where the job cannot be read, its counts stay.
pub fn stored_train(job: Option<&Job>, status: &JobStatus, stored: &Value) -> Value {
    let mut outer = stored.as_object().cloned().unwrap_or_default();
    let mut record = Map::new();
    // A status is an object of text, numbers, lists and maps.
    let inner = serde_json::to_value(status).unwrap_or_default();
    for (key, value) in inner.as_object().cloned().into_iter().flatten() {
        match value {
            Value::Object(own) if key == "trainyard" => record.extend(own),
            value => drop(record.insert(key, value)),
        }
    }
    let others = outer.get("conditions").and_then(Value::as_array);
    let is_own = |condition: &&Value| {
        let kind = condition.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| OUTSIDE.contains(&kind))
    };
    let others = others.into_iter().flatten().filter(|it| !is_own(it));
    let all: Vec<Value> = others.cloned().chain(outer_conditions(status)).collect();
    if all.is_empty() {
        outer.shift_remove("conditions");
    } else {
        outer.insert("conditions".to_owned(), Value::Array(all));
    }
    if let Some(job) = job {
        outer.insert("jobsStatus".to_owned(), jobs_status(job, status));
    }
    outer.insert("trainyard".to_owned(), Value::Object(record));
    Value::Object(outer)
}

/// What the three conditions say.
fn outer_conditions(status: &JobStatus) -> Vec<Value> {
    let mut found = Vec::new();
    for condition in &status.conditions {
        let holds = condition.status == ConditionStatus::True;
        let (kind, reason, message) = match condition.kind {
            ConditionType::Suspended if holds => {
                ("Suspended", "Suspended", "TrainJob is suspended".to_owned())
            }
            ConditionType::Suspended => ("Suspended", "Resumed", "TrainJob is resumed".to_owned()),
            ConditionType::Succeeded if holds => (
                "Complete",
                "AllJobsCompleted",
                "jobset completed successfully".to_owned(),
            ),
            ConditionType::Failed if holds => {
                let (reason, message) = failure(status);
                ("Failed", reason, message)
            }
            _ => continue,
        };
        found.push(json!({
            "type": kind,
            "status": if holds { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastTransitionTime": condition.last_transition_time,
        }));
    }
    found
}

/// Why the job failed, in the words of a `JobSet`: programs match on them.
fn failure(status: &JobStatus) -> (&'static str, String) {
    let record = &status.trainyard;
    let first = record.last_failure.as_ref();
    let first = first.map_or("unknown", |it| batch_job_of(&it.pod));
    match record.failed_by {
        Some(FailedBy::DeadlineExceeded) => (
            "DeadlineExceeded",
            "TrainJob exceeded its active deadline".to_owned(),
        ),
        Some(FailedBy::BudgetSpent) if record.attempt > 1 => (
            "ReachedMaxRestarts",
            format!(
                "jobset failed due to reaching max number of restarts (first failed job: {first})"
            ),
        ),
        _ => (
            "FailedJobs",
            format!("jobset failed due to one or more job failures (first failed job: {first})"),
        ),
    }
}

/// The batch Job that a pod would belong to: its name without the index.
fn batch_job_of(pod: &str) -> &str {
    pod.rsplit_once('-').map_or(pod, |(name, _)| name)
}

/// The counts of each replicated job, of which each is one batch Job.
fn jobs_status(job: &Job, status: &JobStatus) -> Value {
    let order = job.train().map_or(&[][..], |own| &own.order);
    let counts = order.iter().map(|role| {
        let [ready, succeeded, failed, active] = state(job, status, *role).map(u32::from);
        json!({
            "name": role.lower(),
            "ready": ready,
            "succeeded": succeeded,
            "failed": failed,
            "active": active,
            "suspended": u32::from(job.run_policy.suspend && !conditions::ended(&status.conditions)),
        })
    });
    Value::Array(counts.collect())
}

/// Whether the batch Job of `role` would be ready, have succeeded, have failed, be active.
fn state(job: &Job, status: &JobStatus, role: Role) -> [bool; 4] {
    let counts = status.replica_statuses.get(&role);
    let (active, done) = counts.map_or((0, 0), |counts| (counts.active, counts.succeeded));
    let wanted = job.role_replicas(role);
    let record = &status.trainyard;
    let holds = |kind| conditions::holds(&status.conditions, kind);
    let succeeded = record.attempt > 0
        && done.max(record.succeeded_in(job, role)) >= wanted
        && (wanted > 0 || holds(ConditionType::Succeeded));
    let by_success = holds(ConditionType::Succeeded) && decides(job, role);
    let first = record.last_failure.as_ref().map(|it| batch_job_of(&it.pod));
    let own = format!("{}-{}-0", job.name, role.lower());
    let failed = holds(ConditionType::Failed) && first == Some(own.as_str());
    if succeeded || by_success {
        return [false, true, false, false];
    }
    if failed {
        return [false, false, true, false];
    }
    let ended = conditions::ended(&status.conditions);
    let active_now = active > 0 && !ended;
    [
        active_now && active.saturating_add(done) >= wanted,
        false,
        false,
        active_now,
    ]
}

/// Whether the success of the job is that of `role`.
fn decides(job: &Job, role: Role) -> bool {
    let success = job.train().map(|own| &own.success);
    matches!(success, Some(Success::All(roles)) if roles.contains(&role))
}

#[cfg(test)]
mod tests;
