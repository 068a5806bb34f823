//! The arguments of `trainyard operator`.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueEnum};
use trainyard_core::{gang::PreemptionScope, spec::duration};

use super::Cluster;

/// Run the Kubernetes operator
///
/// Watches jobs of the `kubeflow.org` kinds and runs them, as the Kubeflow Training Operator and the MPI
/// Operator do. Several replicas may run; the leader, which holds the lease, acts.
///
/// On SIGTERM it finishes calls in progress, releases the lease and exits.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard operator --no-leader-elect          run as the only operator, without a lease
  trainyard operator --namespace team-a         manage one namespace; needs permissions only there
  trainyard operator --shadow                   change nothing; log the differences to the running operator
  trainyard operator --metrics-bind :8080 --health-bind :8081 --webhook-bind :9443")]
pub(crate) struct Operator {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Maximum number of concurrent reconciles
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
    /// Maximum number of concurrent API server requests
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) calls: u16,
    /// Folder in which the operator records the job that it is processing
    ///
    /// It must outlive the container, such as an `emptyDir`. After a crash the operator reads it: a job that was being
    /// processed at two crashes within an hour is set aside until its spec or a `trainyard.dev/` annotation changes, or the
    /// operator is upgraded. Without a folder only panics are counted.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Where to read the step and the loss of jobs
    ///
    /// `logs` reads the end of the log of one pod per running job, at most 20 logs per second over all jobs: with 100 jobs
    /// each is read every 8 s, with 1,000 jobs every minute. With `off`, the operator reads no logs of running pods for this,
    /// and cannot distinguish a job's time before its first step from the time after it.
    #[arg(long, value_name = "SOURCE", default_value = "logs")]
    pub(crate) progress: ProgressSource,
    /// Change nothing, and log every difference to the running operator
    ///
    /// Logs one line, and counts it in `trainyard_shadow_differences_total`, for each object that this operator would
    /// create, delete or write differently, and for each condition that it would write differently.
    #[arg(long)]
    pub(crate) shadow: bool,
    // Before the first heading, which holds for all that follow.
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(flatten)]
    pub(crate) leadership: Leadership,
    #[command(flatten)]
    pub(crate) gangs: Gangs,
    #[command(flatten)]
    pub(crate) pods: Pods,
    #[command(flatten)]
    pub(crate) preflight: PreflightLimits,
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) telemetry: Telemetry,
}

/// Which jobs are managed.
#[derive(Debug, ClapArgs)]
pub(crate) struct Scope {
    /// Manage jobs in this namespace only
    #[arg(long, value_name = "NAME", env = "KUBEFLOW_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Watch nodes even with `--namespace`; needs permission to list and watch them
    #[arg(long, requires = "namespace")]
    pub(crate) watch_nodes: bool,
    /// Manage these kinds only, such as `PyTorchJob,MPIJob`; may be repeated
    #[arg(
        long,
        visible_alias = "kind",
        value_name = "KIND",
        value_delimiter = ','
    )]
    pub(crate) kinds: Vec<String>,
    /// Manage `TrainJob`s as well; needs the CRDs and rights of the component `trainjobs`
    #[arg(long, conflicts_with = "shadow")]
    pub(crate) trainjobs: bool,
}

/// Which of several operators acts.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct Leadership {
    /// Act only while holding the lease (the default)
    #[arg(long, conflicts_with = "no_leader_elect")]
    pub(crate) leader_elect: bool,
    /// Act without a lease; use it only if no other operator runs
    #[arg(long)]
    pub(crate) no_leader_elect: bool,
    /// Namespace of the lease
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "trainyard-system"
    )]
    pub(crate) lease_namespace: String,
    /// Name of the lease
    #[arg(long, value_name = "NAME", default_value = "trainyard")]
    pub(crate) lease_name: String,
}

/// How gangs get their nodes.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Gang scheduling")]
pub(crate) struct Gangs {
    /// Let the scheduler place each pod, instead of assigning nodes to whole gangs
    ///
    /// Gang placement needs a watch on nodes. The annotation `trainyard.dev/gang: "off"` disables it for one job.
    #[arg(long)]
    pub(crate) no_placement: bool,
    /// Which gangs may be evicted for a gang of higher priority that requests preemption
    ///
    /// A job requests it with the annotation `trainyard.dev/preemption: lower-priority`. The priority is the one that the API
    /// server set in its pods; no gang is evicted before all these pods exist.
    #[arg(long, value_name = "SCOPE", default_value = "namespace")]
    pub(crate) preemption: Preemption,
    /// Gang scheduler: `volcano`, `native`, or the name of a scheduler with the coscheduling plugin
    ///
    /// The operator creates a `PodGroup` or a `Workload` for every gang. Without this option, or with `None`, the operator
    /// itself assigns nodes to gangs. The annotation `trainyard.dev/gang` of a job (`on`, `off`, `volcano`, `coscheduling`,
    /// `native`) overrides it.
    #[arg(long, value_name = "NAME")]
    pub(crate) gang_scheduler_name: Option<String>,
}

