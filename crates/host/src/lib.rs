//! Pods as processes of this user: a job runs on this machine, without root, containers or
//! Kubernetes.
//!
//! This crate observes and acts; what happens to a job is decided by [`trainyard_core::job`]
//! alone. It never parses a job file and never prints: what is seen goes to the caller as
//! [`RunEvent`]s, and what is kept goes to the [`store`].
//!
//! # Flow
//! [`run`] prepares the job for one machine (ports, addresses, devices), then turns one loop:
//! observe its own process table, decide, write the status, act, wait for the next event. It has one
//! *keeper* (the same program, started again through [`pod_init_main`]), which forks a *pod init* for
//! each pod: the first process of its own pid, mount, host name and IPC namespaces, which starts the
//! containers.
//!
//! # Guarantees
//! - No process of a pod outlives its pod init, no pod init outlives the keeper, and the keeper does
//!   not outlive the engine, however any of them ends: the kernel ends everything in a pid namespace
//!   with its first process.
//! - A dead container is acted upon when the kernel reports it; nothing is polled.
//! - The status in the store is written before what it decided is done.
//!
//! # Assumptions
//! - The thread that calls [`run`] lives as long as the run: the kernel ties the pods to it.
//! - The program at [`RunOptions::program`] hands its hidden `pod-init` and `pod-exec` commands to
//!   [`pod_init_main`] and [`pod_exec_main`].

mod channel;
pub mod detach;
mod engine;
mod error;
mod inject;
mod kineto;
mod limits;
mod looker;
mod mpi;
mod namespaces;
mod objects;
mod pod_init;
mod pod_spec;
mod prepare;
pub mod profile;
mod ranks;
mod remote;
mod request;
mod stop;
pub mod store;
mod volumes;
mod wire;

use trainyard_core::quantity;

pub use engine::run;
pub use error::HostError;
pub use inject::{Injection, InjectionError};
pub use pod_init::pod_init_main;
pub use prepare::{NO_IMAGE, gpu_count};
pub use ranks::Ranks;
pub use remote::pod_exec_main;
pub use request::{Accelerators, RunEvent, RunOptions, RunRequest, Stream, count_lines};
pub use stop::{StopHandle, stop_signals};
pub use store::{FailedRank, InjectionResult, Outcome, RunReport};
pub use trainyard_stacks::report as stacks;
