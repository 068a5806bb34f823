//! `XGBoostJob` (and LightGBM): the tracker's address for all, and the list of all workers.

use k8s_openapi::api::core::v1::{EnvVar, PodSpec};

use super::{
    LaunchError,
    env::{append, variable},
    pod::required_port,
};
use crate::spec::{Job, Role, Slot};

/// How the ranks of an `XGBoostJob` find each other.
#[derive(Debug)]
pub(super) struct Wiring {
    /// Variables before the rank, the same for every pod.
    before: Vec<EnvVar>,
    /// How many masters are ranked before the first worker.
    masters: u32,
    /// Variables after the rank, the same for every pod.
    after: Vec<EnvVar>,
}

impl Wiring {
    pub(super) fn new(job: &Job) -> Result<Self, LaunchError> {
        let total = job.total_replicas();
        let before = vec![
            variable("MASTER_PORT", required_port(job, Role::Master)?.to_string()),
            variable("MASTER_ADDR", job.pod_name(Slot::new(Role::Master, 0))),
            variable("WORLD_SIZE", total.to_string()),
        ];
        let mut after = vec![variable("PYTHONUNBUFFERED", "1")];
        if total > 1 {
            let workers: Vec<String> = (0..total - 1)
                .map(|index| job.pod_name(Slot::new(Role::Worker, index)))
                .collect();
            after.extend([
                variable("WORKER_PORT", required_port(job, Role::Worker)?.to_string()),
                variable("WORKER_ADDRS", workers.join(",")),
            ]);
        }
        Ok(Self {
            before,
            masters: job.role_replicas(Role::Master),
            after,
        })
    }

    /// Adds the variables of `slot`.
    pub(super) fn finish(&self, slot: Slot, spec: &mut PodSpec) {
        let rank = match slot.role {
            Role::Master => slot.index,
            _ => slot.index.saturating_add(self.masters),
        };
        for container in &mut spec.containers {
            let before = self.before.iter().cloned();
            let rank = [variable("RANK", rank.to_string())];
            append(
                container,
                before.chain(rank).chain(self.after.iter().cloned()),
            );
        }
    }
}
