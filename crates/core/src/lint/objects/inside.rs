//! Objects inside of others: jobs in an `AppWrapper`, an Argo Workflow, a Katib Experiment or the text of a `ConfigMap`.
//!
//! Owns where they are and what the object around them fills in. What is filled in gets a value that no rule objects to.

use crate::{
    finding::Span,
    spec::{self, Document, Entry, File, Kind, Node, RoleInFile, Value, push_index, push_key},
};

/// An object inside of a document, such as a job inside of an `AppWrapper`.
#[derive(Debug)]
pub(in crate::lint) struct Inner {
    /// Where in the document.
    pub(in crate::lint) path: String,
    /// The document that it is in, counted in the file.
    pub(in crate::lint) outer: usize,
    /// Whether what stands in it for a value is filled in by the object around it.
    pub(in crate::lint) filled: bool,
    pub(in crate::lint) document: Document,
}

/// Every object inside of the documents of `file`.
pub(in crate::lint) fn inner(file: &File) -> Vec<Inner> {
    let mut found = Vec::new();
    for (outer, document) in file.documents.iter().enumerate() {
        let mut walk = Walk {
            outer,
            document,
            found: &mut found,
            path: String::new(),
            fills: is_filler(document),
        };
        match document.role_in_file() {
            RoleInFile::Unsupported => walk.children(&document.tree),
            RoleInFile::Companion if document.kind() == Some("ConfigMap") => walk.jobs_of_map(),
            RoleInFile::Companion | RoleInFile::Job(_) => {}
        }
    }
    found
}

struct Walk<'a> {
    outer: usize,
    document: &'a Document,
    found: &'a mut Vec<Inner>,
    path: String,
    /// Whether something fills in what is inside, names included, before the cluster gets it.
    fills: bool,
}

