//! The decisions of Trainyard, as pure functions.
//!
//! Values in, values out: no IO, no clock, no randomness, no async, no logging. Time and
//! environment are arguments; collections are ordered, so the same input gives the same bytes.
//! The adapters (`host`, `kube`, `sim`) observe and act; everything that is decided is decided
//! here and can be tested without any of them.
//!
//! Reading order:
//!
//! 1. [`spec`]: the user's job, read from a file with positions, defaulted and validated;
//! 2. [`launch`]: what a job becomes: pods with their environment, services, config;
//! 3. [`job`]: the lifecycle, `decide(job, observed, now)`;
//! 4. [`gang`]: where the pods of a job go, all or none: `place(snapshot, gangs, now)`;
//! 5. [`ledger`]: where every second of a job went;
//! 6. [`lint`]: findings over a file; [`finding`] is their shape;
//! 7. [`reason`]: every reason why a job waits, with its parameters and its sentence;
//! 8. [`explain`]: why a job is not running, or why it failed;
//! 9. [`diagnose`]: from the lines of a log to a verdict;
//! 10. [`plan`]: what fits on a cluster, how fast, and at what cost;
//! 11. [`outlook`]: weeks of a job with failures, simulated;
//! 12. [`remote_shell`]: the command lines with which `mpirun` reaches another pod;
//! 13. [`template`]: commented job files from a few answers;
//! 14. [`fabric`]: the network that gradients travel on, and what it adds to the pods of a job;
//! 15. [`probe`]: from measurements to what is fit for a job;
//! 16. [`progress`]: from what a training program prints to its step and loss;
//! 17. [`watch`]: from signs of life to hangs, NaN and slow ranks;
//! 18. [`barrier`]: the restart of a gang in its pods;
//! 19. [`checkpoint`]: which saves exist, which one is restored, which bytes are read;
//! 20. [`quantity`] and [`resources`]: Kubernetes quantities as whole numbers, and what a pod asks for; [`index_set`]: pod indices as ranges;
//! 21. [`pod`]: what is seen of a pod and its node; [`account`]: who pays for its failure;
//! 22. [`chronicle`]: what happened to a job, as facts and as the history that they add up to;
//! 23. [`view`]: what a page, a terminal and a picture draw of jobs, as values;
//! 24. [`mutant`]: deliberate mistakes for the tests of the simulation;
//! 25. [`capacity`]: whether a gang fits now, after a scale-up, or never.
//!
//! Modules use each other in one direction; ARCHITECTURE.md draws it and `cargo xtask layers` checks it.
#![forbid(unsafe_code)]

pub mod account;
pub mod barrier;
pub mod capacity;
pub mod checkpoint;
pub mod chronicle;
pub mod diagnose;
pub mod explain;
pub mod fabric;
pub mod finding;
pub mod fleet;
pub mod gang;
pub mod index_set;
pub mod job;
pub mod launch;
pub mod ledger;
mod line;
pub mod lint;
pub mod mutant;
pub mod outlook;
pub mod plan;
pub mod pod;
pub mod probe;
pub mod progress;
pub mod quantity;
pub mod reason;
pub mod remote_shell;
pub mod resources;
pub mod spec;
pub mod template;
pub mod view;
pub mod watch;
