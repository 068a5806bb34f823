//! Which runtime a `TrainJob` means: one of its files, or one that is built in.
//!
//! The built-in ones have the names and the meaning of those that come with Kubeflow Trainer; their text is ours.

use std::sync::{Arc, OnceLock};

use super::{
    GROUP,
    fields::{RuntimeRef, RuntimeSpec},
    runtimes::{Read, Written},
};
use crate::{
    finding::{Span, catalogue},
    spec::{
        Document, Place,
        nearest::{nearest, one_of},
        read,
    },
};

/// The runtimes that are built in: name and text.
pub const BUNDLED: [(&str, &str); 8] = [
    (
        "deepspeed-distributed",
        include_str!("runtimes/deepspeed-distributed.yaml"),
    ),
    (
        "jax-distributed",
        include_str!("runtimes/jax-distributed.yaml"),
    ),
    (
        "mlx-distributed",
        include_str!("runtimes/mlx-distributed.yaml"),
    ),
    (
        "torch-distributed",
        include_str!("runtimes/torch-distributed.yaml"),
    ),
    (
        "torchtune-llama3.2-1b",
        include_str!("runtimes/torchtune-llama3.2-1b.yaml"),
    ),
    (
        "torchtune-llama3.2-3b",
        include_str!("runtimes/torchtune-llama3.2-3b.yaml"),
    ),
    (
        "torchtune-qwen2.5-1.5b",
        include_str!("runtimes/torchtune-qwen2.5-1.5b.yaml"),
    ),
    (
        "xgboost-distributed",
        include_str!("runtimes/xgboost-distributed.yaml"),
    ),
];

/// The kind that is meant where none is stated, and of all that are built in.
pub(super) const CLUSTER: &str = "ClusterTrainingRuntime";
/// Mistakes of one runtime that are reported at each job that names it.
const FAULTS_SHOWN: usize = 20;

/// Names of the files that a name that is missing is compared with.
const NAMES_COMPARED: usize = 200;

/// A runtime that was found.
pub(super) struct Runtime<'a> {
    pub(super) name: String,
    pub(super) spec: &'a RuntimeSpec,
    /// Where it is written; nothing for one that is built in.
    pub(super) written: Option<&'a Written>,
}

/// The runtime that `reference` names; reported where there is none or it cannot be read.
pub(super) fn find<'a>(
    document: &'a Document,
    reference: Option<RuntimeRef>,
    namespace: Option<&str>,
    place: &Place<'_>,
) -> Option<Runtime<'a>> {
    let reference = reference.unwrap_or_default();
    let rule = &catalogue::TRAIN_RUNTIME;
    let name = reference.name.unwrap_or_default();
    if name.is_empty() {
        place.key("name").report_with(
            rule,
            "`runtimeRef.name` is missing: it is not known what the job runs in",
            format!(
                "name a runtime, such as `torch-distributed`; built in are {}",
                bundled_names()
            ),
        );
        return None;
    }
    let kind = reference.kind.unwrap_or_else(|| CLUSTER.to_owned());
    let group = reference.api_group.unwrap_or_else(|| GROUP.to_owned());
    if group != GROUP {
        let message = format!("`runtimeRef.apiGroup` must be `{GROUP}`, found `{group}`");
        place.key("apiGroup").report(rule, message);
        return None;
    }
    if !super::RUNTIMES.contains(&kind.as_str()) {
        let message = format!(
            "`runtimeRef.kind` must be {}, found `{kind}`",
            one_of(super::RUNTIMES)
        );
        place.key("kind").report(rule, message);
        return None;
    }
    let runtimes = &document.runtimes;
    if let Some(written) = runtimes.find(&kind, &name, namespace) {
        let here = Arc::ptr_eq(&written.source, &document.source);
        return usable(written, &name, here, place).then(|| Runtime {
            name,
            spec: &written.read().spec,
            written: Some(written),
        });
    }
    let bundled = || BUNDLED.iter().position(|(known, _)| *known == name);
    if let Some(spec) = (kind == CLUSTER).then(bundled).flatten().and_then(built_in) {
        return Some(Runtime {
            name,
            spec,
            written: None,
        });
    }
    let found = if runtimes.is_empty() {
        "the files have no runtime".to_owned()
    } else {
        format!("the files have {}", runtimes.words())
    };
    let is_cluster = kind == CLUSTER;
    let known = BUNDLED.iter().map(|(name, _)| *name);
    // Each of many jobs may have a mistake in the name, and each name is compared.
    let known = runtimes
        .names(&kind)
        .take(NAMES_COMPARED)
        .chain(known.filter(|_| is_cluster));
    let is_built_in = |name: &str| BUNDLED.iter().any(|(known, _)| *known == name);
    let hint = match nearest(&name, known) {
        _ if !is_cluster && is_built_in(&name) => {
            format!(
                "`{name}` is built in as a {CLUSTER}: write `kind: {CLUSTER}`, or leave `kind` out"
            )
        }
        near => runtimes
            .elsewhere(&kind, &name)
            .or_else(|| near.map(|meant| format!("did you mean `{meant}`?")))
            .unwrap_or_else(|| {
                format!(
                    "add the runtime to the files: `kubectl get {} {name} -o yaml` prints it",
                    kind.to_lowercase()
                )
            }),
    };
    let built_in = if is_cluster {
        format!(", and built in are {}", bundled_names())
    } else {
        ", and a TrainingRuntime is never built in".to_owned()
    };
    let message = format!("the {kind} `{name}` is missing: {found}{built_in}");
    place.key("name").report_with(rule, message, hint);
    None
}

