//! Our own settings: `trainyard.dev/…` annotations, so that a job file stays valid for the old
//! operator.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Kind, Parallelism, RequiredTransport, Wish};

/// The annotation keys, and the label that fences a pod.
pub mod annotation {
    /// What every one of them begins with.
    pub const PREFIX: &str = "trainyard.dev/";
    /// `gang` or `pod`: what one failed pod restarts.
    pub const RESTART_SCOPE: &str = "trainyard.dev/restart-scope";
    /// `user=3,platform=10,infrastructure=50,preemption=unlimited`: the failure budget of each account.
    pub const BUDGET: &str = "trainyard.dev/budget";
    /// How long a node may be unreachable before its pods count as lost, e.g. `90s`.
    pub const LOST_AFTER: &str = "trainyard.dev/lost-after";
    /// How long a job may report no step before its time counts as stalled, e.g. `10m`.
    pub const HANG_AFTER: &str = "trainyard.dev/hang-after";
    /// `act`, `report` or `off`: what follows when the watch finds a hang; see [`super::WatchMode`].
    pub const WATCH: &str = "trainyard.dev/watch";
    /// The shortest silence that may be called a hang, whatever the evidence, e.g. `30s`.
    pub const HANG_FLOOR: &str = "trainyard.dev/hang-floor";
    /// How long an attempt may take until its first step before it may be called a hang, e.g. `30m`.
    pub const FIRST_STEP_WITHIN: &str = "trainyard.dev/first-step-within";
    /// `report`, `restart` or `stop`: what follows when the loss stays NaN or infinite.
    pub const ON_NAN: &str = "trainyard.dev/on-nan";
    /// `place` or `pods`: whether a failed gang restarts in its pods, where that is possible, or always with new ones.
    pub const RESTART_IN: &str = "trainyard.dev/restart-in";
    /// `auto` or `off`: whether the training container runs under a supervisor, which a restart in place needs.
    pub const SUPERVISE: &str = "trainyard.dev/supervise";
    /// How long programs have after SIGTERM in a restart in place until they are killed, e.g. `5s`.
    pub const STOP_GRACE: &str = "trainyard.dev/stop-grace";
    /// How long a supervised gang is kept for inspection after a failure, e.g. `30m`; at most 24 hours.
    pub const HOLD_ON_FAILURE: &str = "trainyard.dev/hold-on-failure";
    /// Annotation on pods: the authority of the server to which the leader of the gang connects, as PEM.
    pub const GANG_CA: &str = "trainyard.dev/gang-ca";
    /// Attempts in a row that reach no later step before the job fails, e.g. `3`; `0` never ends it for that.
    pub const NO_PROGRESS: &str = "trainyard.dev/no-progress";
    /// How long a gang that has seats may take until all of its pods run, e.g. `10m`.
    pub const START_WITHIN: &str = "trainyard.dev/start-within";
    /// Comma list of old behaviours to restore; see [`super::Compat`].
    pub const COMPAT: &str = "trainyard.dev/compat";
    /// Any text: each new one starts one new attempt of the whole gang, without using a failure budget.
    pub const RESTART: &str = "trainyard.dev/restart";
    /// `agent`, `ssh` or `kubectl`: how the launcher of an `MPIJob` starts ranks in its workers.
    pub const MPI_TRANSPORT: &str = "trainyard.dev/mpi-transport";
    /// Annotation on pods: the node of the seat that they were given.
    pub const SEAT: &str = "trainyard.dev/seat";
    /// `on`, `off`, or another scheduler: who starts the pods of the job together.
    pub const GANG: &str = "trainyard.dev/gang";
    /// `required=LEVEL` or `preferred=LEVEL`: what part of the topology should hold the gang.
    pub const PLACEMENT: &str = "trainyard.dev/placement";
    /// `tp=8,pp=4,dp=16`: how the ranks are numbered, the axis that varies fastest first.
    pub const PARALLELISM: &str = "trainyard.dev/parallelism";
    /// `lower-priority` or `off`: which gangs this one may preempt.
    pub const PREEMPTION: &str = "trainyard.dev/preemption";
    /// A time such as `2026-01-31T12:00:00Z`, which the training puts there: when it last saved a checkpoint.
    pub const CHECKPOINTED_AT: &str = "trainyard.dev/checkpointed-at";
    /// The folder in which the training saves checkpoints, as its container sees it, e.g. `/checkpoints/run1`.
    pub const CHECKPOINTS: &str = "trainyard.dev/checkpoints";
    /// `NET/IB`, or a list: what ranks on different nodes must talk over; see [`super::RequiredTransport`].
    pub const REQUIRE_TRANSPORT: &str = "trainyard.dev/require-transport";
    /// The name of the fabric that the pods of the job are on; on pods the one that they are on.
    pub const FABRIC: &str = "trainyard.dev/fabric";
    /// `required`: the gang starts only on nodes that passed a preflight. On nodes: what the last one found.
    pub const PREFLIGHT: &str = "trainyard.dev/preflight";
    /// `push` or `logs`: whether the training program is given an address to which it reports its progress.
    pub const PROGRESS: &str = "trainyard.dev/progress";
    /// Annotation on pods: the authority of the server that takes their progress, as PEM.
    pub const PROGRESS_CA: &str = "trainyard.dev/progress-ca";
    /// `demo` or `production`: what the linter takes the file to be written for.
    pub const PROFILE: &str = "trainyard.dev/profile";
    /// `TY402: reason; TY403: reason`: findings of the linter that are meant to be there.
    pub const LINT_ALLOW: &str = "trainyard.dev/lint-allow";
    /// `pytorch-ddp@1`: the template that the file was written from.
    pub const TEMPLATE: &str = "trainyard.dev/template";
    /// Label on pods: the attempt they belong to.
    pub const ATTEMPT: &str = "trainyard.dev/attempt";
}

