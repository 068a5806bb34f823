//! `TrainJob`, its runtime and the `JobSet` template in it, field for field as they are on the wire.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    batch::v1::JobTemplateSpec,
    core::v1::{
        Affinity, EnvVar, LocalObjectReference, PersistentVolumeClaim, PodSchedulingGate,
        PodSecurityContext, ResourceRequirements, SecurityContext, Toleration, Volume, VolumeMount,
    },
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::wire::wire;

wire! {
    /// `spec` of a `TrainJob`.
    struct TrainJobSpec {
        /// The runtime.
        runtime_ref: RuntimeRef,
        /// What is fetched first.
        initializer: Initializer,
        /// What trains.
        trainer: Trainer,
        /// Changes of the runtime.
        runtime_patches: Vec<RuntimePatch>,
        /// Whether it must have no pods.
        suspend: bool,
        /// Seconds after which it fails.
        active_deadline_seconds: i64,
        /// The controller that owns it.
        managed_by: String,
        /// Changes of the runtime, until version 2.1.
        pod_spec_overrides: Value,
        /// Changes of the runtime, in version 2.1.
        pod_template_overrides: Value,
        /// Labels of the `JobSet`, until version 2.1.
        labels: BTreeMap<String, String>,
        /// Annotations of the `JobSet`, until version 2.1.
        annotations: BTreeMap<String, String>,
    }

    /// A reference to a runtime.
    struct RuntimeRef {
        /// Its name.
        name: String,
        /// Its group.
        api_group: String,
        /// Its kind.
        kind: String,
    }

    /// What is fetched before the training.
    struct Initializer {
        /// The data set.
        dataset: Fetch,
        /// The model.
        model: Fetch,
    }

    /// One thing to fetch.
    struct Fetch {
        /// From where.
        storage_uri: String,
        /// Further settings.
        env: Vec<EnvVar>,
        /// A secret whose keys are variables.
        secret_ref: LocalObjectReference,
    }

    /// What trains.
    struct Trainer {
        /// Its image.
        image: String,
        /// Its program.
        command: Vec<String>,
        /// The arguments of the program.
        args: Vec<String>,
        /// Its variables.
        env: Vec<EnvVar>,
        /// How many nodes.
        num_nodes: i64,
        /// What each node has.
        resources_per_node: ResourceRequirements,
        /// Processes of each node.
        num_proc_per_node: IntOrString,
    }

    /// A change of the runtime by one party.
    struct RuntimePatch {
        /// Who makes it.
        manager: String,
        /// When it was made.
        time: String,
        /// What changes.
        training_runtime_spec: RuntimeSpecPatch,
    }

    /// What changes in a runtime.
    struct RuntimeSpecPatch {
        /// What changes in its template.
        template: JobSetTemplatePatch,
    }

    /// What changes in the template of a runtime.
    struct JobSetTemplatePatch {
        /// Labels and annotations.
        metadata: MetadataPatch,
        /// The jobs.
        spec: JobSetSpecPatch,
    }

    /// Labels and annotations that are added.
    struct MetadataPatch {
        /// Labels.
        labels: BTreeMap<String, String>,
        /// Annotations.
        annotations: BTreeMap<String, String>,
    }

    /// What changes in a `JobSet`.
    struct JobSetSpecPatch {
        /// The jobs.
        replicated_jobs: Vec<ReplicatedJobPatch>,
    }

    /// What changes in one job.
    struct ReplicatedJobPatch {
        /// The job.
        name: String,
        /// Its template.
        template: JobTemplatePatch,
    }

    /// What changes in the template of a job.
    struct JobTemplatePatch {
        /// Labels and annotations of the job.
        metadata: MetadataPatch,
        /// Its spec.
        spec: JobSpecPatch,
    }

    /// What changes in the spec of a job.
    struct JobSpecPatch {
        /// Its pods.
        template: PodTemplatePatch,
    }

    /// What changes in pods.
    struct PodTemplatePatch {
        /// Labels and annotations of the pods.
        metadata: MetadataPatch,
        /// Their spec.
        spec: PodSpecPatch,
    }

    /// What may change in the spec of pods.
    struct PodSpecPatch {
        /// The account.
        service_account_name: String,
        /// Volumes.
        volumes: Vec<Volume>,
        /// Init containers.
        init_containers: Vec<ContainerPatch>,
        /// Containers.
        containers: Vec<ContainerPatch>,
        /// Secrets for images.
        image_pull_secrets: Vec<LocalObjectReference>,
        /// Who the processes run as.
        security_context: PodSecurityContext,
        /// How long pods may take to end.
        termination_grace_period_seconds: i64,
        /// Labels that nodes must have.
        node_selector: BTreeMap<String, String>,
        /// What nodes must be like.
        affinity: Affinity,
        /// Taints that are tolerated.
        tolerations: Vec<Toleration>,
        /// What holds the pods back.
        scheduling_gates: Vec<PodSchedulingGate>,
    }

    /// What may change in a container.
    struct ContainerPatch {
        /// The container.
        name: String,
        /// Variables.
        env: Vec<EnvVar>,
        /// Mounts.
        volume_mounts: Vec<VolumeMount>,
        /// Who it runs as.
        security_context: SecurityContext,
    }

    /// `spec` of a `TrainingRuntime` and a `ClusterTrainingRuntime`.
    struct RuntimeSpec {
        /// How nodes find each other.
        ml_policy: MlPolicy,
        /// How they are scheduled.
        pod_group_policy: Value,
        /// Their pods.
        template: JobSetTemplate,
    }

    /// How nodes find each other.
    struct MlPolicy {
        /// How many nodes.
        num_nodes: i64,
        /// By `torchrun`.
        torch: TorchPolicy,
        /// By MPI.
        mpi: MpiPolicy,
        /// By `jax.distributed`.
        jax: Nothing,
        /// By the tracker of `XGBoost`.
        xgboost: Nothing,
        /// By Flux.
        flux: Value,
    }

    /// How `torchrun` is set up.
    struct TorchPolicy {
        /// Other containers that are given its variables.
        env_injection: EnvInjection,
        /// Processes per node, until version 2.2.
        num_proc_per_node: IntOrString,
        /// Elastic bounds, until version 2.2.
        elastic_policy: Value,
    }

    /// Other containers that are given variables.
    struct EnvInjection {
        /// The containers.
        targets: Vec<InjectionTarget>,
    }

    /// Containers of one job.
    struct InjectionTarget {
        /// The job.
        job_name: String,
        /// The containers.
        container_names: Vec<String>,
    }

    /// How MPI is set up.
    struct MpiPolicy {
        /// Ranks per node.
        num_proc_per_node: i64,
        /// The implementation.
        mpi_implementation: String,
        /// Where keys are mounted.
        ssh_auth_mount_path: String,
        /// Whether the launcher trains, too.
        run_launcher_as_node: bool,
    }

    /// A policy without fields.
    struct Nothing {
    }

    /// A `JobSet` in a runtime.
    struct JobSetTemplate {
        /// Labels and annotations.
        metadata: MetadataPatch,
        /// Its spec.
        spec: JobSetSpec,
    }

    /// `spec` of a `JobSet`.
    struct JobSetSpec {
        /// The jobs.
        replicated_jobs: Vec<ReplicatedJob>,
        /// Their names.
        network: Network,
        /// When it has succeeded.
        success_policy: SuccessPolicy,
        /// What a failure means.
        failure_policy: FailurePolicy,
        /// In which order jobs start.
        startup_policy: StartupPolicy,
        /// Whether it has no pods.
        suspend: bool,
        /// The pod that coordinates.
        coordinator: Coordinator,
        /// The controller that owns it.
        managed_by: String,
        /// When it is deleted.
        ttl_seconds_after_finished: i64,
        /// Claims that are created with it.
        volume_claim_policies: Vec<VolumeClaimPolicy>,
    }

    /// One job of a `JobSet`.
    struct ReplicatedJob {
        /// Its name.
        name: String,
        /// Its group.
        group_name: String,
        /// What it is.
        template: JobTemplateSpec,
        /// How often it is there.
        replicas: i64,
        /// What it waits for.
        depends_on: Vec<DependsOn>,
    }

    /// What a job waits for.
    struct DependsOn {
        /// The job.
        name: String,
        /// Its state.
        status: String,
    }

    /// The names of pods.
    struct Network {
        /// Whether they have some.
        #[serde(rename = "enableDNSHostnames")]
        enable_dns_hostnames: bool,
        /// The Service.
        subdomain: String,
        /// Whether pods that are not ready have some.
        publish_not_ready_addresses: bool,
    }

    /// When a `JobSet` has succeeded.
    struct SuccessPolicy {
        /// `All` or `Any`.
        operator: String,
        /// Of which jobs.
        target_replicated_jobs: Vec<String>,
    }

    /// What a failure means.
    struct FailurePolicy {
        /// How often it restarts.
        max_restarts: i64,
        /// How it restarts.
        restart_strategy: String,
        /// Rules for some failures.
        rules: Vec<Value>,
    }

    /// In which order jobs start.
    struct StartupPolicy {
        /// `AnyOrder` or `InOrder`.
        startup_policy_order: String,
    }

    /// The pod that coordinates.
    struct Coordinator {
        /// The job.
        replicated_job: String,
        /// Which of the job.
        job_index: i64,
        /// Which of its pods.
        pod_index: i64,
    }

    /// Claims that are created with a `JobSet`.
    struct VolumeClaimPolicy {
        /// The claims.
        templates: Vec<PersistentVolumeClaim>,
        /// What becomes of them.
        retention_policy: RetentionPolicy,
    }

    /// What becomes of claims.
    struct RetentionPolicy {
        /// When the `JobSet` is deleted.
        when_deleted: String,
    }
}
