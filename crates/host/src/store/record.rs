//! What a run was asked for, and where it is, as stored.

use std::{collections::BTreeMap, fs};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_core::{
    job::{self, Account, JobStatus, ProgressRecord},
    spec::{Job, Replicas, Slot},
};

use super::{FailedRank, VERSION};
use crate::Ranks;

/// `job.json`: what was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// Layout of this file.
    pub version: u32,
    /// `apiVersion` of the job.
    pub api_version: String,
    /// `kind` of the job.
    pub kind: String,
    /// `metadata.name` of the job.
    pub name: String,
    /// `metadata.namespace` of the job.
    pub namespace: String,
    /// The run's name.
    pub run_id: String,
    /// When it began.
    pub started_at: Timestamp,
    /// The engine's process.
    pub pid: u32,
    /// How many pods each role has in this run.
    pub replicas: Replicas,
    /// How ranks are spread over them.
    #[serde(default)]
    pub ranks: Ranks,
    /// How many failures each account bears; one that is not listed bears any number.
    #[serde(default)]
    pub limits: BTreeMap<Account, u32>,
    /// Injected faults, as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injections: Vec<String>,
    /// The job as it was written, with what options changed.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub job: Value,
}

impl RunRecord {
    pub(crate) fn new(job: &Job, run_id: String, started_at: Timestamp) -> Self {
        Self {
            version: VERSION,
            api_version: job.kind.api_version().to_owned(),
            kind: job.kind.name().to_owned(),
            name: job.name.as_str().to_owned(),
            namespace: job.namespace.as_str().to_owned(),
            run_id,
            started_at,
            pid: std::process::id(),
            replicas: job.replicas(),
            ranks: Ranks::of(job),
            limits: Account::ALL
                .into_iter()
                .filter_map(|account| Some((account, job::budget_limit(job, account)?)))
                .collect(),
            injections: Vec::new(),
            job: Value::Null,
        }
    }
}

/// `status.json`: the status as last decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredStatus {
    /// Layout of this file.
    pub version: u32,
    /// How new the view was that it was decided on.
    pub view: u64,
    /// The status.
    pub status: JobStatus,
}

/// `failures.json`: what failed first in each attempt, as it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFailures {
    /// Layout of this file.
    pub version: u32,
    /// Oldest first; as many as the report keeps.
    pub failures: Vec<FailedRank>,
}

/// `progress.json`: how far a run is, as found in the output of its pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredProgress {
    /// Layout of this file.
    pub version: u32,
    /// The attempt that reported it.
    pub attempt: u32,
    /// The furthest step of that attempt.
    pub step: u64,
    /// The last loss of the run; nothing where it is NaN or infinite, which `progress` shows.
    pub loss: Option<f64>,
    /// When that step was reported.
    pub at: Timestamp,
    /// The furthest step of all attempts.
    pub furthest_step: u64,
    /// The same and more, as a status keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressRecord>,
}

/// `pods.json`: the pods that are there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredPods {
    /// Layout of this file.
    pub version: u32,
    /// In listing order.
    pub pods: Vec<StoredPod>,
}

/// One pod that is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredPod {
    /// Where.
    pub slot: Slot,
    /// Its name.
    pub pod: String,
    /// Of this attempt.
    pub attempt: u32,
    /// Its first process, as this machine numbers it.
    pub pid: u32,
    /// Whether its containers run.
    pub running: bool,
}

impl StoredPod {
    /// The processes of its containers, as this machine numbers them. None of a pod that is gone.
    pub fn processes(&self) -> Vec<u32> {
        let pid = self.pid;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let numbers = children.split_whitespace();
        numbers.filter_map(|number| number.parse().ok()).collect()
    }
}
