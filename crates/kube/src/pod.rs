//! What the status of a pod says, in the words of `decide`.
//!
//! Owns the reading of phases, container states and conditions. It decides nothing: what a failure
//! means for the job is `trainyard_core::job`'s.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use jiff::Timestamp;
use trainyard_core::{
    fleet::GangPod,
    gang::Resources,
    job::{Disruption, Exit, ObservedPod, PodPhase, Wait},
    launch::{GATE, slot_of, supervise::LastWords},
    spec::{Job, Kind, annotation},
};

use crate::{
    key::OPERATOR_LABEL,
    room,
    view::{ContainerView, PodStatusView, PodView},
};

/// The grace period of a pod that states none.
const DEFAULT_GRACE_SECONDS: u32 = 30;
/// Longest message of another component that is kept.
const MESSAGE_CHARS: usize = 512;

/// The labels of the slot and the attempt.
const KEPT_LABELS: &[&str] = &[
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "training.kubeflow.org/job-role",
    // Of a `TrainJob`.
    "jobset.sigs.k8s.io/replicatedjob-name",
    "batch.kubernetes.io/job-completion-index",
    annotation::ATTEMPT,
];

/// A pod as it is kept in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodEntry {
    pub(crate) uid: Box<str>,
    /// The identity of its owner.
    pub(crate) owner: Box<str>,
    pub(crate) version: u64,
    labels: BTreeMap<&'static str, Box<str>>,
    pub(crate) phase: PodPhase,
    ready: bool,
    pub(crate) deleted_at: Option<Timestamp>,
    grace_seconds: u32,
    pub(crate) node: Option<Arc<str>>,
    /// The node that it is tied to.
    tied: Option<Arc<str>>,
    gated: bool,
    restarts: u32,
    /// How often its training container has ended.
    ends: u32,
    /// How often that was started again in place.
    started_again: u32,
    exit: Option<Exit>,
    start_error: Option<Box<str>>,
    /// What its supervisor left about the end of its program.
    pub(crate) last_words: Option<Box<LastWords>>,
    wait: Option<Wait>,
    disruption: Option<Disruption>,
    /// The hash of the authority by which its supervisor authenticates the operator, where it has one.
    gang_ca: Option<u64>,
    /// Its priority, as it was admitted.
    priority: i32,
    never_preempts: bool,
    /// What it asks for, as long as it has no node: what it takes on one is known there.
    requests: Option<Box<Resources>>,
}

impl PodEntry {
    pub(crate) fn new(pod: &PodView, node: Option<Arc<str>>) -> Self {
        let meta = &pod.metadata;
        let status = &pod.status;
        let phase = phase(&status.phase);
        let training = training_container(pod);
        let container = status
            .container_statuses
            .iter()
            .find(|container| container.name == training);
        let waits = node.is_none() && phase == PodPhase::Pending;
        let grace = pod.spec.termination_grace_period_seconds;
        let grace = meta.deletion_grace_period_seconds.or(grace);
        // The API stamps the moment at which the grace period ends.
        let deleted_at = meta.deletion_timestamp.map(|at| {
            let grace = jiff::SignedDuration::from_secs(
                meta.deletion_grace_period_seconds.unwrap_or(0).max(0),
            );
            at.checked_sub(grace).unwrap_or(at)
        });
        Self {
            uid: meta.uid.as_str().into(),
            owner: meta.owner().into(),
            version: meta.resource_version,
            labels: KEPT_LABELS
                .iter()
                .filter_map(|key| Some((*key, meta.label(key)?.into())))
                .collect(),
            phase,
            ready: condition(status, "Ready").is_some_and(|ready| ready.status == "True"),
            deleted_at,
            grace_seconds: grace.map_or(DEFAULT_GRACE_SECONDS, |grace| {
                u32::try_from(grace).unwrap_or(0)
            }),
            tied: match (&node, meta.notes.seat.as_deref()) {
                (Some(node), Some(tied)) if **node == *tied => Some(Arc::clone(node)),
                (_, tied) => tied.map(Arc::from),
            },
            node,
            gated: pod
                .spec
                .scheduling_gates
                .iter()
                .any(|gate| gate.name == GATE),
            restarts: status
                .init_container_statuses
                .iter()
                .chain(&status.container_statuses)
                .map(|container| container.restart_count)
                .fold(0, u32::saturating_add),
            ends: container.map_or(0, ends),
            started_again: container.map_or(0, |container| container.restart_count),
            exit: exit(status, container),
            start_error: start_error(container),
            last_words: last_words(container),
            wait: (phase == PodPhase::Pending).then(|| wait(status)),
            disruption: disruption(status),
            gang_ca: meta.notes.gang_ca.as_deref().map(authority_hash),
            priority: pod.spec.priority.unwrap_or(0),
            never_preempts: pod.spec.never_preempts(),
            requests: waits.then(|| Box::new(room::requests(&pod.spec))),
        }
    }

