//! The dashboard as a server: routes, who may ask, assets, and the stream of changes.
//!
//! It reads no run and no cluster. Its caller hands it one function that answers a [`Question`] with a [`Document`], and publishes
//! changes to its [`Hub`].
//!
//! Invariants:
//! - Nobody gets a document, or an event, without the token that this way of serving needs, from a page of another origin, or under another name of this
//!   server.
//! - Where tokens are reviewed, whoever answers learns who asks, and changes reach only those who may learn of them.
//! - Nothing that is asked changes anything.
//! - Questions, streams and what they hold are bounded in number, bytes and time.

mod access;
mod answer;
mod assets;
mod auth;
mod base;
mod dashboard;
mod form;
mod health;
mod hub;
mod process;
mod question;
mod refusal;
mod routes;

pub use access::{
    Access, Asker, Credential, HeaderError, Identify, Reviewed, Sight, SightOf, Visitor,
};
pub use answer::Ask;
pub use auth::{Token, TokenError, digest as digest_of, local_hosts};
pub use base::BasePathError;
pub use dashboard::{Dashboard, NAME, Options, Tls, serve};
pub use health::{Ready, serve_health};
pub use hub::{Hub, Topic};
pub use process::{Serving, blocking, blocking_identify, blocking_sight};
pub use question::{
    Document, JobsAsk, LogsAsk, Problem, ProblemCode, Question, RunPart, SeriesAsk, StripQuery,
};
