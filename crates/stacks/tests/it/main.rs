//! Real interpreters, read from outside: `python3` of the search path, and `python3` of every folder in the variable
//! `TRAINYARD_PYTHONS`, which are separated by colons. `versions_that_are_tested` prints which versions had none.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on says so by failing, and which interpreter it was"
)]

mod live;
mod program;
mod refused;