/// Settings of one job, parsed from its annotations; the default is that of a job without annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// What one failed pod restarts, where stated.
    pub restart_scope: Option<RestartScope>,
    /// The failure budget of each account, where stated.
    pub budget: AccountLimits,
    /// How long a node may be unreachable before its pods count as lost.
    pub lost_after: Duration,
    /// How long a job may report no step before its time counts as stalled, where stated; otherwise that follows from
    /// how long its steps took.
    pub hang_after: Option<Duration>,
    /// What follows when the watch finds a hang.
    pub watch: WatchMode,
    /// The shortest silence that may be called a hang, whatever the evidence.
    pub hang_floor: Duration,
    /// How long an attempt may take until its first step before it may be called a hang.
    pub first_step_within: Duration,
    /// What follows when the loss stays NaN or infinite.
    pub on_nan: OnNan,
    /// Whether a failed gang restarts in its pods.
    pub restart_in: RestartIn,
    /// Whether the training container runs under a supervisor.
    pub supervise: Supervise,
    /// How long programs have after SIGTERM in a restart in place.
    pub stop_grace: Duration,
    /// How long a gang is kept for inspection after a failure, where stated.
    pub hold_on_failure: Option<Duration>,
    /// Attempts in a row that reach no later step before the job fails, where stated; 0 never ends it for that.
    pub no_progress: Option<u32>,
    /// How long a gang that has seats may take until all of its pods run.
    pub start_within: Duration,
    /// Old behaviours brought back.
    pub compat: BTreeSet<Compat>,
    /// The last restart that was asked for, under whatever name.
    pub restart: Option<String>,
    /// How an `MPIJob` starts its ranks, where stated.
    pub mpi_transport: Option<MpiTransport>,
    /// Who starts the pods together; `None` leaves it to the cluster.
    pub gang: Option<GangBy>,
    /// What part of the topology should hold the gang, where stated.
    pub placement: Option<Wish>,
    /// How the ranks are numbered, where stated.
    pub parallelism: Option<Parallelism>,
    /// Whether the gang may take the seats of gangs with a lower priority.
    pub preemption: Option<Switch>,
    /// When the training last saved a checkpoint, where it says so.
    pub checkpointed_at: Option<Timestamp>,
    /// The folder in which the training saves checkpoints, as its container sees it, where stated.
    pub checkpoints: Option<String>,
    /// What ranks on different nodes must talk over, any of these; empty where nothing is required.
    pub require_transport: Vec<RequiredTransport>,
    /// The fabric that the pods are on, where stated.
    pub fabric: Option<String>,
    /// Whether the gang starts only on nodes that passed a preflight.
    pub preflight: Preflight,
    /// How the training program reports its progress.
    pub progress: ProgressBy,
}

