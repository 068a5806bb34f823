//! What is seen of one pod and of its node, as the container runtime and the API report it.
//!
//! Owns the shape of it, and exit codes in words ([`exit`]). What a failure means for the job is [`crate::job`]'s, what
//! caused it [`crate::diagnose`]'s.

pub mod exit;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::spec::Slot;

/// The identity of one incarnation of a pod.
pub type PodUid = String;

/// One pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedPod {
    /// The incarnation.
    pub uid: PodUid,
    /// Its slot.
    pub slot: Slot,
    /// The attempt it carries.
    pub attempt: u32,
    /// Its phase.
    pub phase: PodPhase,
    /// Whether it is ready.
    pub ready: bool,
    /// When its deletion was requested.
    pub deleted_at: Option<Timestamp>,
    /// Seconds it may take to end after that.
    pub grace_seconds: u32,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// Restarts of its containers in place.
    pub restarts: u32,
    /// How often its training container has ended, whether or not it was started again in place.
    pub ends: u32,
    /// How its training container ended last, once it has.
    pub exit: Option<Exit>,
    /// Why its training container could not be started, where it could not; the runtime's words.
    pub start_error: Option<String>,
    /// What its containers wait for.
    pub wait: Option<Wait>,
    /// Why the platform removes it, where it does.
    pub disruption: Option<Disruption>,
    /// Whether our own scheduling gate holds it back.
    pub gated: bool,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// Accepted, not all containers run.
    Pending,
    /// Runs.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Its node cannot be asked.
    Unknown,
}

/// How a training container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 128 + n for signal n.
    pub code: i32,
    /// Whether the kernel ended it for its memory.
    pub out_of_memory: bool,
    /// When, where it is known. The first failure of an attempt is its headline.
    pub at: Option<Timestamp>,
}

/// What a pending pod waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A scheduling gate.
    Gate,
    /// A node; the scheduler's words.
    Seat(String),
    /// Its image.
    Pull,
    /// Its image, which cannot be had; the runtime's words.
    PullFailed(String),
    /// Its volumes and containers.
    Create,
}

/// Why the platform removes a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Disruption {
    /// A pod of higher priority needs the node.
    Preempted,
    /// Someone drains the node or evicts the pod through the API.
    Evicted,
    /// The node ran short of memory or disk.
    NodePressure,
    /// The node shuts down.
    NodeShutdown,
    /// The node is tainted so that the pod may not stay, or it is gone.
    NodeGone,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// It responds.
    Ready,
    /// It has not responded since then.
    SilentSince(Timestamp),
    /// Its object is gone.
    Deleted,
}
