//! Published runs as rows of a table: what a row says, read into a step that can be timed.
//!
//! Owns the columns, and the facts that a row only implies: the kind of feed-forward part from the
//! parameter count, the software from the source, the network from the note. Blank means unknown: a
//! row that lacks what is needed is answered with the reason, never with a guess of its batch or its
//! layout.

mod csv;
mod judge;
mod measured;
mod predict;
mod read;

pub use csv::{CsvError, Table};
pub use judge::{Errors, Fitted, Judged, by_source, fit, judge, published, rank_correlation};
pub use measured::{MeasuredRun, measured_runs};
pub use predict::{COLUMNS, Prediction, append, predict, predict_with};
pub use read::{Run, read};

#[cfg(test)]
mod tests;
