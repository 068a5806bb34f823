//! The report of a run.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use trainyard_core::{
    diagnose::VerdictSummary,
    job::{JobStatus, ProgressRecord, Spent},
    ledger::PhaseMillis,
    spec::Slot,
};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The job succeeded.
    Succeeded,
    /// The job failed.
    Failed,
    /// Someone stopped it.
    Stopped,
}

/// `report.json`: how a run went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// Layout of this file.
    pub version: u32,
    /// The job's name.
    pub job: String,
    /// The run's name.
    pub run_id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// How it ended.
    pub outcome: Outcome,
    /// The sentence of the last condition.
    pub message: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was over.
    pub ended_at: Timestamp,
    /// How many attempts were made.
    pub attempts: u32,
    /// Failures paid, by account.
    pub spent: Spent,
    /// The first failure of each attempt that had one, oldest first. Sixteen are
    /// kept: the very first and the last ones.
    pub failures: Vec<FailedRank>,
    /// What the doctor concludes about the failure that ended a job, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictSummary>,
    /// Where the time went, in milliseconds.
    #[serde(deserialize_with = "trainyard_core::ledger::phase_millis")]
    pub ledger: PhaseMillis,
    /// Share of the wall time spent training; nothing where no step was reported, or no time passed.
    pub trained_ratio: Option<f64>,
    /// The furthest step that was reported.
    pub last_step: Option<u64>,
    /// The last loss that was reported; nothing where it is NaN or infinite, which `progress` shows.
    pub last_loss: Option<f64>,
    /// What the last attempt that reported a step reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressRecord>,
    /// What became of each injected fault, in the order in which they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injections: Vec<InjectionResult>,
    /// The run that had already succeeded, where this one found its work done and trained nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub already_succeeded: Option<String>,
    /// The status at the end.
    pub status: JobStatus,
}

/// What became of one injected fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectionResult {
    /// The fault, as written.
    pub fault: String,
    /// Whether it took place.
    pub fired: bool,
    /// When it took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The same in milliseconds since the first pod of the run was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_millis: Option<u64>,
    /// The attempt in which it took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The furthest step of the run at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The pods it happened to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// Why it did not take place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The pod that failed first in an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRank {
    /// The attempt.
    pub attempt: u32,
    /// Where.
    pub slot: Slot,
    /// Its name.
    pub pod: String,
    /// Its first rank, where it holds any.
    pub rank: Option<u32>,
    /// How many ranks it holds; which of them failed first is not known where they are several.
    #[serde(default = "one")]
    pub ranks: u32,
    /// The container that failed.
    pub container: String,
    /// Its exit code; 128 + n for signal n.
    pub code: i32,
    /// The signal that ended it, such as `SIGKILL`.
    pub signal: Option<String>,
    /// Whether the kernel ended it for its memory.
    pub out_of_memory: bool,
    /// The injected fault that caused it, as written.
    pub injected: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The last lines it wrote, oldest first.
    pub last_lines: Vec<String>,
    /// What the doctor concludes from what all ranks of the attempt had written by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictSummary>,
}

fn one() -> u32 {
    1
}
