//! The operator on a real API server, with simulated nodes.
//!
//! Run by `cargo xtask test` inside the test cluster. Without one (`TRAINYARD_CLUSTER` unset) nothing
//! is tested, and each test says so. Every test has a namespace and an operator of its own, which acts
//! under exactly the rights that `deploy/` gives it; the test itself is an administrator.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on says why and ends"
)]

mod fabrics;
mod failures;
mod harness;
mod kinds;
mod lifecycle;
mod many;
mod mpi;
mod nodes;
mod operators;
mod placement;
mod preflight;
mod schedulers;
mod templates;
mod training;
