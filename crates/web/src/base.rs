//! Below which path the page is, and where it redirects.

use http::{HeaderValue, StatusCode, header};
use thiserror::Error;
use trainyard_serve::Reply;

/// Bytes of a path that a proxy or the user may put in front.
const MOST: usize = 256;

/// A base path that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the base path `{0}` is not a plain path; use one such as `/trainyard`, of letters, digits and `._~-`"
)]
pub struct BasePathError(String);

/// The path in front of all others, without a slash behind it; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BasePath(String);

/// Where a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// The base path itself, without the slash that relative URLs need.
    Base,
    /// Below it.
    Below(&'a str),
    /// Elsewhere.
    Outside,
}

impl BasePath {
    pub(crate) fn parse(text: &str) -> Result<Self, BasePathError> {
        let path = text.strip_suffix('/').unwrap_or(text);
        if path.is_empty() || is_plain(path) {
            return Ok(Self(path.to_owned()));
        }
        Err(BasePathError(text.chars().take(64).collect()))
    }

    pub(crate) fn place<'a>(&self, path: &'a str) -> Place<'a> {
        match path.strip_prefix(self.0.as_str()) {
            Some("") => Place::Base,
            Some(rest) => rest.strip_prefix('/').map_or(Place::Outside, Place::Below),
            None => Place::Outside,
        }
    }

    /// Sends the client to the page. A proxy that has taken a prefix away names it; what is no plain path is not repeated.
    pub(crate) fn redirect(&self, forwarded: Option<&str>) -> Reply {
        let prefix = forwarded.map(|prefix| prefix.strip_suffix('/').unwrap_or(prefix));
        let prefix = prefix.filter(|prefix| is_plain(prefix)).unwrap_or_default();
        let to = format!("{prefix}{}/", self.0);
        let to = HeaderValue::try_from(to).expect("plain paths are visible");
        Reply::text(
            StatusCode::PERMANENT_REDIRECT,
            "the page is below this path",
        )
        .with(header::LOCATION, to)
        .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
    }
}

/// Whether a path has only segments that mean the same to every program: `//x` would be another host.
fn is_plain(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    let segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(plain);
    let rest = path.strip_prefix('/').filter(|_| path.len() <= MOST);
    rest.is_some_and(|rest| rest.split('/').all(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_are_base_paths() {
        for (text, want) in [
            ("", ""),
            ("/", ""),
            ("/x", "/x"),
            ("/ml/yard-1/", "/ml/yard-1"),
        ] {
            assert_eq!(
                BasePath::parse(text),
                Ok(BasePath(want.to_owned())),
                "{text}"
            );
        }
        for text in [
            "x", "//x", "/x//y", "/x/../y", "/a b", "/%2e", "/x?y", "/x#y", "/é", "//",
        ] {
            assert!(BasePath::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn where_paths_are() {
        let none = BasePath::default();
        let base = BasePath::parse("/x").unwrap();
        let cases = [
            (&none, "/", Place::Below("")),
            (&none, "/app.js", Place::Below("app.js")),
            (&none, "*", Place::Outside),
            (&none, "", Place::Base),
            (&base, "/x", Place::Base),
            (&base, "/x/", Place::Below("")),
            (&base, "/x/api/v1/jobs", Place::Below("api/v1/jobs")),
            (&base, "/xy", Place::Outside),
            (&base, "/", Place::Outside),
            (&base, "/app.js", Place::Outside),
        ];
        for (base, path, want) in cases {
            assert_eq!(base.place(path), want, "{path}");
        }
    }

    #[test]
    fn redirects_stay_on_this_server() {
        let base = BasePath::parse("/x").unwrap();
        let cases = [
            (None, "/x/"),
            (Some("/ml"), "/ml/x/"),
            (Some("/ml/yard/"), "/ml/yard/x/"),
            (Some("//evil.example"), "/x/"),
            (Some("https://evil.example"), "/x/"),
            (Some("/\\evil.example"), "/x/"),
            (Some("/a/../b"), "/x/"),
            (Some(""), "/x/"),
        ];
        for (forwarded, want) in cases {
            let reply = base.redirect(forwarded);
            assert_eq!(reply.status, 308);
            assert_eq!(reply.headers[0].1, want, "{forwarded:?}");
        }
    }
}
