//! The authority by which leaders authenticate the operator, kept up to date in pods that run.
//!
//! It travels in an annotation of the pod that leads; the kubelet brings a change into the pod's files within a minute or two, and a
//! supervisor reads the file for each connection. A renewed authority has the one before beside it, so nothing breaks meanwhile but
//! connections that are made again before the kubelet has come by.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, warn};
use trainyard_core::{
    job::{Observed, PodPhase, SeenGang},
    launch::supervise,
    spec::{Job, annotation},
};

use super::Operator;
use crate::{key::JobKey, path::object_path, pod::authority_hash, view::PodView};

/// How soon a write that failed is tried again: well before the authority of before has run out.
const AGAIN: Duration = Duration::from_secs(30);

/// The authority for which all gangs were processed last.
#[derive(Debug)]
pub(super) struct Trust {
    authority: Option<String>,
}

impl Trust {
    pub(super) fn new(operator: &Operator) -> Self {
        let authority = operator.authority();
        Self { authority }
    }

    /// Processes all gangs where the authority has changed: nothing else would happen to a job that trains.
    pub(super) fn announce(&mut self, operator: &Operator) {
        let authority = operator.authority();
        if authority.is_none() || authority == self.authority {
            return;
        }
        self.authority = authority;
        let gangs = operator.gangs.registry().keys();
        debug!(
            gangs = gangs.len(),
            "The certificate for leaders of gangs has changed"
        );
        for key in gangs {
            operator.enqueue_job(key);
        }
    }
}

impl Operator {
    /// The authority of the certificate that leaders are served with.
    fn authority(&self) -> Option<String> {
        self.gangs.served.get()?.certificate.authority()
    }

    /// Writes the authority to the pod that leads, where that one was created with another. Where that fails, the result is when to try again:
    /// nothing else would happen to a job that trains.
    pub(crate) async fn renew_trust(
        &self,
        key: &JobKey,
        job: &Job,
        observed: &Observed,
    ) -> Option<Instant> {
        if !matches!(observed.gang, SeenGang::Here(_)) {
            return None;
        }
        let (authority, leader) = (self.authority()?, supervise::leading_slot(job)?);
        let mut pods = observed.pods.iter();
        let pod = pods.find(|pod| pod.slot == leader && pod.deleted_at.is_none());
        let pod = pod.filter(|pod| matches!(pod.phase, PodPhase::Pending | PodPhase::Running))?;
        let known = self.state.store().gang_ca(key, &pod.uid)?;
        if known == authority_hash(&authority) {
            return None;
        }
        let field = annotation::GANG_CA.replace('/', "~1");
        let operations = json!([
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "replace", "path": format!("/metadata/annotations/{field}"), "value": authority},
        ]);
        let name = job.pod_name(leader);
        let path = object_path(&key.namespace, "pods");
        let patched = self
            .caller
            .json_patched::<PodView>(&path, &name, &operations);
        match patched.await {
            Ok(pod) => {
                self.state.store().remember_pod(&pod);
                None
            }
            // Deleted or replaced: its watch event will come.
            Err(error)
                if error.is_not_found() || error.is_conflict() || error.code() == Some(422) =>
            {
                None
            }
            Err(error) => {
                warn!(job = %key, %error, "Cannot write the renewed CA to the pod that leads the gang; retrying");
                Some(Instant::now() + AGAIN)
            }
        }
    }
}
