//! A recording of traces, as it crosses the socket of a run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
pub use trainyard_profile::kineto::{Detail, Extent, round_up};

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// These ranks; all where there are none.
    pub ranks: Vec<u32>,
    /// How much.
    pub extent: Extent,
    /// With what.
    pub detail: Detail,
    /// After so many seconds, ranks without a trace are reported as missing.
    pub timeout_seconds: u32,
}

/// What came of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The number of the recording in its run.
    pub request: u64,
    /// The attempt that was recorded.
    pub attempt: u32,
    /// By rank.
    pub traces: Vec<RecordedTrace>,
    /// By rank.
    pub missing: Vec<MissingTrace>,
}

/// A trace that a rank wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTrace {
    /// Whose it is.
    pub rank: u32,
    /// Its pod.
    pub pod: String,
    /// The file.
    pub path: PathBuf,
}

/// A rank without a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingTrace {
    /// Which.
    pub rank: u32,
    /// Why.
    pub reason: String,
}
