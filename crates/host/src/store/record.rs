//! What a run was asked for, and where it is, as stored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use trainyard_core::{
    job::{self, Account, JobStatus},
    spec::{Job, Replicas},
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
    /// Faults on purpose, as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injections: Vec<String>,
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
    /// The attempt that told.
    pub attempt: u32,
    /// The furthest step of that attempt.
    pub step: u64,
    /// The last loss of the run.
    pub loss: Option<f64>,
    /// When that step was reported.
    pub at: Timestamp,
    /// The furthest step of all attempts.
    pub furthest_step: u64,
}
