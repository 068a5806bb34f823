//! What `decide` returns.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{JobStatus, PodUid, SharedInputs};
use crate::{reason::Reason, spec::Slot};

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
