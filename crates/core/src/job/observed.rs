//! What an adapter has seen of a job's world, as one owned value.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{IndexSet, JobStatus};
use crate::{
    barrier::Coordinator,
    checkpoint::StoreSeen,
    diagnose::{TransportSeen, VerdictSummary},
    fabric::FabricSpec,
    pod::{NodeHealth, ObservedPod, PodUid},
    probe::{Judgement, NodeRecord},
    progress::Progress,
    reason::Reason,
    spec::{Replicas, Slot},
};

/// Everything `decide` may know besides the job itself.
///
/// Assumptions an adapter must keep:
/// - `version` never decreases while the adapter lives, and an adapter that starts again begins
///   with a view at least as new as any it had before (a fresh list).
/// - `status` is the status as last written, or an older one; a status that was never written is
///   never shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// How new the view of the pods is: larger is newer (the list's resource version).
    pub version: u64,
    /// The status as stored.
    pub status: JobStatus,
    /// Whether the job object is being deleted.
    pub being_deleted: bool,
    /// Every pod of the job, of whatever attempt, in any order.
    pub pods: Vec<ObservedPod>,
    /// The slots that have a Service.
    pub services: BTreeMap<crate::spec::Role, IndexSet>,
    /// The nodes that carry pods of the job. A node that is not listed is healthy.
    pub nodes: BTreeMap<String, NodeHealth>,
    /// The inputs from which the shared objects (config, keys, rights) were last made.
    pub shared: Option<SharedInputs>,
    /// The job's autoscaler.
    pub autoscaler: Autoscaler,
    /// What could not be created since the last pass, and why.
    pub refusals: Vec<Refusal>,
    /// How far the training itself is, where that is known.
    pub progress: Option<Progress>,
    /// Whether the gang has seats, where seats are given.
    pub seating: Seating,
    /// The `PodGroup`, where another scheduler starts the gang.
    pub grouping: Grouping,
    /// What the doctor concludes from what the pods of an attempt wrote, once one of them has failed.
    pub verdict: Option<VerdictSummary>,
    /// What the doctor concludes about single ends of pods that restart alone.
    pub judged: Vec<JudgedEnd>,
    /// The transports that ranks reported.
    pub transports: Option<ReportedTransports>,
    /// What there is of the fabric that the job names.
    pub fabric: SeenFabric,
    /// The preflights of the gang's nodes, where preflights run.
    pub preflight: SeenPreflight,
    /// What there is of the supervisors of the gang.
    pub gang: SeenGang,
    /// What was seen in the store of its checkpoints.
    pub store: SeenStore,
    /// Whether the observer also watches the ranks, as `trainyard run` does: then a hang is for it to find and to end.
    pub watches_ranks: bool,
    /// Whether a user waits for the outcome and can correct a mistake at once, as with `trainyard run`.
    pub attended: bool,
}

/// What was seen in the store of the checkpoints of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SeenStore {
    /// Nobody has looked.
    #[default]
    Unused,
    /// It could not be read, and why.
    Unknown(String),
    /// It was read.
    Seen {
        /// What is in it.
        store: Box<StoreSeen>,
        /// When that was read.
        at: Timestamp,
    },
}

/// What there is of the supervisors of a gang, which restart its programs in place.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SeenGang {
    /// Pods are not supervised here.
    #[default]
    Unused,
    /// The pods of this job get no supervisor, and why: [`crate::launch::supervise::obstacle`].
    Unable(String),
    /// New pods of this job get a supervisor.
    Here(Box<Supervised>),
}

/// A gang whose pods have supervisors.
#[derive(Clone, Debug, PartialEq)]
pub struct Supervised {
    /// The memory of the operator, with the newest summary of the leader received.
    pub coordinator: Coordinator,
    /// Whether the leader has a connection to the operator.
    pub leader_connected: bool,
    /// The time of the operator's monotonic clock.
    pub now: Duration,
}

/// What the doctor concludes about one end of the training container of a pod that restarts alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedEnd {
    /// The incarnation of the pod.
    pub uid: PodUid,
    /// Which end of it, counted as [`ObservedPod::ends`] does.
    pub ends: u32,
    /// The verdict; none where nothing explains the end.
    pub verdict: Option<VerdictSummary>,
}