impl JobSettings {
    /// Pods on a node are lost after this: the control plane itself waits 40 s before it calls a
    /// node unreachable, so 60 s more of silence is not a blip.
    pub const LOST_AFTER: Duration = Duration::from_mins(1);
    /// Silence that counts as a stall while it is not known how long steps take: NCCL's own watchdog gives up after
    /// 10 minutes.
    pub const HANG_AFTER: Duration = Duration::from_mins(10);
    /// A program may sleep 20 s between two tries of a download without a hang; 30 s is a twentieth of what NCCL waits.
    pub const HANG_FLOOR: Duration = Duration::from_secs(30);
    /// Large models load and compile for many minutes before their first step.
    pub const FIRST_STEP_WITHIN: Duration = Duration::from_mins(30);
    /// Enough to close files; a checkpoint of a failed attempt is not waited for.
    pub const STOP_GRACE: Duration = Duration::from_secs(5);
    /// Attempts in a row without a later step after which a job without a limit of its own fails.
    pub const NO_PROGRESS: u32 = 3;
    /// Long enough to pull a large image, short enough that seats nobody uses are not idle all night.
    pub const START_WITHIN: Duration = Duration::from_mins(15);
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            restart_scope: None,
            budget: AccountLimits::default(),
            lost_after: Self::LOST_AFTER,
            hang_after: None,
            watch: WatchMode::default(),
            hang_floor: Self::HANG_FLOOR,
            first_step_within: Self::FIRST_STEP_WITHIN,
            on_nan: OnNan::default(),
            restart_in: RestartIn::default(),
            supervise: Supervise::default(),
            stop_grace: Self::STOP_GRACE,
            hold_on_failure: None,
            no_progress: None,
            start_within: Self::START_WITHIN,
            compat: BTreeSet::new(),
            restart: None,
            mpi_transport: None,
            gang: None,
            placement: None,
            parallelism: None,
            preemption: None,
            checkpointed_at: None,
            checkpoints: None,
            require_transport: Vec::new(),
            fabric: None,
            preflight: Preflight::default(),
            progress: ProgressBy::default(),
        }
    }
}

/// How the launcher of an `MPIJob` starts ranks in its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiTransport {
    /// A program of ours in every pod, brought by an init container.
    Agent,
    /// `sshd` in the worker's image and a key pair; `MPIJob` v2beta1 only.
    Ssh,
    /// `kubectl exec` and the right to use it; `MPIJob` v1 only.
    Kubectl,
}

impl MpiTransport {
    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Ssh => "ssh",
            Self::Kubectl => "kubectl",
        }
    }

    /// How the old operator of `kind` does it.
    pub fn before(kind: Kind) -> Option<Self> {
        match kind {
            Kind::MpiV1 => Some(Self::Kubectl),
            Kind::MpiV2 => Some(Self::Ssh),
            _ => None,
        }
    }
}

/// Who starts the pods of a job together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangBy {
    /// We do: they wait for seats for all of them.
    Seats,
    /// Nobody does.
    Nobody,
    /// Volcano.
    Volcano,
    /// A scheduler with the coscheduling plugin.
    Coscheduling,
    /// The cluster's own scheduler, by Kubernetes' own API for gangs.
    Native,
}

impl GangBy {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Seats,
        Self::Nobody,
        Self::Volcano,
        Self::Coscheduling,
        Self::Native,
    ];

    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seats => "on",
            Self::Nobody => "off",
            Self::Volcano => "volcano",
            Self::Coscheduling => "coscheduling",
            Self::Native => "native",
        }
    }
}

