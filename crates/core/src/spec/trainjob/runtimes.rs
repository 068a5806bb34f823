//! The runtimes that the files hold, each read once however many jobs name it.
//!
//! Invariant: a job sees the same runtime whichever job asked first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use super::{fields::RuntimeSpec, runtime::CLUSTER};
use crate::{
    finding::{Severity, Span},
    spec::{Collector, DEFAULT_NAMESPACE, Document, Kind, Node, Value, decode, wire::Object},
};

/// Runtimes by kind and name.
#[derive(Debug, Default)]
pub(crate) struct Runtimes {
    all: Vec<Written>,
    by_name: BTreeMap<(String, String), Vec<usize>>,
    /// Others, which come after these.
    beside: Vec<Arc<Self>>,
}

/// Runtimes are a part of their jobs' documents, which are equal where they are the same text.
impl PartialEq for Runtimes {
    fn eq(&self, other: &Self) -> bool {
        let trees = |of: &'_ Self| -> Vec<Arc<Node>> {
            of.every().map(|it| Arc::clone(&it.tree)).collect()
        };
        trees(self) == trees(other)
    }
}

/// One runtime as it is written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) kind: String,
    pub(super) name: String,
    namespace: Option<String>,
    pub(super) tree: Arc<Node>,
    /// The text of its file.
    pub(super) source: Arc<str>,
    read: OnceLock<Read>,
}

/// A runtime that was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) spec: RuntimeSpec,
    /// What is wrong in it: whether it is an error, where, and what.
    pub(super) faults: Vec<(bool, Span, String)>,
}

impl Read {
    /// Reads the runtime in `tree`.
    pub(super) fn of(tree: &Node, source: &str) -> Self {
        let unheard = Collector::default();
        let object: Object<RuntimeSpec> = decode(tree, source, &unheard);
        let faults = unheard.finish().into_iter().map(|finding| {
            let is_error = finding.severity == Severity::Error;
            (is_error, finding.span, finding.message)
        });
        Self {
            spec: object.spec,
            faults: faults.collect(),
        }
    }
}

impl Written {
    pub(super) fn read(&self) -> &Read {
        self.read.get_or_init(|| Read::of(&self.tree, &self.source))
    }

    /// Kind and name, for a sentence.
    fn words(&self) -> String {
        format!("{} `{}`", self.kind, self.name)
    }
}

impl Runtimes {
    /// The runtimes among `documents`, those in a `List` included.
    pub(super) fn among<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Self {
        let mut found = Self::default();
        for document in documents {
            if document.is_runtime() {
                found.add(&document.tree, &document.source);
            } else if document.kind().is_some_and(|kind| kind.ends_with("List"))
                && let Some(Value::List(items)) =
                    document.tree.get("items").map(|items| &items.value.value)
            {
                let runtimes = items.iter().filter(|item| super::is_runtime(item));
                runtimes.for_each(|item| found.add(item, &document.source));
            }
        }
        found
    }

    fn add(&mut self, tree: &Node, source: &Arc<str>) {
        let text = |node: &Node, key: &str| Some(node.get(key)?.value.as_str()?.to_owned());
        let meta = |key: &str| text(&tree.get("metadata")?.value, key);
        let (Some(kind), Some(name)) = (text(tree, "kind"), meta("name")) else {
            return;
        };
        let key = (kind.clone(), name.clone());
        self.by_name.entry(key).or_default().push(self.all.len());
        self.all.push(Written {
            kind,
            name,
            namespace: meta("namespace"),
            tree: Arc::new(tree.clone()),
            source: Arc::clone(source),
            read: OnceLock::new(),
        });
    }

    /// All of them, in the order in which they are looked at.
    fn every(&self) -> impl Iterator<Item = &Written> {
        let beside = self.beside.iter().flat_map(|beside| &beside.all);
        self.all.iter().chain(beside)
    }

    fn named(&self, kind: &str, name: &str) -> impl Iterator<Item = (usize, &Written)> {
        let key = (kind.to_owned(), name.to_owned());
        let found = self.by_name.get(&key).into_iter().flatten();
        found.filter_map(|index| Some((*index, self.all.get(*index)?)))
    }

    /// The runtime that a job of `namespace` means by `kind` and `name`.
    pub(super) fn find(&self, kind: &str, name: &str, namespace: Option<&str>) -> Option<&Written> {
        let own = self.position(kind, name, namespace);
        let own = own.and_then(|position| self.all.get(position));
        own.or_else(|| {
            let mut beside = self.beside.iter();
            beside.find_map(|beside| beside.find(kind, name, namespace))
        })
    }

