//! What a gang wants: every pod of a job, what each asks for, and where they would like to be.

mod of_job;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    NodeSelector, PodAffinityTerm, Toleration, TopologySpreadConstraint,
};

use super::{GangKey, Resources};
use crate::spec::{Parallelism, Role, Wish};

/// All pods of a job that must start together.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq)]
pub struct Gang {
    /// The job.
    pub key: GangKey,
    /// When the job was made: of two gangs of the same priority the older goes first.
    pub created: Timestamp,
    /// What protects the seats that it holds: the lowest priority of its pods, as they were admitted.
    pub priority: i32,
    /// The priority with which it asks for seats; the higher goes first. Never more than the default of the cluster
    /// before every pod that wants a seat was admitted.
    pub claim: i32,
    /// Whether every pod that wants a seat exists. No gang is evicted for one whose pods do not exist.
    pub admitted: bool,
    /// The priority classes that its templates name; an empty name for a template without one.
    pub classes: BTreeSet<String>,
    /// What its pods ask for: one shape for each role, or fewer.
    pub shapes: Vec<Shape>,
    /// Its pods in the order of their ranks; those that hold none come last.
    pub pods: Vec<Member>,
    /// How many of the pods are enough to start, counted from the first.
    pub minimum: usize,
    /// How the ranks are numbered, where stated.
    pub parallelism: Option<Parallelism>,
    /// What part of the topology should hold it.
    pub wish: Option<Wish>,
    /// The nodes of the pods that have a seat, by name of the pod, whether they run there already or
    /// not. A gang that holds all its seats wants nothing.
    pub held: BTreeMap<String, String>,
    /// The nodes that pods without a seat had before, by name of the pod: such a gang has started
    /// already, and has first claim among gangs of its priority.
    pub remembered: BTreeMap<String, String>,
    /// What the last placement reserved for it, by name of the pod.
    pub reserved: BTreeMap<String, String>,
    /// Whether its job asks for the seats of gangs with a lower priority.
    pub preempts: bool,
    /// Whether its priority class or one of its pods says that it never preempts.
    pub never_preempts: bool,
    /// Whether its pods are being ended: what they hold will be free.
    pub leaving: bool,
    /// Since when work is lost if it ends now: its last checkpoint, or its start.
    pub safe_at: Option<Timestamp>,
    /// Since when it runs, where it does.
    pub runs_since: Option<Timestamp>,
}

/// One pod of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of the pod.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Which of the shapes it has.
    pub shape: usize,
}

/// What pods of a kind ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Resources.
    pub requests: Resources,
    /// Ranks that each holds; 0 for a launcher that only launches.
    pub ranks: u32,
    /// The labels that all of them have.
    pub labels: BTreeMap<String, String>,
    /// Which nodes they may be on.
    pub constraints: Constraints,
}

/// Which nodes a pod may be on, as Kubernetes knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    /// `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `nodeAffinity`, the required part.
    pub node_affinity: Option<NodeSelector>,
    /// `tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `topologySpreadConstraints` with `DoNotSchedule`.
    pub spread: Vec<TopologySpreadConstraint>,
    /// `podAffinity`, the required part.
    pub affinity: Vec<PodAffinityTerm>,
    /// `podAntiAffinity`, the required part.
    pub anti_affinity: Vec<PodAffinityTerm>,
}

impl Constraints {
    /// Whether the seat of one pod changes where another may be.
    pub fn are_mutual(&self) -> bool {
        !(self.spread.is_empty() && self.affinity.is_empty() && self.anti_affinity.is_empty())
    }
}

impl Gang {
    /// The pods that want a seat, by their place in [`Gang::pods`].
    pub fn unseated(&self) -> impl Iterator<Item = usize> + '_ {
        let names = self.pods.iter().enumerate();
        names
            .filter(|(_, pod)| !self.held.contains_key(&pod.name))
            .map(|(at, _)| at)
    }

    /// Whether it has all its seats.
    pub fn is_seated(&self) -> bool {
        self.unseated().next().is_none()
    }

    /// Whether it has started before and lost seats.
    pub fn is_returning(&self) -> bool {
        !self.remembered.is_empty() && !self.is_seated()
    }

    /// How many accelerators its first `pods` pods ask for.
    pub fn accelerators(&self, pods: usize) -> i64 {
        self.pods
            .iter()
            .take(pods)
            .filter_map(|pod| self.shapes.get(pod.shape))
            .map(|shape| shape.requests.accelerators())
            .fold(0, i64::saturating_add)
    }
}
