//! The job as the rest of core sees it: complete, defaulted, valid.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::{autoscaling::v2::MetricSpec, core::v1::PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::{
    Compat, JobName, JobSettings, Kind, Namespace, RestartScope, Role, defaults, trainjob::Train,
};

/// How many pods each role wants.
pub type Replicas = BTreeMap<Role, u32>;

/// The `metadata.uid` of the job object, where it has one.
pub type JobUid = String;

/// One training job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its kind and API version.
    pub kind: Kind,
    /// `metadata.name`.
    pub name: JobName,
    /// `metadata.namespace`, `default` when the file states none.
    pub namespace: Namespace,
    /// `metadata.uid`; a file has none.
    pub uid: Option<JobUid>,
    /// `metadata.annotations`, as written.
    pub annotations: BTreeMap<String, String>,
    /// The roles that the job declares. Never empty.
    pub roles: BTreeMap<Role, RoleSpec>,
    /// `spec.runPolicy`.
    pub run_policy: RunPolicy,
    /// What only this kind has.
    pub framework: Framework,
    /// Our own settings, from `trainyard.dev/…` annotations.
    pub settings: JobSettings,
}

impl Job {
    /// How many pods each role wants.
    pub fn replicas(&self) -> Replicas {
        self.roles
            .iter()
            .map(|(role, spec)| (*role, spec.replicas))
            .collect()
    }

    /// How many pods the job wants in all.
    pub fn total_replicas(&self) -> u32 {
        self.roles.values().map(|spec| spec.replicas).sum()
    }

    /// How many pods `role` wants; none when it is not declared.
    pub fn role_replicas(&self, role: Role) -> u32 {
        self.roles.get(&role).map_or(0, |spec| spec.replicas)
    }

    /// Every slot of the job, in listing order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.roles
            .iter()
            .flat_map(|(role, spec)| (0..spec.replicas).map(|index| Slot { role: *role, index }))
    }

    /// Whether the launcher is made only when the workers run.
    pub fn launcher_waits(&self) -> bool {
        match &self.framework {
            Framework::MpiV1(_) => !self.settings.compat.contains(&Compat::LauncherEarly),
            Framework::MpiV2(own) => own.launcher_creation == LauncherCreation::WaitForWorkersReady,
            _ => false,
        }
    }

    /// The elastic bounds, where the job is an elastic `PyTorchJob`.
    ///
    /// `PaddleJob` has the same fields, but its launcher does not get them, so there they
    /// change nothing.
    pub fn elastic(&self) -> Option<&Elastic> {
        match &self.framework {
            Framework::PyTorch(pytorch) => pytorch.elastic.as_ref(),
            _ => None,
        }
    }

    /// Whether one failed pod restarts the gang or only itself.
    ///
    /// Ranks of a collective job block on each other without a bound, so one failure must restart all.
    pub fn restart_scope(&self) -> RestartScope {
        self.settings.restart_scope.unwrap_or(match self.kind {
            Kind::PyTorch if self.elastic().is_none() => RestartScope::Gang,
            Kind::Paddle if !self.roles.contains_key(&Role::Master) => RestartScope::Gang,
            Kind::Jax | Kind::MpiV1 | Kind::MpiV2 | Kind::Train => RestartScope::Gang,
            _ => RestartScope::Pod,
        })
    }

    /// The rendezvous port in pods of `role`: the number of the container port with the
    /// kind's port name, else the kind's own number. MPI and roles not declared have none.
    pub fn rendezvous_port(&self, role: Role) -> Option<i32> {
        defaults::rendezvous_port(self.kind, &self.roles.get(&role)?.template)
    }

    /// The index of the container that trains in pods of `role`.
    pub fn training_container(&self, role: Role) -> Option<usize> {
        defaults::training_container(self.kind, &self.roles.get(&role)?.template)
    }

    /// The name of the pod (and of its Service) in `slot`.
    pub fn pod_name(&self, slot: Slot) -> String {
        match slot.role {
            role if self.kind == Kind::Train => {
                format!("{}-{}-0-{}", self.name, role.lower(), slot.index)
            }
            Role::Launcher => format!("{}-launcher", self.name),
            role => format!("{}-{}-{}", self.name, role.lower(), slot.index),
        }
    }
}

/// One place of a role: the pod that is, was or will be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The role.
    pub role: Role,
    /// The index in the role, from 0.
    pub index: u32,
}

impl Slot {
    /// The slot `index` of `role`.
    pub fn new(role: Role, index: u32) -> Self {
        Self { role, index }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.index)
    }
}

/// What one role wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleSpec {
    /// How many pods.
    pub replicas: u32,
    /// What happens when one of them fails.
    pub restart_policy: RestartPolicy,
    /// The pod as the user wrote it, with the kind's port announced.
    pub template: PodTemplateSpec,
}

/// What happens when a pod of the role fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Restart whatever the exit code, success included.
    Always,
    /// Restart on failure.
    OnFailure,
    /// A failure ends the job.
    #[default]
    Never,
    /// Exit codes of 128 and more restart, others end the job.
    ExitCode,
}

