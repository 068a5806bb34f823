//! The few fields of a run that a list of a thousand runs needs, without the rest of its files being kept.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use trainyard_core::{
    diagnose::VerdictSummary,
    job::{Account, Spent},
    spec::Replicas,
};

use super::{Outcome, RECORD, REPORT, RunFolder, StoreError, read_json};
use crate::Ranks;

/// What was asked for, and how it ended, in short.
#[derive(Clone, Debug)]
pub struct RunOutline {
    /// `kind` of the job.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// When the run began.
    pub started_at: Timestamp,
    /// How many pods each role has.
    pub replicas: Replicas,
    /// How ranks are spread over them.
    pub ranks: Ranks,
    /// How many failures each account bears.
    pub limits: BTreeMap<Account, u32>,
    /// How it ended; nothing while it runs, and of a run whose engine was killed.
    pub report: Option<OutlineReport>,
}

/// How a run ended, in short.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutlineReport {
    /// How.
    pub outcome: Outcome,
    /// The sentence of the last condition.
    pub message: String,
    /// When.
    pub ended_at: Timestamp,
    /// How many attempts were made.
    pub attempts: u32,
    /// Failures paid, by account.
    pub spent: Spent,
    /// The first failure of each attempt that had one.
    #[serde(default)]
    pub failures: Vec<OutlineFailure>,
    /// What the doctor concludes about the failure that ended the job.
    #[serde(default)]
    pub verdict: Option<VerdictSummary>,
    /// Share of the wall time spent training.
    #[serde(default)]
    pub trained_ratio: Option<f64>,
    /// The furthest step.
    #[serde(default)]
    pub last_step: Option<u64>,
}

/// The first failure of an attempt, in short.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutlineFailure {
    /// The attempt.
    pub attempt: u32,
    /// The pod.
    pub pod: String,
    /// When.
    pub at: Timestamp,
    /// What the doctor concludes.
    #[serde(default)]
    pub verdict: Option<VerdictSummary>,
}

/// `job.json` without the job.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlineRecord {
    kind: String,
    namespace: String,
    started_at: Timestamp,
    replicas: Replicas,
    #[serde(default)]
    ranks: Ranks,
    #[serde(default)]
    limits: BTreeMap<Account, u32>,
}

impl RunFolder {
    /// The few fields that a list needs.
    pub fn outline(&self) -> Result<RunOutline, StoreError> {
        let record: OutlineRecord = read_json(&self.path.join(RECORD))?;
        Ok(RunOutline {
            kind: record.kind,
            namespace: record.namespace,
            started_at: record.started_at,
            replicas: record.replicas,
            ranks: record.ranks,
            limits: record.limits,
            report: self.read_if_there(REPORT)?,
        })
    }
}
