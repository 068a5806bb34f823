//! The dashboard as a server: routes, who may ask, assets, and the stream of changes.
//!
//! It reads no run and no cluster. Its caller hands it one function that answers a [`Question`] with a [`Document`], and publishes
//! changes to its [`Hub`].
//!
//! Invariants:
//! - Nobody gets a document, or an event, without the token, from a page of another origin, or under another name of this server.
//! - Nothing that is asked changes anything.
//! - Questions, streams and what they hold are bounded in number, bytes and time.

mod answer;
mod assets;
mod auth;
mod base;
mod dashboard;
mod form;
mod hub;
mod process;
mod question;
mod refusal;
mod routes;

pub use answer::Ask;
pub use auth::{Token, TokenError, local_hosts};
pub use base::BasePathError;
pub use dashboard::{Dashboard, NAME, Options, serve};
pub use hub::{Hub, Topic};
pub use process::{Serving, blocking};
pub use question::{
    Document, JobsAsk, LogsAsk, Problem, ProblemCode, Question, RunPart, SeriesAsk, StripQuery,
};