    /// The attempt that it carries. A pod of another operator's making carries none; it is of the first.
    fn attempt(&self) -> u32 {
        let label = self.labels.get(annotation::ATTEMPT);
        label.and_then(|attempt| attempt.parse().ok()).unwrap_or(1)
    }

    /// The hash of the authority by which its supervisor authenticates the operator, where it has one.
    pub(crate) fn gang_ca(&self) -> Option<u64> {
        self.gang_ca
    }

    /// Whether its training container was started again after its last end.
    pub(crate) fn runs_again(&self) -> bool {
        self.ends > 0 && self.ends == self.started_again
    }

    /// The part of it that node assignment needs, under `name`.
    pub(crate) fn gang_pod<'a>(&'a self, name: &'a str) -> GangPod<'a> {
        GangPod {
            name,
            phase: self.phase,
            attempt: self.attempt(),
            leaving: self.deleted_at.is_some(),
            node: self.node.as_deref(),
            tied: self.tied.as_deref(),
            priority: self.priority,
            never_preempts: self.never_preempts,
            requests: self.requests.as_deref(),
        }
    }

    pub(crate) fn observed(&self, job: &Job) -> Option<ObservedPod> {
        let labels: BTreeMap<String, String> = self
            .labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.to_string()))
            .collect();
        Some(ObservedPod {
            uid: self.uid.to_string(),
            slot: slot_of(job, &labels)?,
            attempt: self.attempt(),
            phase: self.phase,
            ready: self.ready,
            deleted_at: self.deleted_at,
            grace_seconds: self.grace_seconds,
            node: self.node.as_deref().map(str::to_owned),
            restarts: self.restarts,
            ends: self.ends,
            exit: self.exit,
            start_error: self.start_error.as_deref().map(str::to_owned),
            wait: self.wait.clone(),
            disruption: self.disruption,
            gated: self.gated,
        })
    }
}

/// Identifies an authority: certificates are too large to keep for each pod.
pub(crate) fn authority_hash(authority: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    authority.hash(&mut hasher);
    hasher.finish()
}

fn phase(text: &str) -> PodPhase {
    match text {
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        "Unknown" => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

fn condition<'a>(status: &'a PodStatusView, kind: &str) -> Option<&'a crate::view::ConditionView> {
    status
        .conditions
        .iter()
        .find(|condition| condition.kind == kind)
}

/// The container whose exit is the pod's: the one of the kind's name, else the first.
fn training_container(pod: &PodView) -> &str {
    let named = pod
        .metadata
        .label(OPERATOR_LABEL)
        .and_then(|controller| {
            Kind::READ
                .into_iter()
                .find(|kind| kind.controller() == controller)
        })
        .map(Kind::container);
    let mut containers = pod.spec.containers.iter();
    let has_name = containers.any(|container| Some(container.name.as_str()) == named);
    match named {
        Some(name) if has_name => name,
        _ => pod
            .spec
            .containers
            .first()
            .map_or("", |container| &container.name),
    }
}

