//! The findings of one document, gathered while it is walked.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

use super::{
    Node,
    tree::{Value, push_index, push_key},
};
use crate::finding::{Finding, Fix, Rule, Severity, Span, catalogue};

/// Findings of one document that are kept; the rest is counted. A document with more is not
/// what its writer thinks it is, and a list without end helps nobody.
const MAX_FINDINGS: usize = 500;

/// Most objects of the API that one document may hold. A container of two bytes (`{}`) becomes
/// one of two kilobytes, so without a bound a small file would fill the memory. A job with six
/// roles of 1,000 variables each has some 6,000.
const MAX_OBJECTS: usize = 30_000;

/// Gathers findings. Walks share it, so it is changed through a shared reference.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    findings: RefCell<Vec<Finding>>,
    dropped: Cell<usize>,
    failed: Cell<bool>,
    objects: Cell<usize>,
    /// Fields whose value has the wrong type, and is therefore not known.
    unknown: RefCell<BTreeSet<String>>,
}

impl Collector {
    /// Adds a finding.
    pub(crate) fn add(&self, finding: Finding) {
        if finding.severity == Severity::Error {
            self.failed.set(true);
        }
        if self.is_full() {
            self.dropped.set(self.dropped.get() + 1);
        } else {
            self.findings.borrow_mut().push(finding);
        }
    }

    /// Adds a finding that makes the value of its field unknown.
    pub(crate) fn add_unknown(&self, finding: Finding) {
        if !self.is_full() {
            self.unknown.borrow_mut().insert(finding.path.clone());
        }
        self.add(finding);
    }

    /// Whether the value of the field `path`, or of one around it, is unknown. A finding about it
    /// would be about the empty value that stands in for it.
    fn is_unknown(&self, path: &str) -> bool {
        let unknown = self.unknown.borrow();
        let ends = path.match_indices(['.', '[']).map(|(end, _)| end);
        !unknown.is_empty()
            && ends
                .chain([path.len()])
                .any(|end| path.get(..end).is_some_and(|part| unknown.contains(part)))
    }

    /// Whether a further finding would only be counted.
    pub(crate) fn is_full(&self) -> bool {
        self.findings.borrow().len() >= MAX_FINDINGS
    }

    /// Counts one object of the API; whether the document may still have it.
    pub(crate) fn count_object(&self, span: Span) -> bool {
        let count = self.objects.get() + 1;
        self.objects.set(count);
        if count == MAX_OBJECTS + 1 {
            let message = format!("the document has more than {MAX_OBJECTS} objects in it");
            self.add(Finding::new(&catalogue::TOO_MANY_VALUES, "", span, message));
        }
        count <= MAX_OBJECTS
    }

    /// Whether the document has more objects than it may.
    pub(crate) fn is_overfull(&self) -> bool {
        self.objects.get() > MAX_OBJECTS
    }

    /// Whether any finding so far is an error.
    pub(crate) fn failed(&self) -> bool {
        self.failed.get()
    }

    /// The findings in the order of their position.
    pub(crate) fn finish(self) -> Vec<Finding> {
        let mut findings = self.findings.into_inner();
        findings.sort_by_key(|finding| (finding.span.line, finding.span.column));
        let dropped = self.dropped.get();
        if dropped > 0 {
            let span = findings.last().map(|last| last.span).unwrap_or_default();
            let message = format!("{dropped} more findings of this document are not shown");
            findings.push(Finding::new(&catalogue::MORE_FINDINGS, "", span, message));
        }
        findings
    }
}

/// A field of the document, whether or not it is there.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    collector: &'a Collector,
    /// Its path.
    pub(crate) path: String,
    node: Option<&'a Node>,
    span: Span,
}

impl<'a> Place<'a> {
    /// The document itself.
    pub(crate) fn root(tree: &'a Node, collector: &'a Collector) -> Self {
        Self {
            collector,
            path: String::new(),
            node: Some(tree),
            span: tree.head(),
        }
    }

