//! Every reason why a job waits or nothing is done for it, with its parameters.
//!
//! Whatever waits, refuses or ends does so with a [`Reason`]. Its code is what scripts may match; its sentence, with the
//! numbers in it, is made in `words` and nowhere else, and no code reads it. Status, events and command line show the same
//! pair; the status keeps the parameters beside it, as [`StoredReason`].
//!
//! Invariant: a reason holds no number that changes while nothing happens (such as seconds
//! waited so far), or every pass would write a new status.

#[cfg(test)]
mod tests;
pub(crate) mod words;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::spec::Role;

/// A stable code. Codes are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// Another controller owns the job.
    ManagedElsewhere,
    /// The view is older than the one the status was decided on.
    StaleView,
    /// The job is suspended.
    Suspended,
    /// Programs are stopped, to start again in their pods.
    RestartingInPlace,
    /// The attempt failed, and its pods are kept for inspection.
    HeldOnFailure,
    /// Pods of an earlier attempt still terminate.
    WaitingForOldPods,
    /// The next attempt starts after a pause.
    WaitingToRetry,
    /// The launcher waits for its workers.
    WaitingForWorkers,
    /// Not all pods exist and run yet.
    WaitingForPods,
    /// Pods have no node yet.
    WaitingForSeats,
    /// The fabric that the job names does not exist.
    WaitingForFabric,
    /// The nodes of the gang have not passed the preflight that the job requires.
    WaitingForPreflight,
    /// The runtime that the job names does not exist.
    WaitingForRuntime,
    /// An object could not be created.
    Refused,
    /// A node does not respond; its pods do not count as lost yet.
    NodeSilent,
    /// Fewer workers than wanted train.
    Degraded,
    /// The job trains as requested.
    Training,
    /// A role has no pods to run.
    NothingToRun,
    /// The job object will be deleted.
    WaitingForTtl,
    /// The job has ended and nothing is left to do.
    Ended,
    /// The job object is being deleted.
    BeingDeleted,
    /// Pods are being removed.
    CleaningUp,
    /// The job has ended: it failed in a way that a retry does not help, and its user set no limit.
    RetryDoesNotHelp,
    /// The operator crashed or panicked on the job and has set it aside.
    SetAside,
    /// A code of another version. Never written: what is stored keeps the code it has.
    #[serde(other)]
    Other,
}

/// A reason with everything that its sentence says. Kinds are only ever added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
#[expect(missing_docs, reason = "the fields are the words of the sentence")]
pub enum Reason {
    /// Another controller owns the job.
    ManagedElsewhere { manager: String },
    /// The view is older than the status.
    OldView { version: u64, decided_on: u64 },
    /// The status is older than the pods.
    OldStatus { attempt: u32, pods_attempt: u32 },
    /// `runPolicy.suspend` is set.
    Suspended { terminating: usize },
    /// The gang restarts in its pods; what that waits for, in words.
    RestartingInPlace { attempt: u32, phase: String },
    /// The attempt failed, and its pods are kept for inspection.
    HeldOnFailure {
        attempt: u32,
        until: Timestamp,
        /// What is held, such as `4 pods with 8 GPUs`.
        held: String,
        why: String,
    },
    /// Pods of earlier attempts still terminate.
    OldPods {
        attempt: u32,
        count: usize,
        first: String,
    },
    /// Pods that still terminate hold the names of new ones.
    NamesHeld { count: usize, first: String },
    /// The job backs off after failures that came soon after the start.
    QuickFailures {
        failures: u32,
        attempt: u32,
        retry_at: Timestamp,
    },
    /// The job backs off because its gang did not start on its nodes.
    NodesReleased {
        times: u32,
        attempt: u32,
        retry_at: Timestamp,
    },
    /// The launcher waits for its workers.
    LauncherWaits {
        have: u32,
        wanted: u32,
        state: WorkerState,
    },
    /// Pods are to be created or to start.
    PodsStarting {
        missing: usize,
        wanted: u32,
        pending: u32,
    },
    /// The scheduler has no node for pods; `scheduler` is its message.
    Unscheduled {
        count: u32,
        wanted: u32,
        scheduler: String,
    },
    /// Placement has not tried yet.
    LookingForNodes,
    /// The pods must exist before nodes are assigned.
    Unadmitted { why: String },
    /// Placement found no nodes. `never_fits`: nor would it if all other gangs had ended. `unfit`: nodes that the gang left.
    NoNodes {
        why: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        never_fits: bool,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unfit: Vec<String>,
    },
    /// The gang is evicted for another one.
    Evicted { why: String },
    /// A node failed the preflight; the gang leaves it.
    UnfitNode {
        node: String,
        fault: String,
        more: usize,
    },
    /// Whether the `PodGroup` exists is not known yet.
    CheckingPodGroup,
    /// The `PodGroup` is created first.
    CreatingPodGroup,
    /// There can be no `PodGroup`.
    NoPodGroup { why: String },
    /// The other scheduler does not admit the gang yet; its message.
    PodGroupWaits { why: String },
    /// What the fabric is has not been read yet.
    LookingUpFabric { fabric: String },
    /// There is no such fabric, or it cannot be used.
    NoFabric { fabric: String, why: String },
    /// There is no such runtime, or it cannot be read.
    NoRuntime { runtime: String, why: String },
    /// The preflight cannot run.
    NoPreflight { why: String },
    /// The preflight runs.
    PreflightRuns { nodes: usize, since: Timestamp },
    /// The preflight failed or had no result.
    PreflightRetry { why: String, retry_at: Timestamp },
    /// An object could not be created. `taken_by`: whose object has its name.
    Refused {
        tried: String,
        message: String,
        #[serde(default)]
        more: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        taken_by: Option<String>,
    },
    /// An image cannot be pulled; the runtime's message.
    NoImage { pod: String, message: String },
    /// The object of the job is not valid.
    Invalid { why: String },
    /// A node does not respond; its pods do not count as lost yet.
    NodeSilent {
        node: String,
        pod: String,
        more: usize,
        lost_at: Timestamp,
    },
    /// Fewer workers than wanted run.
    Degraded {
        running: u32,
        wanted: u32,
        needed: u32,
    },
    /// Every pod exists and none waits.
    AllPodsExist { pods: u32 },
    /// The role that decides has no pods.
    NothingToRun { role: Role },
    /// The job is being deleted.
    BeingDeleted { terminating: usize },
    /// The job has ended, and its pods are being deleted.
    CleaningUp { terminating: u32 },
    /// The job has succeeded, and pods may run until then.
    RunningOn { running: u32, until: Timestamp },
    /// The job has ended.
    Ended,
    /// The job object is deleted at that time.
    ExpiresAt { at: Timestamp },
    /// The job object is deleted now.
    Expired { ttl_seconds: u32 },
    /// The job has ended: a retry does not help.
    RetryDoesNotHelp {
        job: String,
        shown_by: InVain,
        error: String,
        next: String,
    },
    /// The operator crashed or panicked on the job and has set it aside.
    SetAside { why: String },
}

