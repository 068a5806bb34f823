//! The objects that go with the jobs, from all files that were given together.

use std::collections::BTreeMap;

use super::ClusterFacts;
use crate::{
    fabric::{self, Fabric},
    spec::{self, Document, Job, Node, Place},
};

/// One such object.
#[derive(Clone, Debug)]
pub(super) struct Companion<'a> {
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) tree: &'a Node,
    /// The place of the object, for a rule that reports it.
    pub(super) place: Place<'a>,
}

/// Every companion, by kind, name and namespace.
#[derive(Debug, Default)]
pub(super) struct Companions<'a> {
    /// What is there besides the files, where a cluster was looked at.
    pub(super) cluster: Option<&'a ClusterFacts>,
    objects: BTreeMap<&'a str, BTreeMap<&'a str, BTreeMap<&'a str, &'a Node>>>,
    fabrics: BTreeMap<String, Fabric>,
}

impl<'a> Companions<'a> {
    pub(super) fn add(&mut self, document: &'a Document) {
        let Some((kind, (name, _))) = document.kind().zip(document.name()) else {
            return;
        };
        if document.is_fabric() {
            let read = fabric::read(document).fabric;
            let named = read.map(|fabric| (fabric.name.clone(), fabric));
            self.fabrics.extend(named);
        }
        let namespace = namespace_of(document);
        let names = self.objects.entry(kind).or_default();
        names
            .entry(name)
            .or_default()
            .insert(namespace, &document.tree);
    }

    /// Whether the files hold none.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object, where the files hold it.
    pub(super) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&'a Node> {
        self.objects.get(kind)?.get(name)?.get(namespace).copied()
    }

    /// The fabric that `job` names, where the files hold it.
    pub(super) fn fabric_of(&self, job: &Job) -> Option<&Fabric> {
        self.fabrics.get(job.settings.fabric.as_deref()?)
    }

    /// The fabrics that the files hold, by name.
    pub(super) fn fabrics(&self) -> &BTreeMap<String, Fabric> {
        &self.fabrics
    }

    /// Every object of `kind`: namespace, name and what is in it.
    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&'a str, &'a str, &'a Node)> {
        let names = self.objects.get(kind).into_iter().flatten();
        names.flat_map(|(name, spaces)| spaces.iter().map(|(space, tree)| (*space, *name, *tree)))
    }

    /// The namespace of an object of `kind` with `name`, where one is there but not in `namespace`.
    pub(super) fn elsewhere(&self, kind: &str, namespace: &str, name: &str) -> Option<&'a str> {
        let spaces = self.objects.get(kind)?.get(name)?;
        if spaces.contains_key(namespace) {
            None
        } else {
            spaces.keys().next().copied()
        }
    }

    /// The label `label` of the namespace, where the files hold it.
    pub(super) fn namespace_label(&self, namespace: &str, label: &str) -> Option<&'a str> {
        let tree = self
            .objects
            .get("Namespace")?
            .get(namespace)?
            .values()
            .next()?;
        at(tree, &["metadata", "labels", label])?.as_str()
    }
}

/// The namespace of a document, the default one where it states none.
pub(super) fn namespace_of(document: &Document) -> &str {
    document.namespace().unwrap_or(spec::DEFAULT_NAMESPACE)
}

/// The value at the end of `path`.
pub(super) fn at<'a>(node: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter()
        .try_fold(node, |node, key| node.get(key).map(|entry| &entry.value))
}
