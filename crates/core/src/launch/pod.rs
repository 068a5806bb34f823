//! What every pod has whatever its framework: name, labels, owner, restart policy.
//!
//! Invariant: our labels win over the template's, because controllers and users select by them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::{Cluster, LaunchError, train};
use crate::spec::{
    Framework, Job, Kind, RestartPolicy, RestartScope, Role, RoleSpec, Slot, annotation,
};

/// The label keys of the contract.
pub(crate) mod label {
    /// The controller that owns the pod.
    pub(crate) const OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";
    /// The job.
    pub(crate) const JOB_NAME: &str = "training.kubeflow.org/job-name";
    /// The role, in lower case.
    pub(crate) const REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
    /// The index in the role.
    pub(crate) const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
    /// `master` on the pod whose logs and metrics stand for the job.
    pub(crate) const JOB_ROLE: &str = "training.kubeflow.org/job-role";
}

/// The one owner of every object of `job`; a job that is only a file has no identity to name.
pub(super) fn owners(job: &Job) -> Option<Vec<OwnerReference>> {
    let uid = job.uid.clone()?;
    Some(vec![OwnerReference {
        api_version: job.kind.api_version().to_owned(),
        kind: job.kind.name().to_owned(),
        name: job.name.as_str().to_owned(),
        uid,
        controller: Some(true),
        block_owner_deletion: Some(true),
    }])
}