/// What workers must be before their launcher starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkerState {
    /// They run.
    Running,
    /// They are ready.
    Ready,
}

/// What shows that a retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
#[expect(missing_docs, reason = "the fields are the words of the sentence")]
pub enum InVain {
    /// Two attempts in a row ended alike.
    Attempts {
        first: u32,
        second: u32,
        same_place: bool,
    },
    /// A pod that restarts alone ended alike twice in a row.
    Pod { pod: String, same_place: bool },
    /// Attempts in a row reached no later step.
    NoProgress {
        attempts: u32,
        first: u32,
        last: u32,
        step: u64,
    },
    /// The verdict alone, where a user waits for the outcome.
    Verdict,
}

impl Reason {
    /// The code for scripts.
    pub fn code(&self) -> Code {
        match self {
            Self::ManagedElsewhere { .. } => Code::ManagedElsewhere,
            Self::OldView { .. } | Self::OldStatus { .. } => Code::StaleView,
            Self::Suspended { .. } => Code::Suspended,
            Self::RestartingInPlace { .. } => Code::RestartingInPlace,
            Self::HeldOnFailure { .. } => Code::HeldOnFailure,
            Self::OldPods { .. } | Self::NamesHeld { .. } => Code::WaitingForOldPods,
            Self::QuickFailures { .. } | Self::NodesReleased { .. } => Code::WaitingToRetry,
            Self::LauncherWaits { .. } => Code::WaitingForWorkers,
            Self::PodsStarting { .. } => Code::WaitingForPods,
            Self::Unscheduled { .. }
            | Self::LookingForNodes
            | Self::Unadmitted { .. }
            | Self::NoNodes { .. }
            | Self::Evicted { .. }
            | Self::UnfitNode { .. }
            | Self::CheckingPodGroup
            | Self::CreatingPodGroup
            | Self::PodGroupWaits { .. } => Code::WaitingForSeats,
            Self::LookingUpFabric { .. } | Self::NoFabric { .. } => Code::WaitingForFabric,
            Self::NoRuntime { .. } => Code::WaitingForRuntime,
            Self::NoPreflight { .. } | Self::PreflightRuns { .. } | Self::PreflightRetry { .. } => {
                Code::WaitingForPreflight
            }
            Self::Refused { .. }
            | Self::NoImage { .. }
            | Self::Invalid { .. }
            | Self::NoPodGroup { .. } => Code::Refused,
            Self::NodeSilent { .. } => Code::NodeSilent,
            Self::Degraded { .. } => Code::Degraded,
            Self::AllPodsExist { .. } => Code::Training,
            Self::NothingToRun { .. } => Code::NothingToRun,
            Self::BeingDeleted { .. } => Code::BeingDeleted,
            Self::CleaningUp { .. } | Self::RunningOn { .. } => Code::CleaningUp,
            Self::Ended => Code::Ended,
            Self::ExpiresAt { .. } | Self::Expired { .. } => Code::WaitingForTtl,
            Self::RetryDoesNotHelp { .. } => Code::RetryDoesNotHelp,
            Self::SetAside { .. } => Code::SetAside,
        }
    }
}

/// A reason as the status keeps it: its code, its sentence, and its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredReason {
    /// For scripts.
    pub code: Code,
    /// For people.
    pub message: String,
    /// The reason itself. Nothing where a version stored it that has no parameters, or others than this one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known"
    )]
    pub params: Option<Reason>,
}

impl From<&Reason> for StoredReason {
    fn from(reason: &Reason) -> Self {
        Self {
            code: reason.code(),
            message: reason.to_string(),
            params: Some(reason.clone()),
        }
    }
}

/// What this version knows of a value; nothing where that is not all of it.
pub(crate) fn known<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    Ok(T::deserialize(Value::deserialize(deserializer)?).ok())
}
