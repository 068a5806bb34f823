//! A `TrainJob` of a cluster: objects of the API in place of files.
//!
//! Owns which runtime such a job names, and the job that the two are. Where the runtime comes from is the adapter's.

use serde_json::Value;

use super::{BUNDLED, runtime::CLUSTER, runtimes::share_runtimes_beside};
use crate::{
    finding::Finding,
    spec::{
        Document, Kind,
        check::{Checked, check, document_from_value},
        read,
    },
};

/// Names of runtimes that a sentence lists.
const SHOWN: usize = 8;

/// The runtime that a `TrainJob` names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeName {
    /// `ClusterTrainingRuntime` or `TrainingRuntime`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl RuntimeName {
    /// The runtime that the `TrainJob` in `object` names; nothing where that is none that can exist.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |key: &str| object.pointer(&format!("/spec/runtimeRef/{key}"))?.as_str();
        let stated = |key: &str| text(key).filter(|text| !text.is_empty());
        let kind = stated("kind").unwrap_or(CLUSTER);
        let is_known = super::RUNTIMES.contains(&kind);
        is_known.then_some(())?;
        Some(Self {
            kind: kind.to_owned(),
            name: stated("name")?.to_owned(),
        })
    }

    /// Whether it is one for all namespaces.
    pub fn is_of_cluster(&self) -> bool {
        self.kind == CLUSTER
    }

    /// The text of the built-in runtime that it names.
    pub fn built_in(&self) -> Option<Value> {
        let mut bundled = BUNDLED.iter().filter(|_| self.is_of_cluster());
        let (_, text) = bundled.find(|(name, _)| *name == self.name)?;
        runtime_from_text(text)
    }

    /// Whether `runtime` is an object of this kind and name.
    pub fn is_name_of(&self, runtime: &Value) -> bool {
        let text = |pointer: &str| runtime.pointer(pointer).and_then(Value::as_str);
        text("/kind") == Some(&self.kind) && text("/metadata/name") == Some(&self.name)
    }

    /// Kind and name, for a sentence.
    pub fn words(&self) -> String {
        format!("{} `{}`", self.kind, self.name)
    }

    /// Why there is no such runtime on a cluster that has those of `names`.
    pub fn missing<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> String {
        let names: Vec<&str> = names.into_iter().collect();
        let mut shown: Vec<String> = names
            .iter()
            .take(SHOWN)
            .map(|it| format!("`{it}`"))
            .collect();
        if let Some(more @ 1..) = names.len().checked_sub(SHOWN) {
            shown.push(format!("{more} more"));
        }
        let has = match shown.as_slice() {
            [] => "none".to_owned(),
            shown => shown.join(", "),
        };
        if self.is_of_cluster() {
            let built_in = BUNDLED.map(|(name, _)| format!("`{name}`")).join(", ");
            return format!(
                "it does not exist; the cluster has {has}, and built in are {built_in}"
            );
        }
        format!("it does not exist; the namespace has {has}")
    }
}

/// The controller that the `TrainJob` in `object` is for, where that is another one.
pub fn foreign_manager(object: &Value) -> Option<&str> {
    let manager = object.pointer("/spec/managedBy")?.as_str()?;
    (!manager.is_empty() && manager != Kind::Train.own_manager()).then_some(manager)
}

/// The job that the `TrainJob` in `object` and its runtime are. Without a runtime a built-in one is meant.
pub fn train_job_from_value(object: &Value, runtime: Option<&Value>) -> Checked {
    match document_with_runtime(object, runtime) {
        Ok(document) => check(&document),
        Err(finding) => Checked {
            job: None,
            findings: vec![*finding],
        },
    }
}

/// The object as a document that is shown this runtime.
pub(crate) fn document_with_runtime(
    object: &Value,
    runtime: Option<&Value>,
) -> Result<Document, Box<Finding>> {
    let mut document = document_from_value(object)?;
    if let Some(runtime) = runtime {
        share_runtimes_beside([&mut document], &[&document_from_value(runtime)?]);
    }
    Ok(document)
}

/// The runtime in `text`, which is YAML or JSON; nothing where it holds none.
pub fn runtime_from_text(text: &str) -> Option<Value> {
    let file = read(text.as_bytes()).ok()?;
    let document = file.documents.first()?;
    document.is_runtime().then(|| document.tree.to_json())
}
