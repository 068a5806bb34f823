//! What is known of one job, as one owned value.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    account::Account,
    diagnose::{End, Known},
    finding::Finding,
    job::{JobStatus, Unreadable},
    pod::{Disruption, Exit, NodeHealth, PodPhase, Wait},
};

/// Everything that is known of a job.
///
/// What could not be found out is left empty: an explanation says what is known and no more.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The job itself.
    pub job: Subject,
    /// Its status as stored.
    pub status: JobStatus,
    /// Why its status cannot be read, where it cannot.
    pub unreadable: Option<Unreadable>,
    /// How many failures each account bears; one that is not listed bears any number.
    pub limits: BTreeMap<Account, u32>,
    /// Why its spec cannot be run, where it cannot.
    pub errors: Vec<Finding>,
    /// Its pods, of whatever attempt.
    pub pods: Vec<PodFacts>,
    /// The events of the job and its pods, oldest first.
    pub events: Vec<EventFacts>,
    /// The quotas of its namespace.
    pub quotas: Vec<Quota>,
    /// The volume claims of its pods that are not bound.
    pub claims: Vec<Claim>,
    /// The nodes of its pods that are not healthy.
    pub nodes: BTreeMap<String, NodeHealth>,
    /// The operator that manages it.
    pub operator: Operator,
    /// How a run on this machine ended without the job's doing.
    pub cut_off: Option<CutOff>,
    /// What failed first in each attempt, oldest first, where that was kept.
    pub failures: Vec<FailedPod>,
    /// The moment.
    pub now: Timestamp,
}

/// The job that is asked about.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its namespace on a cluster; empty for a run on this machine.
    pub namespace: String,
    /// How this program was called: `trainyard`, or `kubectl trainyard`.
    pub program: String,
    /// What stands after a command to mean this job, such as `j --cluster -n team`.
    pub handle: String,
    /// The resource and name that `kubectl` takes, such as `pytorchjob/j`.
    pub resource: String,
    /// How many pods it wants.
    pub wanted: u32,
    /// Whether it is suspended: it shall have no pods.
    pub suspend: bool,
    /// The queue of Kueue that it waits in, or waited in.
    pub queue: Option<String>,
    /// The controller that owns it, where that is another one.
    pub manager: Option<String>,
    /// The restart that it is asked for.
    pub restart: Option<String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When its deletion was asked for.
    pub deleted_at: Option<Timestamp>,
    /// The finalizers that hold its object.
    pub finalizers: Vec<String>,
}

/// One pod.
#[derive(Clone, Debug)]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// The attempt it carries.
    pub attempt: u32,
    /// Its phase.
    pub phase: PodPhase,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When its deletion was asked for.
    pub deleted_at: Option<Timestamp>,
    /// Seconds it may take to end after that.
    pub grace_seconds: u32,
    /// The finalizers that hold it.
    pub finalizers: Vec<String>,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Its scheduling gates.
    pub gates: Vec<String>,
    /// The scheduler that gives it a node.
    pub scheduler: String,
    /// A container that cannot start, or keeps exiting.
    pub trouble: Option<Trouble>,
    /// The container that trains.
    pub container: String,
    /// How that ended, once it has.
    pub exit: Option<Exit>,
    /// Why that could not be started, where it could not; the runtime's words.
    pub start_error: Option<String>,
    /// Why the platform removes it.
    pub disruption: Option<Disruption>,
    /// Restarts of its containers in place.
    pub restarts: u32,
    /// The memory that its training container may use, as written.
    pub memory_limit: Option<String>,
}

impl PodFacts {
    /// A pod of which only its name and phase are known.
    pub fn new(name: impl Into<String>, phase: PodPhase) -> Self {
        Self {
            name: name.into(),
            attempt: 1,
            phase,
            node: None,
            created_at: None,
            deleted_at: None,
            grace_seconds: 30,
            finalizers: Vec::new(),
            wait: None,
            gates: Vec::new(),
            scheduler: String::new(),
            trouble: None,
            container: String::new(),
            exit: None,
            start_error: None,
            disruption: None,
            restarts: 0,
            memory_limit: None,
        }
    }

    /// What is known of its end; also where its container failed and was started again in place.
    pub fn known_end(&self, rank: Option<u32>) -> Option<Known> {
        let exit = self.exit.filter(|exit| exit.code != 0);
        let failed = self.phase == PodPhase::Failed && self.deleted_at.is_none();
        let ended = match exit {
            Some(exit) if failed || self.restarts > 0 => {
                Some(End::of_exit(exit.code, exit.out_of_memory))
            }
            _ => failed.then_some(End::Unknown),
        };
        let refused = self.start_error.clone().filter(|_| failed);
        let refused = refused.map(End::NotStarted);
        Some(Known {
            pod: self.name.clone(),
            rank,
            node: self.node.clone(),
            end: self.disruption.map(End::Disrupted).or(refused).or(ended)?,
            at: self.exit.and_then(|exit| exit.at),
            memory_limit: self.memory_limit.clone(),
            on_purpose: None,
        })
    }
}

/// Why a container does not run, in the words of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which container.
    pub container: String,
    /// The kubelet's reason, such as `CreateContainerConfigError`.
    pub reason: String,
    /// The kubelet's message.
    pub message: String,
    /// The image of the container.
    pub image: String,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFacts {
    /// The name of the pod it is about; empty for the job itself.
    pub pod: String,
    /// Its reason, such as `FailedMount`.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// When it was last emitted.
    pub at: Option<Timestamp>,
}

/// A quota of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// By resource: how much is used, and how much may be.
    pub resources: BTreeMap<String, (String, String)>,
}

/// A volume claim that is not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// What is the matter with it.
    pub state: ClaimState,
    /// Its storage class, where it names one.
    pub class: Option<String>,
    /// The message of its last event.
    pub last_event: Option<String>,
}

/// What is the matter with a volume claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// There is none of that name.
    Missing,
    /// It waits for a volume.
    Pending,
    /// Its volume is gone.
    Lost,
}

/// The operator that manages the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Operator {
    /// None: this machine runs the job.
    Here,
    /// It could not be found out.
    #[default]
    Unknown,
    /// There is no operator lease.
    NoLease,
    /// One that has not renewed its lease since then.
    Silent {
        /// Who it was.
        holder: String,
        /// When it last renewed its lease.
        since: Timestamp,
        /// Where its lease is, and so its pods.
        namespace: String,
    },
    /// One whose lease is current.
    Alive {
        /// Who it is.
        holder: String,
        /// Where its lease is, and so its pods.
        namespace: String,
    },
}

/// How a run on this machine ended without the job's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    /// Someone stopped it.
    Stopped,
    /// The process that ran it was killed.
    Interrupted,
}

/// What failed first in an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPod {
    /// The attempt.
    pub attempt: u32,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// How it ended; nothing where only the cause is known.
    pub exit: Option<Exit>,
    /// What removed it, where that is why.
    pub disruption: Option<Disruption>,
    /// The last line it wrote.
    pub last_line: Option<String>,
}
