//! Jobs on Kubernetes: watches and acts for the decisions of `trainyard-core`.
//!
//! # Flow
//! Feeds list and watch the jobs, their pods, Services, launchers and nodes, and fill the store. Every
//! change puts its job into the queue. A pass reads the job and what is seen of it, calls
//! `trainyard_core::job::decide`, writes the status on top of the one it saw, puts the events, and
//! carries the actions out.
//!
//! # Guarantees
//! - What is remembered of a job is its status; an operator that is killed anywhere and started
//!   again continues from there.
//! - Only the operator that holds the lease writes.
//! - A job that cannot be understood, or whose pass fails or panics, is backed off and slows no other.
//! - Everything is bounded: passes and calls at once, the time of a call, waits between tries, what is
//!   kept of each object.
#![forbid(unsafe_code)]

mod account;
mod act;
mod admission;
mod api;
mod backoff;
mod certificate;
mod clock;
pub mod convert;
pub mod crd;
mod event;
mod feed;
mod health;
mod identity;
mod keep;
mod key;
mod kubeconfig;
mod lease;
mod log_turns;
pub mod look;
mod metrics;
mod node;
mod operator;
mod path;
mod plain;
mod pod;
mod poison;
mod preflight_run;
mod process;
mod queue;
pub mod rights;
mod room;
#[cfg(test)]
mod scripted;
mod serve;
mod ssh;
mod state;
mod store;
mod token;
mod trace;
mod view;
pub mod webhook;

pub use certificate::{
    CertificateSource,
    browsers::{TlsError, tls_of},
    clients::ClientsError,
};
pub use key::JobKey;
pub use metrics::Metrics;
pub use operator::{Gate, Lease, Operator, Options, ProgressSource};
pub use process::{Importance, Logs, Process, ProcessError, Serving, Webhooks};
pub use serve::{Bind, BindError};
pub use trace::{Collector, CollectorError};