    /// Where it is, or what is around it.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Whether the document has it.
    pub(crate) fn is_there(&self) -> bool {
        self.node.is_some()
    }

    /// Where the key of its entry `key` stands.
    pub(crate) fn key_span(&self, key: &str) -> Option<Span> {
        Some(self.node?.get(key)?.key_span)
    }

    /// Where its first entry or item begins.
    pub(crate) fn first_span(&self) -> Option<Span> {
        match &self.node?.value {
            Value::Map(entries) => Some(entries.first()?.key_span),
            Value::List(items) => Some(items.first()?.head()),
            _ => None,
        }
    }

    /// The number that the document has there, where it is not a whole one.
    pub(crate) fn fraction(&self) -> Option<&'a str> {
        match &self.node?.value {
            Value::Float(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number that the document has there.
    pub(crate) fn whole_number(&self) -> Option<i64> {
        match self.node?.value {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// The text at the end of `path`.
    pub(crate) fn text_at(&self, path: &[&str]) -> Option<&'a str> {
        let found = path.iter().try_fold(self.node?, |node, key| {
            node.get(key).map(|entry| &entry.value)
        });
        found?.as_str()
    }

    /// A field of this one. One that is absent is pointed at by its nearest ancestor.
    pub(crate) fn key(&self, key: &str) -> Self {
        if self.collector.is_full() {
            // Nothing will be said of it, and looking it up in a huge map takes its time.
            return self.clone();
        }
        let mut path = self.path.clone();
        push_key(&mut path, key);
        let entry = self.node.and_then(|node| node.get(key));
        let span = entry.map_or(self.span, |entry| {
            if entry.value.is_collection() {
                entry.key_span
            } else {
                entry.value.span
            }
        });
        Self {
            collector: self.collector,
            path,
            node: entry.map(|entry| &entry.value),
            span,
        }
    }

    /// An item of this list.
    pub(crate) fn index(&self, index: usize) -> Self {
        let mut path = self.path.clone();
        push_index(&mut path, index);
        let node = self.node.and_then(|node| node.item(index));
        Self {
            collector: self.collector,
            path,
            span: node.map_or(self.span, Node::head),
            node,
        }
    }

    /// The same place, pointed at by the key of its entry in `parent`.
    pub(crate) fn at_key_of(mut self, parent: &Self, key: &str) -> Self {
        if self.collector.is_full() {
            return self;
        }
        if let Some(entry) = parent.node.and_then(|node| node.get(key)) {
            self.span = entry.key_span;
        }
        self
    }

    /// The last key of its path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// Whether a further finding would only be counted.
    pub(crate) fn is_full(&self) -> bool {
        self.collector.is_full()
    }

    /// Whether any finding of the document so far is an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.collector.failed()
    }

    /// Adds a finding about this field.
    pub(crate) fn report(&self, rule: &Rule, message: impl Into<String>) {
        self.add(Finding::new(rule, self.path.as_str(), self.span, message));
    }

    /// Adds a finding about this field with a hint.
    pub(crate) fn report_with(
        &self,
        rule: &Rule,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(Finding::new(rule, self.path.as_str(), self.span, message).with_hint(hint));
    }

    /// Adds a finding about this field with a hint, and with a way to make it right.
    pub(crate) fn report_fix(
        &self,
        rule: &Rule,
        message: impl Into<String>,
        hint: impl Into<String>,
        fix: impl Into<Option<Fix>>,
    ) {
        // A field that is absent is pointed at by what is around it, which is not to be changed.
        let fix = fix
            .into()
            .filter(|fix| self.is_there() || matches!(fix, Fix::Above(_)));
        let finding = Finding::new(rule, self.path.as_str(), self.span, message);
        self.add(finding.with_hint(hint).with_fix(fix));
    }

    fn add(&self, finding: Finding) {
        if !self.collector.is_unknown(&self.path) {
            self.collector.add(finding);
        }
    }
}
