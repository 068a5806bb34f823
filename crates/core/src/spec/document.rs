//! One document of a file, and what it is there for.

use std::{borrow::Cow, sync::Arc};

use super::{Entry, File, Kind, Node, Runtimes, Value};
use crate::finding::Span;

/// The `apiVersion` of a fabric.
pub const FABRIC_API_VERSION: &str = "trainyard.dev/v1alpha1";
/// The `kind` of a fabric.
pub const FABRIC_KIND: &str = "Fabric";

/// One document: a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Everything in it.
    pub tree: Node,
    /// The text of the whole file, which positions refer to; empty for an object of the API.
    pub(crate) source: Arc<str>,
    /// The runtimes of the same files, where it is a `TrainJob`.
    pub(crate) runtimes: Arc<Runtimes>,
}

/// What a document is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleInFile {
    /// A job of one of the kinds that are read.
    Job(Kind),
    /// An object that goes with a job, such as a `ConfigMap`.
    Companion,
    /// Anything else.
    Unsupported,
}

/// What stands for the five characters that the cluster adds to `metadata.generateName`.
const GENERATED: &str = "xxxxx";

/// Kinds that go with a job.
const COMPANIONS: &[&str] = &[
    "ClusterQueue",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTrainingRuntime",
    "ConfigMap",
    "Endpoints",
    "Fabric",
    "LimitRange",
    "LocalQueue",
    "Namespace",
    "NetworkAttachmentDefinition",
    "NetworkPolicy",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PriorityClass",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceFlavor",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "RuntimeClass",
    "Secret",
    "Service",
    "ServiceAccount",
    "StorageClass",
    "TrainingRuntime",
];

impl Document {
    /// `apiVersion`, where it is text.
    pub fn api_version(&self) -> Option<&str> {
        self.tree.get("apiVersion")?.value.as_str()
    }

    /// `kind`, where it is text.
    pub fn kind(&self) -> Option<&str> {
        self.tree.get("kind")?.value.as_str()
    }

    /// The job kind, where the document is a job of a kind and version that are read.
    pub fn job_kind(&self) -> Option<Kind> {
        Kind::find(self.api_version()?, self.kind()?)
    }

    /// Whether the document is a fabric, of whatever version.
    pub fn is_fabric(&self) -> bool {
        let group = self
            .api_version()
            .and_then(|version| version.split('/').next());
        self.kind() == Some(FABRIC_KIND) && group == FABRIC_API_VERSION.split('/').next()
    }

    /// `metadata.name` with its place, where it is text.
    pub fn name(&self) -> Option<(&str, Span)> {
        let name = &self.tree.get("metadata")?.value.get("name")?.value;
        Some((name.as_str()?, name.span))
    }

    /// The document with the name that the cluster would make of `metadata.generateName`, where it has
    /// that and no name: its beginning, and `end`. The place of the name is that of what it is made of.
    fn with_generated_name(&self, end: &str) -> Option<Self> {
        /// Characters of the beginning that the cluster keeps.
        const KEPT: usize = 63 - GENERATED.len();
        let metadata = &self.tree.get("metadata")?.value;
        let stated = metadata.get("generateName")?;
        if metadata.get("name").is_some() {
            return None;
        }
        let begin: String = stated.value.as_str()?.chars().take(KEPT).collect();
        let mut named = self.clone();
        let entry = Entry {
            key: "name".to_owned(),
            key_span: stated.key_span,
            value: Node {
                value: Value::String(begin + end),
                span: stated.value.span,
            },
        };
        let Value::Map(entries) = &mut named.tree.value else {
            return None;
        };
        let metadata = entries.iter_mut().find(|entry| entry.key == "metadata")?;
        let Value::Map(entries) = &mut metadata.value.value else {
            return None;
        };
        entries.push(entry);
        Some(named)
    }

    /// The document as the cluster would name it, with a name that is the same each time.
    pub(crate) fn as_named(&self) -> Cow<'_, Self> {
        self.with_generated_name(GENERATED)
            .map_or(Cow::Borrowed(self), Cow::Owned)
    }

    /// `metadata.namespace`, where it is text.
    pub fn namespace(&self) -> Option<&str> {
        self.tree
            .get("metadata")?
            .value
            .get("namespace")?
            .value
            .as_str()
    }

    /// The annotation `name`, where it is text.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        let annotations = &self.tree.get("metadata")?.value.get("annotations")?.value;
        annotations.get(name)?.value.as_str()
    }

    /// What the document is in its file.
    pub fn role_in_file(&self) -> RoleInFile {
        if let Some(kind) = self.job_kind() {
            return RoleInFile::Job(kind);
        }
        match self.kind() {
            Some(kind) if COMPANIONS.binary_search(&kind).is_ok() => RoleInFile::Companion,
            _ => RoleInFile::Unsupported,
        }
    }
}

impl File {
    /// Gives every job that has `metadata.generateName` and no name one, as the cluster does when it creates the
    /// job. `end` makes the last five characters; without it they are the same each time. The names
    /// that were made.
    pub fn name_jobs(&mut self, mut end: Option<&mut dyn FnMut() -> String>) -> Vec<String> {
        let mut made = Vec::new();
        for document in &mut self.documents {
            if document.job_kind().is_none() {
                continue;
            }
            let end = match (&mut end, made.len()) {
                (Some(end), _) => end(),
                (None, 0) => GENERATED.to_owned(),
                (None, earlier) => format!("{:x>5}", earlier + 1),
            };
            if let Some(named) = document.with_generated_name(&end) {
                *document = named;
                made.extend(document.name().map(|(name, _)| name.to_owned()));
            }
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names() {
        let job = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {generateName: train-}\n";
        let named = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: n, generateName: train-}\n";
        let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {generateName: c-}\n";
        let text = format!("{job}---\n{named}---\n{claim}---\n{job}");
        let mut file = super::super::read(text.as_bytes()).unwrap();
        let unnamed = file.clone();
        assert_eq!(file.name_jobs(None), ["train-xxxxx", "train-xxxx2"]);
        assert_eq!(file.documents[1], unnamed.documents[1]);
        assert_eq!(file.documents[2], unnamed.documents[2]);
        assert_eq!(file.name_jobs(None), Vec::<String>::new());
        let mut count = 0;
        let mut end = || {
            count += 1;
            format!("{count:0>5}")
        };
        let mut file = unnamed;
        let made = file.name_jobs(Some(&mut end));
        assert_eq!(made.len(), 2);
        assert!(made.iter().all(|name| name.starts_with("train-0000")));
    }

    #[test]
    fn long_generated_names_are_cut() {
        let begin = "a".repeat(80);
        let text = format!(
            "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {{generateName: {begin}}}\n"
        );
        let mut file = super::super::read(text.as_bytes()).unwrap();
        let made = file.name_jobs(None);
        assert_eq!(made[0].len(), 63);
    }

    #[test]
    fn companions_are_sorted_for_the_search() {
        assert!(COMPANIONS.is_sorted());
    }
}
