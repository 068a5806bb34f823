//! From bytes to documents, with a place for every value.
//!
//! Owns what makes a file unreadable as a whole. What a document means, and whether it is right,
//! is decided elsewhere.
//!
//! Invariant: every input ends in a [`File`] or one [`Finding`], within the limits below; memory
//! is bounded by them and not by what aliases expand to.

use std::{borrow::Cow, sync::Arc};

use super::{Document, Node, Value, placeholder, share_runtimes};
use crate::finding::{Finding, Rule, Span, catalogue};

mod budget;
mod json;
#[cfg(test)]
mod tests;
mod yaml;

/// Largest file that is read. The API server refuses objects of about 1.5 MiB.
pub const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting. A pod template needs about 15, the tracking fields of an API object about 25.
pub const MAX_DEPTH: usize = 64;
/// Most values of a file after aliases are expanded: about 60 MB of tree.
pub const MAX_NODES: usize = 400_000;
/// Most bytes of text of a file after aliases are expanded.
pub const MAX_TEXT_BYTES: usize = 16 << 20;
/// Most documents of a file.
pub const MAX_DOCUMENTS: usize = 1_000;

/// A file that could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The text that positions refer to: the file without its byte order mark.
    pub text: Arc<str>,
    /// Its documents. Never empty, and none of them is.
    pub documents: Vec<Document>,
}

/// Reads YAML or JSON.
#[expect(
    clippy::result_large_err,
    reason = "a file is read once, and its finding is what the caller shows"
)]
pub fn read(source: &[u8]) -> Result<File, Finding> {
    read_boxed(source).map_err(|finding| *finding)
}

fn read_boxed(source: &[u8]) -> Result<File, Box<Finding>> {
    let text = text_of(source)?;
    let mut documents = Vec::new();
    let source: Arc<str> = text.into();
    for tree in trees(text).map_err(|fault| of_template(text, fault))? {
        match tree.value {
            Value::Null => {}
            Value::Map(_) => documents.push(Document {
                tree,
                source: Arc::clone(&source),
                runtimes: Arc::default(),
            }),
            _ => return Err(Box::new(not_a_map(&tree))),
        }
    }
    share_runtimes(&mut documents);
    if documents.is_empty() {
        let message = "the file holds no document";
        let finding = Finding::new(&catalogue::EMPTY_FILE, "", START, message);
        return Err(Box::new(finding.with_hint(
            "check that what writes the file wrote all of it, or write a job file with `trainyard new`",
        )));
    }
    Ok(File {
        text: source,
        documents,
    })
}

/// The finding for a text that cannot be read: that it is a template where it is one, else the YAML error.
fn of_template(text: &str, fault: Box<Finding>) -> Box<Finding> {
    let by_marks = [
        &catalogue::SYNTAX,
        &catalogue::BAD_KEY,
        &catalogue::BAD_ALIAS,
        &catalogue::DUPLICATE_KEY,
        &catalogue::UNSUPPORTED_TAG,
    ];
    if by_marks.iter().all(|rule| rule.code != fault.code) {
        return fault;
    }
    placeholder::template(text, fault.span.line).map_or(fault, Box::new)
}

fn trees(text: &str) -> Result<Vec<Node>, Box<Finding>> {
    if !text.trim_start().starts_with(['{', '[']) {
        return yaml::read(text);
    }
    // Tabs may indent JSON but not YAML, and JSON needs no limit on the length of keys. What is
    // not JSON may still be a YAML flow collection.
    json::read(text).or_else(|fault| {
        if fault.certain {
            return Err(fault.finding);
        }
        yaml::read(text).map_err(|other| {
            if other.code == catalogue::SYNTAX.code && looks_like_json(text) {
                fault.finding
            } else {
                other
            }
        })
    })
}

/// The text that positions in `source` refer to, whether or not it can be read.
pub fn source_text(source: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source))
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const START: Span = Span {
    start: 0,
    end: 0,
    line: 1,
    column: 1,
};

fn text_of(source: &[u8]) -> Result<&str, Box<Finding>> {
    let fault = |rule: &Rule, span: Span, message: String| {
        Err(Box::new(Finding::new(rule, "", span, message)))
    };
    if source.len() > MAX_BYTES {
        let message =
            format!("the file has more than {MAX_BYTES} bytes, which is as much as is read");
        return fault(&catalogue::FILE_TOO_LARGE, START, message);
    }
    if source.starts_with(b"\xFF\xFE") || source.starts_with(b"\xFE\xFF") {
        let message = "the file is UTF-16, manifests are UTF-8".to_owned();
        return fault(&catalogue::BINARY_FILE, START, message);
    }
    let source = source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source);
    if let Some(at) = source.iter().position(|byte| *byte == 0) {
        let message = format!("the file is binary: byte {at} is NUL");
        return fault(&catalogue::BINARY_FILE, place_of(source, at), message);
    }
    std::str::from_utf8(source).or_else(|error| {
        let at = error.valid_up_to();
        let byte = source.get(at).copied().unwrap_or_default();
        let message = format!("byte {at} (`0x{byte:02x}`) is not valid UTF-8");
        fault(&catalogue::INVALID_UTF8, place_of(source, at), message)
    })
}

/// The place of byte `at`, for bytes that may not be text.
fn place_of(source: &[u8], at: usize) -> Span {
    let before = source.get(..at).unwrap_or(source);
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |newline| newline + 1);
    let line = before.split(|byte| *byte == b'\n').count();
    let column = String::from_utf8_lossy(before.get(line_start..).unwrap_or_default())
        .chars()
        .count()
        + 1;
    Span {
        start: at,
        end: at + 1,
        line,
        column,
    }
}

/// Whether a text that is neither JSON nor YAML was meant as JSON: its first key is in quotes.
fn looks_like_json(text: &str) -> bool {
    let inner = text
        .trim_start()
        .trim_start_matches(['{', '[', ' ', '\t', '\r', '\n']);
    inner.starts_with('"')
}

fn not_a_map(tree: &Node) -> Finding {
    let found = match &tree.value {
        Value::List(_) => "a list",
        Value::String(_) => "a text",
        _ => "a single value",
    };
    let finding = Finding::new(
        &catalogue::NOT_A_MAP,
        "",
        tree.head(),
        format!("a document must be a map with `apiVersion` and `kind`, found {found}"),
    );
    match &tree.value {
        Value::List(_) => {
            finding.with_hint("write each object as a document of its own, separated by `---`")
        }
        _ => finding,
    }
}
