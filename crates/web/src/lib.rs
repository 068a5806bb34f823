//! The dashboard as a server: routes, who may ask, assets, and the stream of changes.
//!
//! It reads no run and no cluster. Its caller hands it one function that answers a [`Question`] with a [`Document`].

mod question;

pub use question::{
    Document, JobsAsk, LogsAsk, Problem, ProblemCode, Question, RunPart, SeriesAsk, StripQuery,
};
