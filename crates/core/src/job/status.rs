//! What is reported of a job, and all that is remembered between two passes.
//!
//! The outer part is the contract's `status`; [`JobRecord`] is ours, stored beside it as
//! `status.trainyard`. Nothing else is remembered anywhere: an adapter that is killed and started
//! again loses nothing.
//!
//! Other versions of the operator and other controllers write into the same object. [`read()`] takes what
//! this version understands and keeps the rest in [`Kept`]; writing the status puts it back.

mod checkpoint;
mod gang;
mod kept;
pub(crate) mod progress;
mod read;
#[cfg(test)]
mod tests;
mod train;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

pub use self::{
    checkpoint::{CheckpointRecord, bytes_words},
    gang::{FailedStarts, GangPhase},
    kept::Kept,
    progress::{ProgressRecord, RECORD_EVERY, time_words},
    read::{Unreadable, read},
    train::{read_train, stored_train},
};
use super::{Cause, IndexSet};
use crate::{
    account::Account,
    barrier::{self, Barrier},
    diagnose::VerdictSummary,
    fabric::{Fabric, FabricSpec},
    ledger::Ledger,
    pod::PodUid,
    progress::Figure,
    reason::{StoredReason, known},
    spec::{Job, Replicas, Role, Slot},
};

/// How far the clock of a node may be ahead of the operator's, so that a line of the attempt before is not taken for one of the attempt that began in
/// place. A line that is taken wrongly is the error that ended the attempt before, and may end the job as its second equal failure; a line that is
/// missed is one of the first that a program writes. Nodes with NTP are within milliseconds of each other, and between this moment and the first line
/// all members are prepared, the operator sends Go, and a program starts.
const LOG_CLOCK_SKEW: SignedDuration = SignedDuration::from_millis(100);

/// Status of a job.
///
/// It is read with [`read()`], also by `Deserialize`, and written with what it did not understand when it was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct JobStatus {
    /// Conditions. The type of the last one is what users see as the job's state.
    pub conditions: Vec<Condition>,
    /// Pod counts by role, of the current attempt only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_statuses: BTreeMap<Role, RoleStatus>,
    /// When the job was first, or after a suspension again, allowed to have pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When the job ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Timestamp>,
    /// What the contract has no place for.
    pub trainyard: JobRecord,
    /// What this version does not understand. No decision depends on it.
    #[serde(skip)]
    pub kept: Kept,
}

impl JobStatus {
    /// Whether no operator has written anything of what this version understands.
    pub fn is_new(&self) -> bool {
        self.conditions.is_empty()
            && self.replica_statuses.is_empty()
            && self.start_time.is_none()
            && self.completion_time.is_none()
            && self.trainyard == JobRecord::default()
    }

    /// What this version understands, as it is written.
    fn understood(&self) -> Value {
        // A status is made of text, numbers, lists and maps with text as keys.
        Self::serialize(self, serde_json::value::Serializer).unwrap_or_default()
    }
}

