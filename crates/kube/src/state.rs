//! What an operator knows: the store, and what it alone remembers of each job.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerSpec;
use serde_json::Value;
use tokio::time::Instant;
use trainyard_core::{
    diagnose::VerdictSummary,
    job::{JudgedEnd, Refusal, SharedInputs},
};

use crate::{backoff::Backoff, key::JobKey, store::Store};

/// A job that is refused is tried again at least this often.
const REFUSED_MOST: Duration = Duration::from_mins(5);

/// What an operator knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    store: Arc<Mutex<Store>>,
    memories: Arc<Mutex<BTreeMap<JobKey, Memory>>>,
}

/// What an operator remembers of a job besides what it sees. All of it may be lost: then it is looked
/// up or done again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The inputs of the objects that pods share.
    pub(crate) shared: Option<SharedInputs>,
    /// The autoscaler.
    pub(crate) autoscaler: Scaler,
    /// The objects that it made or found to be the job's own, by resource and name, with their uid.
    pub(crate) made: BTreeMap<(&'static str, Box<str>), Box<str>>,
    /// The pod group for another scheduler, as it was applied.
    pub(crate) group: Option<Value>,
    /// The runtime that a `TrainJob` is pinned to.
    pub(crate) runtime: Option<Pinned>,
    /// What was refused in the last pass.
    pub(crate) refusals: Vec<Refusal>,
    /// When its status was last written.
    pub(crate) wrote_at: Option<Instant>,
    /// What the doctor said about the first failure it was last asked about.
    pub(crate) verdict: Option<Concluded>,
    /// What it said about the ends of pods that restart alone it was last asked about.
    pub(crate) judged: Vec<JudgedEnd>,
    /// Why its status could not be read, as it was last reported.
    pub(crate) unreadable: Option<String>,
    /// Why it is set aside, as it was last reported.
    pub(crate) set_aside: Option<String>,
    /// The attempt for which `ProgressPushOff` was emitted: its pods have no address to send progress to.
    pub(crate) unsent_attempt: u32,
    backoff: Option<Backoff>,
}

/// The runtime from which the pods of a `TrainJob` are made, whatever becomes of the runtime itself.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    /// The job's own identity.
    pub(crate) uid: String,
    pub(crate) runtime: Arc<Value>,
}

/// What the doctor said about the first failure of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Concluded {
    /// The job's own identity: of another of the same name nothing was concluded.
    pub(crate) uid: String,
    pub(crate) attempt: u32,
    pub(crate) verdict: Option<VerdictSummary>,
}

impl Concluded {
    pub(crate) fn is_of(&self, uid: &str, attempt: u32) -> bool {
        self.uid == uid && self.attempt == attempt
    }
}

/// What is known of a job's autoscaler.
#[derive(Clone, Debug, Default)]
pub(crate) enum Scaler {
    #[default]
    Unknown,
    Missing,
    /// The one of this uid was found, of whatever spec.
    Found(String),
    /// This operator has made it so.
    Made {
        uid: String,
        spec: Box<HorizontalPodAutoscalerSpec>,
    },
}

impl State {
    /// The state of an operator that watches the jobs of one namespace, or of all.
    pub(crate) fn following(namespace: Option<&str>) -> Self {
        let state = Self::default();
        state.store().namespace = namespace.map(str::to_owned);
        state
    }

    /// The store; held only between two awaits.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn memory(&self, key: &JobKey) -> Memory {
        self.memories().get(key).cloned().unwrap_or_default()
    }

    /// The uid of an object that is known to be the job's own.
    pub(crate) fn made(&self, key: &JobKey, resource: &'static str, name: &str) -> Option<String> {
        let memories = self.memories();
        let made = &memories.get(key)?.made;
        made.get(&(resource, name.into())).map(ToString::to_string)
    }

    pub(crate) fn remember(&self, key: &JobKey, change: impl FnOnce(&mut Memory)) {
        change(self.memories().entry(key.clone()).or_default());
    }

    pub(crate) fn forget(&self, key: &JobKey) {
        self.memories().remove(key);
    }

    /// Keeps what a pass was refused; whether that is new, and how long to wait before the next try.
    pub(crate) fn refused(
        &self,
        key: &JobKey,
        refusals: Vec<Refusal>,
        first: Duration,
    ) -> (bool, Duration) {
        let mut memories = self.memories();
        if refusals.is_empty() {
            if let Some(memory) = memories.get_mut(key) {
                memory.refusals.clear();
                memory.backoff = None;
            }
            return (false, Duration::ZERO);
        }
        let memory = memories.entry(key.clone()).or_default();
        let new = memory.refusals != refusals;
        memory.refusals = refusals;
        let backoff = memory
            .backoff
            .get_or_insert_with(|| Backoff::new(first, REFUSED_MOST));
        (new, backoff.next())
    }

    fn memories(&self) -> MutexGuard<'_, BTreeMap<JobKey, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
