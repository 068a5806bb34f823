//! Deterministic world for the pure core.
#![forbid(unsafe_code)]
