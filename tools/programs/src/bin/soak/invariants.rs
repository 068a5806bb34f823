//! What must hold of a job and of its pods, whatever goes wrong around them. Values in, the first broken one out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::plan::{Outcome, Plan};

const ACCOUNTS: [&str; 4] = ["user", "platform", "infrastructure", "preemption"];

/// What was last seen of a job; each look must follow from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) attempt: u64,
    spent: [u64; 4],
    /// The status, once the job has ended.
    end: Option<Value>,
}

impl Seen {
    pub(crate) fn ended(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn user(&self) -> u64 {
        self.spent[0]
    }

    /// Failures of all accounts but the user's.
    pub(crate) fn disruptions(&self) -> u64 {
        self.spent[1..].iter().sum()
    }
}

/// What follows from one look at the job of `plan`. The looks must be in order of time.
pub(crate) fn look(plan: &Plan, before: Option<&Seen>, job: &Value) -> Result<Seen, String> {
    let status = &job["status"];
    let own = &status["trainyard"];
    let name = format!("{} `{}` ({:?})", plan.shape.name(), plan.name, plan.outcome);
    let spent = ACCOUNTS.map(|account| own["spent"][account].as_u64().unwrap_or(0));
    let attempt = own["attempt"].as_u64().unwrap_or(0);
    let end = ended_by(status);
    if let Some(before) = before {
        if attempt < before.attempt {
            let earlier = before.attempt;
            return Err(format!(
                "{name}: attempt {attempt} comes after attempt {earlier}"
            ));
        }
        for (at, account) in ACCOUNTS.iter().enumerate() {
            if spent[at] < before.spent[at] {
                return Err(format!(
                    "{name}: the {account} account went from {} to {}",
                    before.spent[at], spent[at]
                ));
            }
        }
        if let Some(end) = &before.end
            && let Some(key) = ["conditions", "completionTime"]
                .into_iter()
                .find(|key| end[*key] != status[*key])
        {
            return Err(format!(
                "{name}: has ended, and its `{key}` changed from {} to {}",
                end[key], status[key]
            ));
        }
        if before.ended() && attempt != before.attempt {
            return Err(format!("{name}: has ended, and began attempt {attempt}"));
        }
    }
    let planned = u64::from(plan.outcome.user_failures());
    if spent[0] > planned {
        return Err(format!(
            "{name}: {} failures on the user's account, planned {planned}",
            spent[0]
        ));
    }
    if let Some(end) = end {
        check_end(plan, &name, end, attempt, spent)?;
    }
    Ok(Seen {
        attempt,
        spent,
        end: end.map(|_| status.clone()),
    })
}

/// The condition with which the job has ended.
fn ended_by(status: &Value) -> Option<&'static str> {
    ["Succeeded", "Failed"]
        .into_iter()
        .find(|condition| holds(status, condition))
}

/// Whether `condition` is True in `status`.
pub(crate) fn holds(status: &Value, condition: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|one| one["type"] == condition && one["status"] == "True")
    })
}

fn check_end(
    plan: &Plan,
    name: &str,
    end: &str,
    attempt: u64,
    spent: [u64; 4],
) -> Result<(), String> {
    if plan
        .outcome
        .condition()
        .is_some_and(|planned| planned != end)
        || plan.outcome == Outcome::Deleted
    {
        return Err(format!("{name}: ended as {end}"));
    }
    let planned = u64::from(plan.outcome.user_failures());
    if spent[0] != planned {
        return Err(format!(
            "{name}: ended as {end} with {} failures on the user's account, planned {planned}",
            spent[0]
        ));
    }
    let (least, exact) = attempts(plan, spent);
    if attempt < least || (exact && attempt != least) {
        let bound = if exact { "exactly" } else { "at least" };
        return Err(format!(
            "{name}: ended as {end} in attempt {attempt}, expected {bound} {least} with {spent:?} on the accounts {ACCOUNTS:?}"
        ));
    }
    Ok(())
}

/// The attempt that a job ends in, and whether it is exactly this one: a gang may also release its nodes before it has
/// run, and begin another attempt on nobody's account.
fn attempts(plan: &Plan, spent: [u64; 4]) -> (u64, bool) {
    let paid: u64 = if plan.shape.restarts_as_gang() {
        spent.iter().sum()
    } else {
        0
    };
    let resumed = u64::from(plan.outcome == Outcome::Resumes);
    // The failure that exhausts the account is paid and begins no attempt.
    let last =
        u64::from(matches!(plan.outcome, Outcome::Exhausts(_)) && plan.shape.restarts_as_gang());
    (1 + paid + resumed - last, !plan.placed)
}

/// Attempts of an ended job that nobody paid for.
pub(crate) fn unpaid_attempts(plan: &Plan, seen: &Seen) -> u64 {
    seen.attempt.saturating_sub(attempts(plan, seen.spent).0)
}

/// The job, role and index that a pod is for.
pub(crate) fn slot(pod: &Value) -> Option<(String, String, String)> {
    let labels = &pod["metadata"]["labels"];
    let text = |key: &str| labels[key].as_str().map(str::to_owned);
    let role = text("training.kubeflow.org/replica-type")
        .or_else(|| text("training.kubeflow.org/job-role"))?;
    let index = text("training.kubeflow.org/replica-index").unwrap_or_else(|| "0".to_owned());
    Some((text("training.kubeflow.org/job-name")?, role, index))
}

/// The attempt of a pod.
pub(crate) fn attempt_of(pod: &Value) -> u64 {
    let label = pod["metadata"]["labels"]["trainyard.dev/attempt"].as_str();
    label.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether a pod runs, or is still to run.
pub(crate) fn is_live(pod: &Value) -> bool {
    let ended = ["Succeeded", "Failed"].map(Value::from);
    pod["metadata"]["deletionTimestamp"].is_null() && !ended.contains(&pod["status"]["phase"])
}

/// What must hold of all pods at every moment. `attempts` are those of the jobs by name, read after the pods.
pub(crate) fn look_at_pods(pods: &[Value], attempts: &BTreeMap<String, u64>) -> Result<(), String> {
    let mut taken = BTreeSet::new();
    for pod in pods {
        let Some(slot) = slot(pod) else { continue };
        let name = &pod["metadata"]["name"];
        let attempt = attempt_of(pod);
        if let Some(stored) = attempts.get(&slot.0)
            && attempt > *stored
        {
            return Err(format!(
                "pod {name} belongs to attempt {attempt}, and the stored status of its job is in attempt {stored}"
            ));
        }
        if is_live(pod) && !taken.insert(slot.clone()) {
            let (job, role, index) = slot;
            return Err(format!(
                "two pods of job `{job}` run as {role} {index}, one is {name}"
            ));
        }
    }
    Ok(())
}

/// The uids of live pods of earlier attempts than that of their job, which must go.
pub(crate) fn stale_pods(pods: &[Value], attempts: &BTreeMap<String, u64>) -> BTreeSet<String> {
    let stale = pods.iter().filter(|pod| {
        slot(pod)
            .and_then(|(job, ..)| attempts.get(&job))
            .is_some_and(|stored| attempt_of(pod) < *stored && is_live(pod))
    });
    stale
        .filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
#[path = "invariants/tests.rs"]
mod tests;
