//! What `ps` and `status` know of a job: one model, filled from stored runs by [`crate::stored`] and from a
//! cluster by [`crate::cluster`].
//!
//! Serialized, it is the JSON of both commands. Documented in `docs/reference/json.md`; fields are only ever added.

use std::{collections::BTreeMap, path::PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    job::{Account, JobStatus, ProgressRecord},
    ledger::{PhaseMillis, Span},
    spec::Replicas,
};
use trainyard_host::FailedRank;

use crate::run::report::Limits;

/// One entry of `ps`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobRow {
    pub(crate) job: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    #[serde(flatten)]
    pub(crate) origin: Origin,
    pub(crate) state: &'static str,
    pub(crate) live: bool,
    pub(crate) attempts: u32,
    pub(crate) pods: u32,
    #[serde(skip)]
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// The furthest step of all attempts.
    pub(crate) last_step: Option<u64>,
    pub(crate) last_loss: Option<f64>,
    /// The furthest step of the last attempt.
    pub(crate) attempt_step: Option<u64>,
    /// The newest complete checkpoint that was seen.
    pub(crate) checkpoint_step: Option<u64>,
}

/// The newest complete checkpoint of a job with this status.
pub(crate) fn checkpoint_step(status: &JobStatus) -> Option<u64> {
    let record = status.trainyard.checkpoint.as_ref()?;
    Some(record.newest.as_ref()?.step)
}

impl JobRow {
    /// The step and the loss to show. Until a job has ended, steps that its last attempt has not repeated do
    /// not count.
    pub(crate) fn shown_step(&self) -> (Option<u64>, Option<f64>) {
        match (self.ended_at, self.attempt_step) {
            (Some(_), _) => (self.last_step, self.last_loss),
            (None, Some(step)) => (Some(step), self.last_loss),
            (None, None) => (None, None),
        }
    }
}

/// Where the job is.
#[derive(Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(crate) enum Origin {
    /// A run on this machine.
    Machine {
        run_id: String,
        folder: PathBuf,
        /// The process of its engine, while it lives.
        pid: Option<u32>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        processes: Vec<Processes>,
    },
    /// An object of a cluster.
    Cluster { uid: String },
}

/// The processes of one pod of a live run, with their PIDs on this machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Processes {
    pub(crate) pod: String,
    /// Its first rank, where it holds any.
    pub(crate) rank: Option<u32>,
    pub(crate) attempt: u32,
    /// The processes of its containers.
    pub(crate) pids: Vec<u32>,
    /// The process above them.
    pub(crate) init_pid: u32,
    #[serde(skip)]
    pub(crate) short_name: String,
}

/// The answer of `status`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobReport {
    #[serde(flatten)]
    pub(crate) row: JobRow,
    pub(crate) budget: BTreeMap<&'static str, Budget>,
    /// What the last attempt that reported a step reported last.
    pub(crate) progress: Option<ProgressRecord>,
    /// While it is stalled: how long no step came, and how long steps took.
    pub(crate) stalled: Option<String>,
    pub(crate) ledger: PhaseMillis,
    /// In order of time: attempt, phase, milliseconds.
    pub(crate) timeline: Vec<Span>,
    pub(crate) trained_ratio: Option<f64>,
    /// What failed first in each attempt; only known of runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failures: Option<Vec<FailedRank>>,
    /// Where the pods are, on a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) places: Option<Vec<Placed>>,
    pub(crate) status: JobStatus,
    #[serde(skip)]
    pub(crate) replicas: Replicas,
    #[serde(skip)]
    pub(crate) limits: Limits,
    /// Headings and texts about the job as a whole, for people.
    #[serde(skip)]
    pub(crate) notes: Vec<(&'static str, String)>,
    /// The same about where to find more.
    #[serde(skip)]
    pub(crate) more: Vec<(&'static str, String)>,
}

impl JobReport {
    /// What the last attempt reported last.
    pub(crate) fn attempt_progress(&self) -> Option<&ProgressRecord> {
        let reported = self.progress.as_ref();
        reported.filter(|reported| reported.attempt == self.row.attempts)
    }
}

/// The failures of an account.
#[derive(Debug, Serialize)]
pub(crate) struct Budget {
    spent: u32,
    /// Absent where the account has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
}

/// What each account has used, and its limit.
pub(crate) fn budget(status: &JobStatus, limits: &Limits) -> BTreeMap<&'static str, Budget> {
    let budget = Account::ALL.map(|account| {
        let budget = Budget {
            spent: status.trainyard.spent.of(account),
            limit: limits.get(&account).copied(),
        };
        (account.name(), budget)
    });
    budget.into()
}

/// Where a pod is.
#[derive(Debug, Serialize)]
pub(crate) struct Placed {
    pub(crate) pod: String,
    pub(crate) attempt: u32,
    pub(crate) phase: String,
    pub(crate) node: Option<String>,
    #[serde(skip)]
    pub(crate) terminating: bool,
}
