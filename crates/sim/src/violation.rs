//! An invariant that does not hold, in every world.

use std::fmt;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name.
    pub invariant: &'static str,
    /// What was found.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, detail: String) -> Self {
        Self { invariant, detail }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

/// Whether an invariant holds.
pub(crate) type Verdict = Result<(), Violation>;

/// Breaks `$name` unless `$holds`.
macro_rules! ensure {
    ($name:expr, $holds:expr, $($detail:tt)+) => {
        if !$holds {
            return Err(crate::violation::Violation::new($name, format!($($detail)+)));
        }
    };
}
pub(crate) use ensure;
