//! The arguments of `trainyard operator`.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueEnum};
use trainyard_core::{gang::PreemptionScope, spec::duration};

use super::Cluster;

/// Run the Kubernetes operator
///
/// Watches jobs of the `kubeflow.org` kinds and runs them, as the Kubeflow Training Operator and the MPI
/// Operator do. Several operators may run; the one that holds the lease acts.
///
/// Ends in order on SIGTERM: what is under way is finished and the lease is given back.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard operator --no-leader-elect          the only operator of the cluster in the kubeconfig
  trainyard operator --namespace team-a         only that namespace, with rights for no other
  trainyard operator --shadow                   change nothing; say what would be done otherwise
  trainyard operator --metrics-bind :8080 --health-bind :8081 --webhook-bind :9443")]
pub(crate) struct Operator {
    /// Look after this namespace only
    #[arg(long, value_name = "NAME", env = "KUBEFLOW_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Follow the nodes although only one namespace is looked after; needs rights to read them
    #[arg(long, requires = "namespace")]
    pub(crate) watch_nodes: bool,
    /// Leave pods to the scheduler one by one, instead of giving whole gangs their seats
    ///
    /// Gangs are placed where nodes are followed. The annotation `trainyard.dev/gang: "off"` does the same for
    /// one job.
    #[arg(long)]
    pub(crate) no_placement: bool,
    /// Which gangs may be evicted for one of higher priority whose job asks for it
    ///
    /// A job asks with the annotation `trainyard.dev/preemption: lower-priority`. What counts is the priority that the API
    /// server gave its pods, and nobody is evicted before all of them exist.
    #[arg(long, value_name = "SCOPE", default_value = "namespace")]
    pub(crate) preemption: Preemption,
    /// Look after these kinds only, such as `PyTorchJob,MPIJob`; may be repeated
    #[arg(
        long,
        visible_alias = "kind",
        value_name = "KIND",
        value_delimiter = ','
    )]
    pub(crate) kinds: Vec<String>,
    /// Jobs looked at, at once
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
    /// Calls to the API server under way, at once
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) calls: u16,
    /// Act only while holding the lease, which is the default
    #[arg(long, conflicts_with = "no_leader_elect")]
    pub(crate) leader_elect: bool,
    /// Act without a lease: there is no other operator
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
    /// DNS domain of the cluster, written into addresses where it is stated
    #[arg(long, value_name = "DOMAIN", env = "CUSTOM_CLUSTER_DOMAIN")]
    pub(crate) cluster_domain: Option<String>,
    /// Image of this program, which starts the ranks of `MPIJob`s in place of ssh and `kubectl`
    ///
    /// An init container copies it into every pod of an `MPIJob`, so that images need no ssh server and
    /// launchers no rights. Without it `MPIJob`s run as the old operators run them. The annotation
    /// `trainyard.dev/mpi-transport` of a job overrides it.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) agent_image: Option<String>,
    /// Give launchers of `MPIJob` v1 the right to start ranks with `kubectl exec`
    ///
    /// Only for jobs whose ranks are not started by the agent: those with `trainyard.dev/mpi-transport: kubectl`, with
    /// commands that call `kubectl`, or without `--agent-image`. The operator must hold these rights itself
    /// (`mpi.launcherRights` of the chart, the component `launchers` of the kustomization). Without it such jobs are
    /// refused.
    #[arg(long)]
    pub(crate) mpi_launcher_rights: bool,
    /// Create a `NetworkPolicy` for pods in which this program listens: agents of `MPIJob`s and preflights
    ///
    /// `ports` closes the agent's port (28022) and the preflight's port (29400) to everybody but pods of the same job and
    /// leaves all other ports open; in a namespace whose own policies deny by default it would open those. `job` lets in
    /// pods of the same job only, besides whom other policies allow.
    #[arg(long, value_name = "MODE", default_value = "off")]
    pub(crate) network_policy: NetworkPolicy,
    /// Scheduler that starts gangs: `volcano`, `native`, or the name of one with the coscheduling plugin
    ///
    /// It is told of every gang by a `PodGroup`, or a `Workload`. Without it, or with `None`, this operator gives gangs
    /// their seats. The annotation `trainyard.dev/gang` of a job (`on`, `off`, `volcano`, `coscheduling`, `native`)
    /// overrides it.
    #[arg(long, value_name = "NAME")]
    pub(crate) gang_scheduler_name: Option<String>,
    /// How long the result of a preflight speaks for its node
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration, help_heading = "Preflight")]
    pub(crate) preflight_lasts: Duration,
    /// How long a node that failed a preflight is kept from everybody before it is tried again
    ///
    /// It comes back only by passing, or when a person takes the taint `trainyard.dev/probation` away.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration, help_heading = "Preflight")]
    pub(crate) probation_lasts: Duration,
    /// How many of a hundred nodes may be on probation at once: at least one, with 0 none
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=100), help_heading = "Preflight")]
    pub(crate) probation_cap: u8,
    /// Folder in which the operator records the job that it is processing
    ///
    /// It must outlive the container, such as an `emptyDir`. After a crash the operator reads it: a job that was being
    /// processed at two crashes within an hour is set aside until its spec or a `trainyard.dev/` annotation changes, or the
    /// operator is upgraded. Without a folder only panics are counted.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Where the step and the loss of jobs come from
    ///
    /// `logs` reads the end of the log of one pod of each job that runs, at most 20 logs in a second of all jobs together:
    /// 100 jobs are read every 8 s, 1,000 jobs every minute. With `off` no log of a running pod is read for this, and the time
    /// of jobs before and after their first step cannot be told apart.
    #[arg(long, value_name = "SOURCE", default_value = "logs")]
    pub(crate) progress: ProgressSource,
    /// Change nothing, and say what the operator that runs does otherwise
    ///
    /// Each object that is there and would have been made otherwise, each one that would have been made
    /// or removed, and each condition that would have been written otherwise is one line of the log and
    /// counts in `trainyard_shadow_differences_total`.
    #[arg(long)]
    pub(crate) shadow: bool,
    /// Serve `/metrics` here, such as `:8080`; `0` for not at all
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        help_heading = "Serving"
    )]
    pub(crate) metrics_bind: trainyard_kube::Bind,
    /// Serve `/healthz` and `/readyz` here, such as `:8081`; `0` for not at all
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        help_heading = "Serving"
    )]
    pub(crate) health_bind: trainyard_kube::Bind,
    /// Serve the webhooks here, such as `:9443`; `0` for not at all
    ///
    /// The certificate is issued by the operator and kept in the Secret `trainyard-webhook` of its own
    /// namespace (the one of the lease), for the Service `trainyard` there.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        conflicts_with = "shadow",
        help_heading = "Serving"
    )]
    pub(crate) webhook_bind: trainyard_kube::Bind,
    /// Folder with the certificate of the webhooks: `tls.crt`, `tls.key` and perhaps `ca.crt`
    ///
    /// Read again when a file changes. Where there is a `ca.crt`, the operator puts it into the
    /// configurations of the webhooks.
    #[arg(long, value_name = "DIR", help_heading = "Serving")]
    pub(crate) webhook_cert_dir: Option<PathBuf>,
    /// PEM file with the authorities of webhook clients: admission reviews then need a client certificate
    ///
    /// Read again when it changes. The API server presents the certificate that its `AdmissionConfiguration` names for the
    /// Service of the webhooks. Conversion stays open to clients without one: the API server never presents any there.
    #[arg(long, value_name = "FILE", help_heading = "Serving")]
    pub(crate) webhook_client_ca: Option<PathBuf>,
    /// Take progress that training programs send here, such as `:10443`; `0` for not at all
    ///
    /// Programs that report to Kubeflow Trainer need no change: pods of jobs with the annotation `trainyard.dev/progress: push`
    /// get the address (port 10443 of the Service `trainyard`), a token and the authority to trust. Needs `--webhook-bind`, whose
    /// certificate it uses, and the right to create `TokenReview`s.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        conflicts_with = "shadow",
        help_heading = "Serving"
    )]
    pub(crate) progress_bind: trainyard_kube::Bind,
    /// Send spans of passes and calls to this OpenTelemetry collector, by OTLP over HTTP
    ///
    /// Such as `http://otel-collector:4318`. Nothing is recorded otherwise.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<trainyard_kube::Collector>,
    /// How logs are written to stderr
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// Where the step and the loss of jobs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressSource {
    /// What pods print
    Logs,
    /// Nowhere
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

/// Which `NetworkPolicy` pods get in which this program listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkPolicy {
    /// None
    Off,
    /// The ports of this program are open to pods of the same job only
    Ports,
    /// All ports are open to pods of the same job only
    Job,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text each
    Text,
    /// A JSON object each
    Json,
}
