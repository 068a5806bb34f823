//! What a job becomes: pods with their environment, services, config.
//!
//! Owns the way from a [`Job`] to the Kubernetes objects that run it, exactly as the operator
//! creates them. It never decides *when* an object is made (that is [`crate::job`]) nor *where* a
//! pod runs, and it makes no keys: randomness is an argument.
//!
//! One file per framework holds its wiring: how its ranks find each other. The rest serves them
//! all: `pod` (names, labels, owner, restart policy), `service`, `autoscaler`, `group` (the gang for another
//! scheduler), and `plan`, which joins the parts.
//!
//! Invariant: the same job gives the same bytes, and what the user wrote in a template survives:
//! lists are only appended to, and only the fields that the contract names are set. The exceptions
//! are the finalizers of an `MPIJob`'s template, which that kind never carried over, and the command
//! of its workers where the agent starts the ranks.

mod account;
pub mod agent;
mod autoscaler;
pub mod checkpoints;
mod claim;
mod env;
pub mod evidence;
mod fields;
mod group;
mod jax;
mod mpi;
mod mpi_v1;
mod mpi_v2;
mod network_policy;
mod object;
mod operator_files;
mod paddle;
mod plan;
mod pod;
pub mod preflight;
pub mod push;
mod pytorch;
mod scheduler;
mod seat;
mod service;
mod shared;
pub mod supervise;
mod tensorflow;
#[cfg(test)]
mod tests;
mod train;
mod xgboost;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::spec::{Job, Role, Slot};

pub use account::{Account, account_refusal};
pub use agent::AgentIdentity;
pub use autoscaler::autoscaler;
pub use checkpoints::{Counting, StartPoint};
pub use claim::{Claim, Claimant};
pub use fields::removed_fields;
pub use group::{Group, GroupApi, NativeApi};
pub(crate) use mpi::given_volumes;
pub use mpi::transport;
pub use mpi_v1::names_account;
pub use network_policy::{NetworkPolicyMode, preflight_policy};
pub use object::{Existing, LaunchedPod, Object};
pub use plan::{Plan, render};
pub(crate) use pod::label as pod_label;
pub use pod::slot_of;
pub use scheduler::GangScheduler;
pub use seat::{GATE, HOSTNAME, release, take_seat};
pub use service::service;
pub use shared::{Keys, SshKey, shared};

/// What the cluster's administrator decided for all jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The DNS domain of the cluster, such as `cluster.local`. Where it is stated, addresses are
    /// written in full; without it they end in `.svc`.
    pub domain: Option<String>,
    /// The image in which `PyTorchJob` workers wait for the master's name, where they do.
    pub init_container_image: String,
    /// How often they look before they give up.
    pub init_container_tries: u32,
    /// The image that brings `kubectl` to the launcher of an `MPIJob` v1.
    pub kubectl_delivery_image: String,
    /// The image that brings the agent to the pods of an `MPIJob`; without one, ranks are started as
    /// the old operators do it.
    pub agent_image: Option<String>,
    /// Whether launchers of `MPIJob` v1 are given rights to start ranks by `kubectl exec`. The operator must hold
    /// these rights itself to grant them.
    pub launcher_rights: bool,
    /// The account that the operator runs as, where it runs as one; no job may use it.
    pub own_account: Option<Account>,
    /// Which ports are closed to others, in pods in which we listen.
    pub network_policy: NetworkPolicyMode,
    /// The other scheduler that starts the gangs of jobs which do not say who does.
    pub gang_scheduler: Option<GangScheduler>,
    /// The shape in which it serves Kubernetes' own API for gangs.
    pub native: NativeApi,
    /// Where the leaders of gangs connect to, so that gangs can restart in place; without it no pod has a supervisor.
    pub gang: Option<supervise::GangServer>,
    /// Ports of single pods in place of their template's, where all pods share one machine. Only
    /// `TFJob` can give its ranks a port for each pod.
    pub ports: BTreeMap<Slot, i32>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            domain: None,
            init_container_image: "alpine:3.10".to_owned(),
            init_container_tries: 100,
            kubectl_delivery_image: "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
                .to_owned(),
            agent_image: None,
            launcher_rights: true,
            own_account: None,
            network_policy: NetworkPolicyMode::default(),
            gang_scheduler: None,
            native: NativeApi::default(),
            gang: None,
            ports: BTreeMap::new(),
        }
    }
}

impl Cluster {
    /// The domain to write behind `.svc.`, where one is stated.
    ///
    /// Administrators also give it as `svc.cluster.local`; both mean the same.
    fn stated_domain(&self) -> Option<&str> {
        let domain = self.domain.as_deref()?;
        let domain = domain.strip_prefix("svc.").unwrap_or(domain);
        Some(domain).filter(|domain| !domain.is_empty())
    }

    /// The image of the agent, where there is one.
    fn agent_image(&self) -> Option<&str> {
        self.agent_image
            .as_deref()
            .filter(|image| !image.is_empty())
    }
}

/// Why a job cannot become objects.
///
/// A validated job gives only those that depend on the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LaunchError {
    /// A slot or the rendezvous is in a role that the job does not declare.
    #[error("role `{role}` is not declared")]
    UndeclaredRole {
        /// The role.
        role: Role,
    },
    /// A template without a container to start.
    #[error("the template of role `{role}` has no containers")]
    NoContainer {
        /// The role.
        role: Role,
    },
    /// A job that asks for the agent on a cluster without its image.
    #[error(
        "`trainyard.dev/mpi-transport` is `agent`, but this operator has no agent image; set \
         `--agent-image`"
    )]
    NoAgentImage,
    /// A job whose ranks are started by `kubectl exec` on a cluster that grants launchers no rights.
    #[error(
        "the launcher would start its ranks with `kubectl exec`, for which this operator grants no rights; remove what \
         asks for `kubectl` (the annotation `trainyard.dev/mpi-transport`, a command or a volume), so that the agent \
         starts them, or run the operator with `--mpi-launcher-rights` (chart: `mpi.launcherRights=true`)"
    )]
    NoLauncherRights,
    /// The same where there is no agent either.
    #[error(
        "the launcher would start its ranks with `kubectl exec`, for which this operator grants no rights, and it has no \
         agent image; run it with `--agent-image`, or with `--mpi-launcher-rights` (chart: \
         `mpi.launcherRights=true`)"
    )]
    NoAgentNorRights,
    /// A job that requires a preflight on a cluster without the image of the program.
    #[error(
        "`trainyard.dev/preflight` is `required`, but this operator has no image of the \
         program that measures; set `--agent-image`"
    )]
    NoPreflightImage,
}

/// The pod of `slot`, as part of `attempt`.
///
/// For many pods of one job use a [`Plan`]: it computes what all pods share only once.
pub fn pod(
    job: &Job,
    slot: Slot,
    attempt: u32,
    cluster: &Cluster,
) -> Result<LaunchedPod, LaunchError> {
    Plan::new(job, cluster)?.pod(slot, attempt)
}
