//! What `decide` returns.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{JobStatus, PodUid, SharedInputs};
use crate::{
    barrier::{Coordinator, Envelope, OperatorMessage, Outcome},
    reason::Reason,
    spec::{Kind, Slot},
};

/// The outcome of one pass.
///
/// An adapter writes `status` first if it differs from the one observed (and only on top of that
/// one), then sends the events, then carries out the actions in order. If the write is refused it
/// does none of the rest and observes again.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do, in order. Each may be done twice or not at all without harm.
    pub actions: Vec<Action>,
    /// The whole status.
    pub status: JobStatus,
    /// The events to emit.
    pub events: Vec<Event>,
    /// What the job waits for, or why nothing is done. Never empty.
    pub reasons: Vec<Reason>,
    /// When to decide again even if nothing is observed before.
    pub wake_at: Option<Timestamp>,
    /// What follows for the supervisors of the gang, where its pods have some.
    pub gang: Option<Box<GangStep>>,
}

/// What follows for the supervisors of a gang. An adapter keeps and sends it only after the status was written, where that changed.
/// A status that may wait ([`super::may_wait`]) holds nothing that it depends on: then it is kept and sent at once.
#[derive(Clone, Debug, PartialEq)]
pub struct GangStep {
    /// The coordinator after this pass, for the next one.
    pub coordinator: Coordinator,
    /// What to send to the leader, if it is connected.
    pub send: Option<Envelope<OperatorMessage>>,
    /// How a restart in place ended, in the pass that ends it.
    pub outcome: Option<Outcome>,
}

/// One thing to do. Idempotent: it names the incarnation or the attempt it is meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create the pod of `slot`, carrying `attempt`. Does nothing where a pod has its name.
    CreatePod {
        /// Where.
        slot: Slot,
        /// The attempt it will carry.
        attempt: u32,
        /// Where it may go.
        seat: Seat,
        /// Whether its program waits for the gang ([`crate::barrier::Begin::Wait`]): the gang restarts in place, and the pod replaces one
        /// of it.
        waits: bool,
    },
    /// Let the label of a pod carry `attempt`. Does nothing where it is another incarnation or its label does not carry `from`.
    RelabelPod {
        /// Which.
        slot: Slot,
        /// Which incarnation.
        uid: PodUid,
        /// The attempt that the label carries.
        from: u32,
        /// The attempt that it is to carry.
        attempt: u32,
    },
    /// Remove the gate of a pod and bind it to its node.
    SeatPod {
        /// Which.
        slot: Slot,
        /// Which incarnation.
        uid: PodUid,
        /// Where to.
        node: String,
    },
    /// Put the gang into the wait queue. Does nothing where it is already.
    AskSeats,
    /// Release the gang's seats and remove it from the wait queue.
    ReleaseSeats {
        /// Why, in one sentence.
        why: String,
        /// The nodes that did not serve.
        avoid: Vec<String>,
    },
    /// Run preflight `round`: one pod on each of these nodes, like the pod of its slot. Ends every other one of the
    /// job, and does nothing where this one runs already.
    StartPreflight {
        /// Which.
        round: u32,
        /// The slot on each node whose pod is imitated.
        seats: BTreeMap<String, Slot>,
    },
    /// Keep what preflight `round` found on its nodes, and remove what is left of it.
    EndPreflight {
        /// Which.
        round: u32,
    },
    /// Delete this incarnation of the pod.
    DeletePod {
        /// Where.
        slot: Slot,
        /// Which incarnation.
        uid: PodUid,
        /// How.
        removal: Removal,
    },
    /// Create the Service of `slot`.
    CreateService(
        /// Where.
        Slot,
    ),
    /// Delete the Service of `slot`.
    DeleteService(
        /// Where.
        Slot,
    ),
    /// Create or update the objects that all pods share.
    ApplyShared(
        /// From these.
        SharedInputs,
    ),
    /// Create the `PodGroup`, or update it.
    ApplyGroup,
    /// Delete the `PodGroup`.
    DeleteGroup,
    /// Create the autoscaler, or update it.
    ApplyAutoscaler,
    /// Delete the autoscaler.
    DeleteAutoscaler,
    /// Delete the job object.
    DeleteJob,
}

/// Where a new pod may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Wherever the scheduler puts it.
    Open,
    /// Nowhere yet: our scheduling gate holds it back.
    Gated,
    /// To this node and no other.
    Node(String),
}

/// How a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// With its grace period.
    Graceful,
    /// At once, without waiting for the kubelet: the node is gone.
    Forced,
}

/// One event on the job object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Normal or warning.
    pub kind: EventKind,
    /// Machine reason, such as `PyTorchJobRestarting`.
    pub reason: String,
    /// Sentence.
    pub message: String,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// As expected.
    Normal,
    /// Someone may want to look.
    Warning,
}

