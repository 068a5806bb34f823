//! The job kinds and roles, with the facts about each that the contract fixes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::types::RestartPolicy;

/// One job kind in one API version.
///
/// `MPIJob` exists twice because its two versions run different transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `kubeflow.org/v1` `PyTorchJob`.
    PyTorch,
    /// `kubeflow.org/v1` `TFJob`.
    Tf,
    /// `kubeflow.org/v1` `MPIJob`, ranks started by remote exec.
    MpiV1,
    /// `kubeflow.org/v2beta1` `MPIJob`, ranks started by ssh.
    MpiV2,
    /// `kubeflow.org/v1` `XGBoostJob`.
    XgBoost,
    /// `kubeflow.org/v1` `PaddleJob`.
    Paddle,
    /// `kubeflow.org/v1` `JAXJob`.
    Jax,
    /// `trainer.kubeflow.org/v1alpha1` `TrainJob`, resolved with its runtime.
    Train,
}

impl Kind {
    /// Every kind that the operator runs by default, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::PyTorch,
        Self::Tf,
        Self::MpiV1,
        Self::XgBoost,
        Self::Paddle,
        Self::Jax,
        Self::MpiV2,
    ];

    /// Every kind that is read from files, and that the operator can run: those that it runs by default, then `TrainJob`.
    pub const READ: [Self; Self::ALL.len() + 1] = {
        let mut read = [Self::Train; Self::ALL.len() + 1];
        let mut at = 0;
        while at < Self::ALL.len() {
            read[at] = Self::ALL[at];
            at += 1;
        }
        read
    };

    /// Finds the kind of an object by its `apiVersion` and `kind`.
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        Self::READ
            .into_iter()
            .find(|k| k.api_version() == api_version && k.name() == kind)
    }

    /// The `kind` of the object.
    pub fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "PyTorchJob",
            Self::Tf => "TFJob",
            Self::MpiV1 | Self::MpiV2 => "MPIJob",
            Self::XgBoost => "XGBoostJob",
            Self::Paddle => "PaddleJob",
            Self::Jax => "JAXJob",
            Self::Train => "TrainJob",
        }
    }

    /// The `apiVersion` of the object.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::MpiV2 => "kubeflow.org/v2beta1",
            Self::Train => "trainer.kubeflow.org/v1alpha1",
            _ => "kubeflow.org/v1",
        }
    }

    /// The field of `spec` that maps roles to their specs. A `TrainJob` has its roles from its runtime and no such field.
    pub fn replica_map(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorchReplicaSpecs",
            Self::Tf => "tfReplicaSpecs",
            Self::MpiV1 | Self::MpiV2 => "mpiReplicaSpecs",
            Self::XgBoost => "xgbReplicaSpecs",
            Self::Paddle => "paddleReplicaSpecs",
            Self::Jax => "jaxReplicaSpecs",
            Self::Train => "trainer",
        }
    }

    /// The roles a job of this kind may have, in the order its pods are listed.
    pub fn roles(self) -> &'static [Role] {
        match self {
            Self::PyTorch | Self::XgBoost | Self::Paddle => &[Role::Master, Role::Worker],
            Self::Tf => &[
                Role::Chief,
                Role::Master,
                Role::Ps,
                Role::Worker,
                Role::Evaluator,
            ],
            Self::MpiV1 | Self::MpiV2 => &[Role::Launcher, Role::Worker],
            Self::Jax => &[Role::Worker],
            Self::Train => &[
                Role::DatasetInitializer,
                Role::ModelInitializer,
                Role::Launcher,
                Role::Node,
            ],
        }
    }

    /// The name of the container that trains. MPI uses the first container whatever its name.
    pub fn container(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch",
            Self::Tf => "tensorflow",
            Self::MpiV1 | Self::MpiV2 => "mpi",
            Self::XgBoost => "xgboost",
            Self::Paddle => "paddle",
            Self::Jax => "jax",
            Self::Train => "node",
        }
    }

    /// The name and number of the rendezvous port; MPI has none, and the port of a `TrainJob` has no name.
    pub fn port(self) -> Option<(&'static str, i32)> {
        match self {
            Self::PyTorch => Some(("pytorchjob-port", 23456)),
            Self::Tf => Some(("tfjob-port", 2222)),
            Self::XgBoost => Some(("xgboostjob-port", 9999)),
            Self::Paddle => Some(("master", 36543)),
            Self::Jax => Some(("jaxjob-port", 6666)),
            Self::MpiV1 | Self::MpiV2 | Self::Train => None,
        }
    }

    /// The restart policy of a role that states none.
    pub fn default_restart_policy(self, role: Role) -> RestartPolicy {
        match (self, role) {
            (Self::PyTorch | Self::Paddle | Self::Train, _) | (Self::MpiV2, Role::Launcher) => {
                RestartPolicy::OnFailure
            }
            _ => RestartPolicy::Never,
        }
    }

    /// The value of the `operator-name` label.
    pub fn controller(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorchjob-controller",
            Self::Tf => "tfjob-controller",
            Self::MpiV1 => "mpijob-controller",
            Self::MpiV2 => "mpi-operator",
            Self::XgBoost => "xgboostjob-controller",
            Self::Paddle => "paddlejob-controller",
            Self::Jax => "jaxjob-controller",
            Self::Train => "trainjob-controller",
        }
    }

    /// The `managedBy` value that means this operator.
    pub fn own_manager(self) -> &'static str {
        match self {
            Self::MpiV2 => "kubeflow.org/mpi-operator",
            Self::Train => "trainer.kubeflow.org/trainjob-controller",
            _ => "kubeflow.org/training-operator",
        }
    }

    /// The API group of the object.
    pub fn group(self) -> &'static str {
        let (group, _) = self.api_version().split_once('/').unwrap_or_default();
        group
    }

    /// The version part of `apiVersion`.
    pub fn version(self) -> &'static str {
        let (_, version) = self.api_version().split_once('/').unwrap_or_default();
        version
    }

    /// Whether this kind is one of the two `MPIJob` versions.
    pub fn is_mpi(self) -> bool {
        matches!(self, Self::MpiV1 | Self::MpiV2)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A replica type. The order is the order in which pods are listed and created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// `TrainJob`: fetches the data set before the training.
    DatasetInitializer,
    /// `TrainJob`: fetches the model before the training.
    ModelInitializer,
    /// `TFJob`: the coordinator, which saves checkpoints.
    Chief,
    /// `MPIJob`, `TrainJob`: the process that runs `mpirun`.
    Launcher,
    /// Rank 0 and rendezvous of most kinds; an old name of Chief in `TFJob`.
    Master,
    /// `TFJob`: parameter server.
    #[serde(rename = "PS")]
    Ps,
    /// A rank that computes.
    Worker,
    /// `TFJob`: evaluates checkpoints beside the training.
    Evaluator,
    /// `TrainJob`: a node that trains.
    Node,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 9] = [
        Self::DatasetInitializer,
        Self::ModelInitializer,
        Self::Chief,
        Self::Launcher,
        Self::Master,
        Self::Ps,
        Self::Worker,
        Self::Evaluator,
        Self::Node,
    ];

    /// The key of the role in a job file and in `replicaStatuses`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chief => "Chief",
            Self::Launcher => "Launcher",
            Self::Master => "Master",
            Self::Ps => "PS",
            Self::Worker => "Worker",
            Self::Evaluator => "Evaluator",
            Self::Node => "Node",
            Self::DatasetInitializer => "DatasetInitializer",
            Self::ModelInitializer => "ModelInitializer",
        }
    }

    /// The lower-case form used in pod names and labels.
    pub fn lower(self) -> &'static str {
        match self {
            Self::Chief => "chief",
            Self::Launcher => "launcher",
            Self::Master => "master",
            Self::Ps => "ps",
            Self::Worker => "worker",
            Self::Evaluator => "evaluator",
            Self::Node => "node",
            Self::DatasetInitializer => "dataset-initializer",
            Self::ModelInitializer => "model-initializer",
        }
    }

    /// Whether it prepares the training and does not train itself.
    pub fn is_initializer(self) -> bool {
        matches!(self, Self::DatasetInitializer | Self::ModelInitializer)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
