//! What a pod and the supervisor in it agree on: names, ports, and the settings that the pod carries.
//!
//! The supervisor is the first process of a training container; [`crate::barrier`] says what it does when. Its program comes by the same init
//! container as the agent of an `MPIJob`, and its identity is the same kind of Secret. What is known when a pod is made is one JSON text,
//! [`SuperviseSettings`]; what only the pod itself knows, its uid and its attempt, comes from the downward API.

mod eligible;
mod last_words;
mod shape;

use serde::{Deserialize, Serialize};

pub use self::eligible::{audience, audience_job, job_obstacle, obstacle};
pub use self::last_words::{HowEnded, LastWords};
pub(super) use self::shape::{Supervision, shared};
pub use crate::spec::leading_slot;
use crate::spec::{JobSettings, OnNan, Slot, WatchMode};

/// The port on which the supervisor that leads a gang listens for the others, beside [`super::agent::PORT`].
pub const PORT: u16 = 28_023;
/// The port of the operator's Service to which leaders connect.
pub const OPERATOR_PORT: u16 = 10_444;

/// The volume with the leader's token and the authority of the operator.
const FILES_VOLUME: &str = "trainyard-gang";
const FILES_FOLDER: &str = "/var/run/secrets/trainyard/gang";

/// The volume for what supervisor and program exchange: a socket, heartbeats, dumps of Flight Recorders. It is in memory, so that nothing
/// outlives the pod.
const RUN_VOLUME: &str = "trainyard-run";
const RUN_FOLDER: &str = "/run/trainyard";
/// What it may hold: dumps of eight ranks take some 16 MiB. A dump that does not fit is not written.
const RUN_BYTES: &str = "64Mi";

/// The socket on which a supervisor answers, in [`SuperviseSettings::run`].
pub const SOCKET: &str = "supervisor.sock";
/// The file for heartbeats, in [`SuperviseSettings::run`]; of one rank of several with `.RANK` behind it.
pub const BEAT: &str = "beat";
/// The first words of a training container that has a supervisor.
pub const WORDS: [&str; 2] = ["/opt/trainyard/trainyard", "supervise"];

/// The variables that identify the pod to the supervisor.
pub mod variable_name {
    /// [`super::SuperviseSettings`] as JSON.
    pub const SETTINGS: &str = "TRAINYARD_SUPERVISE";
    /// The uid of the pod, from the downward API.
    pub const POD_UID: &str = "TRAINYARD_POD_UID";
    /// The file for heartbeats of the program.
    pub const BEAT: &str = "TRAINYARD_BEAT";
    /// The attempt: for the supervisor that of the pod's label when the container started, for the program that which it runs as.
    pub const ATTEMPT: &str = crate::launch::agent::variable_name::ATTEMPT;
}

/// The operator, as the leaders of gangs reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangServer {
    /// Host and port.
    pub address: String,
    /// The name in the operator's certificate.
    pub server_name: String,
    /// The authority of that certificate, as PEM, once the operator has one.
    pub authority: Option<String>,
}

/// The settings of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuperviseSettings {
    /// The uid of the job.
    pub job: String,
    /// The slot of the pod.
    pub slot: Slot,
    /// Whether the program waits for the gang: the pod replaces one of a gang that restarts in place.
    #[serde(default)]
    pub waits: bool,
    /// Whether an exit code of 0 ends the container at once, as the success rule of the job needs it.
    pub exits_on_success: bool,
    /// The folder of the identity.
    pub identity: String,
    /// Host and port of the supervisor that leads.
    pub leader: String,
    /// How the supervisor that leads reaches the operator; the others have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorAddress>,
    /// How long the whole restart may take, in milliseconds (`trainyard.dev/start-within`).
    pub start_within_ms: u64,
    /// How long programs have to end after SIGTERM, in milliseconds (`trainyard.dev/stop-grace`).
    #[serde(default = "default_stop_grace")]
    pub stop_grace_ms: u64,
    /// The ranks of the pod.
    pub ranks: SupervisedRanks,
    /// Whether the traffic of the pod's network interfaces is the program's: not on the host's network, not beside other containers, and not in
    /// the pod that leads, which all others report to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
    /// The folder in which the program leaves evidence of a hang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// What is watched.
    pub watch: SupervisedWatch,
    /// The folder in which the supervisor has its socket, and programs their heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The file whose content the kubelet keeps when the container has ended, where the supervisor may write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_words: Option<String>,
}

/// The grace period of pods that were created before it was written down.
fn default_stop_grace() -> u64 {
    u64::try_from(JobSettings::STOP_GRACE.as_millis()).unwrap_or(u64::MAX)
}

/// How the leader of a gang reaches the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorAddress {
    /// Host and port.
    pub address: String,
    /// The name in the operator's certificate.
    pub server_name: String,
    /// The file with the authority of that certificate.
    pub authority: String,
    /// The file with the token of the pod that only the operator accepts. The kubelet renews it.
    pub token: String,
}

/// The ranks of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SupervisedRanks {
    /// The first rank of this pod.
    pub first: u32,
    /// How many it holds.
    pub count: u32,
    /// How many all pods hold.
    pub all: u32,
}

/// What is watched. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SupervisedWatch {
    /// What may follow from a finding.
    pub mode: WatchMode,
    /// `trainyard.dev/hang-after`.
    pub hang_after_ms: u64,
    /// `trainyard.dev/hang-floor`.
    pub hang_floor_ms: u64,
    /// `trainyard.dev/first-step-within`.
    pub first_step_within_ms: u64,
    /// `trainyard.dev/on-nan`. Pods of a version that did not write it report.
    #[serde(default, skip_serializing_if = "is_report")]
    pub on_nan: OnNan,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_report(on_nan: &OnNan) -> bool {
    *on_nan == OnNan::Report
}
