//! What went wrong with an object store, as an error of the system in one sentence.
//!
//! Answers of a server can carry the id of a key, and signed addresses carry a signature. Neither is ever part of a sentence: it is
//! made of the status and the code of the answer, or of the words of [`Trouble`].

use std::{error::Error, io, time::Duration};

use http::StatusCode;

/// Longest code of an answer that is shown.
const MAX_CODE: usize = 64;

/// Why there is no answer, or none that is good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the object store answered {}{}", .0.as_u16(), in_brackets(.1.as_deref()))]
    Answer(StatusCode, Option<String>),
    #[error("the object store did not answer within {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error("cannot connect to the object store: {0}")]
    Connect(String),
    #[error("the connection to the object store broke: {0}")]
    Broken(String),
    #[error("the object store answered with more than {0} bytes")]
    Long(usize),
    #[error("plain HTTP is refused for this request; use `https://`")]
    Plain,
    #[error(
        "no credentials: none are in the environment or in the files, and no metadata service of a cloud answered"
    )]
    NoCredentials,
}

fn in_brackets(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// The code in the body of an answer: letters only, and never more than that.
pub(super) fn code(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body.get(..body.len().min(4096))?).into_owned();
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = !code.is_empty()
        && code.len() <= MAX_CODE
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_code.then(|| code.to_owned())
}

/// The trouble below an error of the client or of the connection.
fn trouble<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Trouble> {
    let mut cause = Some(error);
    // Chains are short; a bound keeps one that is a circle from hanging us.
    for _ in 0..32 {
        let found = cause?.downcast_ref::<Trouble>();
        if found.is_some() {
            return found;
        }
        cause = cause?.source();
    }
    None
}

/// Whether the answer was that the object has no such range.
pub(super) fn has_no_range(error: &object_store::Error) -> bool {
    let range = StatusCode::RANGE_NOT_SATISFIABLE;
    matches!(trouble(error), Some(Trouble::Answer(status, _)) if *status == range)
}

/// The error of the system for one of the client or of the connection.
pub(super) fn plain(error: &(dyn Error + 'static)) -> io::Error {
    match trouble(error) {
        Some(trouble) => io::Error::new(kind(trouble), trouble.clone()),
        None => io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer of the object store makes no sense",
        ),
    }
}

fn kind(trouble: &Trouble) -> io::ErrorKind {
    match trouble {
        Trouble::Answer(status, _) => match status.as_u16() {
            404 => io::ErrorKind::NotFound,
            401 | 403 => io::ErrorKind::PermissionDenied,
            409 | 412 => io::ErrorKind::AlreadyExists,
            408 | 504 => io::ErrorKind::TimedOut,
            507 => io::ErrorKind::StorageFull,
            501 => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        },
        Trouble::Slow(_) => io::ErrorKind::TimedOut,
        Trouble::Connect(_) => io::ErrorKind::NotConnected,
        Trouble::Broken(_) => io::ErrorKind::ConnectionAborted,
        Trouble::Long(_) => io::ErrorKind::InvalidData,
        Trouble::Plain | Trouble::NoCredentials => io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_have_no_secrets() {
        let body = b"<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>";
        let code = code(body);
        assert_eq!(code.as_deref(), Some("SignatureDoesNotMatch"));
        let error = plain(&Trouble::Answer(StatusCode::FORBIDDEN, code));
        assert_eq!(
            error.to_string(),
            "the object store answered 403 (SignatureDoesNotMatch)"
        );
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn codes_are_words() {
        for body in [
            "",
            "<Code></Code>",
            "<Code>a b</Code>",
            "<Code>x",
            "<Code><b/></Code>",
        ] {
            assert_eq!(code(body.as_bytes()), None, "{body}");
        }
        let long = format!("<Code>{}</Code>", "x".repeat(MAX_CODE + 1));
        assert_eq!(code(long.as_bytes()), None);
    }
}
