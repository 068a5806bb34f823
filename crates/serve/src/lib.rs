//! A bounded HTTP server: listening, and the bounds of every connection, request and reply.
//!
//! What is answered is its callers'; it reads no job and no cluster.
//!
//! Invariants:
//! - Nothing that a client does takes more than its bounds: connections, bytes and parsed values at once; the time until its first
//!   request, of a body, of an answer that it reads, of a part of a stream that it does not read.
//! - Nobody waits for a client that is silent: a new connection is always let in, see [`Room`].
//! - A stream never waits for its reader: what writes it learns that the queue is full, see [`Sender`].

mod bind;
mod body;
mod headers;
mod message;
mod room;
mod server;
mod stream;
#[cfg(test)]
mod tests;
mod traffic;
mod watched;

pub use self::{
    bind::{Bind, BindError},
    body::{Intake, Meter},
    headers::{Headers, Unreadable},
    message::{Head, Reply, Request},
    room::{Full, Phase, Place, Room, Size},
    server::{Admit, Answer, Bounds, Refusal, ReplyRules, Secure, Server, serve},
    stream::{SendError, Sender, Stream, channel},
    traffic::{Traffic, Waits},
};
