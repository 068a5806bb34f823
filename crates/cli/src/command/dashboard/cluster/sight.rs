//! What somebody may see, and documents as he sees them. Pure.
//!
//! Who sees everything has no [`Sight`]. For everybody else lists are filtered before they are counted, and what is left names neither a node nor a job that
//! he may not see: names are replaced wherever they stand, also in sentences that the operator wrote into the status of his own jobs.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
};

use serde_json::Value;
use trainyard_core::spec::Kind;
use trainyard_kube::look::Sees;

use super::access::{Answer, kinds};

/// The sentence of reviews that could not be made.
pub(super) const UNREVIEWED: &str = "the API server did not review all of your rights; what depends on the others is not shown. Retry in a few seconds";

/// What somebody may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// Kinds whose jobs he may see in all namespaces.
    everywhere: BTreeSet<&'static str>,
    /// Namespaces in which he may see the jobs of a kind.
    within: BTreeMap<&'static str, BTreeSet<String>>,
    logs: BTreeSet<String>,
    pub(super) nodes: bool,
    /// Whether a review could not be made.
    pub(super) is_unreviewed: bool,
    /// Whether any was made.
    is_reviewed: bool,
}

impl Sight {
    /// Adds what was reviewed.
    pub(super) fn add(&mut self, answers: &BTreeMap<Sees, Answer>) {
        for (what, answer) in answers {
            self.is_unreviewed |= *answer == Answer::Unknown;
            self.is_reviewed |= *answer != Answer::Unknown;
            if *answer != Answer::Allowed {
                continue;
            }
            match what {
                Sees::Jobs(kind, None) => drop(self.everywhere.insert(kind.name())),
                Sees::Jobs(kind, Some(namespace)) => {
                    let within = self.within.entry(kind.name()).or_default();
                    within.insert(namespace.clone());
                }
                Sees::Logs(namespace) => drop(self.logs.insert(namespace.clone())),
                Sees::Nodes => self.nodes = true,
            }
        }
    }

    /// Whether he may see the jobs of a kind, by its name, in a namespace.
    pub(super) fn sees(&self, kind: &str, namespace: &str) -> bool {
        self.everywhere.contains(kind)
            || self
                .within
                .get(kind)
                .is_some_and(|within| within.contains(namespace))
    }

    /// Whether he may see any job in a namespace.
    fn enters(&self, namespace: &str) -> bool {
        !self.everywhere.is_empty()
            || self
                .within
                .values()
                .any(|within| within.contains(namespace))
    }

    /// Whether he may see every job.
    pub(super) fn sees_all(&self) -> bool {
        kinds().all(|kind| self.everywhere.contains(kind.name()))
    }

    /// Whether he may read logs in a namespace.
    pub(super) fn reads_logs(&self, namespace: &str) -> bool {
        self.logs.contains(namespace)
    }

    /// Whether nothing could be reviewed.
    pub(super) fn is_blind(&self) -> bool {
        self.is_unreviewed && !self.is_reviewed
    }
}

/// What is replaced in documents.
#[derive(Debug)]
pub(super) struct Veil {
    hides_nodes: bool,
    nodes: BTreeSet<String>,
    /// Namespaces in which he may see nothing.
    namespaces: BTreeSet<String>,
    /// Jobs that he may not see, by name, where none that he may see is called so.
    jobs: BTreeSet<String>,
    sight: Sight,
    known: BTreeSet<(String, String)>,
}

/// A job that exists: kind, namespace, name.
pub(super) type Existing = (Kind, String, String);

/// The words for somebody else's.
const ANOTHER: &str = "another team's gang";
const ELSEWHERE: &str = "another namespace";
/// Members whose text names the document itself, and is never a node.
const OWN: [&str; 11] = [
    "id",
    "run",
    "job",
    "namespace",
    "kind",
    "pod",
    "container",
    "state",
    "slot",
    "phase",
    "text",
];

impl Veil {
    /// What `sight` does not include of what exists.
    pub(super) fn new(sight: &Sight, existing: &[Existing], nodes: &BTreeSet<String>) -> Self {
        let sees = |(kind, namespace, _): &&Existing| sight.sees(kind.name(), namespace);
        let known: BTreeSet<(String, String)> = existing
            .iter()
            .filter(sees)
            .map(|(_, namespace, name)| (namespace.clone(), name.clone()))
            .collect();
        let own: BTreeSet<&str> = known.iter().map(|(_, name)| name.as_str()).collect();
        let hidden = || existing.iter().filter(|it| !sees(it));
        let namespaces = hidden()
            .filter(|(_, namespace, _)| !sight.enters(namespace))
            .map(|(_, namespace, _)| namespace.clone());
        let jobs = hidden()
            .filter(|(_, _, name)| !own.contains(name.as_str()))
            .map(|(_, _, name)| name.clone());
        Self {
            hides_nodes: !sight.nodes,
            nodes: nodes.clone(),
            namespaces: namespaces.collect(),
            jobs: jobs.collect(),
            known,
            sight: sight.clone(),
        }
    }

    /// Whether a gang, by namespace and name, is a job that he may see.
    pub(super) fn shows_gang(&self, gang: &str) -> bool {
        gang.split_once('/').is_some_and(|(namespace, name)| {
            let key = (namespace.to_owned(), name.to_owned());
            self.known.contains(&key)
        })
    }