impl Serialize for JobStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.kept.beside(|| self.understood()) {
            Some(whole) => whole.serialize(serializer),
            None => Self::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for JobStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(&Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Machine reason, such as `PyTorchJobRunning`.
    pub reason: String,
    /// Sentence.
    pub message: String,
    /// When it was last written.
    pub last_update_time: Timestamp,
    /// When `status` last changed.
    pub last_transition_time: Timestamp,
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionType {
    /// The operator has seen the job.
    Created,
    /// Its deciding role runs.
    Running,
    /// Pods are being replaced.
    Restarting,
    /// It has no pods because `runPolicy.suspend` is set.
    Suspended,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// Fewer workers than wanted train. Ours; never last in the list.
    Degraded,
    /// The transport of the ranks is known, and is what the job requires. Ours; never last in the list.
    TransportVerified,
}

impl ConditionType {
    /// The word in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Restarting => "Restarting",
            Self::Suspended => "Suspended",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Degraded => "Degraded",
            Self::TransportVerified => "TransportVerified",
        }
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// It is not known.
    Unknown,
}

/// Counts of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoleStatus {
    /// Pods that run.
    #[serde(skip_serializing_if = "is_zero")]
    pub active: u32,
    /// Pods that ended well.
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: u32,
    /// Pods that ended badly.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// Label selector of the role's pods, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What is remembered between two passes beyond the contract's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobRecord {
    /// The current attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// How new the view was that this status was decided on. An older view is not acted upon.
    pub seen: u64,
    /// Whether every pod of this attempt has been seen. From then on a missing pod has vanished.
    pub formed: bool,
    /// The role sizes of this attempt.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: Replicas,
    /// Pods of this attempt that ended well, whether or not they still exist.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub succeeded: BTreeMap<Role, IndexSet>,
    /// Failure budget used so far, by account.
    pub spent: Spent,
    /// Failures of initializers on the user's account, which the budget of the job does not pay for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub initializers: BTreeMap<Role, u32>,
    /// Pods of this attempt that are paid for or no longer wanted, and not gone yet.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub dismissed: BTreeSet<PodUid>,
    /// Restarts in place that are paid for, by incarnation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub restarts: BTreeMap<PodUid, u32>,
    /// The last end of pods that restart alone, by name, once the doctor was asked about it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub last_ends: BTreeMap<String, LastEnd>,
    /// What failed last, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// What the job failed for, once it has. Nothing where an earlier version ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_by: Option<FailedBy>,
    /// Attempts in a row that reached no later step than one before, once an attempt that failed had reported any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_progress: Option<WithoutProgress>,
    /// Attempts in a row that failed on the user's account soon after they began.
    #[serde(skip_serializing_if = "is_zero")]
    pub quick_failures: u32,
    /// No pod is created before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// How far the gang of this attempt is on its way to its seats.
    #[serde(flatten)]
    pub gang: GangPhase,
    /// The last attempt that released its seats: pods of it and of those before have none, even while they terminate.
    #[serde(skip_serializing_if = "is_zero")]
    pub released: u32,
    /// The restart in place that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Barrier>,
    /// The failure for which the pods of this attempt are, or were, kept for inspection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// A hash of the pod templates when the pods were created, where those have supervisors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<String>,
    /// How long the last restart in place took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<LastRestart>,
    /// The last restart that was asked for and is done; see [`crate::spec::JobSettings::restart`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// The fabric that the pods of this attempt are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricInUse>,
    /// The preflight of the gang's nodes, where the job requires one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightState>,
    /// What the job waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<StoredReason>,
    /// How far the training is, once its program reported a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressRecord>,
    /// What is known of its checkpoints, where it says where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointRecord>,
    /// Where the seconds went.
    pub ledger: Ledger,
}

impl JobRecord {
    /// How many wanted pods of `role` ended well in this attempt. One that did and whose slot is
    /// no longer wanted does not stand in for one that is.
    pub fn succeeded_in(&self, job: &Job, role: Role) -> u32 {
        self.succeeded
            .get(&role)
            .map_or(0, |done| done.len_below(job.role_replicas(role)))
    }

    /// Until when the logs of this attempt's pods are of the attempt before, where it began in the pods of that one. The lines carry the times of
    /// their nodes.
    pub fn in_place_since(&self) -> Option<Timestamp> {
        let began = self.last_restart.filter(|it| it.attempt == self.attempt)?;
        began.began_at?.checked_add(LOG_CLOCK_SKEW).ok()
    }

    /// The attempt before, whose pods are kept while this one is prepared in place.
    pub(super) fn keeps_pods_of(&self) -> Option<u32> {
        let barrier = self.barrier.as_ref()?;
        let prepares =
            barrier.phase == barrier::Phase::Preparing && barrier.attempt == self.attempt;
        prepares.then(|| self.attempt.saturating_sub(1))
    }

    /// Whether the pod of `slot` ended well in this attempt.
    pub fn has_succeeded(&self, slot: Slot) -> bool {
        self.succeeded
            .get(&slot.role)
            .is_some_and(|done| done.contains(slot.index))
    }
}

