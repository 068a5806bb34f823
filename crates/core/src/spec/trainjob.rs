//! `TrainJob` of Kubeflow Trainer: the job, its runtime, and what the two are together.
//!
//! Owns the way from a `TrainJob` and a `TrainingRuntime` to a [`Job`]: patches, overrides, counts, processes per
//! node. The pods that follow are `launch`'s. A runtime comes from the same files or is one of those that
//! are built in.
//!
//! Invariant: a runtime is only ever read; the same two documents give the same job.

mod cluster;
mod fields;
mod initializer;
mod merge;
mod patch;
mod policy;
mod resolve;
mod runtime;
mod runtimes;
#[cfg(test)]
mod tests;
mod tune;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{Document, Framework, Job, Node, Role};

pub(crate) use cluster::document_with_runtime;
pub use cluster::{RuntimeName, foreign_manager, runtime_from_text, train_job_from_value};
pub use fields::{RuntimeSpec, TrainJobSpec};
pub(super) use resolve::job;
pub use runtime::BUNDLED;
pub(crate) use runtimes::{Runtimes, add_runtimes, share_runtimes_beside};
pub use runtimes::{share_runtimes, unused_runtimes};
pub use tune::Tune;

/// The group of a `TrainJob` and its runtimes.
pub(super) const GROUP: &str = "trainer.kubeflow.org";
/// The `apiVersion` of a `TrainJob` and its runtimes.
pub(super) const API_VERSION: &str = "trainer.kubeflow.org/v1alpha1";
/// The port at which nodes meet.
pub(super) const PORT: u16 = 29500;

/// Kinds of runtimes.
pub(crate) const RUNTIMES: [&str; 2] = ["ClusterTrainingRuntime", "TrainingRuntime"];

/// What a `TrainJob` has from its runtime.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a statement of its own of the runtime"
)]
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// The runtime, for sentences.
    pub runtime: String,
    /// How the nodes find each other.
    pub policy: Policy,
    /// Whether the job states `trainer`: without it, the runtime's pods run as they are.
    pub wired: bool,
    /// Variables that are inserted here in the environment of the trainer, before those of `trainer.env`.
    pub variables_at: usize,
    /// Whether other roles' replicas follow from the number of nodes, as with `runLauncherAsNode`.
    pub launcher_is_node: bool,
    /// Processes per node: `auto` or a number.
    pub processes: String,
    /// GPUs of a node.
    pub gpus: u64,
    /// The port at which nodes meet.
    pub port: u16,
    /// The Service of all pods, and the subdomain of their names.
    pub subdomain: String,
    /// Whether there is such a Service.
    pub has_service: bool,
    /// Whether it names pods that are not ready.
    pub names_unready: bool,
    /// The roles in the order of the runtime.
    pub order: Vec<Role>,
    /// What each role waits for.
    pub after: BTreeMap<Role, Vec<(Role, After)>>,
    /// When the job has succeeded.
    pub success: Success,
    /// The pod that the runtime names as the coordinator.
    pub coordinator: Option<String>,
    /// Claims that are created with the job, and whether they stay when it is deleted.
    pub claims: Vec<(PersistentVolumeClaim, bool)>,
    /// The group of a role, where it is not `default`.
    pub groups: BTreeMap<Role, String>,
    /// How often a failed initializer runs again. What it fails is not on the budget of the job.
    pub retries: BTreeMap<Role, u32>,
    /// Labels of the runtime's template, which all pods and their Service have.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the same.
    pub annotations: BTreeMap<String, String>,
}

/// How nodes find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Not at all.
    #[default]
    Plain,
    /// Variables of `torchrun`, in the trainer and in other containers by role.
    Torch {
        /// Containers that are given the same variables.
        also: Vec<(Role, Vec<String>)>,
        /// What is added to the command `tune run`, where that is the program.
        tune: Option<Box<Tune>>,
    },
    /// Variables of `jax.distributed`.
    Jax,
    /// Variables of the tracker.
    XgBoost,
    /// A hostfile, and keys for ssh.
    Mpi {
        /// Ranks per host.
        slots: u32,
        /// Where keys are mounted.
        ssh_path: String,
    },
}

/// What a role waits for in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// All its pods are ready.
    Ready,
    /// All its pods have succeeded.
    Complete,
}

/// When a `TrainJob` has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Success {
    /// When all of these roles have.
    All(Vec<Role>),
    /// When one of these roles has.
    Any(Vec<Role>),
}

impl Job {
    /// What a `TrainJob` has from its runtime.
    pub fn train(&self) -> Option<&Train> {
        match &self.framework {
            Framework::Train(own) => Some(own),
            _ => None,
        }
    }
}

impl Document {
    /// Whether the document is a runtime of `TrainJob`s, of whatever version.
    pub fn is_runtime(&self) -> bool {
        is_runtime(&self.tree)
    }
}

fn is_runtime(tree: &Node) -> bool {
    let text = |key: &str| tree.get(key).and_then(|entry| entry.value.as_str());
    let group = text("apiVersion").and_then(|version| version.split('/').next());
    group == Some(GROUP) && text("kind").is_some_and(|kind| RUNTIMES.contains(&kind))
}

/// Sets the variable `name` in every container of `job`, in place of one that is there.
pub fn set_in_all(job: &mut Job, name: &str, value: &str) {
    for role in job.roles.values_mut() {
        let Some(spec) = &mut role.template.spec else {
            continue;
        };
        let inits = spec.init_containers.iter_mut().flatten();
        for container in spec.containers.iter_mut().chain(inits) {
            let variable = resolve::variable(name, value);
            merge::upsert_all(container.env.get_or_insert_default(), [variable]);
        }
    }
}
