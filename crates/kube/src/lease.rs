//! Which of several operators acts: the one that holds the lease.
//!
//! All of them watch, so that the next one needs no time to catch up. The one that holds the lease
//! renews it every [`RETRY`]; one that could not for [`RENEW_WITHIN`] stops acting before another may
//! begin, which is after [`DURATION`]. An orderly end releases the lease at once, and so does an operator
//! whose watches are stale.
//!
//! Invariant: two operators with honest clocks never hold the fence at once. What a slow one has
//! under way may still arrive; `decide` and the versions of what is written make that harmless.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Client,
    core::{
        Request,
        params::{GetParams, PostParams},
    },
};
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tracing::{info, warn};

use crate::{clock, feed::Sight, view::LeaseView};

/// How long a lease is valid after it was renewed.
pub(crate) const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew it for this long stops.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// Between two tries.
const RETRY: Duration = Duration::from_secs(2);

/// Whether this operator may act now.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    until: Arc<Mutex<Option<Until>>>,
    /// What it sees of the cluster; nothing where it acts on what it reads at that moment.
    sight: Option<watch::Receiver<Sight>>,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Always,
    Then(Instant),
}

impl Fence {
    /// A fence that is open only while a lease is held.
    pub(crate) fn closed() -> Self {
        Self::until(None)
    }

    /// A fence for the only operator there is.
    pub(crate) fn open() -> Self {
        Self::until(Some(Until::Always))
    }

    fn until(until: Option<Until>) -> Self {
        Self {
            until: Arc::new(Mutex::new(until)),
            sight: None,
        }
    }

    /// The same fence, closed while what is seen is stale.
    pub(crate) fn seeing(self, sight: watch::Receiver<Sight>) -> Self {
        Self {
            sight: Some(sight),
            ..self
        }
    }

    /// Whether what it sees is fresh enough to act on.
    fn sees(&self) -> bool {
        let blind = |sight: &watch::Receiver<Sight>| sight.borrow().blind;
        !self.sight.as_ref().is_some_and(blind)
    }

    pub(crate) fn holds(&self) -> bool {
        if !self.sees() {
            return false;
        }
        match *self.lock() {
            None => false,
            Some(Until::Always) => true,
            Some(Until::Then(until)) => Instant::now() < until,
        }
    }

    fn set(&self, until: Option<Instant>) {
        *self.lock() = until.map(Until::Then);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Until>> {
        self.until
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The lease that operators share.
#[derive(Clone, Debug)]
pub(crate) struct Election {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Who this operator is; no other has the same.
    pub(crate) identity: String,
}

/// What was seen of the lease, by this machine's clock.
struct Seen {
    renewed: Option<Timestamp>,
    holder: String,
    at: Instant,
}

impl Election {
    fn path(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.namespace
        )
    }

    /// Takes and keeps the lease; never returns. `leads` gets each change.
    pub(crate) async fn run_election(
        self,
        client: Client,
        fence: Fence,
        leads: watch::Sender<bool>,
        ends: Arc<AtomicBool>,
    ) {
        let mut seen: Option<Seen> = None;
        loop {
            if !fence.sees() {
                fence.set(None);
                if leads.send_replace(false) {
                    self.release_stale(&client).await;
                }
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                tokio::time::sleep(RETRY).await;
                continue;
            }
            let asked = Instant::now();
            let result =
                tokio::time::timeout(RENEW_WITHIN / 2, self.once(&client, &mut seen)).await;
            match result {
                Ok(Ok(true)) => {
                    fence.set(Some(asked + RENEW_WITHIN));
                    if !leads.send_replace(true) {
                        info!(identity = self.identity, "This operator leads");
                    }
                }
                Ok(Ok(false)) => fence.set(None),
                Ok(Err(error)) => warn!(%error, "Cannot renew the lease"),
                Err(_) => warn!("Cannot renew the lease: timed out"),
            }
            if !fence.holds() && leads.send_replace(false) {
                warn!(identity = self.identity, "This operator no longer leads");
            }
            if ends.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(RETRY.mul_f64(0.9 + 0.2 * crate::backoff::unit())).await;
        }
    }

    /// Releases the lease because others may see what this operator does not.
    async fn release_stale(&self, client: &Client) {
        let identity = &self.identity;
        warn!(
            identity,
            "Watches are stale: this operator releases the lease and does not act"
        );
        match tokio::time::timeout(RENEW_WITHIN / 2, self.release(client)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "Cannot release the lease; it expires"),
            Err(_) => warn!("Cannot release the lease: timed out; it expires"),
        }
    }

    /// Releases the lease, so that another may take it at once.
    pub(crate) async fn release(&self, client: &Client) -> Result<(), kube::Error> {
        let lease = self.read(client).await?;
        let Some(lease) = lease.filter(|lease| lease.spec.holder_identity == self.identity) else {
            return Ok(());
        };
        self.write(client, Some(&lease), "").await?;
        Ok(())
    }

    /// Tries once; whether the lease is held.
    async fn once(&self, client: &Client, seen: &mut Option<Seen>) -> Result<bool, kube::Error> {
        let lease = self.read(client).await?;
        let now = Instant::now();
        if let Some(lease) = &lease {
            let (renewed, holder) = (lease.spec.renew_time, &lease.spec.holder_identity);
            let same = seen
                .as_ref()
                .is_some_and(|seen| seen.renewed == renewed && seen.holder == *holder);
            if !same {
                *seen = Some(Seen {
                    renewed,
                    holder: holder.clone(),
                    at: now,
                });
            }
            let taken = !holder.is_empty() && *holder != self.identity;
            // Its age counts from when it was seen to change: clocks may differ.
            let duration = lease
                .spec
                .lease_duration_seconds
                .map_or(DURATION, |seconds| Duration::from_secs(u64::from(seconds)));
            let valid = seen
                .as_ref()
                .is_some_and(|seen| now.saturating_duration_since(seen.at) < duration);
            if taken && valid {
                return Ok(false);
            }
        }
        match self.write(client, lease.as_ref(), &self.identity).await {
            Ok(_) => Ok(true),
            // Another was quicker.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, client: &Client) -> Result<Option<LeaseView>, kube::Error> {
        let request = Request::new(self.path())
            .get(&self.name, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        match client.request(request).await {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        client: &Client,
        known: Option<&LeaseView>,
        holder: &str,
    ) -> Result<LeaseView, kube::Error> {
        let now = clock::now();
        let stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let spec = known.map(|lease| &lease.spec);
        let stays = spec.is_some_and(|spec| spec.holder_identity == holder);
        let transitions = spec.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let acquired = spec
            .and_then(|spec| spec.acquire_time)
            .filter(|_| stays)
            .map_or(stamp.clone(), |at| {
                at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
            });
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": acquired,
                "renewTime": stamp,
                "leaseTransitions": transitions + u32::from(!stays && known.is_some()),
            },
        });
        let params = PostParams::default();
        let request = Request::new(self.path());
        let body = |lease: &serde_json::Value| lease.to_string().into_bytes();
        let request = match known {
            None => request.create(&params, body(&lease)),
            Some(known) => {
                // Only on top of what was read.
                let version = known.metadata.resource_version.to_string();
                if let Some(metadata) = lease.get_mut("metadata") {
                    metadata["resourceVersion"] = version.into();
                }
                request.replace(&self.name, &params, body(&lease))
            }
        };
        client
            .request(request.map_err(kube::Error::BuildRequest)?)
            .await
    }
}
