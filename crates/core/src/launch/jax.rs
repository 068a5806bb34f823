//! `JAXJob`: the coordinator's address and the process number, in every container.

use k8s_openapi::api::core::v1::{EnvVar, PodSpec};

use super::{
    LaunchError,
    env::{append, variable},
    pod::required_port,
};
use crate::spec::{Job, Role, Slot};

/// How the ranks of a `JAXJob` find each other.
#[derive(Debug)]
pub(super) struct Wiring {
    /// Variables that every pod has.
    every: Vec<EnvVar>,
}

impl Wiring {
    pub(super) fn new(job: &Job) -> Result<Self, LaunchError> {
        let port = required_port(job, Role::Worker)?;
        Ok(Self {
            every: vec![
                variable("PYTHONUNBUFFERED", "1"),
                variable("COORDINATOR_PORT", port.to_string()),
                variable(
                    "COORDINATOR_ADDRESS",
                    job.pod_name(Slot::new(Role::Worker, 0)),
                ),
                variable("NUM_PROCESSES", job.total_replicas().to_string()),
            ],
        })
    }

    /// Adds the variables of `slot`.
    pub(super) fn finish(&self, slot: Slot, spec: &mut PodSpec) {
        for container in &mut spec.containers {
            let own = [variable("PROCESS_ID", slot.index.to_string())];
            append(container, self.every.iter().cloned().chain(own));
        }
    }
}
