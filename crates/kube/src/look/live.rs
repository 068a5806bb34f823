//! The jobs of a cluster and their pods as they are now: one list and one watch for each kind.
//!
//! Owns what is kept of them in memory, and how old it is. [`Look::watch`] fills a [`Live`] until [`Live::end`]; other threads read it meanwhile, without
//! a call to the API server.
//!
//! Invariants: memory is bounded, whatever the cluster holds; what had no room is counted. A kind that may not be listed stops no other, and is
//! reported in words. What may no longer be listed is forgotten.

mod run;
mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use trainyard_core::{
    job::{ObservedPod, PodPhase},
    launch::slot_of,
    spec::{Kind, Slot},
};

use self::state::State;
pub use self::state::{Changed, Health, SourceHealth, Trouble};
use super::{JobSeen, Look};
use crate::view::JobView;

/// What is watched of a cluster.
#[derive(Debug)]
pub struct Live {
    namespace: Option<String>,
    state: Mutex<State>,
    /// Something came, or cannot be had.
    news: Condvar,
    end: Notify,
}

impl Live {
    /// Nothing yet; of one namespace, or of all.
    pub fn new(namespace: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            state: Mutex::new(State::new()),
            news: Condvar::new(),
            end: Notify::new(),
        }
    }

    /// The namespace; nothing where it is all of them.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Ends the watching.
    pub fn end(&self) {
        self.end.notify_one();
    }

    /// Every job that is known.
    pub fn jobs(&self) -> Vec<LiveJob> {
        self.state().jobs()
    }

    /// The job of this identity.
    pub fn job(&self, uid: &str) -> Option<LiveJob> {
        self.state().job(uid)
    }

    /// The jobs of this name, of whatever kind.
    pub fn called(&self, namespace: &str, name: &str) -> Vec<LiveJob> {
        let is = |it: &LiveJob| it.namespace() == namespace && it.name() == name;
        let mut found = self.state().jobs();
        found.retain(is);
        found
    }

    /// The pods of a job, of all attempts that still have any, by slot.
    pub fn pods(&self, job: &JobSeen) -> Vec<LivePod> {
        let held = self.state().pods_called(&job.key.namespace, &job.key.name);
        let mut pods: Vec<LivePod> = held
            .iter()
            .filter(|pod| *pod.owner == *job.uid || pod.launched)
            .map(|pod| pod.read(job))
            .collect();
        pods.sort_by(|a, b| {
            let key = |it: &LivePod| (it.slot.is_none(), it.slot, it.attempt);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        pods
    }

    /// The nodes that pods of jobs are on.
    pub fn nodes(&self) -> BTreeSet<String> {
        self.state().nodes()
    }

    /// What has changed since the last call.
    pub fn changed(&self) -> Changed {
        self.state().take_changed()
    }

    /// What can be read, what cannot, and when the API server answered last.
    pub fn health(&self) -> Health {
        self.state().health()
    }

    /// The same once every resource was listed or refused, or the API server does not answer; after `within` at the latest. It blocks.
    pub fn wait_until_known(&self, within: Duration) -> Health {
        let unknown = |state: &mut State| {
            let health = state.health();
            !health.is_complete() && health.unreachable.is_none()
        };
        let waited = self.news.wait_timeout_while(self.state(), within, unknown);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.health()
    }

    /// Changes what is known, and wakes whoever waits for it.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.news.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a thread that panicked left is data of the cluster: it is used as it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that is watched.
#[derive(Clone, Debug)]
pub struct LiveJob {
    view: Arc<JobView>,
    kind: Kind,
}

impl LiveJob {
    /// Its identity.
    pub fn uid(&self) -> &str {
        &self.view.metadata.uid
    }

    /// Another one with every change.
    pub fn version(&self) -> u64 {
        self.view.metadata.resource_version
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.view.metadata.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.view.metadata.name
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// When it was created.
    pub fn created_at(&self) -> Option<Timestamp> {
        self.view.metadata.creation_timestamp
    }

    /// The job with its spec and its status, parsed.
    pub fn read(&self) -> Option<JobSeen> {
        JobSeen::new(&self.view)
    }

    /// The object without its status and without what other programs keep in it.
    pub fn object(&self) -> Value {
        serde_json::from_str(&self.view.text).unwrap_or_default()
    }
}

/// A pod of a job that is watched.
#[derive(Clone, Debug)]
pub struct LivePod {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Its slot, if its labels have it.
    pub slot: Option<Slot>,
    /// Its attempt.
    pub attempt: u32,
    /// Its phase.
    pub phase: PodPhase,
    /// Its containers, in the order in which they start.
    pub containers: Vec<String>,
    /// The container that trains.
    pub trains: String,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// When its deletion was asked for.
    pub deleted_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When it got its node.
    pub scheduled_at: Option<Timestamp>,
    /// Since when its containers run, where all do.
    pub ready_at: Option<Timestamp>,
    /// What is observed of it, where it has a slot.
    pub observed: Option<ObservedPod>,
}

impl state::HeldPod {
    fn read(&self, job: &JobSeen) -> LivePod {
        let spec = job.job.as_ref();
        let observed = spec.and_then(|spec| self.entry.observed(spec));
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| ((*key).to_owned(), value.to_string()));
        let slot = spec.and_then(|spec| slot_of(spec, &labels.collect()));
        LivePod {
            name: self.name.to_string(),
            uid: self.entry.uid.to_string(),
            slot: observed.as_ref().map(|it| it.slot).or(slot),
            attempt: self.attempt,
            phase: self.entry.phase,
            containers: self.containers.iter().map(ToString::to_string).collect(),
            trains: self.trains(job.kind()),
            node: self.entry.node.as_deref().map(str::to_owned),
            deleted_at: self.entry.deleted_at,
            created_at: self.created_at,
            scheduled_at: self.scheduled_at,
            ready_at: self.ready_at,
            observed,
        }
    }
}

impl Look {
    /// Keeps `live` as the cluster is until [`Live::end`]. It drives the connection: other calls of this cluster are answered sooner while it runs.
    pub fn watch(&self, live: &Live) {
        self.runtime.block_on(async {
            tokio::select! {
                () = live.end.notified() => {}
                () = self.api.watch(live) => {}
            }
        });
    }
}
