//! What is known of a job, gathered for [`trainyard_core::explain`].
//!
//! What the caller may not read, such as nodes, is left out.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, ResourceQuota};
use trainyard_core::{
    explain::{Claim, ClaimState, EventFacts, Facts, Operator, Quota, Subject},
    job::{NodeHealth, PodPhase},
};

use super::{Api, JobSeen, Look, LookError, PodSeen, Words};
use crate::{
    crd, lease,
    node::NodeEntry,
    view::{LeaseView, NodeView},
};

/// Nodes that are read: enough to see that some are not healthy.
const NODES_MAX: usize = 64;
/// Volume claims that are read.
const CLAIMS_MAX: usize = 8;
/// Events that are kept.
const EVENTS_MAX: usize = 200;
/// The lease of the operator, as it is installed.
const LEASE_NAME: &str = "trainyard";

impl Look {
    /// The newest events of `job` and warnings of the pods with these identities, oldest first, and why some of them could not be read.
    pub fn events(
        &self,
        job: &JobSeen,
        pods: &BTreeSet<&str>,
    ) -> (Vec<EventFacts>, Option<LookError>) {
        self.runtime.block_on(self.api.events_of(job, pods))
    }
}

impl Api {
    pub(super) async fn facts(&self, job: &JobSeen, words: &Words) -> Result<Facts, LookError> {
        let pods = self.pods(job).await?;
        let now = Timestamp::now();
        Ok(Facts {
            job: Subject {
                name: job.key.name.to_string(),
                namespace: job.key.namespace.to_string(),
                program: words.program.clone(),
                handle: words.handle.clone(),
                resource: job.resource(),
                wanted: job.pods(),
                suspend: job.suspend,
                queue: job.queue.clone(),
                manager: job.manager().map(str::to_owned),
                restart: job.restart.clone(),
                created_at: job.created_at,
                deleted_at: job.deleted_at,
                finalizers: job.finalizers.clone(),
            },
            status: job.status.clone(),
            unreadable: job.unreadable.clone(),
            limits: job.limits(),
            errors: job.errors.clone(),
            events: self.events(job, &pods).await,
            quotas: self.quotas(job).await,
            claims: self.claims(job, &pods).await,
            nodes: self.nodes(&pods).await,
            operator: self.operator(&job.key.namespace, now).await,
            cut_off: None,
            failures: Vec::new(),
            pods: pods.into_iter().map(|pod| pod.facts).collect(),
            now,
        })
    }

    /// The events of the job and of its pods, oldest first; those that may be read.
    async fn events(&self, job: &JobSeen, pods: &[PodSeen]) -> Vec<EventFacts> {
        let uids: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        self.events_of(job, &uids).await.0
    }

    /// The events of the job and of the pods with these identities, oldest first, and why some of them could not be read.
    async fn events_of(
        &self,
        job: &JobSeen,
        pods: &BTreeSet<&str>,
    ) -> (Vec<EventFacts>, Option<LookError>) {
        let path = format!("/api/v1/namespaces/{}/events", job.key.namespace);
        let selectors = [
            format!("involvedObject.name={}", job.key.name),
            "involvedObject.kind=Pod,type=Warning".to_owned(),
        ];
        let mut found: Vec<EventFacts> = Vec::new();
        let mut refused = None;
        for selector in selectors {
            let events = self.list::<Event>("list events", &path, None, Some(selector));
            let events = match events.await {
                Ok(events) => events,
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            };
            for event in events {
                let about = event.involved_object;
                let uid = about.uid.unwrap_or_default();
                let pod = if uid == job.uid {
                    String::new()
                } else if pods.contains(uid.as_str()) {
                    about.name.unwrap_or_default()
                } else {
                    continue;
                };
                let series = event.series.and_then(|series| series.last_observed_time);
                let at = series.or(event.event_time).map(|at| at.0);
                found.push(EventFacts {
                    pod,
                    reason: event.reason.unwrap_or_default(),
                    message: event.message.unwrap_or_default(),
                    at: event.last_timestamp.map(|at| at.0).or(at),
                });
            }
        }
        found.sort_by_key(|event| event.at);
        let newest = found.split_off(found.len().saturating_sub(EVENTS_MAX));
        (newest, refused)
    }

    async fn quotas(&self, job: &JobSeen) -> Vec<Quota> {
        let path = format!("/api/v1/namespaces/{}/resourcequotas", job.key.namespace);
        let quotas = self.list::<ResourceQuota>("list quotas", &path, None, None);
        let quotas = quotas.await.unwrap_or_default();
        quotas
            .into_iter()
            .map(|quota| {
                let status = quota.status.unwrap_or_default();
                let used = status.used.unwrap_or_default();
                let hard = status.hard.unwrap_or_default();
                let resources = hard.into_iter().map(|(resource, hard)| {
                    let used = used.get(&resource).map_or("0", |used| used.0.as_str());
                    (resource, (used.to_owned(), hard.0))
                });
                Quota {
                    name: quota.metadata.name.unwrap_or_default(),
                    resources: resources.collect(),
                }
            })
            .collect()
    }