/// What the operator adds to pods.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Pods")]
pub(crate) struct Pods {
    /// DNS domain of the cluster, appended to addresses if set
    #[arg(long, value_name = "DOMAIN", env = "CUSTOM_CLUSTER_DOMAIN")]
    pub(crate) cluster_domain: Option<String>,
    /// Image of this program, whose agent starts the ranks of `MPIJob`s instead of ssh and `kubectl`
    ///
    /// An init container copies it into every pod of an `MPIJob`, so that images need no ssh server and
    /// launchers need no permissions. Without it, `MPIJob`s start their ranks with ssh or `kubectl`, as with the
    /// MPI Operator. The annotation `trainyard.dev/mpi-transport` of a job overrides it.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) agent_image: Option<String>,
    /// Allow launchers of `MPIJob` v1 to start ranks with `kubectl exec`
    ///
    /// Only for jobs whose ranks the agent does not start: those with `trainyard.dev/mpi-transport: kubectl`, with
    /// commands that call `kubectl`, or without `--agent-image`. The operator itself needs these permissions
    /// (`mpi.launcherRights` of the chart, the component `launchers` of the kustomization). Without this option it refuses
    /// such jobs.
    #[arg(long)]
    pub(crate) mpi_launcher_rights: bool,
    /// Create a `NetworkPolicy` for pods in which this program listens: `MPIJob` agents and preflights
    ///
    /// `ports` allows traffic to the agent port (28022) and the preflight port (29400) from pods of the same job only, and
    /// allows all other ports; in a namespace that denies traffic by default this opens the other ports. `job` allows
    /// traffic from pods of the same job only, plus what other policies allow.
    #[arg(long, value_name = "MODE", default_value = "off")]
    pub(crate) network_policy: NetworkPolicy,
}

/// How long preflight results last, and what follows from a failure.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Preflight")]
pub(crate) struct PreflightLimits {
    /// How long the preflight result of a node is valid
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) preflight_lasts: Duration,
    /// How long a node that failed a preflight stays tainted before the next preflight
    ///
    /// The operator removes the taint `trainyard.dev/probation` only after the node passes; you can remove it by hand.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) probation_lasts: Duration,
    /// Maximum percentage of nodes on probation at once; at least one node, or none with 0
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) probation_cap: u8,
}

/// Ports.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Serving")]
pub(crate) struct Serving {
    /// Address of `/metrics`, such as `:8080`; `0` disables it
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub(crate) metrics_bind: trainyard_kube::Bind,
    /// Address of `/healthz` and `/readyz`, such as `:8081`; `0` disables them
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub(crate) health_bind: trainyard_kube::Bind,
    /// Address of the webhooks, such as `:9443`; `0` disables them
    ///
    /// The operator issues the certificate for the Service `trainyard` and stores it in the Secret
    /// `trainyard-webhook`, both in the namespace of the lease.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        conflicts_with = "shadow"
    )]
    pub(crate) webhook_bind: trainyard_kube::Bind,
    /// Folder with the webhook certificate: `tls.crt`, `tls.key` and optionally `ca.crt`
    ///
    /// Reloaded when a file changes. If there is a `ca.crt`, the operator writes it to the `caBundle` of the webhook
    /// configurations.
    #[arg(long, value_name = "DIR")]
    pub(crate) webhook_cert_dir: Option<PathBuf>,
    /// PEM file with CA certificates of webhook clients; admission reviews then require a client certificate
    ///
    /// Reloaded when it changes. The API server presents the certificate that its `AdmissionConfiguration` names for the
    /// webhook Service. Conversion requires no client certificate, because the API server never presents one there.
    #[arg(long, value_name = "FILE")]
    pub(crate) webhook_client_ca: Option<PathBuf>,
    /// Address where training programs push progress, such as `:10443`; `0` disables it
    ///
    /// Programs that report to Kubeflow Trainer need no change: pods of jobs with the annotation `trainyard.dev/progress: push`
    /// get the address (port 10443 of the Service `trainyard`), a token and the CA certificate. Needs `--webhook-bind`, whose
    /// certificate it uses, and permission to create `TokenReview`s.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        conflicts_with = "shadow"
    )]
    pub(crate) progress_bind: trainyard_kube::Bind,
    /// Address where leaders of gangs connect, such as `:10444`; `0` disables it
    ///
    /// With it, gangs restart in place: a supervisor runs in each training container, and after a failure the programs of all pods
    /// start again in the same pods. Pods reach the address at port 10444 of the Service `trainyard`. Needs `--agent-image`, which
    /// brings the supervisor, `--webhook-bind`, whose certificate it uses, and permission to create `TokenReview`s.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        conflicts_with = "shadow"
    )]
    pub(crate) gang_bind: trainyard_kube::Bind,
}

/// What the operator reports about itself.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Logs and traces")]
pub(crate) struct Telemetry {
    /// Send spans of reconciles and API calls to this OpenTelemetry collector, by OTLP over HTTP
    ///
    /// Such as `http://otel-collector:4318`. Without it no spans are recorded.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<trainyard_kube::Collector>,
    /// Format of the logs on stderr
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// Where to read the step and the loss of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressSource {
    /// Pod logs
    Logs,
    /// Do not read progress
    Off,
}

/// Which gangs may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preemption {
    /// None
    Off,
    /// Gangs of the same namespace
    Namespace,
    /// Gangs of any namespace
    Cluster,
}

impl From<Preemption> for PreemptionScope {
    fn from(preemption: Preemption) -> Self {
        match preemption {
            Preemption::Off => Self::Off,
            Preemption::Namespace => Self::Namespace,
            Preemption::Cluster => Self::Cluster,
        }
    }
}

/// Which `NetworkPolicy` the operator creates for pods in which this program listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkPolicy {
    /// None
    Off,
    /// The ports of this program accept traffic from pods of the same job only
    Ports,
    /// All ports accept traffic from pods of the same job only
    Job,
}

/// Format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text per entry
    Text,
    /// One JSON object per entry
    Json,
}
