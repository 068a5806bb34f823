//! Where the time of a training step goes, from the traces that `PyTorch`'s profiler (Kineto) writes.
//!
//! Owns how a trace is read, what follows from the traces of one or of all ranks, and the values that Kineto's client and its
//! daemon exchange. Opens no file and no socket and knows no clock: bytes in, values out. It knows nothing of jobs.
//!
//! Invariant: traces are written by other people's programs, so every byte is hostile. Lengths, depths, names and the number of
//! events are bounded, what cannot be read is counted and skipped, and nothing that a trace holds can cause a panic.
#![forbid(unsafe_code)]

mod intervals;
mod number;

pub mod trace;

pub mod read;

pub mod merge;

pub mod analyse;

pub mod kineto;

pub use analyse::{Report, report};
pub use read::{ReadError, Reader};
pub use trace::Trace;
