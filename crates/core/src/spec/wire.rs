//! The job objects as they are on the wire, field for field.
//!
//! Everything is optional and nothing is checked; [`check`](super::check()) turns these into a
//! [`Job`](super::Job). Numbers are wide enough that a value out of range can still be named.
//!
//! Invariant: what a file or the API server sends and these types know is written back unchanged.

use std::collections::BTreeMap;

use k8s_openapi::api::{autoscaling::v2::MetricSpec, core::v1::PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A job object of any kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object<S> {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name, namespace, annotations and the rest.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: S,
    /// What was reported; kept as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<serde_json::Value>,
}

/// The specs of the roles by their key.
pub type ReplicaSpecs = BTreeMap<String, ReplicaSpec>;

/// Types of the API all of whose fields may be left out.
macro_rules! wire {
    ($(
        $(#[$doc:meta])*
        struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            pub struct $name {
                $(
                    $(#[$field_doc])*
                    #[serde(skip_serializing_if = "Option::is_none")]
                    pub $field: Option<$type>,
                )*
            }
        )*
    };
}

pub(crate) use wire;

wire! {
    /// `spec` of a `PyTorchJob`.
    struct PyTorchJobSpec {
        /// How the job runs and ends.
        run_policy: RunPolicy,
        /// Elastic bounds and rendezvous.
        elastic_policy: ElasticPolicy,
        /// The roles.
        pytorch_replica_specs: ReplicaSpecs,
        /// Processes per pod.
        nproc_per_node: String,
    }

    /// `spec` of a `TFJob`.
    struct TfJobSpec {
        /// How the job runs and ends.
        run_policy: RunPolicy,
        /// When the job has succeeded.
        success_policy: String,
        /// The roles.
        tf_replica_specs: ReplicaSpecs,
        /// Whether `TF_CONFIG` is sparse.
        enable_dynamic_worker: bool,
    }

    /// `spec` of an `MPIJob` in version v1.
    struct MpiJobV1Spec {
        /// Ranks per worker.
        slots_per_worker: i64,
        /// An older place of the policy of the same name in `runPolicy`.
        clean_pod_policy: String,
        /// The roles.
        mpi_replica_specs: ReplicaSpecs,
        /// The container that remote exec enters.
        main_container: String,
        /// How the job runs and ends.
        run_policy: RunPolicy,
    }

    /// `spec` of an `MPIJob` in version v2beta1.
    struct MpiJobV2Spec {
        /// Ranks per worker.
        slots_per_worker: i64,
        /// Whether ranks run in the launcher pod too.
        run_launcher_as_worker: bool,
        /// How the job runs and ends.
        run_policy: RunPolicy,
        /// The roles.
        mpi_replica_specs: ReplicaSpecs,
        /// Where the ssh keys are mounted.
        ssh_auth_mount_path: String,
        /// When the launcher is created.
        launcher_creation_policy: String,
        /// The MPI implementation.
        mpi_implementation: String,
    }

    /// `spec` of an `XGBoostJob`.
    struct XgBoostJobSpec {
        /// How the job runs and ends.
        run_policy: RunPolicy,
        /// The roles.
        xgb_replica_specs: ReplicaSpecs,
    }

    /// `spec` of a `PaddleJob`.
    struct PaddleJobSpec {
        /// How the job runs and ends.
        run_policy: RunPolicy,
        /// Elastic bounds.
        elastic_policy: PaddleElasticPolicy,
        /// The roles.
        paddle_replica_specs: ReplicaSpecs,
    }

    /// `spec` of a `JAXJob`.
    struct JaxJobSpec {
        /// How the job runs and ends.
        run_policy: RunPolicy,
        /// The roles.
        jax_replica_specs: ReplicaSpecs,
    }

    /// `spec.runPolicy`.
    struct RunPolicy {
        /// Which pods are deleted when the job has ended.
        clean_pod_policy: String,
        /// Seconds after the end until the job object is deleted.
        ttl_seconds_after_finished: i64,
        /// Seconds from start after which the job fails.
        active_deadline_seconds: i64,
        /// Failures at which the job fails.
        backoff_limit: i64,
        /// Settings for gang schedulers.
        scheduling_policy: SchedulingPolicy,
        /// Whether the job is suspended: it must have no pods.
        suspend: bool,
        /// The controller that owns the job.
        managed_by: String,
    }

    /// `spec.runPolicy.schedulingPolicy`.
    struct SchedulingPolicy {
        /// Pods that must start together.
        min_available: i64,
        /// Queue of the gang scheduler.
        queue: String,
        /// Resources the gang needs.
        min_resources: BTreeMap<String, Quantity>,
        /// Priority class of the gang.
        priority_class: String,
        /// How long the gang may wait for its seats.
        schedule_timeout_seconds: i64,
    }

    /// One role.
    struct ReplicaSpec {
        /// How many pods.
        replicas: i64,
        /// The pod.
        template: PodTemplateSpec,
        /// What happens when one of them fails.
        restart_policy: String,
    }

    /// `spec.elasticPolicy` of a `PyTorchJob`.
    struct ElasticPolicy {
        /// Fewest workers that train.
        min_replicas: i64,
        /// Most workers that train.
        max_replicas: i64,
        /// Rendezvous backend.
        rdzv_backend: String,
        /// Rendezvous port.
        rdzv_port: i64,
        /// Rendezvous host.
        rdzv_host: String,
        /// Rendezvous id.
        rdzv_id: String,
        /// Rendezvous settings.
        rdzv_conf: Vec<RdzvConf>,
        /// Whether torchrun makes its own rendezvous.
        standalone: bool,
        /// The deprecated way to say processes per pod.
        n_proc_per_node: i64,
        /// Restarts that torchrun itself may do.
        max_restarts: i64,
        /// Metrics of the autoscaler.
        metrics: Vec<MetricSpec>,
    }

    /// `spec.elasticPolicy` of a `PaddleJob`.
    struct PaddleElasticPolicy {
        /// Fewest workers that train.
        min_replicas: i64,
        /// Most workers that train.
        max_replicas: i64,
        /// Restarts that the launcher itself may do.
        max_restarts: i64,
        /// Metrics of the autoscaler.
        metrics: Vec<MetricSpec>,
    }

    /// One rendezvous setting.
    struct RdzvConf {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
    }
}

/// The fields of [`RunPolicy`], which users often write one level too high.
pub(crate) const RUN_POLICY_FIELDS: [&str; 7] = [
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "schedulingPolicy",
    "suspend",
    "managedBy",
];

/// Whether `name` is the type of a job's `spec`.
pub(crate) fn is_job_spec(name: &str) -> bool {
    matches!(
        name,
        "PyTorchJobSpec"
            | "TfJobSpec"
            | "MpiJobV1Spec"
            | "MpiJobV2Spec"
            | "XgBoostJobSpec"
            | "PaddleJobSpec"
            | "JaxJobSpec"
    )
}
