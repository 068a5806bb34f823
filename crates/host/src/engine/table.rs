//! The process table: every pod that the engine has started and not yet forgotten.

use std::{
    collections::BTreeMap,
    os::fd::{OwnedFd, RawFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use trainyard_core::{
    diagnose::{End, Known},
    job::{Exit, ObservedPod, PodPhase, Wait},
    spec::{Job, Kind, Slot},
};

use super::{keeper::Keeper, output::Output};
use crate::{
    Ranks, channel,
    store::{LogWriter, StoredPod},
    wire::Order,
};

/// How long a pod init that was asked to end a pod may take beyond the grace period.
const LATE: Duration = Duration::from_secs(2);

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

    /// Whether commands can be run in it, and faults injected.
    fn is_running(&self) -> bool {
        self.phase == PodPhase::Running && self.deleted_at.is_none()
    }

    /// The name of the container that trains: the one with the kind's name, or the first that is
    /// no init container.
    pub(super) fn training_container(&self, kind: Kind) -> &str {
        let training = kind.container();
        let mut names = self.outputs.iter().map(|output| &*output.name);
        if names.any(|name| name == training) {
            return training;
        }
        let mut outputs = self.outputs.iter();
        let first = outputs.find(|output| output.container >= self.init_containers);
        first.map_or(training, |output| &output.name)
    }

    /// How it ended, where it failed by itself.
    pub(super) fn known_end(&self, job: &Job) -> Option<Known> {
        let exit = self.exit.or(self.last_end)?;
        let by_itself = exit.code != 0 && self.deleted_at.is_none();
        by_itself.then(|| {
            let known = Known {
                pod: self.name.clone(),
                rank: Ranks::of(job).only_of_pod(&job.replicas(), self.slot),
                // As the source of its lines has it: here all pods are on one node.
                node: Some(self.name.clone()),
                end: End::of_exit(exit.code, exit.out_of_memory),
                at: exit.at,
                memory_limit: None,
                on_purpose: self.injected.clone(),
            };
            known.limited_by(job, self.slot.role)
        })
    }
}

/// The pods of a run, and the process that starts them.
#[derive(Debug)]
pub(super) struct Pods {
    pub(super) entries: BTreeMap<Key, Entry>,
    next: Key,
    pub(super) keeper: Keeper,
    /// Containers that ended in place, and are started again once that was decided.
    pub(super) to_start_again: Vec<(Key, String)>,
    /// The store does not have the pods as they are.
    pub(super) unsaved: bool,
}

impl Pods {
    pub(super) fn new(keeper: Keeper) -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 0,
            keeper,
            to_start_again: Vec::new(),
            unsaved: false,
        }
    }

    /// A key that no pod has had.
    pub(super) fn new_key(&mut self) -> Key {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn get(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Entry> {
        self.entries.get_mut(&key)
    }

    /// Those with a process left.
    pub(super) fn live(&self) -> Vec<Key> {
        let live = self.entries.iter().filter(|(_, entry)| !entry.gone);
        live.map(|(key, _)| *key).collect()
    }

    pub(super) fn with_uid(&self, uid: &str) -> Option<(Key, &Entry)> {
        let mut entries = self.entries.iter();
        let (key, entry) = entries.find(|(_, entry)| entry.uid == uid)?;
        Some((*key, entry))
    }

    pub(super) fn running(&self, slot: Slot) -> Option<Key> {
        let mut entries = self.entries.iter();
        let running = entries.find(|(_, entry)| entry.slot == slot && entry.is_running());
        running.map(|(key, _)| *key)
    }

    /// How many streams a pod has.
    pub(super) fn streams(&self, key: Key) -> usize {
        self.get(key).map_or(0, |entry| entry.outputs.len())
    }

    pub(super) fn training_container(&self, key: Key, kind: Kind) -> String {
        let name = self.get(key).map(|entry| entry.training_container(kind));
        name.unwrap_or_else(|| kind.container()).to_owned()
    }

    /// Gives an order to a pod init. One that cannot be reached is gone, or will be killed when
    /// its time is over.
    pub(super) fn order(&self, key: Key, order: &Order, descriptors: &[RawFd]) {
        if let Some(control) = self.get(key).and_then(|entry| entry.control.as_ref()) {
            drop(channel::send(control, order, descriptors));
        }
    }

    /// Asks a pod to end in its grace period. Asking again changes nothing, and returns false.
    pub(super) fn stop(&mut self, key: Key) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else {
            return false;
        };
        if entry.gone || entry.deleted_at.is_some() {
            return false;
        }
        entry.deleted_at = Some(Timestamp::now());
        entry.stopped = !entry.ended_by_itself();
        let grace = Duration::from_secs(u64::from(entry.grace_seconds));
        entry.kill_at = Some(Instant::now() + grace + LATE);
        let grace_millis = u64::from(entry.grace_seconds) * 1000;
        self.order(key, &Order::Stop { grace_millis }, &[]);
        true
    }

    /// Ends a pod without its grace period.
    pub(super) fn kill(&mut self, key: Key) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.deleted_at.get_or_insert_with(Timestamp::now);
            entry.stopped |= !entry.ended_by_itself();
            self.keeper.end(key);
        }
    }

    /// When the next pod has used up its grace period.
    pub(super) fn due(&self) -> Option<Instant> {
        let entries = self.entries.values();
        entries.filter_map(|entry| entry.kill_at).min()
    }

    /// Kills the pods that have used up their grace period.
    pub(super) fn kill_late(&mut self, now: Instant) {
        for (key, entry) in &mut self.entries {
            if entry.kill_at.is_some_and(|at| at <= now) {
                entry.kill_at = None;
                self.keeper.end(*key);
            }
        }
    }

    /// How pods of `attempt` ended by themselves.
    pub(super) fn known_ends(&self, attempt: u32, job: &Job) -> Vec<Known> {
        let entries = self.entries.values();
        let ended = entries.filter(|entry| entry.attempt == attempt);
        ended.filter_map(|entry| entry.known_end(job)).collect()
    }

    /// The pods as the store should have them, where it does not.
    pub(super) fn take_unsaved(&mut self) -> Option<Vec<StoredPod>> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        let there = self.entries.values().filter(|entry| !entry.gone);
        let mut pods: Vec<StoredPod> = there
            .filter_map(|entry| {
                Some(StoredPod {
                    slot: entry.slot,
                    pod: entry.name.clone(),
                    attempt: entry.attempt,
                    pid: entry.pid?,
                    running: entry.phase == PodPhase::Running,
                })
            })
            .collect();
        pods.sort_by_key(|pod| pod.slot);
        Some(pods)
    }
}