    /// The claims of pods that wait, where they are not bound.
    async fn claims(&self, job: &JobSeen, pods: &[PodSeen]) -> Vec<Claim> {
        let names: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| pod.facts.phase == PodPhase::Pending)
            .flat_map(|pod| pod.claims.iter().map(String::as_str))
            .collect();
        let path = format!(
            "/api/v1/namespaces/{}/persistentvolumeclaims",
            job.key.namespace
        );
        let mut claims = Vec::new();
        for name in names.into_iter().take(CLAIMS_MAX) {
            let found = self.get::<PersistentVolumeClaim>("get a volume claim", &path, name);
            let (state, class) = match found.await {
                Ok(claim) => {
                    let class = claim.spec.and_then(|spec| spec.storage_class_name);
                    let phase = claim.status.and_then(|status| status.phase);
                    match phase.as_deref() {
                        Some("Bound") => continue,
                        Some("Lost") => (ClaimState::Lost, class),
                        _ => (ClaimState::Pending, class),
                    }
                }
                Err(error) if error.is_not_found() => (ClaimState::Missing, None),
                Err(_) => continue,
            };
            claims.push(Claim {
                name: name.to_owned(),
                state,
                class,
                last_event: self.last_claim_event(job, name).await,
            });
        }
        claims
    }

    async fn last_claim_event(&self, job: &JobSeen, name: &str) -> Option<String> {
        let path = format!("/api/v1/namespaces/{}/events", job.key.namespace);
        let selector =
            format!("involvedObject.kind=PersistentVolumeClaim,involvedObject.name={name}");
        let events = self.list::<Event>("list events", &path, None, Some(selector));
        let mut events = events.await.unwrap_or_default();
        events.sort_by_key(|event| event.last_timestamp.clone());
        events.pop()?.message
    }

    /// The nodes of pods that have not ended, where they are not well.
    async fn nodes(&self, pods: &[PodSeen]) -> BTreeMap<String, NodeHealth> {
        let names: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| !matches!(pod.facts.phase, PodPhase::Succeeded | PodPhase::Failed))
            .filter_map(|pod| pod.facts.node.as_deref())
            .collect();
        let mut nodes = BTreeMap::new();
        for name in names.into_iter().take(NODES_MAX) {
            let health = match self
                .get::<NodeView>("get a node", "/api/v1/nodes", name)
                .await
            {
                Ok(node) => NodeEntry::new(&node).health(),
                Err(error) if error.is_not_found() => NodeHealth::Deleted,
                // Who may not read one may read none.
                Err(_) => break,
            };
            if health != NodeHealth::Ready {
                nodes.insert(name.to_owned(), health);
            }
        }
        nodes
    }

    /// The operator whose lease is where the job is, or where it is installed by default; else any other.
    async fn operator(&self, namespace: &str, now: Timestamp) -> Operator {
        for namespace in [namespace, crd::NAMESPACE] {
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
            let lease = self.get::<LeaseView>("get the operator's lease", &path, LEASE_NAME);
            let found = lease.await.ok().and_then(|lease| operator_of(&lease, now));
            if let Some(operator) = found {
                return operator;
            }
        }
        let path = "/apis/coordination.k8s.io/v1/leases";
        let named = Some(format!("metadata.name={LEASE_NAME}"));
        let leases = self.list::<LeaseView>("list the leases of operators", path, None, named);
        match leases.await {
            Ok(mut leases) => {
                leases.sort_by_key(|lease| Reverse(lease.spec.renew_time));
                let mut operators = leases.iter().filter_map(|lease| operator_of(lease, now));
                operators.next().unwrap_or(Operator::NoLease)
            }
            // It may be anywhere.
            Err(_) => Operator::Unknown,
        }
    }
}

/// The operator that a lease shows; nothing if the lease was never held.
fn operator_of(lease: &LeaseView, now: Timestamp) -> Option<Operator> {
    let spec = &lease.spec;
    let since = spec.renew_time?;
    let (holder, namespace) = (
        spec.holder_identity.clone(),
        lease.metadata.namespace.clone(),
    );
    let seconds = spec
        .lease_duration_seconds
        .map_or(lease::DURATION.as_secs(), u64::from);
    let age = now.duration_since(since).as_secs();
    let is_silent = holder.is_empty() || u64::try_from(age).is_ok_and(|age| age > seconds);
    Some(if is_silent {
        Operator::Silent {
            holder,
            since,
            namespace,
        }
    } else {
        Operator::Alive { holder, namespace }
    })
}
