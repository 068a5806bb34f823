//! The objects that go with the jobs, from all files that were given together.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClusterFacts, labels::Index, objects};
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
    /// Kind, namespace and name of objects that the files hold more than once.
    repeated: BTreeSet<(&'a str, &'a str, &'a str)>,
    fabrics: BTreeMap<String, Fabric>,
    /// Configurations of `DeepSpeed` that are files of their own.
    deepspeed: Vec<&'a Node>,
    /// The pods of all files, where an object selects some of them.
    pub(super) pods: Index<'a>,
    /// The Services of all files, where a monitor selects some of them.
    pub(super) services: Index<'a>,
    /// The quotas of a namespace: name and content.
    quotas: BTreeMap<&'a str, Vec<(&'a str, &'a Node)>>,
}

impl<'a> Companions<'a> {
    pub(super) fn add(&mut self, document: &'a Document) {
        if document.kind().is_none() && objects::is_deepspeed(&document.tree) {
            self.deepspeed.push(&document.tree);
        }
        let Some((kind, (name, _))) = document.kind().zip(document.name()) else {
            return;
        };
        if document.is_fabric() {
            let read = fabric::read(document).fabric;
            let named = read.map(|fabric| (fabric.name.clone(), fabric));
            self.fabrics.extend(named);
        }
        let namespace = namespace_of(document);
        if kind == "ResourceQuota" {
            let quotas = self.quotas.entry(namespace).or_default();
            quotas.push((name, &document.tree));
        }
        let names = self.objects.entry(kind).or_default();
        let spaces = names.entry(name).or_default();
        if spaces.insert(namespace, &document.tree).is_some() {
            self.repeated.insert((kind, namespace, name));
        }
    }

    /// Whether one of the objects selects pods by their labels.
    pub(super) fn selects_pods(&self) -> bool {
        [
            "NetworkPolicy",
            "PodDisruptionBudget",
            "PodMonitor",
            "Service",
        ]
        .iter()
        .any(|kind| self.objects.contains_key(kind))
    }

    /// Whether one of the objects selects Services by their labels.
    pub(super) fn selects_services(&self) -> bool {
        self.objects.contains_key("ServiceMonitor")
    }

    /// The quotas of `namespace` that the files hold: name and content.
    pub(super) fn quotas(&self, namespace: &str) -> &[(&'a str, &'a Node)] {
        self.quotas.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The configuration of `DeepSpeed` that is a file of its own, where there is exactly one.
    pub(super) fn deepspeed(&self) -> Option<&'a Node> {
        match self.deepspeed.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Whether the files hold none.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object, where the files hold it.
    pub(super) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&'a Node> {
        self.objects.get(kind)?.get(name)?.get(namespace).copied()
    }

    /// Whether the files hold several such objects: an overlay of one, or one for each cluster. [`Self::find`] knows the last.
    pub(super) fn is_repeated(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.repeated.contains(&(kind, namespace, name))
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