/// `spec.runPolicy`, defaulted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunPolicy {
    /// Which pods are deleted when the job has ended; `None` when the user left it open.
    pub clean_pod_policy: Option<CleanPodPolicy>,
    /// Seconds after the end until the job object is deleted.
    pub ttl_seconds_after_finished: Option<u32>,
    /// Seconds from start after which the job fails.
    pub active_deadline_seconds: Option<u64>,
    /// Failures on the user account at which the job fails.
    pub backoff_limit: Option<u32>,
    /// Whether the job is suspended: it must have no pods.
    pub suspend: bool,
    /// The controller that owns the job, where it is stated.
    pub managed_by: Option<String>,
    /// Settings for gang schedulers.
    pub scheduling: Option<SchedulingPolicy>,
}

/// Which pods are deleted when the job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CleanPodPolicy {
    /// Every pod.
    All,
    /// Pods that run or wait; finished ones stay for their logs.
    Running,
    /// No pod.
    None,
}

/// `spec.runPolicy.schedulingPolicy`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulingPolicy {
    /// Pods that must start together.
    pub min_available: Option<u32>,
    /// Queue of the gang scheduler.
    pub queue: Option<String>,
    /// Resources the gang needs.
    pub min_resources: Option<BTreeMap<String, Quantity>>,
    /// Priority class of the gang for another scheduler; the operator itself goes by the priority of the pods.
    pub priority_class: Option<String>,
    /// How long the gang may wait for its seats.
    pub schedule_timeout_seconds: Option<u32>,
}

/// What only one kind has.
#[derive(Clone, Debug, PartialEq)]
pub enum Framework {
    /// `PyTorchJob`.
    PyTorch(PyTorch),
    /// `TFJob`.
    Tf(Tf),
    /// `MPIJob` v1.
    MpiV1(MpiV1),
    /// `MPIJob` v2beta1.
    MpiV2(MpiV2),
    /// `XGBoostJob` has no fields of its own.
    XgBoost,
    /// `PaddleJob`: elastic bounds are read and kept, but change nothing.
    Paddle(Option<Elastic>),
    /// `JAXJob` has no fields of its own.
    Jax,
    /// `TrainJob`: what it has from its runtime.
    Train(Box<Train>),
}

/// `PyTorchJob`'s own fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PyTorch {
    /// Processes per pod: `auto`, `cpu`, `gpu` or a number; unset only when the deprecated
    /// `elasticPolicy.nProcPerNode` is used.
    pub nproc_per_node: Option<String>,
    /// Elastic bounds and rendezvous.
    pub elastic: Option<Elastic>,
}

/// `elasticPolicy`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elastic {
    /// Fewest workers that train.
    pub min_replicas: u32,
    /// Most workers that train.
    pub max_replicas: u32,
    /// Rendezvous backend, `c10d` unless stated.
    pub rdzv_backend: String,
    /// Rendezvous port, where stated.
    pub rdzv_port: Option<i32>,
    /// Rendezvous host, where stated.
    pub rdzv_host: Option<String>,
    /// Rendezvous id, where stated.
    pub rdzv_id: Option<String>,
    /// Rendezvous settings, in the order written.
    pub rdzv_conf: Vec<(String, String)>,
    /// Whether torchrun makes its own rendezvous.
    pub standalone: bool,
    /// The deprecated way to say processes per pod.
    pub nproc_per_node: Option<i32>,
    /// Restarts that torchrun itself may do.
    pub max_restarts: Option<i32>,
    /// Metrics of the autoscaler; none means no autoscaler.
    pub metrics: Vec<MetricSpec>,
}

/// `TFJob`'s own fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tf {
    /// When the job has succeeded.
    pub success: TfSuccess,
    /// Whether `TF_CONFIG` is sparse and worker failures are tolerated.
    pub dynamic_worker: bool,
}

/// When a `TFJob` without Chief has succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TfSuccess {
    /// When worker 0 or all workers have.
    #[default]
    Default,
    /// When all workers have.
    AllWorkers,
}

/// `MPIJob` v1's own fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MpiV1 {
    /// Ranks per worker.
    pub slots_per_worker: u32,
    /// The container that remote exec enters.
    pub main_container: Option<String>,
}

/// `MPIJob` v2beta1's own fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiV2 {
    /// Ranks per worker.
    pub slots_per_worker: u32,
    /// Whether ranks run in the launcher pod too.
    pub run_launcher_as_worker: bool,
    /// Where the ssh keys are mounted.
    pub ssh_auth_mount_path: String,
    /// When the launcher is created.
    pub launcher_creation: LauncherCreation,
    /// The MPI implementation.
    pub implementation: MpiImplementation,
}

/// When the launcher of an `MPIJob` is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LauncherCreation {
    /// With the workers.
    #[default]
    AtStartup,
    /// When every worker is ready.
    WaitForWorkersReady,
}

/// The MPI implementation of an `MPIJob` v2beta1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MpiImplementation {
    /// Open MPI.
    #[default]
    OpenMpi,
    /// Intel MPI.
    Intel,
    /// MPICH.
    Mpich,
}
