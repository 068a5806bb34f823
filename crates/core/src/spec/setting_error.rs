//! Why the value of one of our annotations cannot be used.

use thiserror::Error;

/// What is wrong with a value. It completes a sentence that begins with the annotation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// It is something else.
    #[error("must be {expected}, found `{found}`")]
    Not {
        /// What is allowed.
        expected: String,
        /// What is there.
        found: String,
    },
    /// It is empty, and what is allowed.
    #[error("must be {0}, found nothing")]
    Nothing(String),
    /// It is probably misspelled.
    #[error("has no {what} `{found}`, did you mean `{meant}`?")]
    Misspelled {
        /// What is named.
        what: &'static str,
        /// What is there.
        found: String,
        /// The nearest known name.
        meant: String,
    },
    /// It names something unknown.
    #[error("has {what} {known}, found `{found}`")]
    Unknown {
        /// What is named, as many.
        what: &'static str,
        /// All known names.
        known: String,
        /// What is there.
        found: String,
    },
    /// It names something twice.
    #[error("names the {what} `{name}` twice")]
    Twice {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name in it has no usable number.
    #[error("needs {expected} for `{name}`, found `{found}`")]
    NotNumber {
        /// What is allowed.
        expected: &'static str,
        /// The name.
        name: String,
        /// What is there.
        found: String,
    },
    /// It is set on another kind of job, and on which.
    #[error("is for `MPIJob` only, this is a `{0}`")]
    OnlyForMpi(&'static str),
    /// It is empty where any text will do.
    #[error("needs a text, such as the time of day, found nothing")]
    NoText,
    /// It is too long.
    #[error("must have at most {most} characters, found {length}")]
    TooLong {
        /// Characters that are allowed.
        most: usize,
        /// Characters that are there.
        length: usize,
    },
    /// Its sizes make more ranks than this.
    #[error("makes more than {0} ranks")]
    TooManyRanks(u64),
}

impl SettingError {
    /// The value must be `expected`, and is `found`.
    pub(super) fn not(expected: impl Into<String>, found: &str) -> Self {
        let (expected, found) = (expected.into(), found.to_owned());
        Self::Not { expected, found }
    }
}
