//! Measures this machine, and the paths to others, for a preflight; reads GPUs and recorders of ranks that run.
//!
//! Owns the reading: files below one root, the NVIDIA library where it is present, sockets, volumes,
//! and external programs where they are present.
//! What a measurement means is [`trainyard_core::probe`].
//!
//! Invariant: nothing is changed on the host, and every probe ends within a stated time; one that does
//! not is abandoned and reported as such.
#![forbid(unsafe_code)]

mod deadline;
pub mod evidence;
mod files;
pub mod path;
mod program;
mod read;

pub use read::{ACTIVE_LIMIT, PASSIVE_LIMIT, read};