fn bundled_names() -> String {
    let names = BUNDLED.map(|(name, _)| format!("`{name}`"));
    names.join(", ")
}

/// The built-in runtime at this place of the list. Each is read once: many jobs name the same.
fn built_in(place: usize) -> Option<&'static RuntimeSpec> {
    static READ: [OnceLock<Option<Read>>; BUNDLED.len()] =
        [const { OnceLock::new() }; BUNDLED.len()];
    let (_, text) = BUNDLED.get(place)?;
    let read = READ.get(place)?.get_or_init(|| {
        let file = read(text.as_bytes()).ok()?;
        Some(Read::of(&file.documents.first()?.tree, text))
    });
    read.as_ref().map(|read| &read.spec)
}

/// Whether the runtime can be used. What is wrong in it is reported where the job names it.
fn usable(written: &Written, name: &str, here: bool, place: &Place<'_>) -> bool {
    let faults = &written.read().faults;
    let mut failed = faults.iter().any(|(is_error, ..)| *is_error);
    let place = place.key("name");
    for (is_error, span, message) in faults.iter().take(FAULTS_SHOWN) {
        let rule = if *is_error {
            &catalogue::TRAIN_RUNTIME
        } else {
            &catalogue::TRAIN_NO_EFFECT
        };
        let at = spot(*span, here);
        place.report(rule, format!("runtime `{name}`{at}: {message}"));
    }
    if let Some(more @ 1..) = faults.len().checked_sub(FAULTS_SHOWN) {
        let rule = if failed {
            &catalogue::TRAIN_RUNTIME
        } else {
            &catalogue::TRAIN_NO_EFFECT
        };
        place.report(rule, format!("runtime `{name}` has {more} more mistakes"));
    }
    let version = written.tree.get("apiVersion");
    let found = version
        .and_then(|entry| entry.value.as_str())
        .unwrap_or_default();
    if found != super::API_VERSION {
        let at = version.map_or_else(String::new, |entry| spot(entry.value.head(), here));
        let message = format!(
            "runtime `{name}`{at} has apiVersion `{found}`; `{}` is supported",
            super::API_VERSION
        );
        place.report(&catalogue::TRAIN_RUNTIME, message);
        failed = true;
    }
    !failed
}

/// Where in a runtime, in words. `here` is whether it is in the file of its job.
pub(super) fn spot(span: Span, here: bool) -> String {
    match (span.line, here) {
        (0, _) => String::new(),
        (line, true) => format!(" (line {line}:{})", span.column),
        (line, false) => format!(" (line {line}:{} of its file)", span.column),
    }
}
