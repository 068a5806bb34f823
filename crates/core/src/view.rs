//! What a page, a terminal and a picture draw of jobs, as values: the same for all three.
//!
//! Owns the reduction of histories, logs, clusters and numbers to what fits on a screen, and which state has which colour and sign. Does not draw, and
//! knows nothing of HTML, SVG or terminals.
//!
//! Each document has a version and only ever gains fields. Times are Unix milliseconds. What is not known is absent, not 0.
//!
//! Invariants: every document is bounded by the constants of its module, whatever goes in; what is left out is counted in it. A strip shows every failure
//! at every zoom. The same arguments give the same bytes.

pub mod events;
pub mod failures;
pub mod fold;
mod log_line;
pub mod losses;
pub mod pyramid;
pub mod queue;
pub mod report;
pub mod rows;
pub mod saves;
pub mod seats;
mod state;
pub mod strip;
#[cfg(test)]
mod testing;
pub mod trace;

pub use log_line::{LogLine, read_line};
pub use state::{Colours, State};

/// The form of the documents.
pub const VERSION: u32 = 1;
