//! Which runtime a `TrainJob` means: one of its files, or one that is built in.
//!
//! The built-in ones have the names and the meaning of those that come with Kubeflow Trainer; their text is ours.

use super::{
    GROUP,
    fields::{RuntimeRef, RuntimeSpec},
};
use crate::{
    finding::{Severity, catalogue},
    spec::{
        Collector, DEFAULT_NAMESPACE, Document, Node, Place, decode,
        nearest::{nearest, one_of},
        read,
        wire::Object,
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

const CLUSTER: &str = "ClusterTrainingRuntime";

/// A runtime that was found.
pub(super) struct Runtime {
    pub(super) name: String,
    pub(super) spec: RuntimeSpec,
}

/// The runtime that `reference` names; reported where there is none or it cannot be read.
pub(super) fn find(
    document: &Document,
    reference: Option<RuntimeRef>,
    namespace: Option<&str>,
    place: &Place<'_>,
) -> Option<Runtime> {
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
    let text = |node: &Node, key: &str| Some(node.get(key)?.value.as_str()?.to_owned());
    let meta = |node: &Node, key: &str| text(&node.get("metadata")?.value, key);
    let is_meant = |node: &&Node| {
        let here = namespace.unwrap_or(DEFAULT_NAMESPACE);
        text(node, "kind").as_deref() == Some(kind.as_str())
            && meta(node, "name").as_deref() == Some(name.as_str())
            && (kind == CLUSTER || meta(node, "namespace").is_none_or(|there| there == here))
    };
    if let Some(node) = runtimes.iter().find(is_meant) {
        return decode_runtime(node, "", &name, place);
    }
    let bundled = BUNDLED
        .iter()
        .find(|(known, _)| *known == name && kind == CLUSTER);
    if let Some((_, text)) = bundled {
        let file = read(text.as_bytes()).ok()?;
        let bundled = file.documents.first()?;
        return decode_runtime(&bundled.tree, text, &name, place);
    }
    let in_files: Vec<String> = runtimes
        .iter()
        .filter_map(|node| Some(format!("{} `{}`", text(node, "kind")?, meta(node, "name")?)))
        .collect();
    let found = if in_files.is_empty() {
        "no runtime is in the files".to_owned()
    } else {
        format!("the files have {}", in_files.join(", "))
    };
    let hint = match nearest(&name, BUNDLED.map(|(name, _)| name)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            "add the runtime to the file as a document of its own (`kubectl get -o yaml` prints it)"
                .to_owned()
        }
    };
    let built_in = if kind == CLUSTER {
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

/// Reads a runtime. What is wrong in it is reported where the job names it.
fn decode_runtime(tree: &Node, source: &str, name: &str, place: &Place<'_>) -> Option<Runtime> {
    let unheard = Collector::default();
    let object: Object<RuntimeSpec> = decode(tree, source, &unheard);
    let findings = unheard.finish();
    let mut failed = false;
    for finding in findings {
        let is_error = finding.severity == Severity::Error;
        failed |= is_error;
        let rule = if is_error {
            &catalogue::TRAIN_RUNTIME
        } else {
            &catalogue::TRAIN_NO_EFFECT
        };
        let line = match finding.span.line {
            0 => String::new(),
            line => format!(" (line {line})"),
        };
        let message = format!("runtime `{name}`{line}: {}", finding.message);
        place.key("name").report(rule, message);
    }
    let version = tree
        .get("apiVersion")
        .and_then(|entry| entry.value.as_str());
    if version != Some(super::API_VERSION) {
        let found = version.unwrap_or_default();
        let message = format!(
            "runtime `{name}` has apiVersion `{found}`; `{}` is read",
            super::API_VERSION
        );
        place.key("name").report(&catalogue::TRAIN_RUNTIME, message);
        failed = true;
    }
    (!failed).then(|| Runtime {
        name: name.to_owned(),
        spec: object.spec,
    })
}
