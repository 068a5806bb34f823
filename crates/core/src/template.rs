//! Job files from templates: a name, a version and a few answers in, the text of a commented file out.
//!
//! Owns the templates, what can be asked about each, and how an answer is checked. It does not ask, and
//! writes no file. The texts lie in `template/v1`; what several of them say is one part there, so that a
//! field is explained in the same words wherever it stands.
//!
//! Invariant: what is written can be read and has no error in its profile, whatever the answers hold;
//! answers that would break that are refused in one sentence.

mod answers;
mod catalogue;
mod fill;
#[cfg(test)]
mod tests;
mod text;
mod words;

use thiserror::Error;

pub use answers::{Answers, Planned, Question};
pub use catalogue::{Size, Template, all, find};

/// Why no file was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    message: String,
    hint: Option<String>,
}

impl Refusal {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    fn with_hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// What to do instead.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}
