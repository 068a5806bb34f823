//! From bytes to documents, with a place for every value.
//!
//! Owns what makes a file unreadable as a whole. What a document means, and whether it is right,
//! is no question here.
//!
//! Invariant: every input ends in a [`File`] or one [`Finding`], within the limits below; memory
//! is bounded by them and not by what aliases expand to.

use std::{borrow::Cow, sync::Arc};

use super::{Document, Node, Value};
use crate::{
    finding::{Finding, Span},
    lint::{Rule, catalogue},
};

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
pub fn read(source: &[u8]) -> Result<File, Finding> {
    let text = text_of(source)?;
    let trees = if text.trim_start().starts_with(['{', '[']) {
        // Tabs may indent JSON but not YAML, and JSON needs no limit on the length of keys. What
        // is not JSON may still be a YAML flow collection.
        match json::read(text) {
            Ok(trees) => trees,
            Err(json::Fault {
                finding,
                certain: true,
            }) => return Err(finding),
            Err(json::Fault { finding, .. }) => {
                yaml::read(text).map_err(|other| nearer(finding, other))?
            }
        }
    } else {
        yaml::read(text)?
    };
    let text: Arc<str> = text.into();
    let mut documents = Vec::with_capacity(trees.len());
    for tree in trees {
        match tree.value {
            Value::Null => {}
            Value::Map(_) => documents.push(Document {
                tree,
                source: Arc::clone(&text),
            }),
            _ => return Err(not_a_map(&tree)),
        }
    }
    if documents.is_empty() {
        return Err(Finding::new(
            &catalogue::EMPTY_FILE,
            "",
            START,
            "the file holds no document",
        ));
    }
    Ok(File { text, documents })
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

fn text_of(source: &[u8]) -> Result<&str, Finding> {
    let fault = |rule: &Rule, span: Span, message: String| Finding::new(rule, "", span, message);
    if source.len() > MAX_BYTES {
        return Err(fault(
            &catalogue::FILE_TOO_LARGE,
            START,
            format!(
                "the file has {} bytes, at most {MAX_BYTES} are read",
                source.len()
            ),
        ));
    }
    if source.starts_with(b"\xFF\xFE") || source.starts_with(b"\xFE\xFF") {
        return Err(fault(
            &catalogue::BINARY_FILE,
            START,
            "the file is UTF-16, manifests are UTF-8".to_owned(),
        )
        .with_hint("save the file as UTF-8"));
    }
    let source = source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source);
    if let Some(at) = source.iter().position(|byte| *byte == 0) {
        return Err(fault(
            &catalogue::BINARY_FILE,
            place_of(source, at),
            format!("the file is binary: byte {at} is NUL"),
        ));
    }
    std::str::from_utf8(source).map_err(|error| {
        let at = error.valid_up_to();
        let byte = source.get(at).copied().unwrap_or_default();
        fault(
            &catalogue::INVALID_UTF8,
            place_of(source, at),
            format!("byte {at} (`0x{byte:02x}`) is not valid UTF-8"),
        )
        .with_hint("save the file as UTF-8")
    })
}

/// The place of byte `at`, for bytes that may be no text.
fn place_of(source: &[u8], at: usize) -> Span {
    let before = source.get(..at).unwrap_or(source);
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
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

/// Of two readings of the same text that both failed, the one that got further.
fn nearer(json: Finding, yaml: Finding) -> Finding {
    let place = |finding: &Finding| (finding.span.line, finding.span.column);
    if yaml.code != catalogue::SYNTAX.code || place(&yaml) > place(&json) {
        yaml
    } else {
        json
    }
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
