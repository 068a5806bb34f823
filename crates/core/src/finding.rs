//! The shape of one lint result: code, severity, place in the file, sentence, hint.
//!
//! The reader, the validator and the linter all return findings, so that one printer and one
//! JSON shape serve them all. A finding is of a [`Rule`]; the catalogue holds those of files that cannot be read and of
//! jobs that are not valid, and [`crate::lint`] the rest.

pub(crate) mod catalogue;
mod rule;

use std::fmt;

use serde::Serialize;

pub use rule::{Profile, Rule};

/// A place in a source text. Lines and columns count from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Span {
    /// First byte.
    #[serde(skip)]
    pub start: usize,
    /// One past the last byte.
    #[serde(skip)]
    pub end: usize,
    /// Line of the first character.
    pub line: usize,
    /// Column of the first character.
    pub column: usize,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Works, but not as it reads.
    Warning,
    /// Does not work.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// How the text at the place of a finding becomes right, where that cannot change what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// The scalar is another one; its quotes stay.
    Scalar(String),
    /// The scalar is put in quotes, which makes it text.
    Quote,
    /// The quotes of the scalar are removed.
    Unquote,
    /// The entry with this value is removed from its map.
    Remove,
    /// An entry is added to the map, after the one with this value.
    Add {
        /// Its key.
        key: &'static str,
        /// Its value.
        value: &'static str,
    },
    /// The item of a list becomes two.
    Split(String, String),
    /// Lines are added at other places, above an entry or an item that is there.
    Above(Vec<Above>),
}

/// Lines that are added above an entry of a map or an item of a list, with its indentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Above {
    /// Where the key of the entry, or the content of the item, begins.
    pub span: Span,
    /// The lines, indented as they would be at the left edge.
    pub lines: Vec<String>,
}

/// One result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable code, such as `TY101`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The field, such as `spec.pytorchReplicaSpecs.Worker.replicas`; empty for a whole file.
    pub path: String,
    /// Where in the source.
    #[serde(flatten)]
    pub span: Span,
    /// What was found and what was needed, in one lower-case sentence.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How to make it right.
    #[serde(skip)]
    pub fix: Option<Fix>,
}

/// Code, message and place in one line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if self.path.is_empty() {
            return Ok(());
        }
        write!(f, " (at `{}`)", self.path)
    }
}

impl Finding {
    /// A finding of `rule` about the field `path`.
    pub fn new(
        rule: &Rule,
        path: impl Into<String>,
        span: Span,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: rule.code,
            severity: rule.demo.unwrap_or(rule.production),
            path: path.into(),
            span,
            message: message.into(),
            hint: None,
            fix: None,
        }
    }

    /// The same finding with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same finding with a way to make it right.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<Option<Fix>>) -> Self {
        self.fix = fix.into();
        self
    }
}
