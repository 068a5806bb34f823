//! From a job to its gang.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

use super::{Constraints, Gang, Member, Shape};
use crate::{
    gang::GangKey,
    launch::{self, Cluster, LaunchError, LaunchedPod, Plan},
    resources::Resources,
    spec::{Framework, Job, Role, Slot, Switch, annotation, gang_minimum, holds_ranks},
};

/// The label that differs from pod to pod of a role.
const INDEX: &str = launch::pod_label::REPLICA_INDEX;

impl Gang {
    /// The gang of `job`, which was made at `created`, with no seat yet.
    ///
    /// Its priority is 0: only admission gives a pod its number, so what a template states is not read. The classes
    /// are those of the templates. Pods of a role have one shape: labels that only single pods have are left out.
    pub fn of(job: &Job, cluster: &Cluster, created: Timestamp) -> Result<Self, LaunchError> {
        let plan = Plan::new(job, cluster)?;
        let mut gang = Self {
            key: GangKey::of(job),
            created,
            priority: 0,
            claim: 0,
            admitted: false,
            classes: BTreeSet::new(),
            shapes: Vec::new(),
            pods: Vec::new(),
            minimum: 0,
            parallelism: job.settings.parallelism.clone(),
            wish: job.settings.placement.clone(),
            held: BTreeMap::new(),
            remembered: BTreeMap::new(),
            reserved: BTreeMap::new(),
            preempts: job.settings.preemption == Some(Switch::On),
            never_preempts: false,
            leaving: false,
            safe_at: job.settings.checkpointed_at,
            runs_since: None,
        };
        // Initializers end before the gang begins, and need no nodes with it.
        let holds_ranks = |role| holds_ranks(job, role);
        let (first, last): (Vec<Role>, Vec<Role>) = job
            .roles
            .keys()
            .copied()
            .filter(|role| !role.is_initializer())
            .partition(|role| holds_ranks(*role));
        for role in first.into_iter().chain(last) {
            let replicas = job.role_replicas(role);
            if replicas == 0 {
                continue;
            }
            let (labels, spec) = parts(plan.pod(Slot::new(role, 0), 1)?);
            let class = spec.priority_class_name.clone();
            gang.classes.insert(class.unwrap_or_default());
            let mut shape = Shape::of(&spec, labels);
            shape.ranks = if holds_ranks(role) {
                ranks(job, &shape.requests)
            } else {
                0
            };
            let index = gang.shapes.len();
            gang.shapes.push(shape);
            gang.pods.extend((0..replicas).map(|at| Member {
                name: job.pod_name(Slot::new(role, at)),
                role,
                shape: index,
            }));
        }
        gang.minimum = gang_minimum(job, gang.pods.len());
        Ok(gang)
    }
}

impl Shape {
    /// The shape of pods with these labels and this spec.
    pub fn of(spec: &PodSpec, mut labels: BTreeMap<String, String>) -> Self {
        labels.remove(INDEX);
        labels.remove(annotation::ATTEMPT);
        let requests = Resources::of_pod(spec);
        Self {
            ranks: u32::try_from(requests.accelerators()).unwrap_or(0).max(1),
            requests,
            labels,
            constraints: Constraints::of(spec),
        }
    }
}

impl Constraints {
    /// What `spec` says about nodes.
    pub fn of(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.clone().unwrap_or_default();
        Self {
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            node_affinity: affinity
                .node_affinity
                .and_then(|node| node.required_during_scheduling_ignored_during_execution),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            spread: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .filter(|spread| spread.when_unsatisfiable == "DoNotSchedule")
                .cloned()
                .collect(),
            affinity: affinity
                .pod_affinity
                .and_then(|pod| pod.required_during_scheduling_ignored_during_execution)
                .unwrap_or_default(),
            anti_affinity: affinity
                .pod_anti_affinity
                .and_then(|pod| pod.required_during_scheduling_ignored_during_execution)
                .unwrap_or_default(),
        }
    }
}

/// The labels and the spec of a pod, also of one that a batch Job makes.
fn parts(launched: LaunchedPod) -> (BTreeMap<String, String>, PodSpec) {
    let (metadata, spec) = match launched {
        LaunchedPod::Pod(pod) => (pod.metadata, pod.spec),
        LaunchedPod::Job(job) => {
            let template: PodTemplateSpec = job.spec.map(|spec| spec.template).unwrap_or_default();
            (template.metadata.unwrap_or_default(), template.spec)
        }
    };
    (
        metadata.labels.unwrap_or_default(),
        spec.unwrap_or_default(),
    )
}

/// Ranks of each pod: as the job states them, else one for each accelerator, else one.
fn ranks(job: &Job, requests: &Resources) -> u32 {
    let stated = match &job.framework {
        Framework::MpiV1(own) => Some(own.slots_per_worker),
        Framework::MpiV2(own) => Some(own.slots_per_worker),
        Framework::PyTorch(own) => own
            .nproc_per_node
            .as_deref()
            .and_then(|text| text.parse().ok()),
        _ => None,
    };
    let accelerators = u32::try_from(requests.accelerators()).unwrap_or(0);
    // One MPI slot is the default, so it is not stated.
    match stated {
        Some(count) if count > 1 || accelerators == 0 => count.max(1),
        _ => accelerators.max(1),
    }
}
