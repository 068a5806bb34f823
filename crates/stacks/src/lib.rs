//! What a process does right now, read from outside: its state in the kernel and its Python stacks.
//!
//! A rank that hangs prints nothing, so the only evidence is what it waits in. This crate reads that without a change to the
//! program, without stopping it and without a right that its parent does not have: `/proc/PID/mem` and the other files of
//! `/proc/PID` are plain files. It is a crate of its own because it takes bytes of a foreign process apart, and neither the
//! core nor the operator should carry that; it knows nothing of jobs.
//!
//! Everything that is read is hostile. Every loop, length and number of reads is bounded, every pointer is only ever an
//! offset of a read that may fail, and what is printed holds no control characters.
//!
//! Invariant: only what a Python frame is made of is read from the memory of a process: its code object, the names and the
//! line table of that. No value of a variable is read.
#![forbid(unsafe_code)]

mod error;
mod stack;

pub mod elf;
pub mod lines;
pub mod maps;
pub mod memory;
mod proc_file;
pub mod process;
pub mod python;

pub mod digest;
pub mod fold;
pub mod ranks;
pub mod report;
pub mod waits;

#[doc(hidden)]
pub mod feed;

pub use error::Error;
pub use python::Stacks;
pub use stack::{Frame, ThreadStack};