/// Whether nodes are checked (preflight) before a gang starts on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preflight {
    /// They are not.
    #[default]
    Off,
    /// The gang starts on none that did not pass.
    Required,
}

/// How a training program reports its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressBy {
    /// It prints it.
    #[default]
    Logs,
    /// It also sends it, by the protocol of Kubeflow Trainer.
    Push,
}

/// What follows when the watch finds a hang, NaN or a straggler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchMode {
    /// The attempt ends where the finding is sure enough.
    #[default]
    Act,
    /// The finding is reported, and nothing else.
    Report,
    /// Nothing is watched.
    Off,
}

impl WatchMode {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Act, Self::Report, Self::Off];

    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Act => "act",
            Self::Report => "report",
            Self::Off => "off",
        }
    }
}

/// What follows when the loss stays NaN or infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnNan {
    /// It is reported.
    #[default]
    Report,
    /// A new attempt begins from the last checkpoint.
    Restart,
    /// The job fails.
    Stop,
}

impl OnNan {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Report, Self::Restart, Self::Stop];

    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Restart => "restart",
            Self::Stop => "stop",
        }
    }
}

/// How a failed gang restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartIn {
    /// In place, where that is possible.
    #[default]
    Place,
    /// With new pods, always.
    Pods,
}

impl RestartIn {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Place, Self::Pods];

    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Pods => "pods",
        }
    }
}

/// Whether the training container runs under a supervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervise {
    /// It does where the operator can restart the gang in place.
    #[default]
    Auto,
    /// It does not.
    Off,
}

impl Supervise {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Auto, Self::Off];

    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

/// A setting that is stated to hold, or not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It holds.
    On,
    /// It does not.
    Off,
}

/// What one failed pod restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartScope {
    /// Every pod, as the next attempt.
    Gang,
    /// Only itself.
    Pod,
}

/// The failure budget of each account before the job fails; `None` leaves the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// The program's own failures; without it `backoffLimit` holds.
    pub user: Option<Limit>,
    /// Refused or withdrawn by people and controllers of the cluster.
    pub platform: Option<Limit>,
    /// Nodes, devices, networks.
    pub infrastructure: Option<Limit>,
    /// Seats taken by a job of higher priority.
    pub preemption: Option<Limit>,
}

/// A number of failures, or no bound at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// The job fails with this many failures.
    At(u32),
    /// Never.
    Unlimited,
}

/// One old behaviour that `trainyard.dev/compat` brings back. `docs/differences.md` explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compat {
    /// `PyTorchJob` workers wait for the master's name in an init container.
    InitContainer,
    /// Services publish only ready pods.
    ReadyOnlyServices,
    /// A disrupted pod fails the job where its policy does not restart it.
    DisruptionsFail,
    /// `MPIJob` v1 starts the launcher without waiting for workers.
    LauncherEarly,
    /// A failed pod fails an `XGBoostJob` whatever its restart policy.
    XgboostFails,
    /// A pod that succeeded and was deleted runs again.
    RerunSucceeded,
    /// Worker pods of `MPIJob` v2beta1 search `cluster.local` whatever the cluster's domain.
    ClusterLocalSearch,
    /// Exit codes alone decide which account a failure counts against. Every other one of these implies it.
    IgnoreVerdicts,
}

impl Compat {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::InitContainer,
        Self::ReadyOnlyServices,
        Self::DisruptionsFail,
        Self::LauncherEarly,
        Self::XgboostFails,
        Self::RerunSucceeded,
        Self::ClusterLocalSearch,
        Self::IgnoreVerdicts,
    ];

    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::InitContainer => "init-container",
            Self::ReadyOnlyServices => "ready-only-services",
            Self::DisruptionsFail => "disruptions-fail",
            Self::LauncherEarly => "launcher-early",
            Self::XgboostFails => "xgboost-fails",
            Self::RerunSucceeded => "rerun-succeeded",
            Self::ClusterLocalSearch => "cluster-local-search",
            Self::IgnoreVerdicts => "ignore-verdicts",
        }
    }
}
