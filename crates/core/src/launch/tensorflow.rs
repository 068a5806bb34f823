//! `TFJob`: `TF_CONFIG`, in the container named `tensorflow`.
//!
//! The dense form lists every pod of the job; the sparse form (`enableDynamicWorker`) gives a pod
//! only what it needs, so that workers can come and go.
//!
//! Invariant: the text is the contract's byte for byte, since scripts compare and hash it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::json;

use super::{
    Cluster,
    env::{append, variable},
    pod,
};
use crate::spec::{Job, Kind, Role, Slot, Tf};

/// How the ranks of a `TFJob` find each other.
#[derive(Debug)]
pub(super) enum Wiring {
    /// One pod needs no one.
    Alone,
    /// Everyone knows everyone; the `cluster` part, as JSON.
    Dense(String),
    /// Workers know themselves and the parameter servers.
    Sparse {
        /// Addresses by role.
        addresses: Addresses,
        /// The parameter servers, as JSON; `null` without that role.
        servers: String,
    },
}

impl Wiring {
    pub(super) fn new(job: &Job, tf: Tf, cluster: &Cluster) -> Self {
        if job.total_replicas() == 1 {
            return Self::Alone;
        }
        let addresses = Addresses::new(job, cluster);
        let all = |role| -> Vec<String> {
            (0..job.role_replicas(role))
                .map(|index| addresses.of(Slot::new(role, index)))
                .collect()
        };
        if tf.dynamic_worker {
            let servers = job.roles.contains_key(&Role::Ps).then(|| all(Role::Ps));
            let servers = json!(servers).to_string();
            return Self::Sparse { addresses, servers };
        }
        let by_role: BTreeMap<&str, Vec<String>> = job
            .roles
            .keys()
            .map(|role| (role.lower(), all(*role)))
            .collect();
        Self::Dense(json!(by_role).to_string())
    }

    /// Adds the variable of `slot`.
    pub(super) fn finish(&self, slot: Slot, spec: &mut PodSpec) {
        let Some(config) = self.config(slot) else {
            return;
        };
        let training = spec
            .containers
            .iter_mut()
            .find(|container| container.name == Kind::Tf.container());
        if let Some(container) = training {
            append(container, [variable("TF_CONFIG", config)]);
        }
    }

    fn config(&self, slot: Slot) -> Option<String> {
        let task = format!(
            r#""task":{{"type":"{}","index":{}}}"#,
            slot.role.lower(),
            slot.index
        );
        Some(match self {
            Self::Alone => return None,
            Self::Dense(cluster) => {
                format!(r#"{{"cluster":{cluster},{task},"environment":"cloud"}}"#)
            }
            Self::Sparse { addresses, servers } => {
                let own = json!(addresses.of(slot));
                let cluster = match slot.role {
                    Role::Worker => {
                        format!(r#"{{"worker":{{"{}":{own}}},"ps":{servers}}}"#, slot.index)
                    }
                    Role::Ps => format!(r#"{{"worker":{{}},"ps":[{own}]}}"#),
                    _ => r#"{"worker":{},"ps":[]}"#.to_owned(),
                };
                format!(r#"{{"cluster":{cluster},{task}}}"#)
            }
        })
    }
}

/// The addresses of the pods of one job.
#[derive(Debug)]
pub(super) struct Addresses {
    job_name: String,
    /// What follows the pod's name, with the leading dot.
    domain: String,
    ports: BTreeMap<Role, i32>,
    /// Ports of single pods, which come before their role's.
    own_ports: BTreeMap<Slot, i32>,
}

impl Addresses {
    fn new(job: &Job, cluster: &Cluster) -> Self {
        let fallback = Kind::Tf.port().map_or(0, |(_, number)| number);
        let ports = job
            .roles
            .keys()
            .map(|role| (*role, job.rendezvous_port(*role).unwrap_or(fallback)))
            .collect();
        Self {
            job_name: job.name.as_str().to_owned(),
            domain: pod::service_domain(job, cluster),
            ports,
            own_ports: cluster.ports.clone(),
        }
    }

    fn of(&self, slot: Slot) -> String {
        let Self {
            job_name, domain, ..
        } = self;
        let own = self.own_ports.get(&slot);
        let port = own.or_else(|| self.ports.get(&slot.role));
        let port = port.copied().unwrap_or_default();
        format!(
            "{job_name}-{}-{}{domain}:{port}",
            slot.role.lower(),
            slot.index
        )
    }
}