    /// Names the holders of nodes only where they are jobs that he may see; what all others hold is one sum.
    pub(super) fn cover_holders(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.cover_holders(item)),
            Value::Object(members) => {
                if let Some(Value::Array(holders)) = members.get_mut("holders") {
                    self.merge(holders);
                }
                members
                    .values_mut()
                    .for_each(|member| self.cover_holders(member));
            }
            _ => {}
        }
    }

    fn merge(&self, holders: &mut Vec<Value>) {
        let mut sum = 0;
        holders.retain(|holder| {
            let gang = holder.get("gang").and_then(Value::as_str);
            let is_shown = gang.is_some_and(|gang| self.shows_gang(gang));
            if !is_shown {
                let held = holder.get("accelerators").and_then(Value::as_i64);
                sum += held.unwrap_or(0);
            }
            is_shown
        });
        if sum > 0 {
            holders.push(serde_json::json!({ "gang": ANOTHER, "accelerators": sum }));
        }
    }

    /// The document as he may see it. `names` makes the name that stands for a node.
    pub(super) fn cover(&self, document: &mut Value, names: &RandomState) {
        let mut nodes = self.nodes.clone();
        if self.hides_nodes {
            collect(document, "", &mut nodes);
        }
        self.walk(document, "", &nodes, names);
    }

    /// One line as he may see it; nothing where nothing in it is hidden.
    pub(super) fn cover_line(&self, line: &str, names: &RandomState) -> Option<String> {
        self.sentence(line, &self.nodes, names)
    }

    fn walk(&self, value: &mut Value, key: &str, nodes: &BTreeSet<String>, names: &RandomState) {
        match value {
            Value::String(text) => {
                if !OWN.contains(&key)
                    && let Some(changed) = self.sentence(text, nodes, names)
                {
                    *text = changed;
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.walk(item, key, nodes, names);
                }
            }
            Value::Object(members) => {
                let is_named = |name: &String| self.hides_nodes && nodes.contains(name);
                if members.keys().any(is_named) {
                    let all = std::mem::take(members).into_iter();
                    *members = all
                        .map(|(name, value)| {
                            if is_named(&name) {
                                (stand_in(&name, names), value)
                            } else {
                                (name, value)
                            }
                        })
                        .collect();
                }
                for (name, member) in members.iter_mut() {
                    self.walk(member, name, nodes, names);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A text with every name replaced; nothing where there is none.
    fn sentence(
        &self,
        text: &str,
        nodes: &BTreeSet<String>,
        names: &RandomState,
    ) -> Option<String> {
        let is_name = |found: char| found.is_ascii_alphanumeric() || "-./".contains(found);
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut quote = false;
        while let Some(first) = rest.chars().next() {
            if !is_name(first) {
                quote = first == '`';
                out.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
                continue;
            }
            let end = rest.find(|found| !is_name(found)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            // A full stop belongs to the sentence.
            let bare = word.trim_end_matches(['.', '/', '-']);
            let is_quoted = quote && behind.starts_with('`') && bare == word;
            let is_alone = is_quoted || text.len() == bare.len();
            match self.replaced(bare, (is_quoted, is_alone), nodes, names) {
                Some(by) => {
                    out.push_str(&by);
                    out.push_str(word.get(bare.len()..).unwrap_or_default());
                }
                None => out.push_str(word),
            }
            quote = false;
            rest = behind;
        }
        (out != text).then_some(out)
    }

    fn replaced(
        &self,
        word: &str,
        (is_quoted, is_alone): (bool, bool),
        nodes: &BTreeSet<String>,
        names: &RandomState,
    ) -> Option<String> {
        if self.hides_nodes && nodes.contains(word) {
            return Some(stand_in(word, names));
        }
        if let Some((namespace, name)) = word.split_once('/') {
            let is_other = self.namespaces.contains(namespace)
                || self.jobs.contains(name) && !self.shows_gang(word);
            // Of a job that is gone only its namespace is known, and names in quotes are meant as names.
            let is_gone = is_alone && is_label(namespace) && !self.sight.enters(namespace);
            let is_kind = kinds().any(|kind| kind.name().eq_ignore_ascii_case(namespace));
            return (is_other || is_gone && !is_kind && is_label(name)).then(|| ANOTHER.to_owned());
        }
        // A member that is one word, such as `high` or the name of a queue, names no job: those that do are `OWN`.
        if !is_quoted {
            return None;
        }
        if self.jobs.contains(word) {
            return Some(ANOTHER.to_owned());
        }
        self.namespaces.contains(word).then(|| ELSEWHERE.to_owned())
    }
}

/// Whether a text is the name of a namespace or a job.
fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(plain)
}

/// What stands for a node: the same for the same node while this process runs.
fn stand_in(node: &str, names: &RandomState) -> String {
    format!("hidden-node-{:06x}", names.hash_one(node) & 0xff_ffff)
}

/// Adds the nodes that a document names as such: those of earlier pods, and of verdicts.
fn collect(value: &Value, key: &str, nodes: &mut BTreeSet<String>) {
    let is_node = matches!(key, "node" | "nodes" | "host" | "hosts" | "swapped");
    match value {
        Value::String(text) if is_node && !text.is_empty() => drop(nodes.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, nodes)),
        Value::Object(members) => {
            for (name, member) in members {
                let is_swap = key == "swaps" && matches!(name.as_str(), "from" | "to");
                collect(member, if is_swap { "node" } else { name }, nodes);
            }
        }
        _ => {}
    }
}
