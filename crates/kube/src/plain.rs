//! Errors of libraries in plain words.
//!
//! Owns the sentences for what goes wrong below us: files, connections, certificates. A library's own text
//! names its types and numbers of the system; people need what was found.

use std::{error::Error, io};

/// Why it failed: the innermost cause, in words.
pub(crate) fn reason(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    loop {
        // The source of an I/O error around another error is the source of that one.
        let inner = last
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|inner| inner as &(dyn Error + 'static));
        match inner.or_else(|| last.source()) {
            Some(deeper) => last = deeper,
            None => break,
        }
    }
    match last.downcast_ref::<io::Error>() {
        Some(error) => of_system(error),
        None => of_text(&last.to_string()),
    }
}

/// An error and its causes, in one sentence.
pub(crate) fn sentence(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", sentence(cause)),
        None => error.to_string(),
    }
}

/// An error of the operating system.
fn of_system(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::ConnectionRefused => {
            "connection refused, no program listens there".to_owned()
        }
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to it".to_owned()
        }
        io::ErrorKind::TimedOut => "the connection timed out".to_owned(),
        _ => of_text(&error.to_string()),
    }
}

/// The text of an error, without what only its library understands.
fn of_text(text: &str) -> String {
    let known = [
        (
            "failed to lookup address",
            "its host name cannot be resolved",
        ),
        (
            "UnknownIssuer",
            "its certificate is signed by an unknown authority",
        ),
        ("CertExpired", "its certificate has expired"),
        ("certificate expired", "its certificate has expired"),
        (
            "NotValidForName",
            "its certificate is for another host name",
        ),
        (
            "not valid for name",
            "its certificate is for another host name",
        ),
        ("InvalidContentType", "it does not speak TLS"),
        ("invalid HTTP version", "it does not speak HTTP"),
        ("deadline has elapsed", "the connection timed out"),
    ];
    if let Some((_, words)) = known.iter().find(|(part, _)| text.contains(part)) {
        return (*words).to_owned();
    }
    let first = text.lines().next().unwrap_or_default();
    first
        .split(" (os error ")
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Outer(#[source] io::Error);

    #[test]
    fn reasons() {
        let refused = io::Error::from_raw_os_error(111);
        let cases: Vec<(Box<dyn Error>, &str)> = vec![
            (
                Box::new(Outer(refused)),
                "connection refused, no program listens there",
            ),
            (
                Box::new(Outer(io::Error::other(
                    "failed to lookup address information: Name",
                ))),
                "its host name cannot be resolved",
            ),
            (
                Box::new(io::Error::other(Outer(io::Error::from_raw_os_error(2)))),
                "there is no such file",
            ),
            (
                Box::new(io::Error::other("invalid peer certificate: UnknownIssuer")),
                "its certificate is signed by an unknown authority",
            ),
            (
                Box::new(io::Error::from_raw_os_error(28)),
                "No space left on device",
            ),
            (Box::new(io::Error::other("first\nsecond")), "first"),
        ];
        for (error, want) in cases {
            assert_eq!(reason(&*error), want);
        }
    }
}
