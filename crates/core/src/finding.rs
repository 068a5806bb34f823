//! The shape of one lint result: code, severity, place in the file, sentence, hint.
//!
//! The reader, the validator and the linter all return findings, so that one printer and one
//! JSON shape serve them all.

use std::fmt;

use serde::Serialize;

use crate::lint::Rule;

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
