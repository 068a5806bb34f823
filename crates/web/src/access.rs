//! Who is answered, and as whom: the ways of a dashboard, and what is handed on about whoever asks.
//!
//! Invariant: a token of somebody else is in memory only while a request of his is worked on; its debug form hides it, and what is kept of it is its
//! digest.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue};

use crate::{Problem, Token, auth::digest};

/// Characters of a token at most. Those of the API server have about 1,000, those of identity providers some thousands.
const LONGEST: usize = 8 * 1024;

/// Who is answered.
#[derive(Clone, Debug)]
pub enum Access {
    /// Whoever has the token of this server; he sees everything.
    Token(Token),
    /// Whoever can connect; he sees everything.
    Anyone,
    /// Whoever has a token that is reviewed elsewhere; what he sees is decided with each question.
    Reviewed(Reviewed),
}

impl From<Token> for Access {
    fn from(token: Token) -> Self {
        Self::Token(token)
    }
}

/// Finds out whose a token is; the problem is [`crate::ProblemCode::Unauthorized`] where it is nobody's.
pub type Identify =
    Arc<dyn Fn(Credential) -> BoxFuture<'static, Result<Visitor, Problem>> + Send + Sync>;
/// Finds out which changes somebody may learn of, by his identity.
pub type SightOf = Arc<dyn Fn(Arc<str>) -> BoxFuture<'static, Sight> + Send + Sync>;

/// How tokens are reviewed.
#[derive(Clone)]
pub struct Reviewed {
    /// Whose a token is.
    pub identify: Identify,
    /// Which changes he may learn of.
    pub sight_of: SightOf,
    /// The header in which a proxy that is trusted puts the token, beside `Authorization`.
    pub header: Option<HeaderName>,
}

/// A name that no header has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be the name of a header")]
pub struct HeaderError(String);

impl Reviewed {
    /// The same, with the header in which a proxy that is trusted puts the token.
    pub fn with_header(self, name: &str) -> Result<Self, HeaderError> {
        let header = HeaderName::try_from(name);
        let header = header.map_err(|_| HeaderError(name.chars().take(64).collect()))?;
        // That one is read in any case.
        let header = Some(header).filter(|name| *name != http::header::AUTHORIZATION);
        Ok(Self { header, ..self })
    }
}

impl fmt::Debug for Reviewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Reviewed");
        debug.field("header", &self.header).finish_non_exhaustive()
    }
}

/// Somebody whose token was reviewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Who he is, with all that his rights depend on. What stands before a full stop is the same for each of his tokens, also where the API server says
    /// something else of each: his bounds are by that.
    pub identity: Arc<str>,
    /// How long the review is still believed.
    pub lasts: Duration,
}

/// The part of an identity that all tokens of somebody share.
pub(crate) fn person(identity: &str) -> &str {
    identity
        .split_once('.')
        .map_or(identity, |(person, _)| person)
}

/// A token that a request carried.
#[derive(Clone)]
pub struct Credential(Arc<str>);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(hidden)")
    }
}

impl Credential {
    /// The token of a header `Authorization: Bearer`, or of one that holds the token alone.
    pub(crate) fn of(value: &HeaderValue, is_bare_allowed: bool) -> Option<Self> {
        let text = value.to_str().ok()?.trim();
        let scheme = text.get(..7).unwrap_or_default();
        let token = if scheme.eq_ignore_ascii_case("bearer ") {
            text.get(7..)?.trim()
        } else if is_bare_allowed {
            text
        } else {
            return None;
        };
        Self::parse(token)
    }

    /// A token in the characters of one.
    pub fn parse(token: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=:".contains(&byte);
        let is_one = (1..=LONGEST).contains(&token.len()) && token.bytes().all(plain);
        is_one.then(|| Self(token.into()))
    }

    /// The token itself, for calls in the name of whoever sent it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is kept of it: another token has another one.
    pub fn digest(&self) -> [u8; 32] {
        digest(self.0.as_bytes())
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum Asker {
    /// Somebody who sees everything that this server has.
    Owner,
    /// Somebody who sees what he may.
    Visitor {
        /// Who he is.
        identity: Arc<str>,
        /// What he asks with.
        credential: Credential,
    },
}

/// Which changes somebody may learn of: names of subjects, as whoever publishes changes chooses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Of every subject.
    pub all: bool,
    /// Of these.
    pub subjects: BTreeSet<String>,
}

impl Sight {
    /// Whether a change of this subject is his to learn of; one without a subject is everybody's.
    pub(crate) fn includes(&self, subject: &str) -> bool {
        subject.is_empty() || self.all || self.subjects.contains(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_headers_hold_a_token() {
        let cases = [
            ("Bearer abc.DEF-_~+/=", true, true),
            ("bearer abc", true, true),
            ("Bearer  abc ", true, true),
            ("abc", false, true),
            ("Bearer", false, true),
            ("Bearer ", false, true),
            ("Basic abc", false, false),
            ("Bearer a b", false, false),
            ("Bearer a\"b", false, false),
            ("", false, false),
        ];
        for (text, in_authorization, in_own) in cases {
            let value = HeaderValue::from_static(text);
            let found = |bare| Credential::of(&value, bare).is_some();
            assert_eq!(
                (found(false), found(true)),
                (in_authorization, in_own),
                "{text}"
            );
        }
        let long = format!("Bearer {}", "a".repeat(LONGEST + 1));
        assert!(Credential::of(&HeaderValue::try_from(long).unwrap(), true).is_none());
        let one = Credential::parse("secret-token").unwrap();
        assert!(!format!("{one:?}").contains("secret"), "{one:?}");
        assert_ne!(one.digest(), Credential::parse("other").unwrap().digest());
    }

    #[test]
    fn what_a_sight_includes() {
        let none = Sight::default();
        let some = Sight {
            all: false,
            subjects: ["a/n".to_owned()].into(),
        };
        let all = Sight {
            all: true,
            ..Sight::default()
        };
        let found = |subject| [&none, &some, &all].map(|sight| sight.includes(subject));
        assert_eq!(found(""), [true, true, true]);
        assert_eq!(found("a/n"), [false, true, true]);
        assert_eq!(found("a/m"), [false, false, true]);
    }
}