/// Why an event is emitted. Names are only ever added: users and other programs match on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventReason {
    /// The fabric added something to the pods.
    FabricAdded,
    /// The job overrides the fabric.
    FabricDisagrees,
    /// The job has failed.
    Failed,
    /// A save takes longer than pods have from SIGTERM to SIGKILL.
    GraceTooShort,
    /// An attempt failed, and its pods are kept for inspection.
    HeldOnFailure,
    /// Its pods are no longer kept.
    HoldEnded,
    /// An attempt began at its first step although a checkpoint is complete.
    NotRestored,
    /// The job did not save between a notice and its deadline.
    NotSavedOnNotice,
    /// The gang is evicted for another one.
    Preempted,
    /// The preflight failed on every node.
    PreflightFailed,
    /// The preflight cannot run, and the job starts without it.
    PreflightNotRun,
    /// All nodes passed the preflight.
    PreflightPassed,
    /// An object of the job could not be created.
    Refused,
    /// The next attempt starts.
    Restarting,
    /// The next attempt starts in the pods of the one before.
    RestartedInPlace,
    /// The job is no longer suspended.
    Resumed,
    /// The job saved between a notice and its deadline.
    SavedOnNotice,
    /// Whether the job saved between a notice and its deadline is not known.
    SaveUnknown,
    /// The gang released its nodes.
    SeatsGivenBack,
    /// The job has succeeded.
    Succeeded,
    /// The job is suspended.
    Suspended,
    /// The ranks use another transport than the job requires.
    TransportMismatch,
    /// The ranks use another transport than expected.
    TransportUnexpected,
    /// The ranks use the transport that the job requires.
    TransportVerified,
    /// Nodes failed the preflight.
    UnfitNodes,
    /// The pods of the gang get no supervisor.
    Unsupervised,
    /// There is no such fabric yet.
    WaitingForFabric,
    /// The preflight cannot run, and the job waits for it.
    WaitingForPreflight,
    /// There is no such runtime yet.
    WaitingForRuntime,
}

impl EventReason {
    /// The word, which programs of others match on: it stays where the variant is renamed.
    fn word(self) -> &'static str {
        match self {
            Self::FabricAdded => "FabricAdded",
            Self::FabricDisagrees => "FabricDisagrees",
            Self::Failed => "Failed",
            Self::GraceTooShort => "GraceTooShort",
            Self::HeldOnFailure => "HeldOnFailure",
            Self::HoldEnded => "HoldEnded",
            Self::NotRestored => "NotRestored",
            Self::NotSavedOnNotice => "NotSavedOnNotice",
            Self::Preempted => "Preempted",
            Self::PreflightFailed => "PreflightFailed",
            Self::PreflightNotRun => "PreflightNotRun",
            Self::PreflightPassed => "PreflightPassed",
            Self::Refused => "Refused",
            Self::Restarting => "Restarting",
            Self::RestartedInPlace => "RestartedInPlace",
            Self::Resumed => "Resumed",
            Self::SavedOnNotice => "SavedOnNotice",
            Self::SaveUnknown => "SaveUnknown",
            Self::SeatsGivenBack => "SeatsGivenBack",
            Self::Succeeded => "Succeeded",
            Self::Suspended => "Suspended",
            Self::TransportMismatch => "TransportMismatch",
            Self::TransportUnexpected => "TransportUnexpected",
            Self::TransportVerified => "TransportVerified",
            Self::UnfitNodes => "UnfitNodes",
            Self::Unsupervised => "Unsupervised",
            Self::WaitingForFabric => "WaitingForFabric",
            Self::WaitingForPreflight => "WaitingForPreflight",
            Self::WaitingForRuntime => "WaitingForRuntime",
        }
    }

    /// The reason of an event on a job of `kind`: as those of the Go operators it begins with the kind, unless they have no such event.
    pub fn of(self, kind: Kind) -> String {
        match self {
            Self::Refused => self.word().to_owned(),
            reason => format!("{kind}{}", reason.word()),
        }
    }

    /// Whether `reason` is this one, of a job of any kind.
    pub fn is(self, reason: &str) -> bool {
        Kind::READ.into_iter().any(|kind| self.of(kind) == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_reasons_begin_with_the_kind() {
        let cases = [
            (
                EventReason::Restarting,
                Kind::PyTorch,
                "PyTorchJobRestarting",
            ),
            (EventReason::Restarting, Kind::MpiV2, "MPIJobRestarting"),
            (
                EventReason::SeatsGivenBack,
                Kind::Jax,
                "JAXJobSeatsGivenBack",
            ),
            (EventReason::Refused, Kind::Tf, "Refused"),
        ];
        for (reason, kind, want) in cases {
            assert_eq!(reason.of(kind), want);
            assert!(reason.is(want), "{want}");
        }
        for other in ["Restarting", "NotRestarting", "PyTorchJobRestartingSoon"] {
            assert!(!EventReason::Restarting.is(other), "{other}");
        }
    }
}