    fn position(&self, kind: &str, name: &str, namespace: Option<&str>) -> Option<usize> {
        let here = namespace.unwrap_or(DEFAULT_NAMESPACE);
        let is_here = |it: &Written| it.namespace.as_deref().is_none_or(|there| there == here);
        let mut named = self.named(kind, name);
        let found = named.find(|(_, it)| kind == CLUSTER || is_here(it));
        found.map(|(index, _)| index)
    }

    /// Where else `name` is: in another namespace, or as the other kind.
    pub(super) fn elsewhere(&self, kind: &str, name: &str) -> Option<String> {
        if let Some(there) = self
            .named(kind, name)
            .find_map(|(_, it)| it.namespace.as_deref())
        {
            return Some(format!(
                "it is in namespace `{there}`; a TrainingRuntime is for jobs of its own namespace"
            ));
        }
        let mut others = super::RUNTIMES.into_iter().filter(|other| *other != kind);
        if let Some(other) = others.find(|other| self.named(other, name).next().is_some()) {
            return Some(format!(
                "the files have a {other} of this name: write `runtimeRef.kind: {other}`"
            ));
        }
        let mut beside = self.beside.iter();
        beside.find_map(|beside| beside.elsewhere(kind, name))
    }

    /// Names of one kind.
    pub(super) fn names<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        let of_kind = self.every().filter(move |known| known.kind == kind);
        of_kind.map(|known| known.name.as_str())
    }

    /// The runtimes in words, at most as many as a sentence bears.
    pub(super) fn words(&self) -> String {
        const SHOWN: usize = 8;
        let shown: Vec<String> = self.every().take(SHOWN).map(Written::words).collect();
        match self.every().count().saturating_sub(SHOWN) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.every().next().is_none()
    }
}

/// Shows every `TrainJob` of `documents` the runtimes among them. Documents of several files are shown all of them.
pub fn share_runtimes<'a>(documents: impl IntoIterator<Item = &'a mut Document>) {
    share_runtimes_beside(documents, &[]);
}

/// The same; the runtimes among `others` come after those of `documents`.
pub(crate) fn share_runtimes_beside<'a>(
    documents: impl IntoIterator<Item = &'a mut Document>,
    others: &[&Document],
) {
    let documents: Vec<&mut Document> = documents.into_iter().collect();
    let is_job = |document: &Document| document.job_kind() == Some(Kind::Train);
    if !documents.iter().any(|document| is_job(document)) {
        return;
    }
    let own = documents.iter().map(|document| &**document);
    let shown = Arc::new(Runtimes::among(own.chain(others.iter().copied())));
    for document in documents.into_iter().filter(|document| is_job(document)) {
        document.runtimes = Arc::clone(&shown);
    }
}

/// Shows every `TrainJob` of `documents` what [`share_runtimes_beside`] does, after the runtimes that it is shown already.
pub(crate) fn add_runtimes<'a>(
    documents: impl IntoIterator<Item = &'a mut Document>,
    others: &[&Document],
) {
    let documents: Vec<&mut Document> = documents.into_iter().collect();
    let is_job = |document: &Document| document.job_kind() == Some(Kind::Train);
    if !documents.iter().any(|document| is_job(document)) {
        return;
    }
    let own = documents.iter().map(|document| &**document);
    let shown = Arc::new(Runtimes::among(own.chain(others.iter().copied())));
    for document in documents {
        if is_job(document) {
            document.runtimes = Arc::new(Runtimes {
                beside: vec![Arc::clone(&document.runtimes), Arc::clone(&shown)],
                ..Runtimes::default()
            });
        }
    }
}

/// The runtimes among `documents` that no `TrainJob` among them means, by their place in the list.
pub fn unused_runtimes(documents: &[Document]) -> BTreeSet<usize> {
    let mut runtimes = Runtimes::default();
    // Which document each of them is; one without a name is meant by nobody.
    let mut places = Vec::new();
    let mut unused = BTreeSet::new();
    for (place, document) in documents.iter().enumerate() {
        if document.is_runtime() {
            unused.insert(place);
            runtimes.add(&document.tree, &document.source);
            places.resize(runtimes.all.len(), place);
        }
    }
    let jobs = documents.iter();
    for job in jobs.filter(|document| document.job_kind() == Some(Kind::Train)) {
        let reference = |key: &str| {
            let spec = &job.tree.get("spec")?.value;
            spec.get("runtimeRef")?.value.get(key)?.value.as_str()
        };
        let kind = reference("kind").unwrap_or(CLUSTER);
        let name = reference("name").unwrap_or_default();
        let meant = runtimes.position(kind, name, job.namespace());
        if let Some(place) = meant.and_then(|meant| places.get(meant)) {
            unused.remove(place);
        }
    }
    unused
}
