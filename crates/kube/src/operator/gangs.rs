//! Gangs that restart in place: the port to which the leader of each gang connects, and what the operator remembers of it.
//!
//! Owns who may connect, and the coordinators between two passes. What is decided is `trainyard_core::job`'s, with
//! `trainyard_core::barrier` for the restart itself.
//!
//! # Flow
//!
//! ```text
//! leader ─ token, summaries ─▶ registry ─▶ pass: coordinator.receive, decide, write the status ─▶ registry ─ order ─▶ leader
//! ```
//!
//! # Guarantees
//!
//! - The API server says which pod a token is of, and that it is meant for this one job. Only the pod that leads the gang connects, and
//!   what it sends changes nothing but the gang of its own job.
//! - Only the operator that leads accepts connections; when it no longer does, it closes all of them. A leader of a gang dials again, and
//!   all replicas are behind one Service, so that it finds the one that leads.
//! - No token is kept or logged.
//! - A certificate that is renewed is trusted by leaders that run: its authority is written to their pods.
//! - Nothing is sent that follows from a status that was not written.

mod frame;
mod registry;
mod serve;
mod trust;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use tracing::warn;
use trainyard_core::{
    barrier::Limits,
    job::{self, Decision, Observed, PodPhase, SeenGang, Supervised},
    launch::{
        Cluster,
        supervise::{self, GangServer, OPERATOR_PORT},
    },
    spec::Job,
};

use self::registry::{Decided, Registry};
pub(crate) use self::serve::serve;
use super::{Operator, tokens::Tokens};
use crate::{certificate::Certificate, crd, key::JobKey, view::JobView};

/// How long no job is processed after the start, while there is no certificate: without it a gang that restarts in place would get
/// new pods.
const CERTIFICATE_WITHIN: Duration = Duration::from_secs(15);
/// How often the certificate is looked for.
const CERTIFICATE_EVERY: Duration = Duration::from_millis(50);

/// Gangs that restart in place.
#[derive(Debug)]
pub(crate) struct Gangs {
    /// The time of coordinators is counted from here.
    began: Instant,
    tokens: Tokens,
    registry: Mutex<Registry>,
    served: OnceLock<Served>,
    /// The cluster with the port for leaders, as it was made last.
    cluster: Mutex<Option<Arc<Cluster>>>,
}

#[derive(Debug)]
struct Served {
    certificate: Arc<Certificate>,
    /// The name in the certificate.
    name: String,
}

impl Default for Gangs {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            tokens: Tokens::default(),
            registry: Mutex::default(),
            served: OnceLock::new(),
            cluster: Mutex::default(),
        }
    }
}

impl Gangs {
    /// Leaders may connect from now on, with this certificate, at the operator's Service in `namespace`.
    pub(crate) fn begin(&self, certificate: Arc<Certificate>, namespace: &str) {
        let name = format!("{}.{namespace}.svc", crd::SERVICE);
        drop(self.served.set(Served { certificate, name }));
        self.tokens.begin();
    }

    pub(crate) fn forget(&self, key: &JobKey) {
        self.registry().forget(key);
    }

    /// Closes all connections and forgets what came over them.
    pub(crate) fn forget_all(&self) {
        self.registry().forget_all();
    }

    /// Whether a restart in place of the job is under way.
    pub(crate) fn is_in_barrier(&self, key: &JobKey) -> bool {
        self.registry().is_in_barrier(key)
    }

    /// Waits until the certificate is known, where leaders may connect, and not for long.
    pub(crate) async fn certificate_known(&self) {
        let Some(served) = self.served.get() else {
            return;
        };
        let known = async {
            while served.certificate.authority().is_none() {
                sleep(CERTIFICATE_EVERY).await;
            }
        };
        if timeout(CERTIFICATE_WITHIN, known).await.is_err() {
            warn!(
                "There is no certificate with a CA for leaders of gangs; gangs restart with new pods"
            );
        }
    }

    fn server(&self) -> Option<GangServer> {
        let served = self.served.get()?;
        Some(GangServer {
            address: format!("{}:{OPERATOR_PORT}", served.name),
            server_name: served.name.clone(),
            authority: served.certificate.authority(),
        })
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }
}

impl Operator {
    /// What the administrator decided for all jobs, with the port for leaders as it is now.
    pub(crate) fn cluster_now(&self) -> Arc<Cluster> {
        let Some(server) = self.gangs.server() else {
            return Arc::clone(&self.cluster);
        };
        let mut made = self
            .gangs
            .cluster
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some(cluster) if cluster.gang.as_ref() == Some(&server) => Arc::clone(cluster),
            _ => {
                let cluster = Arc::new(Cluster {
                    gang: Some(server),
                    ..Cluster::clone(&self.cluster)
                });
                *made = Some(Arc::clone(&cluster));
                cluster
            }
        }
    }

    /// What there is of the supervisors of a gang.
    pub(crate) fn seen_gang(
        &self,
        key: &JobKey,
        view: &JobView,
        job: &Job,
        observed: &Observed,
    ) -> SeenGang {
        if self.gangs.served.get().is_none() || self.shadow.is_some() {
            return SeenGang::Unused;
        }
        let obstacle = supervise::obstacle(job, &self.cluster_now());
        let leader = supervise::leading_slot(job).filter(|_| obstacle.is_none());
        // Which programs of a failed job ended by themselves is needed until their containers have ended too: their logs are kept.
        let mut pods = observed.pods.iter();
        let runs = pods.any(|pod| pod.phase == PodPhase::Running && pod.deleted_at.is_none());
        let needed = runs || !job::has_ended(&observed.status);
        let Some(leader) = leader.filter(|_| needed) else {
            self.gangs.forget(key);
            return obstacle.map_or(SeenGang::Unused, SeenGang::Unable);
        };
        let pod = observed
            .pods
            .iter()
            .find(|pod| pod.slot == leader && pod.deleted_at.is_none());
        let seen = self.gangs.registry().see(
            key,
            &view.metadata.uid,
            pod.map(|pod| pod.uid.as_str()),
            limits(job),
        );
        SeenGang::Here(Box::new(Supervised {
            coordinator: seen.coordinator,
            leader_connected: seen.leader_connected,
            now: self.gangs.now(),
        }))
    }

    /// Keeps what a pass has decided about a gang, and sends what there is to send. Called once the status is written.
    pub(crate) fn keep_gang(&self, key: &JobKey, uid: &str, decision: &Decision) {
        let Some(step) = &decision.gang else {
            return;
        };
        let decided = Decided {
            coordinator: step.coordinator.clone(),
            send: step.send.clone(),
            in_barrier: decision.status.trainyard.barrier.is_some(),
        };
        self.gangs.registry().keep(key, uid, decided);
    }
}

/// How long each side waits for the programs of a job.
fn limits(job: &Job) -> Limits {
    Limits::of(job.settings.stop_grace, job.settings.start_within)
}

/// The job of an audience, as [`supervise::audience`] makes it.
fn audience_key(audience: &str) -> Option<JobKey> {
    let (namespace, kind, name) = supervise::audience_job(audience)?;
    Some(JobKey {
        kind,
        namespace: namespace.into(),
        name: name.into(),
    })
}
