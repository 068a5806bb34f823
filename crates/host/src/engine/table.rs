//! The process table: every pod that the engine has started and not yet forgotten.

use std::{collections::BTreeMap, os::fd::OwnedFd, path::PathBuf, time::Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use trainyard_core::{
    job::{Exit, ObservedPod, PodPhase, Wait},
    spec::Slot,
};

use super::output::Output;
use crate::store::LogWriter;

/// The engine's own number of a pod; never used twice in a run.
pub(super) type Key = u64;

/// One pod.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) uid: String,
    pub(super) slot: Slot,
    pub(super) attempt: u32,
    pub(super) name: String,
    pub(super) grace_seconds: u32,
    /// The socket to pod init, until it is closed.
    pub(super) control: Option<OwnedFd>,
    /// Its first process, once reported.
    pub(super) pid: Option<u32>,
    pub(super) phase: PodPhase,
    /// Restarts in place, by container.
    pub(super) restarts: BTreeMap<String, u32>,
    /// How often its training container has ended.
    pub(super) ends: u32,
    /// How that ended the last time it was to start again in place.
    pub(super) last_end: Option<Exit>,
    pub(super) exit: Option<Exit>,
    pub(super) deleted_at: Option<Timestamp>,
    /// Whether it was made to end before it ended by itself.
    pub(super) stopped: bool,
    /// When the pod is killed should it not have ended by itself.
    pub(super) kill_at: Option<Instant>,
    /// Whether no process is left.
    pub(super) gone: bool,
    pub(super) node: String,
    pub(super) outputs: Vec<Output>,
    /// How many of the containers are init containers; they come first.
    pub(super) init_containers: usize,
    /// One per container, made with its first output.
    pub(super) logs: Vec<Option<LogWriter>>,
    pub(super) log_folder: PathBuf,
    /// Volumes that end with the pod.
    pub(super) scratch: PathBuf,
    /// The pod as a cluster would run it, where its volumes may change while it runs.
    pub(super) pod: Option<Box<Pod>>,
    /// The injected fault that affected it.
    pub(super) injected: Option<String>,
}

impl Entry {
    /// Whether it is over, as far as the job is concerned.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether its training container is over; the pod says that it is, too, a moment later.
    pub(super) fn ended_by_itself(&self) -> bool {
        self.has_ended() || self.exit.is_some()
    }

    pub(super) fn observed(&self) -> ObservedPod {
        ObservedPod {
            uid: self.uid.clone(),
            slot: self.slot,
            attempt: self.attempt,
            phase: self.phase,
            ready: self.phase == PodPhase::Running,
            deleted_at: self.deleted_at,
            grace_seconds: self.grace_seconds,
            node: Some(self.node.clone()),
            restarts: self.restarts.values().sum(),
            ends: self.ends,
            exit: self.exit.or(self.last_end),
            start_error: None,
            wait: (self.phase == PodPhase::Pending).then_some(Wait::Create),
            disruption: None,
            gated: false,
        }
    }
}
