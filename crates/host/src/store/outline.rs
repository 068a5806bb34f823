//! The few fields of a run that a list of a thousand runs needs, without the rest of its files being kept.

use std::{collections::BTreeMap, path::Path};

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

/// Pods of a run, at most. No job may have as many, and whoever reads a run counts them.
const PODS_MAX: u64 = 1_000_000;

/// Whether the pods of the record at `path` can be counted.
pub(super) fn check_pods(path: &Path, replicas: &Replicas, ranks: Ranks) -> Result<(), StoreError> {
    let counts = replicas.values().map(|count| u64::from(*count));
    let pods = counts.fold(0, u64::saturating_add);
    if pods > PODS_MAX {
        let message = format!("it has {pods} pods, and {PODS_MAX} are the maximum");
        return Err(StoreError::corrupt(path, &message));
    }
    if ranks.per_pod == 0 {
        return Err(StoreError::corrupt(path, &"its pods have 0 ranks each"));
    }
    Ok(())
}

impl RunFolder {
    /// The few fields that a list needs.
    pub fn outline(&self) -> Result<RunOutline, StoreError> {
        let path = self.path.join(RECORD);
        let record: OutlineRecord = read_json(&path)?;
        check_pods(&path, &record.replicas, record.ranks)?;
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

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_of_countless_pods_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let folder = RunFolder {
            path: temp.path().to_owned(),
            job: "j".to_owned(),
            id: "1".to_owned(),
        };
        let write = |pods: u32, per_pod: u32| {
            let record = json!({
                "version": 1, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "namespace": "n",
                "runId": "1", "startedAt": "2026-11-18T00:00:00Z", "pid": 1,
                "replicas": {"Master": pods, "Worker": pods}, "ranks": {"perPod": per_pod, "inLauncher": false},
            });
            fs::write(temp.path().join(RECORD), record.to_string()).unwrap();
        };
        write(100_000, 8);
        assert_eq!(
            folder.outline().unwrap().replicas[&trainyard_core::spec::Role::Worker],
            100_000
        );
        folder.record().unwrap();
        for (pods, per_pod, want) in [(u32::MAX, 1, "8589934590 pods"), (1, 0, "0 ranks each")] {
            write(pods, per_pod);
            for error in [folder.outline().unwrap_err(), folder.record().unwrap_err()] {
                assert!(error.to_string().contains(want), "{error}");
            }
        }
    }
}
