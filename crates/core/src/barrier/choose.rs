//! Whether a failed gang restarts in place, or with new pods and why.

use std::{fmt, time::Duration};

use crate::spec::{RestartIn, Slot};

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A program ended or hangs.
    Program,
    /// A pod is lost: it is gone, its container ended with its supervisor, or its node does not respond.
    Pod,
    /// A program cannot be stopped.
    CannotStop,
}

/// Where a failure was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePlace {
    /// The attempt that failed.
    pub attempt: u32,
    /// The slot that failed first.
    pub slot: Slot,
}

/// The facts about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureFacts {
    /// What the user set.
    pub restart_in: RestartIn,
    /// The leader has a connection to the operator.
    pub leader_connected: bool,
    /// What failed.
    pub kind: FailureKind,
    /// Where.
    pub place: FailurePlace,
    /// The failure before that. Where it was at the same place in the attempt before, a restart in place did not help.
    pub before: Option<FailurePlace>,
    /// How many pods would be kept; the others are lost and replaced.
    pub kept: u32,
    /// The pod of the leader is lost.
    pub leader_lost: bool,
    /// The templates changed since the pods were created.
    pub template_changed: bool,
}

/// Why a gang gets new pods instead of a restart in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewPodsReason {
    /// The user set it.
    Setting,
    /// A pod has no supervisor.
    Unsupervised {
        /// Why.
        why: String,
    },
    /// The leader has no connection to the operator.
    LeaderNotConnected,
    /// A program cannot be stopped.
    CannotStop,
    /// The templates changed.
    TemplateChanged,
    /// The user asked for a restart meanwhile.
    Asked,
    /// A pod has not started yet, so it cannot stop.
    PodsStarting,
    /// The verdict on the failure blames a node.
    NodeBlamed {
        /// Which.
        node: String,
    },
    /// The job backs off, because attempts failed soon after they started.
    QuickFailures {
        /// How many in a row.
        failures: u32,
    },
    /// The same slot failed before.
    SamePlace {
        /// Which.
        slot: Slot,
        /// In this attempt.
        attempt: u32,
    },
    /// The number of pods changed inside the barrier.
    Resized,
    /// The leader's pod was lost before all members had stopped.
    LeaderLost,
    /// The leader reported nothing.
    LeaderSilent,
    /// No member could be kept.
    NobodyKept,
    /// No node has room for the pods that replace lost ones.
    NoSpareNode {
        /// What the placement lacks.
        why: String,
    },
    /// The barrier lasted too long.
    TooLong {
        /// Its bound.
        bound: Duration,
    },
}

impl fmt::Display for NewPodsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting => f.write_str("`trainyard.dev/restart-in` is `pods`"),
            Self::Unsupervised { why } => write!(f, "not all pods have a supervisor: {why}"),
            Self::LeaderNotConnected => {
                f.write_str("the leader of the gang has no connection to the operator")
            }
            Self::CannotStop => f.write_str("a program cannot be stopped"),
            Self::TemplateChanged => f.write_str("the pod template changed"),
            Self::PodsStarting => f.write_str("not all pods of the gang have started"),
            Self::NodeBlamed { node } => write!(f, "the verdict names node `{node}` as the cause"),
            Self::QuickFailures { failures } => {
                write!(
                    f,
                    "{failures} attempts in a row failed soon after they started, and the job backs off"
                )
            }
            Self::Asked => f.write_str("`trainyard.dev/restart` asks for it"),
            Self::SamePlace { slot, attempt } => {
                write!(
                    f,
                    "{slot} failed in attempt {attempt} already, and a restart in place did not help"
                )
            }
            Self::Resized => f.write_str("the number of pods changed"),
            Self::LeaderLost => {
                f.write_str("the pod of the leader was lost before all members had stopped")
            }
            Self::LeaderSilent => f.write_str("the leader of the gang reported nothing"),
            Self::NobodyKept => f.write_str("no member could be kept"),
            Self::NoSpareNode { why } => {
                write!(f, "no other node has room for the pods to replace: {why}")
            }
            Self::TooLong { bound } => {
                write!(
                    f,
                    "the restart in place took longer than {} s (`trainyard.dev/start-within`)",
                    bound.as_secs()
                )
            }
        }
    }
}

/// How a failed gang restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartWay {
    /// In its pods.
    InPlace,
    /// With new pods.
    NewPods(
        /// Why.
        NewPodsReason,
    ),
}

/// How a failed gang restarts.
pub fn choose(facts: &FailureFacts) -> RestartWay {
    obstacle(facts).map_or(RestartWay::InPlace, RestartWay::NewPods)
}

/// The first reason against a restart in place.
fn obstacle(facts: &FailureFacts) -> Option<NewPodsReason> {
    if facts.restart_in == RestartIn::Pods {
        return Some(NewPodsReason::Setting);
    }
    match facts.kind {
        FailureKind::Program | FailureKind::Pod => {}
        FailureKind::CannotStop => return Some(NewPodsReason::CannotStop),
    }
    if facts.template_changed {
        return Some(NewPodsReason::TemplateChanged);
    }
    if facts.kept == 0 {
        return Some(NewPodsReason::NobodyKept);
    }
    if facts.leader_lost {
        return Some(NewPodsReason::LeaderLost);
    }
    if !facts.leader_connected {
        return Some(NewPodsReason::LeaderNotConnected);
    }
    if facts.kind == FailureKind::Pod {
        // The pod is replaced, so the place is another one.
        return None;
    }
    let FailurePlace { attempt, slot } = facts.place;
    let same = |before: &FailurePlace| {
        before.slot == slot && before.attempt.checked_add(1) == Some(attempt)
    };
    let attempt = facts.before.filter(same)?.attempt;
    Some(NewPodsReason::SamePlace { slot, attempt })
}

#[cfg(test)]
mod tests;
