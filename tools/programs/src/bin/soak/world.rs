//! What all parts of a run share: the cluster, the operators, what broke first, and the counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use crate::{cluster::Piece, memory::Sample, operators::Operator, plan::Plan};

/// Counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Jobs that went their whole way, by shape and end.
    pub(crate) jobs: BTreeMap<(&'static str, &'static str), u32>,
    /// Jobs that are under way.
    pub(crate) live: BTreeSet<String>,
    pub(crate) faults: BTreeMap<&'static str, u32>,
    /// Failures on other accounts than the user's.
    pub(crate) disruptions: u64,
    /// Attempts of placed gangs outside the failure budget: they released their nodes.
    pub(crate) unpaid: u64,
    /// The longest time from the end of the faults to the end of a job.
    pub(crate) settled: Duration,
    /// Programs of the cluster that ended by themselves and were started again.
    pub(crate) restarts: u32,
    /// The memory of the operator that is never killed, once a minute.
    pub(crate) memory: Vec<Sample>,
}

/// The run.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) seed: u64,
    pub(crate) began: Instant,
    /// The last one is never killed.
    pub(crate) operators: Vec<Operator>,
    /// The nodes as they were at the begin.
    pub(crate) nodes: Vec<Value>,
    pub(crate) api_server: Piece,
    pub(crate) etcd: Piece,
    /// The other programs of the cluster, which nobody kills here.
    pub(crate) others: Vec<Piece>,
    /// Held by a fault of the control plane.
    pub(crate) control_plane: tokio::sync::Mutex<()>,
    pub(crate) nodes_out: Mutex<BTreeSet<String>>,
    counts: Mutex<Counts>,
    broken: watch::Sender<Option<String>>,
    numbers: AtomicU32,
    /// No further job begins.
    pub(crate) stops: AtomicBool,
    faults_ended: Mutex<Option<Instant>>,
}

impl World {
    pub(crate) fn new(
        client: Client,
        seed: u64,
        state: &str,
        operators: Vec<Operator>,
        nodes: Vec<Value>,
    ) -> Self {
        let piece = |name| Piece::new(state, name);
        Self {
            client,
            seed,
            began: Instant::now(),
            operators,
            nodes,
            api_server: piece("kube-apiserver"),
            etcd: piece("etcd"),
            others: ["kube-controller-manager", "kube-scheduler", "kwok"]
                .map(piece)
                .into(),
            control_plane: tokio::sync::Mutex::new(()),
            nodes_out: Mutex::default(),
            counts: Mutex::default(),
            broken: watch::Sender::new(None),
            numbers: AtomicU32::new(0),
            stops: AtomicBool::new(false),
            faults_ended: Mutex::new(None),
        }
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, unless no further one is to begin.
    pub(crate) fn next_plan(&self) -> Option<Plan> {
        if self.stops.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Some(Plan::new(self.seed, number))
    }

    /// Something is not as it must be. Only the first counts.
    pub(crate) fn broke(&self, what: &str) {
        let seconds = self.began.elapsed().as_secs();
        self.broken.send_if_modified(|broken| {
            let first = broken.is_none();
            if first {
                *broken = Some(format!("{what} (after {seconds} s)"));
            }
            first
        });
    }

    /// What broke first, if anything did.
    pub(crate) fn broken(&self) -> Option<String> {
        self.broken.borrow().clone()
    }

    /// Waits until something breaks.
    pub(crate) async fn until_broken(&self) -> String {
        let mut broken = self.broken.subscribe();
        loop {
            if let Some(what) = broken.borrow_and_update().clone() {
                return what;
            }
            if broken.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) fn faults_end(&self) {
        let mut ended = self
            .faults_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *ended = Some(Instant::now());
    }

    /// A job has ended: how long that took after the last fault.
    pub(crate) fn job_ended(&self) {
        let ended = *self
            .faults_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = ended {
            let mut counts = self.counts();
            counts.settled = counts.settled.max(ended.elapsed());
        }
    }

    /// The operator that leads now.
    pub(crate) async fn leader(&self) -> Option<&Operator> {
        for operator in &self.operators {
            if operator.leads().await {
                return Some(operator);
            }
        }
        None
    }
}
