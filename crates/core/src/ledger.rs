//! Where every second of a job went.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a second was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Held back before it may take seats.
    Queued,
    /// Waits for nodes.
    Placing,
    /// Pods and containers are made.
    Creating,
    /// Images are pulled.
    Pulling,
    /// Runs, but has not trained yet.
    Starting,
    /// Trains.
    Training,
    /// Saves a checkpoint.
    Saving,
    /// Runs without progress.
    Hanging,
    /// An attempt ended and the next one is not up.
    Restarting,
    /// Trains again what was trained before.
    Redoing,
    /// Suspended.
    Suspended,
}

/// Every second of a job, by attempt and phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// When it began.
    pub since: Option<Timestamp>,
}
