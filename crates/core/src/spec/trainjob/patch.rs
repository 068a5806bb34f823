//! `runtimePatches`: changes of the runtime by several parties, in the order of the list.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    fields::{
        ContainerPatch, JobSetSpec, JobSetTemplate, MetadataPatch, PodSpecPatch,
        ReplicatedJobPatch, RuntimePatch,
    },
    resolve::{upsert, upsert_by},
};
use crate::{
    finding::catalogue,
    spec::{Place, nearest::nearest},
};

const RULE: &crate::finding::Rule = &catalogue::TRAIN_PATCH;
/// Most entries that the API takes.
const MOST: usize = 16;
/// Containers whose variables are those of `trainer` and `initializer`.
const OWN_VARIABLES: [(&str, &str); 3] = [
    ("node", "trainer.env"),
    ("dataset-initializer", "initializer.dataset.env"),
    ("model-initializer", "initializer.model.env"),
];

/// Applies `patches` to `template`. What names nothing is reported.
pub(super) fn apply(template: &mut JobSetTemplate, patches: Vec<RuntimePatch>, place: &Place<'_>) {
    if patches.len() > MOST {
        let message = format!(
            "`runtimePatches` has {} entries, at most {MOST} are allowed",
            patches.len()
        );
        place.report(RULE, message);
    }
    let mut managers = BTreeSet::new();
    for (index, patch) in patches.into_iter().enumerate() {
        let place = place.index(index);
        let manager = patch.manager.unwrap_or_default();
        if !is_manager(&manager) {
            place.key("manager").report_with(
                RULE,
                format!("`manager` must be a domain and a path, found `{manager}`"),
                "write one such as `example.com/team`",
            );
        } else if !managers.insert(manager.clone()) {
            let message = format!("two entries of `runtimePatches` have the manager `{manager}`");
            place
                .key("manager")
                .report_with(RULE, message, "make one entry of the two");
        }
        let place = place.key("trainingRuntimeSpec").key("template");
        let Some(change) = patch.training_runtime_spec.and_then(|spec| spec.template) else {
            continue;
        };
        if let Some(metadata) = change.metadata {
            let own = template.metadata.get_or_insert_default();
            add_all(own.labels.get_or_insert_default(), metadata.labels);
            add_all(
                own.annotations.get_or_insert_default(),
                metadata.annotations,
            );
        }
        let jobs = change.spec.and_then(|spec| spec.replicated_jobs);
        let place = place.key("spec").key("replicatedJobs");
        for (index, job) in jobs.into_iter().flatten().enumerate() {
            patch_job(
                template.spec.get_or_insert_default(),
                job,
                &place.index(index),
            );
        }
    }
}

fn is_manager(text: &str) -> bool {
    let well = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._/~".contains(c))
    };
    text.split_once('/')
        .is_some_and(|(domain, path)| well(domain) && well(path))
}

fn patch_job(set: &mut JobSetSpec, patch: ReplicatedJobPatch, place: &Place<'_>) {
    let jobs = set.replicated_jobs.get_or_insert_default();
    let name = patch.name.unwrap_or_default();
    let names: Vec<String> = jobs.iter().filter_map(|job| job.name.clone()).collect();
    let Some(job) = jobs
        .iter_mut()
        .find(|job| job.name.as_deref() == Some(name.as_str()))
    else {
        let message = format!("the runtime has no job `{name}`, it has {}", list(&names));
        return report_near(&place.key("name"), message, &name, &names);
    };
    let Some(template) = patch.template else {
        return;
    };
    let place = place.key("template");
    if let Some(metadata) = template.metadata {
        add_metadata(
            job.template
                .get_or_insert_default()
                .metadata
                .get_or_insert_default(),
            metadata,
        );
    }
    let Some(pod) = template.spec.and_then(|spec| spec.template) else {
        return;
    };
    let place = place.key("spec").key("template");
    let job_spec = job
        .template
        .get_or_insert_default()
        .spec
        .get_or_insert_default();
    if let Some(metadata) = pod.metadata {
        add_metadata(job_spec.template.metadata.get_or_insert_default(), metadata);
    }
    if let Some(spec) = pod.spec {
        let pod = job_spec.template.spec.get_or_insert_default();
        patch_pod(pod, spec, &name, &place.key("spec"));
    }
}

