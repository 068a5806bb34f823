//! Names: of the job, of its namespace, and of the pods that follow from both.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    finding::catalogue,
    spec::{
        DEFAULT_NAMESPACE, Job, JobName, NameError, Namespace, Role, Slot, collector::Place,
        name::LABEL_MAX,
    },
};

/// Characters of a job's name with which every pod name fits: the longest end is `-evaluator-99999`.
const ALWAYS_FITS: usize = LABEL_MAX - "-evaluator-99999".len();

/// `metadata.name`.
pub(in crate::spec) fn name(metadata: &Place<'_>, meta: &ObjectMeta) -> Option<JobName> {
    let place = metadata.key("name");
    let Some(text) = meta.name.as_deref() else {
        let message = "the job has no `metadata.name`";
        match &meta.generate_name {
            Some(_) => place.report_with(
                &catalogue::BAD_NAME,
                message,
                "`generateName` is filled in by the cluster only; state a name",
            ),
            None => place.report(&catalogue::BAD_NAME, message),
        }
        return None;
    };
    JobName::parse(text)
        .map_err(|error| {
            let message = format!("invalid job name `{text}`: {error}");
            if matches!(error, NameError::TooLong { .. }) {
                let hint = format!(
                    "shorten it to at most {ALWAYS_FITS} characters: pods are named \
                     `<job>-<role>-<index>`"
                );
                return place.report_with(&catalogue::BAD_NAME, message, hint);
            }
            match suggestion(text) {
                Some(better) => place.report_with(
                    &catalogue::BAD_NAME,
                    message,
                    format!("use a name such as `{better}`"),
                ),
                None => place.report(&catalogue::BAD_NAME, message),
            }
        })
        .ok()
}

/// A valid name that is like `text`.
fn suggestion(text: &str) -> Option<String> {
    let replaced: String = text
        .to_ascii_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            }
        })
        .collect();
    let trimmed = replaced.trim_matches('-');
    let better = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        format!("job-{trimmed}")
    } else {
        trimmed.to_owned()
    };
    JobName::parse(&better).ok().map(|_| better)
}

/// `metadata.namespace`.
pub(in crate::spec) fn namespace(metadata: &Place<'_>, meta: &ObjectMeta) -> Option<Namespace> {
    let text = meta.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    Namespace::parse(text)
        .map_err(|error| {
            let message = format!("invalid namespace name `{text}`: {error}");
            metadata
                .key("namespace")
                .report(&catalogue::BAD_NAMESPACE, message);
        })
        .ok()
}

/// Whether the longest pod name of the job fits a DNS label.
pub(in crate::spec) fn pod_names(name: &Place<'_>, job: &Job) {
    let longest = job
        .roles
        .iter()
        .map(|(role, spec)| {
            let most = match (role, job.elastic()) {
                (Role::Worker, Some(elastic)) => spec.replicas.max(elastic.max_replicas),
                _ => spec.replicas,
            };
            job.pod_name(Slot::new(*role, most.max(1) - 1))
        })
        .max_by_key(String::len);
    let Some(pod) = longest.filter(|pod| pod.len() > LABEL_MAX) else {
        return;
    };
    let own = job.name.as_str().len();
    let added = pod.strip_prefix(job.name.as_str()).unwrap_or_default();
    name.report_with(
        &catalogue::POD_NAME_TOO_LONG,
        format!(
            "the last pod would be named `{pod}`: {own} characters of the job and {} of `{added}` make {}, at most {LABEL_MAX} are allowed",
            added.len(),
            pod.len(),
        ),
        format!(
            "shorten the name to at most {} characters",
            LABEL_MAX - added.len()
        ),
    );
}
