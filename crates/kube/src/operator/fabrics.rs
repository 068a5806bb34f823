//! Fabrics of the cluster: watched from the first job on that names one.

use std::{sync::Arc, time::Duration};

use tracing::{debug, info, warn};
use trainyard_core::{
    fabric::{self, Fabric},
    job::{JobStatus, SeenFabric},
    spec::Job,
};

use super::Operator;
use crate::{
    crd,
    feed::{self, Scope, Source},
    key::JobKey,
    view::FabricView,
};

/// How often listing fabrics is retried.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Operator {
    /// What there is of the fabric that a job names.
    pub(crate) fn seen_fabric(&self, key: &JobKey, job: &Job) -> SeenFabric {
        // The other operator, which is compared in shadow, has no fabrics.
        let Some(name) = job
            .settings
            .fabric
            .as_ref()
            .filter(|_| !self.options.shadow)
        else {
            return SeenFabric::Unused;
        };
        let seen = self.state.store().fabric(name, key);
        if seen == SeenFabric::Unknown {
            self.fabrics_asked.notify_one();
        }
        seen
    }

    /// Watches the fabrics from the first job on that names one.
    pub(super) async fn watch_fabrics(self) {
        self.fabrics_asked.notified().await;
        let (group, version) = crd::fabric_group_and_version();
        let source = Source {
            path: format!("/apis/{group}/{version}/{}", crd::FABRICS),
            labels: None,
            fields: None,
        };
        let client = &self.caller.client;
        loop {
            let why = match feed::list::<FabricView>(client, &source).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 404 => format!(
                    "this cluster does not serve `{}` of `{group}/{version}`: install the CRDs of this release",
                    crd::FABRICS
                ),
                Err(kube::Error::Api(status)) if status.code == 403 => format!(
                    "the operator may not list `{}` of `{group}`, which needs cluster-wide rights",
                    crd::FABRICS
                ),
                Err(error) => {
                    debug!(%error, "Cannot list fabrics; retrying");
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
            };
            let changed = self.state.store().mark_fabrics_unavailable(why.clone());
            if !changed.is_empty() {
                warn!(sentence = why, "Jobs wait for a fabric");
            }
            self.queue.enqueue_all(changed);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        info!("Watching fabrics");
        let (state, queue) = (self.state.clone(), Arc::clone(&self.queue));
        let metrics = &self.caller.metrics;
        let pulse = self.feeds.expect(&source.path, Scope::Reported, metrics);
        feed::list_and_watch_with::<FabricView>(client.clone(), source, pulse, move |news| {
            let changed = state.store().update_fabrics(news);
            queue.enqueue_all(changed);
        })
        .await;
    }
}

/// `job` as its attempt is launched: on the fabric that the attempt is on, or, before that is settled, on
/// the one that is there.
pub(super) fn fitted(job: &Job, status: &JobStatus, seen: &SeenFabric) -> Option<Job> {
    let settled = status.trainyard.fabric.as_ref();
    let fabric = match (settled, seen) {
        (Some(in_use), _) if in_use.spec.is_some() => in_use.fabric()?,
        (Some(_), SeenFabric::There(spec)) => Fabric {
            name: job.settings.fabric.clone()?,
            spec: (**spec).clone(),
        },
        // Before its first attempt.
        (None, SeenFabric::There(spec)) if status.trainyard.attempt == 0 => Fabric {
            name: job.settings.fabric.clone()?,
            spec: (**spec).clone(),
        },
        _ => return None,
    };
    Some(fabric::fit(job, &fabric).job)
}