/// The labels that select the pods and services of `role`, without the index.
pub(super) fn role_labels(job: &Job, role: Role) -> BTreeMap<String, String> {
    if job.kind == Kind::Train {
        // The rest of them follows with its wiring.
        return BTreeMap::from([
            (train::JOB.to_owned(), job.name.to_string()),
            (train::ROLE.to_owned(), role.lower().to_owned()),
        ]);
    }
    let mut labels = vec![
        (label::OPERATOR_NAME, job.kind.controller()),
        (label::JOB_NAME, job.name.as_str()),
    ];
    if job.kind != Kind::MpiV2 {
        labels.push((label::REPLICA_TYPE, role.lower()));
    }
    labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The pod that all pods of `role` start from: the template, owned and labelled, without what
/// differs from slot to slot.
pub(super) fn base(job: &Job, role: Role, spec: &RoleSpec) -> Result<Pod, LaunchError> {
    let PodTemplateSpec {
        metadata,
        spec: template,
    } = &spec.template;
    let metadata = metadata.as_ref();
    let mut pod_spec = template.clone().unwrap_or_default();
    if pod_spec.containers.is_empty() {
        return Err(LaunchError::NoContainer { role });
    }
    pod_spec.restart_policy = Some(restart_policy(job, spec.restart_policy).to_owned());
    let mut labels = metadata.and_then(|m| m.labels.clone()).unwrap_or_default();
    labels.extend(role_labels(job, role));
    Ok(Pod {
        metadata: ObjectMeta {
            namespace: Some(job.namespace.as_str().to_owned()),
            labels: Some(labels),
            annotations: metadata.and_then(|m| m.annotations.clone()),
            finalizers: metadata.and_then(|m| m.finalizers.clone()),
            owner_references: owners(job),
            ..ObjectMeta::default()
        },
        spec: Some(pod_spec),
        status: None,
    })
}

/// Turns the pod of a role into the pod of `slot`: its name, its labels, and the fence that ties it
/// to `attempt`.
pub(super) fn finish(job: &Job, pod: &mut Pod, slot: Slot, attempt: u32) {
    pod.metadata.name = Some(job.pod_name(slot));
    let labels = pod.metadata.labels.get_or_insert_default();
    if let Some(index) = replica_index(job, slot) {
        labels.insert(label::REPLICA_INDEX.to_owned(), index.to_string());
    }
    if let Some(role) = job_role(job, slot) {
        labels.insert(label::JOB_ROLE.to_owned(), role.to_owned());
    }
    labels.insert(annotation::ATTEMPT.to_owned(), attempt.to_string());
}

/// The slot of a pod of `job`, from the labels that [`Plan::pod`](super::Plan::pod) gave it; `None`
/// where they are not such labels.
///
/// The index may lie beyond the role's present size: such a pod is left from a larger job.
pub fn slot_of(job: &Job, labels: &BTreeMap<String, String>) -> Option<Slot> {
    let text = |key| labels.get(key).map(String::as_str);
    let (key, index) = match job.kind {
        Kind::Train => (train::ROLE, train::INDEX),
        Kind::MpiV2 => (label::JOB_ROLE, label::REPLICA_INDEX),
        _ => (label::REPLICA_TYPE, label::REPLICA_INDEX),
    };
    let role = Role::ALL
        .into_iter()
        .find(|role| text(key) == Some(role.lower()))?;
    // That of an `MPIJob` is one pod without an index.
    if role == Role::Launcher && job.kind != Kind::Train {
        return Some(Slot::new(role, 0));
    }
    let index: u32 = text(index)?.parse().ok()?;
    Some(Slot::new(role, index.checked_sub(index_shift(job))?))
}

/// The value of the index label, where the pod has one.
fn replica_index(job: &Job, slot: Slot) -> Option<u32> {
    match (job.kind, slot.role) {
        (Kind::MpiV1, Role::Launcher) | (Kind::Train, _) => None,
        (Kind::MpiV2, Role::Launcher) => (index_shift(job) > 0).then_some(0),
        _ => Some(slot.index.saturating_add(index_shift(job))),
    }
}

/// How many ranks come before worker 0: the launcher, where it is a worker too.
fn index_shift(job: &Job) -> u32 {
    match &job.framework {
        Framework::MpiV2(own) => u32::from(own.run_launcher_as_worker),
        _ => 0,
    }
}

/// The value of the role label, where the pod has one; `master` marks the pod that stands for the
/// job.
fn job_role(job: &Job, slot: Slot) -> Option<&'static str> {
    let declares = |role| job.roles.contains_key(&role);
    let is_master = match job.kind {
        Kind::PyTorch if declares(Role::Master) => slot.role == Role::Master,
        Kind::Tf if declares(Role::Chief) || declares(Role::Master) => {
            matches!(slot.role, Role::Chief | Role::Master)
        }
        Kind::PyTorch | Kind::Tf | Kind::Jax => slot == Slot::new(Role::Worker, 0),
        Kind::XgBoost | Kind::Paddle => slot.role == Role::Master,
        Kind::MpiV1 => slot.role == Role::Launcher,
        Kind::MpiV2 => return Some(slot.role.lower()),
        // The contract has no such label.
        Kind::Train => false,
    };
    is_master.then_some("master")
}

/// The kubelet's part in restarts.
///
/// Where one failure restarts the gang the kubelet must do nothing: a container that it started
/// again in place would meet peers that still wait for the old one.
pub(super) fn restart_policy(job: &Job, policy: RestartPolicy) -> &'static str {
    match (job.restart_scope(), policy) {
        (RestartScope::Pod, RestartPolicy::Always) => "Always",
        (RestartScope::Pod, RestartPolicy::OnFailure) => "OnFailure",
        (RestartScope::Pod, RestartPolicy::Never | RestartPolicy::ExitCode)
        | (RestartScope::Gang, _) => "Never",
    }
}

/// The port that the pods of `role` are met on.
pub(super) fn required_port(job: &Job, role: Role) -> Result<i32, LaunchError> {
    job.rendezvous_port(role)
        .ok_or(LaunchError::UndeclaredRole { role })
}

/// What follows a Service's name in an address, with the leading dot: `.namespace.svc`, and the
/// cluster's domain where it is stated.
pub(super) fn service_domain(job: &Job, cluster: &Cluster) -> String {
    match cluster.stated_domain() {
        Some(domain) => format!(".{}.svc.{domain}", job.namespace),
        None => format!(".{}.svc", job.namespace),
    }
}