fn patch_pod(pod: &mut PodSpec, patch: PodSpecPatch, job: &str, place: &Place<'_>) {
    if patch.service_account_name.is_some() {
        pod.service_account_name = patch.service_account_name;
    }
    if patch.security_context.is_some() {
        pod.security_context = patch.security_context;
    }
    if patch.termination_grace_period_seconds.is_some() {
        pod.termination_grace_period_seconds = patch.termination_grace_period_seconds;
    }
    if patch.affinity.is_some() {
        pod.affinity = patch.affinity;
    }
    if let Some(labels) = patch.node_selector {
        pod.node_selector.get_or_insert_default().extend(labels);
    }
    // The API merges lists of these by their keys; tolerations have none and are replaced.
    if patch.tolerations.is_some() {
        pod.tolerations = patch.tolerations;
    }
    for volume in patch.volumes.into_iter().flatten() {
        upsert_by(pod.volumes.get_or_insert_default(), volume, |volume| {
            volume.name.clone()
        });
    }
    for secret in patch.image_pull_secrets.into_iter().flatten() {
        upsert_by(
            pod.image_pull_secrets.get_or_insert_default(),
            secret,
            |secret| secret.name.clone(),
        );
    }
    for gate in patch.scheduling_gates.into_iter().flatten() {
        upsert_by(pod.scheduling_gates.get_or_insert_default(), gate, |gate| {
            gate.name.clone()
        });
    }
    let inits = pod.init_containers.get_or_insert_default();
    patch_containers(
        inits,
        patch.init_containers,
        job,
        &place.key("initContainers"),
    );
    if inits.is_empty() {
        pod.init_containers = None;
    }
    patch_containers(
        &mut pod.containers,
        patch.containers,
        job,
        &place.key("containers"),
    );
}

fn patch_containers(
    containers: &mut [Container],
    patches: Option<Vec<ContainerPatch>>,
    job: &str,
    place: &Place<'_>,
) {
    for (index, patch) in patches.into_iter().flatten().enumerate() {
        let place = place.index(index);
        let name = patch.name.unwrap_or_default();
        let names: Vec<String> = containers.iter().map(|it| it.name.clone()).collect();
        let Some(container) = containers.iter_mut().find(|it| it.name == name) else {
            let message = format!(
                "job `{job}` of the runtime has no such container `{name}`, it has {}",
                list(&names)
            );
            report_near(&place.key("name"), message, &name, &names);
            continue;
        };
        let own = OWN_VARIABLES.iter().find(|(own, _)| *own == name);
        if let (Some((_, field)), Some(_)) = (own, &patch.env) {
            place.key("env").report_with(
                RULE,
                format!("variables of the container `{name}` cannot be patched"),
                format!("set them in `spec.{field}`"),
            );
            continue;
        }
        for variable in patch.env.into_iter().flatten() {
            upsert(container.env.get_or_insert_default(), variable);
        }
        for mount in patch.volume_mounts.into_iter().flatten() {
            upsert_by(
                container.volume_mounts.get_or_insert_default(),
                mount,
                |mount| mount.mount_path.clone(),
            );
        }
        if patch.security_context.is_some() {
            container.security_context = patch.security_context;
        }
    }
}

fn add_metadata(metadata: &mut ObjectMeta, patch: MetadataPatch) {
    add_all(metadata.labels.get_or_insert_default(), patch.labels);
    add_all(
        metadata.annotations.get_or_insert_default(),
        patch.annotations,
    );
}

fn add_all(all: &mut BTreeMap<String, String>, more: Option<BTreeMap<String, String>>) {
    all.extend(more.into_iter().flatten());
}

/// Names in backquotes, or that there are none.
pub(super) fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn report_near(place: &Place<'_>, message: String, word: &str, known: &[String]) {
    match nearest(word, known.iter().map(String::as_str)) {
        Some(meant) => place.report_with(RULE, message, format!("did you mean `{meant}`?")),
        None => place.report(RULE, message),
    }
}
