//! Names that are checked once and then cannot be wrong.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// Longest DNS label; Service names and pod host names are labels.
pub(crate) const LABEL_MAX: usize = 63;

/// Why a name is not a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("the name is empty")]
    Empty,
    /// Longer than a label may be.
    #[error("the name has {length} characters, at most {LABEL_MAX} are allowed")]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// A character that a label may not hold at that place.
    #[error("character `{found}` at position {position} is not allowed: {rule}")]
    BadCharacter {
        /// The character.
        found: char,
        /// One-based position in the name.
        position: usize,
        /// The rule it breaks.
        rule: &'static str,
    },
}

/// What a label may start with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// DNS-1035, as for Services.
    Letter,
    /// DNS-1123, as for namespaces.
    LetterOrDigit,
}

/// Checks that `text` is a DNS label: lower-case letters, digits and `-`, ending with a letter or
/// digit.
fn check_label(text: &str, start: Start) -> Result<(), NameError> {
    let length = text.chars().count();
    if length == 0 {
        return Err(NameError::Empty);
    }
    for (at, found) in text.chars().enumerate() {
        let position = at + 1;
        let rule = if position == 1 && start == Start::Letter && !found.is_ascii_lowercase() {
            "a name starts with a lower-case letter"
        } else if position == 1 && !(found.is_ascii_lowercase() || found.is_ascii_digit()) {
            "a name starts with a lower-case letter or a digit"
        } else if position == length && !(found.is_ascii_lowercase() || found.is_ascii_digit()) {
            "a name ends with a lower-case letter or a digit"
        } else if !(found.is_ascii_lowercase() || found.is_ascii_digit() || found == '-') {
            "a name holds only lower-case letters, digits and `-`"
        } else {
            continue;
        };
        return Err(NameError::BadCharacter {
            found,
            position,
            rule,
        });
    }
    if length > LABEL_MAX {
        return Err(NameError::TooLong { length });
    }
    Ok(())
}

/// Whether `text` is labels with dots between them, as objects of a cluster are named.
pub(crate) fn is_subdomain(text: &str) -> bool {
    const MAX: usize = 253;
    text.len() <= MAX
        && text
            .split('.')
            .all(|label| check_label(label, Start::LetterOrDigit).is_ok())
}

macro_rules! label_type {
    ($(#[$doc:meta])* $name:ident $start:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks `text` and wraps it.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                check_label(text, Start::$start)?;
                Ok(Self(text.to_owned()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

label_type! {
    /// The name of a job: a DNS-1035 label, because Services are named after it.
    JobName Letter
}
label_type! {
    /// A Kubernetes namespace: a DNS-1123 label.
    Namespace LetterOrDigit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        let cases: &[(&str, Option<&str>)] = &[
            ("j", None),
            ("a-1", None),
            ("", Some("the name is empty")),
            (
                "1a",
                Some(
                    "character `1` at position 1 is not allowed: a name starts with a lower-case letter",
                ),
            ),
            (
                "a-",
                Some(
                    "character `-` at position 2 is not allowed: a name ends with a lower-case letter or a digit",
                ),
            ),
            (
                "a_b",
                Some(
                    "character `_` at position 2 is not allowed: a name holds only lower-case letters, digits and `-`",
                ),
            ),
            (
                "ä",
                Some(
                    "character `ä` at position 1 is not allowed: a name starts with a lower-case letter",
                ),
            ),
        ];
        for (text, want) in cases {
            let got = JobName::parse(text).err().map(|error| error.to_string());
            assert_eq!(got.as_deref(), *want, "{text:?}");
        }
        assert_eq!(JobName::parse(&"a".repeat(63)).err(), None);
        assert_eq!(
            JobName::parse(&"a".repeat(64)).err(),
            Some(NameError::TooLong { length: 64 })
        );
        assert_eq!(Namespace::parse("1a").err(), None);
        assert_eq!(
            Namespace::parse("-a")
                .err()
                .map(|error| error.to_string())
                .as_deref(),
            Some(
                "character `-` at position 1 is not allowed: a name starts with a lower-case letter or a digit"
            )
        );
    }
}