/// How far the preflight of a gang is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreflightState {
    /// The last one that was begun, from 1.
    pub round: u32,
    /// Since when it runs, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The nodes that passed one in this attempt, until all of the gang runs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub passed: BTreeSet<String>,
    /// The first of the nodes that failed one and were left, until all of the gang runs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unfit: BTreeSet<String>,
    /// How many in a row failed for all nodes or had no result.
    #[serde(skip_serializing_if = "is_zero")]
    pub in_vain: u32,
    /// Why the last one did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// No other one is begun before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// The fabric of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricInUse {
    /// Its name.
    pub name: String,
    /// What it was when the first pod of the attempt was made; nothing before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<FabricSpec>>,
}

impl FabricInUse {
    /// The fabric, once it is settled.
    pub fn fabric(&self) -> Option<Fabric> {
        Some(Fabric {
            name: self.name.clone(),
            spec: (**self.spec.as_ref()?).clone(),
        })
    }
}

/// The failure that ended an attempt, or the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    /// The attempt that it ended.
    pub attempt: u32,
    /// The pod that failed first.
    pub pod: String,
    /// Who paid.
    pub account: Account,
    /// Why, such as `it ran out of memory (exit code 137)`.
    pub message: String,
    /// The same as a value. Nothing where the transport of the ranks ended the attempt, and where another version stored it
    /// that has no such value, or others than this one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known"
    )]
    pub cause: Option<Cause>,
    /// The furthest step of that attempt, where it reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The first of the attempts in a row that ended with this same failure, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_attempt: Option<u32>,
    /// What the doctor concludes from how its pods ended and from what they wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictSummary>,
}

/// How long the parts of a restart in place took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRestart {
    /// The attempt that it began.
    pub attempt: u32,
    /// From the failure that was seen to the last program that had stopped, in milliseconds.
    pub stopping_ms: u64,
    /// From there until all members were ready and the order to start was sent, in milliseconds; nothing while that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparing_ms: Option<u64>,
    /// When the attempt was stored, by the operator's clock: all programs of the one before had ended, and none of this one was started.
    /// Nothing where an earlier version stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
}

/// A failure for which a gang is kept for inspection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The attempt that failed.
    pub attempt: u32,
    /// Since when it is held.
    pub since: Timestamp,
    /// What failed, in one sentence.
    pub why: String,
    /// What failed, so that it is handled when the hold is over, whatever happens meanwhile. Nothing where an earlier version stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HeldFailure>,
    /// Whether the hold is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

/// The failure for which a gang is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldFailure {
    /// Where.
    pub slot: Slot,
    /// Why.
    pub cause: Cause,
}

/// How far attempts came, and how many since came no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WithoutProgress {
    /// The furthest step of an attempt that failed.
    pub best_step: u64,
    /// Attempts since then that failed by themselves and reached no later step.
    #[serde(default)]
    pub attempts: u32,
    /// The first of them; while there is none, the attempt that reached `best_step`.
    pub since_attempt: u32,
    /// The furthest epoch of an attempt that failed, where any reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_epoch: Option<Figure>,
    /// The lowest first step of an attempt that failed, where it is known: an attempt that begins at a much later step has loaded a
    /// checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<u64>,
}

/// What a job failed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailedBy {
    /// It was active for longer than `activeDeadlineSeconds`.
    DeadlineExceeded,
    /// A failure budget is used up.
    BudgetSpent,
    /// Pods failed in a way that ends the job.
    PodsFailed,
    /// Workers ended before the launcher started.
    WorkersEndedEarly,
    /// Two attempts in a row used the same wrong transport.
    SameTransport,
    /// A retry does not help.
    RetryDoesNotHelp,
    /// Something that only another version knows. Never written: what is stored keeps the word it has.
    #[serde(other)]
    Other,
}

/// One end of a pod that restarts alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastEnd {
    /// The incarnation of the pod.
    pub uid: PodUid,
    /// Which end of it, from 1.
    pub ends: u32,
    /// What equal failures have in common, where a retry does not help ([`VerdictSummary::digest`]); else nothing.
    pub failure: String,
    /// The furthest step of the job by then, where it reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// When.
    pub at: Timestamp,
}

/// Failure budget used, by account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// The program's own.
    pub user: u32,
    /// The cluster's people and controllers.
    pub platform: u32,
    /// Nodes, devices, networks.
    pub infrastructure: u32,
    /// Preemptions.
    pub preemption: u32,
}
