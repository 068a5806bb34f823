//! How pods ended, as the runtime reported it: exit codes, signals, out-of-memory kills, evictions, lost nodes.
//!
//! Owns what is known without any log, and which of it came first. A log explains these facts and never contradicts
//! them; what follows from both together is [`super::verdict`]'s.

use jiff::Timestamp;

use crate::{
    pod::{Disruption, NodeHealth, ObservedPod, PodPhase, exit},
    spec::{Job, Role},
};

/// How one pod of an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name. A source called `NAME` or `NAME/CONTAINER` is its log.
    pub pod: String,
    /// Its rank, where it holds only one.
    pub rank: Option<u32>,
    /// Its node.
    pub node: Option<String>,
    /// How it ended.
    pub end: End,
    /// When, where that is known.
    pub at: Option<Timestamp>,
    /// The memory that its training container may use, as written.
    pub memory_limit: Option<String>,
    /// The injected fault that ended it, as written.
    pub on_purpose: Option<String>,
}

/// How a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its node is gone.
    NodeDeleted,
    /// Its node does not respond.
    NodeSilent,
    /// Kubernetes disrupted it: preempted, evicted, or its node shut down.
    Disrupted(Disruption),
    /// The kernel OOM-killed it; this is its exit code.
    OutOfMemory(i32),
    /// Its container could not be started; the runtime's message.
    NotStarted(String),
    /// It ended with this exit code; 128 + n for signal n.
    Exit(i32),
    /// It failed, and nothing says how.
    Unknown,
}

impl Known {
    /// What is known of the end of `pod`; nothing where it runs, has succeeded, or is being deleted.
    pub fn of_pod(pod: &ObservedPod, name: String, node: Option<NodeHealth>) -> Option<Self> {
        let at = pod.exit.and_then(|exit| exit.at);
        let lost = match (pod.phase, node) {
            (PodPhase::Succeeded | PodPhase::Failed, _) | (_, None | Some(NodeHealth::Ready)) => {
                None
            }
            (_, Some(NodeHealth::SilentSince(_))) => Some(End::NodeSilent),
            (_, Some(NodeHealth::Deleted)) => Some(End::NodeDeleted),
        };
        let disrupted = pod.disruption.map(End::Disrupted);
        // A container that failed may be started again in place, or leave another one running.
        let ended = pod.ends > 0 && pod.exit.is_some_and(|exit| exit.code != 0);
        let ended = ended || pod.phase == PodPhase::Failed;
        let failed =
            (ended && pod.deleted_at.is_none()).then(|| match (&pod.start_error, pod.exit) {
                (Some(error), _) => End::NotStarted(error.clone()),
                (None, Some(exit)) => End::of_exit(exit.code, exit.out_of_memory),
                (None, None) => End::Unknown,
            });
        Some(Self {
            pod: name,
            rank: None,
            node: pod.node.clone(),
            end: lost.or(disrupted).or(failed)?,
            at,
            memory_limit: None,
            on_purpose: None,
        })
    }

    /// Adds the memory that a pod of `role` may use, as the job has it.
    #[must_use]
    pub fn limited_by(mut self, job: &Job, role: Role) -> Self {
        let spec = job
            .roles
            .get(&role)
            .and_then(|role| role.template.spec.as_ref());
        let containers = spec
            .map(|spec| spec.containers.as_slice())
            .unwrap_or_default();
        let trains = |name: &str| name == job.kind.container();
        let training = containers.iter().find(|container| trains(&container.name));
        let limit = training.or(containers.first()).and_then(|container| {
            let limits = container.resources.as_ref()?.limits.as_ref()?;
            Some(limits.get("memory")?.0.clone())
        });
        self.memory_limit = limit.or(self.memory_limit);
        self
    }

    /// Whether `source` is its log.
    pub(super) fn wrote(&self, source: &str) -> bool {
        source
            .strip_prefix(&self.pod)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Its rank, where that is known, and its name.
    pub(super) fn who(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank} (pod `{}`)", self.pod),
            None => format!("pod `{}`", self.pod),
        }
    }

    /// Lower explains more: what came from outside before what the kernel did, before what the program did; then the
    /// first in time. Of ends in the same second, a process that was killed outright explains those that exited.
    fn order(&self) -> impl Ord + use<> {
        let outside = match &self.end {
            End::NodeDeleted
            | End::NodeSilent
            | End::Disrupted(
                Disruption::NodePressure | Disruption::NodeShutdown | Disruption::NodeGone,
            ) => 0,
            End::Disrupted(Disruption::Preempted) => 1,
            End::Disrupted(Disruption::Evicted) => 2,
            End::OutOfMemory(_) => 3,
            End::NotStarted(_) | End::Exit(_) | End::Unknown => 4,
        };
        let exited = !matches!(self.end, End::Exit(135 | 137 | 139));
        (outside, self.at.unwrap_or(Timestamp::MAX), exited)
    }
}

impl End {
    /// The end that an exit code stands for.
    pub fn of_exit(code: i32, out_of_memory: bool) -> Self {
        if out_of_memory {
            Self::OutOfMemory(code)
        } else {
            Self::Exit(code)
        }
    }

    /// As the end of a sentence about the pod.
    pub(super) fn words(&self) -> String {
        match self {
            Self::NodeDeleted => "was lost because its node was deleted".to_owned(),
            Self::NodeSilent => "is on a node that does not respond".to_owned(),
            Self::Disrupted(disruption) => match disruption {
                Disruption::Preempted => "was preempted by a pod of higher priority",
                Disruption::Evicted => "was evicted",
                Disruption::NodePressure => {
                    "was evicted because its node ran short of memory or disk"
                }
                Disruption::NodeShutdown => "ended because its node shut down",
                Disruption::NodeGone => "was lost with its node",
            }
            .to_owned(),
            Self::OutOfMemory(code) => exit::words(*code, true),
            Self::NotStarted(message) => format!("could not be started: {message}"),
            Self::Exit(code) => match exit::signal_of(*code) {
                Some(signal) => format!(
                    "was killed by signal {} ({}), exit code {code}",
                    signal.number, signal.name
                ),
                None => format!("ended with {}", exit::words(*code, false)),
            },
            Self::Unknown => "failed without an exit code".to_owned(),
        }
    }
}

/// The end that explains the others.
pub(super) fn first(known: &[Known]) -> Option<&Known> {
    known.iter().min_by_key(|known| known.order())
}

/// The ends in the order in which they happened; those without a time last.
pub(super) fn in_time(known: &[Known]) -> Vec<&Known> {
    let mut ends: Vec<&Known> = known.iter().collect();
    ends.sort_by(|a, b| {
        let key = |known: &Known| (known.at.unwrap_or(Timestamp::MAX), known.rank);
        (key(a), &a.pod).cmp(&(key(b), &b.pod))
    });
    ends
}
