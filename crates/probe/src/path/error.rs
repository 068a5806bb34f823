//! Why a step between two members failed.

use std::{error::Error as _, io};

use thiserror::Error;

/// The step that failed; its source is how the connection did.
#[derive(Debug, Error)]
pub(super) enum PathError {
    #[error("connecting")]
    Connect(#[source] io::Error),
    #[error("connecting ended")]
    ConnectPanicked,
    #[error("waiting for the first byte")]
    FirstByte(#[source] io::Error),
    #[error("waiting to be connected to")]
    Accept(#[source] io::Error),
    #[error("sending small messages")]
    SendSmall(#[source] io::Error),
    #[error("answering small messages")]
    AnswerSmall(#[source] io::Error),
    #[error("sending")]
    Send(#[source] io::Error),
    #[error("receiving")]
    Receive(#[source] io::Error),
    #[error("the ring")]
    Ring(#[source] io::Error),
    #[error("agreeing on a port")]
    AgreePort(#[source] io::Error),
    #[error("waiting for the other side")]
    OtherSide(#[source] io::Error),
    #[error("its answer")]
    Answer(#[source] io::Error),
    #[error("no answer")]
    NoAnswer,
}

impl PathError {
    /// The step and how it failed, as a check shows it.
    pub(super) fn sentence(&self) -> String {
        let source = self.source().and_then(|source| source.downcast_ref());
        source.map_or_else(
            || self.to_string(),
            |error| format!("{self}: {}", plain(error)),
        )
    }
}

fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time",
        io::ErrorKind::UnexpectedEof => "the other side closed the connection",
        io::ErrorKind::ConnectionRefused => "refused",
        io::ErrorKind::ConnectionReset => "the other side reset the connection",
        _ => return error.to_string(),
    }
    .to_owned()
}