impl Walk<'_> {
    /// The jobs in the texts of a `ConfigMap`: templates of trials. Other objects there are somebody's data.
    fn jobs_of_map(&mut self) {
        let document = self.document;
        let Some(Value::Map(entries)) = document.tree.get("data").map(|data| &data.value.value)
        else {
            return;
        };
        self.fills = true;
        for entry in entries {
            let Some(text) = entry.value.as_str().filter(|text| may_be_job(text)) else {
                continue;
            };
            let before = self.found.len();
            push_key(&mut self.path, "data");
            push_key(&mut self.path, &entry.key);
            self.text(text, entry.value.span);
            self.path.clear();
            let texts = self.found.split_off(before);
            let jobs = texts
                .into_iter()
                .filter(|inner| inner.document.job_kind().is_some());
            self.found.extend(jobs);
        }
    }

    fn children(&mut self, node: &Node) {
        let length = self.path.len();
        match &node.value {
            Value::Map(entries) => {
                for entry in entries {
                    push_key(&mut self.path, &entry.key);
                    match entry.value.as_str() {
                        // A workflow creates objects from text.
                        Some(text) if entry.key == "manifest" => self.text(text, entry.value.span),
                        Some(_) => {}
                        None => self.node(&entry.value),
                    }
                    self.path.truncate(length);
                }
            }
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    push_index(&mut self.path, index);
                    self.node(item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn node(&mut self, node: &Node) {
        if is_object(node) {
            let mut document = Document {
                tree: node.clone(),
                source: self.document.source.clone(),
                runtimes: self.document.runtimes.clone(),
            };
            let is_job = document.job_kind().is_some();
            if self.fills && is_job {
                fill(&mut document.tree);
            }
            self.push(document);
            if is_job {
                return;
            }
        }
        self.children(node);
    }

    /// Objects in a text have no places of their own: all of them are where the text is.
    fn text(&mut self, text: &str, span: Span) {
        let Ok(file) = spec::read(text.as_bytes()) else {
            return;
        };
        let begin = Span {
            end: span.start,
            ..span
        };
        for mut document in file.documents.into_iter().filter(|it| is_object(&it.tree)) {
            if self.fills {
                fill(&mut document.tree);
            }
            move_to(&mut document.tree, begin);
            document.source = "".into();
            self.push(document);
        }
    }

    fn push(&mut self, document: Document) {
        self.found.push(Inner {
            path: self.path.clone(),
            outer: self.outer,
            filled: self.fills,
            document,
        });
    }
}

/// Kinds that fill in the names and values of what is inside of them, each by marks of its own.
const FILLERS: [&str; 6] = [
    "ClusterWorkflowTemplate",
    "CronWorkflow",
    "Experiment",
    "TriggerTemplate",
    "Workflow",
    "WorkflowTemplate",
];

pub(in crate::lint) fn is_filler(document: &Document) -> bool {
    document.kind().is_some_and(|kind| FILLERS.contains(&kind))
}

/// Whether a text may hold a job, without reading it.
fn may_be_job(text: &str) -> bool {
    text.contains("apiVersion:") && Kind::READ.iter().any(|kind| text.contains(kind.name()))
}

/// Writes something in place of the marks in the name and the images of an object, and gives it a name where it has
/// none: whoever creates the object does the same.
fn fill(object: &mut Node) {
    let entry = |key: &str, value: Value, span: Span| Entry {
        key: key.to_owned(),
        key_span: span,
        value: Node { value, span },
    };
    let span = object.span;
    let span = Span {
        end: span.start,
        ..span
    };
    let Value::Map(entries) = &mut object.value else {
        return;
    };
    if !entries.iter().any(|entry| entry.key == "metadata") {
        entries.push(entry("metadata", Value::Map(Vec::new()), span));
    }
    for metadata in entries.iter_mut().filter(|entry| entry.key == "metadata") {
        let Value::Map(fields) = &mut metadata.value.value else {
            continue;
        };
        let mut names = fields.iter_mut();
        match names.find(|field| matches!(field.key.as_str(), "name" | "generateName")) {
            Some(name) => unmark(&mut name.value),
            None => fields.push(entry("name", Value::String(FILLED.to_owned()), span)),
        }
        fields
            .iter_mut()
            .filter(|field| field.key == "namespace")
            .for_each(|field| unmark(&mut field.value));
    }
    images(object);
}

fn images(node: &mut Node) {
    match &mut node.value {
        Value::Map(entries) => {
            for entry in entries {
                if entry.key == "image" {
                    unmark(&mut entry.value);
                    if let Value::String(image) = &mut entry.value.value
                        && image.ends_with(FILLED)
                        && !image.contains(':')
                    {
                        // What fills in the name fills in a tag with it.
                        image.push_str(":1");
                    }
                }
                images(&mut entry.value);
            }
        }
        Value::List(items) => items.iter_mut().for_each(images),
        _ => {}
    }
}

/// What stands for a value that is filled in later, in a name.
const FILLED: &str = "filled-in";

/// Replaces each `{{…}}`, `${…}` and `$(…)` of a text.
fn unmark(node: &mut Node) {
    let Value::String(text) = &mut node.value else {
        return;
    };
    for (open, close) in [("{{", "}}"), ("${", "}"), ("$(", ")")] {
        let mut filled = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(open) {
            let Some((_, after)) = after.split_once(close) else {
                break;
            };
            filled.push_str(before);
            filled.push_str(FILLED);
            rest = after;
        }
        filled.push_str(rest);
        *text = filled;
    }
}

fn move_to(node: &mut Node, span: Span) {
    node.span = span;
    match &mut node.value {
        Value::Map(entries) => {
            for entry in entries {
                entry.key_span = span;
                move_to(&mut entry.value, span);
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| move_to(item, span)),
        _ => {}
    }
}

/// Whether a node is an object of the API and not a reference to one.
pub(super) fn is_object(node: &Node) -> bool {
    let text = |key: &str| node.get(key).and_then(|entry| entry.value.as_str());
    let holds = ["spec", "data", "metadata"].iter().any(|key| {
        node.get(key)
            .is_some_and(|entry| entry.value.is_collection())
    });
    text("apiVersion").is_some() && text("kind").is_some() && holds
}