/// How the training container ended; of a pod that failed without it, how an init container did.
fn exit(status: &PodStatusView, container: Option<&ContainerView>) -> Option<Exit> {
    let ended = container.and_then(|container| {
        let now = container.state.terminated.as_ref();
        now.or(container.last_state.terminated.as_ref())
    });
    let ended = ended.or_else(|| {
        let mut failed = status
            .init_container_statuses
            .iter()
            .filter_map(|container| container.state.terminated.as_ref())
            .filter(|ended| ended.exit_code != 0);
        failed.next()
    })?;
    Some(Exit {
        code: ended.exit_code,
        out_of_memory: ended.reason == "OOMKilled",
        at: ended.finished_at,
    })
}

/// How often a container has ended.
fn ends(container: &ContainerView) -> u32 {
    let ended = u32::from(has_ended(container));
    container.restart_count.saturating_add(ended)
}

/// Whether a container has ended and was not started again yet. While its kubelet pauses, its state is only that it waits.
fn has_ended(container: &ContainerView) -> bool {
    let pauses = container.state.waiting.is_some() && container.last_state.terminated.is_some();
    container.state.terminated.is_some() || pauses
}

/// Why the training container could not be started, in the words of the container runtime.
fn start_error(container: Option<&ContainerView>) -> Option<Box<str>> {
    let container = container?;
    let now = container.state.terminated.as_ref();
    let ended = now.or(container.last_state.terminated.as_ref())?;
    let refused = ["StartError", "ContainerCannotRun"].contains(&ended.reason.as_str());
    (refused && !ended.message.is_empty()).then(|| short(&ended.message).into())
}

/// What the supervisor of the training container left about the end of its program.
fn last_words(container: Option<&ContainerView>) -> Option<Box<LastWords>> {
    let ended = container?.state.terminated.as_ref()?;
    LastWords::parse(&ended.message).map(Box::new)
}

fn wait(status: &PodStatusView) -> Wait {
    if let Some(scheduled) = condition(status, "PodScheduled")
        && scheduled.status == "False"
    {
        return match scheduled.reason.as_str() {
            "SchedulingGated" => Wait::Gate,
            _ => Wait::Seat(short(&scheduled.message)),
        };
    }
    let waiting = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .filter_map(|container| container.state.waiting.as_ref());
    for waiting in waiting {
        let failed = [
            "ImagePullBackOff",
            "ErrImagePull",
            "InvalidImageName",
            "ErrImageNeverPull",
            "ImageInspectError",
            "RegistryUnavailable",
        ];
        if failed.contains(&waiting.reason.as_str()) {
            let words = if waiting.message.is_empty() {
                &waiting.reason
            } else {
                &waiting.message
            };
            return Wait::PullFailed(short(words));
        }
    }
    if condition(status, "PodScheduled").is_none() {
        // The scheduler has not processed it yet.
        return Wait::Seat(String::new());
    }
    Wait::Create
}

/// Why the platform removes the pod.
fn disruption(status: &PodStatusView) -> Option<Disruption> {
    let by_status = match status.reason.as_str() {
        "Evicted" => Some(Disruption::NodePressure),
        "Preempting" => Some(Disruption::Preempted),
        "NodeLost" => Some(Disruption::NodeGone),
        "NodeShutdown" | "Terminated" | "Shutdown" => Some(Disruption::NodeShutdown),
        _ => None,
    };
    let target = condition(status, "DisruptionTarget").filter(|target| target.status == "True");
    let by_condition = target.map(|target| match target.reason.as_str() {
        "PreemptionByScheduler" => Disruption::Preempted,
        "DeletionByTaintManager" | "DeletionByPodGC" => Disruption::NodeGone,
        "TerminationByKubelet" => by_status.unwrap_or(Disruption::NodePressure),
        _ => Disruption::Evicted,
    });
    by_condition.or(by_status)
}

fn short(message: &str) -> String {
    message.chars().take(MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests;
