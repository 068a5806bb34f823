//! `runtimePatches`: changes of the runtime by several parties, in the order of the list.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    fields::{
        ContainerPatch, JobSetSpec, JobSetTemplate, MetadataPatch, PodSpecPatch,
        ReplicatedJobPatch, RuntimePatch,
    },
    merge::{merge_list, merged, sources},
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
    for (index, patch) in patches.into_iter().enumerate().take(MOST) {
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
        let mut seen = BTreeSet::new();
        for (index, job) in jobs.into_iter().flatten().enumerate() {
            let place = place.index(index);
            if !is_first(&mut seen, job.name.as_deref(), "job", &place) {
                continue;
            }
            patch_job(template.spec.get_or_insert_default(), job, &place);
        }
    }
}

/// Whether `name` is not in its list yet: the API takes each name once.
fn is_first(
    seen: &mut BTreeSet<String>,
    name: Option<&str>,
    what: &str,
    place: &Place<'_>,
) -> bool {
    let name = name.unwrap_or_default();
    let is_first = seen.insert(name.to_owned());
    if !is_first {
        let message = format!("the list names the {what} `{name}` twice");
        place
            .key("name")
            .report_with(RULE, message, "make one entry of the two");
    }
    is_first
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
    let found = jobs
        .iter()
        .position(|job| job.name.as_deref() == Some(name.as_str()));
    let Some(job) = found.and_then(|found| jobs.get_mut(found)) else {
        let names: Vec<String> = jobs.iter().filter_map(|job| job.name.clone()).collect();
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
    if patch.termination_grace_period_seconds.is_some() {
        pod.termination_grace_period_seconds = patch.termination_grace_period_seconds;
    }
    pod.security_context = merged(pod.security_context.take(), patch.security_context);
    pod.affinity = merged(pod.affinity.take(), patch.affinity);
    if let Some(labels) = patch.node_selector {
        pod.node_selector.get_or_insert_default().extend(labels);
    }
    // The API merges lists of these by their keys; tolerations have none and are replaced.
    if patch.tolerations.is_some() {
        pod.tolerations = patch.tolerations;
    }
    let given: Vec<String> = patch
        .volumes
        .iter()
        .flatten()
        .map(|it| it.name.clone())
        .collect();
    merge_list(&mut pod.volumes, patch.volumes, |volume| &volume.name);
    check_volumes(pod, &given, job, &place.key("volumes"));
    merge_list(
        &mut pod.image_pull_secrets,
        patch.image_pull_secrets,
        |secret| &secret.name,
    );
    merge_list(&mut pod.scheduling_gates, patch.scheduling_gates, |gate| {
        &gate.name
    });
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

/// A volume that is merged with one of another source has two, which the API refuses.
fn check_volumes(pod: &PodSpec, given: &[String], job: &str, place: &Place<'_>) {
    if given.is_empty() {
        return;
    }
    let places: BTreeMap<&str, usize> = (given.iter().enumerate())
        .map(|(index, name)| (name.as_str(), index))
        .collect();
    for volume in pod.volumes.iter().flatten() {
        let Some(index) = places.get(volume.name.as_str()) else {
            continue;
        };
        let sources = sources(volume);
        if sources.len() > 1 {
            let message = format!(
                "volume `{}` of job `{job}` would have {} sources, {}: a patch is merged with what the runtime has",
                volume.name,
                sources.len(),
                list(&sources)
            );
            let hint = "give the volume of the patch another name, and mount that";
            place.index(*index).report_with(RULE, message, hint);
        }
    }
}

fn patch_containers(
    containers: &mut [Container],
    patches: Option<Vec<ContainerPatch>>,
    job: &str,
    place: &Place<'_>,
) {
    let mut seen = BTreeSet::new();
    for (index, patch) in patches.into_iter().flatten().enumerate() {
        let place = place.index(index);
        if !is_first(&mut seen, patch.name.as_deref(), "container", &place) {
            continue;
        }
        let name = patch.name.unwrap_or_default();
        let found = containers.iter().position(|it| it.name == name);
        let Some(container) = found.and_then(|found| containers.get_mut(found)) else {
            let names: Vec<String> = containers.iter().map(|it| it.name.clone()).collect();
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
        merge_list(&mut container.env, patch.env, |variable| &variable.name);
        check_variables(container, &place.key("env"));
        merge_list(&mut container.volume_mounts, patch.volume_mounts, |mount| {
            &mount.mount_path
        });
        container.security_context =
            merged(container.security_context.take(), patch.security_context);
    }
}

/// A variable that is merged with one of the other kind has a value and a source, which the API refuses.
fn check_variables(container: &Container, place: &Place<'_>) {
    let both = container
        .env
        .iter()
        .flatten()
        .filter(|it| it.value.as_ref().is_some_and(|value| !value.is_empty()))
        .filter(|it| it.value_from.is_some());
    for variable in both.take_while(|_| !place.is_full()) {
        let message = format!(
            "variable `{}` of container `{}` would have both `value` and `valueFrom`: a patch is merged with what the runtime has",
            variable.name, container.name
        );
        place.report_with(RULE, message, "give the variable of the patch another name");
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
    // A sentence with a hundred names helps nobody, and each of many mistakes has its sentence.
    const SHOWN: usize = 12;
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`"));
    let shown: Vec<String> = shown.collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn report_near(place: &Place<'_>, message: String, word: &str, known: &[String]) {
    match nearest(word, known.iter().map(String::as_str)) {
        Some(meant) => place.report_with(RULE, message, format!("did you mean `{meant}`?")),
        None => place.report(RULE, message),
    }
}
