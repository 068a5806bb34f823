//! The `trainyard` binary.
#![forbid(unsafe_code)]
fn main() {}
