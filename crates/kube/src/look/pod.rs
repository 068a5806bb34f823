//! The pods of a job.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::Value;
use trainyard_core::{
    explain::{PodFacts, Trouble},
    launch::{slot_of, supervise::WORDS},
    spec::{Slot, annotation},
};

use super::{Api, JobSeen, LookError};
use crate::{
    key::{JOB_LABEL, OPERATOR_LABEL},
    pod::PodEntry,
    view::PodView,
};

/// A pod as it was found.
#[derive(Clone, Debug)]
pub struct PodSeen {
    /// Its identity.
    pub uid: String,
    /// Its slot, if its labels have it.
    pub slot: Option<Slot>,
    /// Its containers, in the order in which they start.
    pub containers: Vec<String>,
    /// The volume claims it mounts.
    pub claims: Vec<String>,
    /// Whether the container that trains runs under a supervisor.
    pub supervised: bool,
    /// What is known of it.
    pub facts: PodFacts,
}

impl Api {
    pub(super) async fn pods(&self, job: &JobSeen) -> Result<Vec<PodSeen>, LookError> {
        let path = format!("/api/v1/namespaces/{}/pods", job.key.namespace);
        let objects: Vec<Value> = self
            .list("list pods", &path, Some(labels(job)), None)
            .await?;
        let mut pods: Vec<PodSeen> = objects
            .into_iter()
            .filter_map(|object| PodSeen::new(job, object))
            .collect();
        pods.sort_by(|a, b| {
            (a.slot.is_none(), a.slot, a.facts.attempt)
                .cmp(&(b.slot.is_none(), b.slot, b.facts.attempt))
                .then_with(|| a.facts.name.cmp(&b.facts.name))
        });
        Ok(pods)
    }
}

/// The labels of a job's pods.
pub(super) fn labels(job: &JobSeen) -> String {
    format!(
        "{JOB_LABEL}={},{OPERATOR_LABEL}={}",
        job.key.name,
        job.kind().controller()
    )
}

impl PodSeen {
    /// Reads a pod; one that belongs to another job of the same name, now gone, is none of ours.
    pub(super) fn new(job: &JobSeen, object: Value) -> Option<Self> {
        let view: PodView = serde_json::from_value(object.clone()).ok()?;
        let pod: Pod = serde_json::from_value(object).ok()?;
        let owner = view.metadata.owner().to_owned();
        let launched = view
            .metadata
            .owner_references
            .iter()
            .any(|owner| owner.kind == "Job");
        if owner != job.uid && !launched {
            return None;
        }
        let slot = job
            .job
            .as_ref()
            .and_then(|job| slot_of(job, &view.metadata.labels));
        let entry = PodEntry::new(&view, None);
        let observed = job.job.as_ref().and_then(|job| entry.observed(job));
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let attempt = view.metadata.label(annotation::ATTEMPT);
        let mut facts = PodFacts::new(&view.metadata.name, entry.phase);
        facts.attempt = attempt
            .and_then(|attempt| attempt.parse().ok())
            .unwrap_or(1);
        facts.node = spec.node_name.clone().filter(|node| !node.is_empty());
        facts.created_at = view.metadata.creation_timestamp;
        facts.deleted_at = entry.deleted_at;
        facts.finalizers = pod.metadata.finalizers.unwrap_or_default();
        facts.gates = spec
            .scheduling_gates
            .iter()
            .flatten()
            .map(|gate| gate.name.clone())
            .collect();
        facts.scheduler = spec.scheduler_name.clone().unwrap_or_default();
        if let Some(observed) = observed {
            facts.grace_seconds = observed.grace_seconds;
            facts.wait = observed.wait;
            facts.exit = observed.exit;
            facts.start_error = observed.start_error;
            facts.disruption = observed.disruption;
            facts.restarts = observed.restarts;
        }
        let trains = job.kind().container();
        let training = spec
            .containers
            .iter()
            .find(|container| container.name == trains);
        let training = training.or(spec.containers.first());
        if let Some(training) = training {
            facts.container.clone_from(&training.name);
            let limits = training.resources.as_ref();
            let limits = limits.and_then(|resources| resources.limits.as_ref());
            let memory = limits.and_then(|limits| limits.get("memory"));
            facts.memory_limit = memory.map(|memory| memory.0.clone());
        }
        let words = training.and_then(|training| training.command.as_ref());
        let supervised = words.is_some_and(|words| *words == WORDS);
        let statuses = status.init_container_statuses.iter().flatten();
        let mut statuses = statuses.chain(status.container_statuses.iter().flatten());
        facts.trouble = statuses.find_map(trouble);
        let init = spec.init_containers.iter().flatten();
        let containers = init.chain(&spec.containers);
        let claims = spec.volumes.iter().flatten().filter_map(|volume| {
            let claim = volume.persistent_volume_claim.as_ref()?;
            Some(claim.claim_name.clone())
        });
        Some(Self {
            uid: view.metadata.uid.clone(),
            slot,
            containers: containers.map(|container| container.name.clone()).collect(),
            claims: claims.collect(),
            supervised,
            facts,
        })
    }
}

/// Why a container waits, where it does not wait for its turn.
fn trouble(status: &ContainerStatus) -> Option<Trouble> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone().unwrap_or_default();
    if matches!(
        reason.as_str(),
        "" | "ContainerCreating" | "PodInitializing"
    ) {
        return None;
    }
    Some(Trouble {
        container: status.name.clone(),
        reason,
        message: waiting.message.clone().unwrap_or_default(),
        image: status.image.clone(),
    })
}
