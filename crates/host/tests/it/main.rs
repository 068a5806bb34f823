//! The engine against real, short processes.
//!
//! Every test starts the example program `engine` in a folder of its own and waits on what it
//! says, never on time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on says so by failing, and JSON is written in place"
)]

mod bad_input;
mod facts;
mod faults;
mod figures;
mod harness;
mod lifecycle;
mod mpi;
mod orphans;
mod surroundings;
mod trust;
