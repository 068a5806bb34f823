//! The header fields of a request, each read as one bounded value.

use std::fmt;

use http::{HeaderMap, HeaderName};
use thiserror::Error;

/// Bytes of one value, at most. Tokens of the API server have about 1,000.
const MOST: usize = 8 * 1024;

/// The header fields of a request, but for `Authorization`, which is kept apart. Their debug form has the names alone: a proxy may put a token or a cookie
/// in any of them.
#[derive(Clone, Default)]
pub struct Headers(HeaderMap);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// A header that cannot be read as one value: it is repeated, too long, or not visible ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the header is repeated, has more than {MOST} bytes, or is not visible ASCII")]
pub struct Unreadable;

impl Headers {
    pub(crate) fn new(map: HeaderMap) -> Self {
        Self(map)
    }

    /// The value of a header; nothing where it is not there. A header that decides who may ask must be there at most once: two
    /// programs on its way may read different ones.
    pub fn one(&self, name: &HeaderName) -> Result<Option<&str>, Unreadable> {
        let mut values = self.0.get_all(name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() || value.len() > MOST {
            return Err(Unreadable);
        }
        value.to_str().map(Some).map_err(|_| Unreadable)
    }

    /// The value of a header that only asks for a form of the answer; one that cannot be read is as good as none.
    pub fn hint(&self, name: &HeaderName) -> Option<&str> {
        self.one(name).ok().flatten()
    }
}

impl FromIterator<(HeaderName, http::HeaderValue)> for Headers {
    fn from_iter<I: IntoIterator<Item = (HeaderName, http::HeaderValue)>>(fields: I) -> Self {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(name, value);
        }
        Self(map)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn a_header_is_one_bounded_value() {
        let long = "a".repeat(MOST + 1);
        let none: &[&[u8]] = &[];
        let cases = [
            (none, Ok(None)),
            (&[b"a"], Ok(Some("a"))),
            (&[b"a", b"a"], Err(Unreadable)),
            (&[b"\xff"], Err(Unreadable)),
            (&[long.as_bytes()], Err(Unreadable)),
        ];
        for (values, want) in cases {
            let field = |value: &&[u8]| (header::HOST, HeaderValue::from_bytes(value).unwrap());
            let headers: Headers = values.iter().map(field).collect();
            assert_eq!(headers.one(&header::HOST), want);
            assert_eq!(headers.hint(&header::HOST), want.ok().flatten());
        }
    }
}