/// What is known of preflights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SeenPreflight {
    /// Preflights are not used here.
    #[default]
    Unused,
    /// None can be run for this job, and why.
    Unable(String),
    /// They are run.
    Here(Box<Preflights>),
}

/// The preflights of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preflights {
    /// The one that was begun last.
    pub run: PreflightRun,
    /// What earlier ones found on nodes, of this job or of others that need the same.
    pub records: BTreeMap<String, NodeRecord>,
}

/// How far a preflight is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PreflightRun {
    /// None runs.
    #[default]
    Idle,
    /// Pods of this one may be left, and the adapter does not watch them.
    Left(u32),
    /// This one runs.
    Runs(u32),
    /// This one has ended, and nothing of it holds a place any more; its judgement, or why there is no result.
    Ended(u32, Result<Judgement, String>),
}

/// The transports that ranks of one attempt reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedTransports {
    /// The attempt.
    pub attempt: u32,
    /// What each reported so far. A source is named after its pod, or `pod/container`.
    pub ranks: Vec<TransportSeen>,
}

/// What there is of the fabric that a job names.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SeenFabric {
    /// The job names none, or fabrics are not used here.
    #[default]
    Unused,
    /// Not looked up yet.
    Unknown,
    /// None that could be used, and why.
    Unable(String),
    /// This one.
    There(Box<FabricSpec>),
}

/// The state of the `PodGroup`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// No other scheduler starts this gang.
    #[default]
    Unused,
    /// Not looked up yet.
    Unknown,
    /// The cluster has no such kind, and why.
    Unable(String),
    /// An object of another owner has its name.
    Taken(Refusal),
    /// It does not exist, and can be created.
    Missing,
    /// It exists.
    There {
        /// Whether it was created from the spec as it is.
        current: bool,
        /// Why the pods of the gang are not to be created yet.
        wait: Option<String>,
    },
}

/// Where the pods of a job may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seating {
    /// Placement is off: the scheduler places the pods.
    #[default]
    Open,
    /// Placement is on, and this gang is not in the wait queue.
    Unasked,
    /// Seats are given once its pods exist, gated: their priority is above the default, and only the API server
    /// can admit that. Why, in a sentence. The gang is not in the wait queue.
    Unadmitted(String),
    /// The gang is in the wait queue; why it has no seats, once placement has tried.
    Queued(Option<NoNodes>),
    /// The node of every pod that may start: enough for the gang to train.
    Given(BTreeMap<Slot, String>),
    /// The gang has seats and is evicted for another one; for which and at what cost, in a sentence.
    Evicted(String),
}

/// Why placement has no nodes for a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNodes {
    /// The whole arithmetic, in one sentence.
    pub message: String,
    /// Whether it would not fit even if all other gangs had ended.
    pub never_fits: bool,
}

impl From<String> for NoNodes {
    fn from(message: String) -> Self {
        Self {
            message,
            never_fits: false,
        }
    }
}

/// What is there of a job's autoscaler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autoscaler {
    /// None.
    #[default]
    Missing,
    /// One that was created from another spec, or from an unknown one.
    Outdated,
    /// One that was made from the spec as it is.
    Current,
}

/// Inputs of the objects that all pods share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedInputs {
    /// How many pods each role has.
    pub replicas: Replicas,
    /// Workers that run now; `discover_hosts.sh` lists them.
    pub running_workers: IndexSet,
}

/// One object that could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was tried, such as ``create pod `j-worker-0` ``.
    pub tried: String,
    /// What the other side said.
    pub message: String,
    /// Whose object has the name, where that is why.
    pub taken_by: Option<String>,
}

impl Refusal {
    /// `tried` was refused with `message`.
    pub fn new(tried: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            tried: tried.into(),
            message: message.into(),
            taken_by: None,
        }
    }

    /// The reason of a job to which this and `more` others happened.
    pub fn reason(&self, more: usize) -> Reason {
        Reason::Refused {
            tried: self.tried.clone(),
            message: self.message.clone(),
            more,
            taken_by: self.taken_by.clone(),
        }
    }
}
