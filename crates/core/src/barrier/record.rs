//! What the status keeps of a barrier: enough for another operator to continue.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{message::StopHow, slots::SlotSet};

/// Characters of the reason that are kept, at most.
const MAX_WHY: usize = 256;

/// The phase of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The programs of the attempt are stopped.
    Stopping,
    /// The attempt is stored; pods are relabelled, and members get ready for it.
    Preparing,
}

/// A restart in place that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Barrier {
    /// The attempt that is stopped, or the one that is prepared.
    pub attempt: u32,
    /// The phase.
    pub phase: Phase,
    /// How long the barrier had lasted when this was written; an operator adds what its own clock measures since.
    pub spent: Duration,
    /// Whom it waits for.
    #[serde(default, skip_serializing_if = "SlotSet::is_empty")]
    pub waiting: SlotSet,
    /// Whose pods are replaced.
    #[serde(default, skip_serializing_if = "SlotSet::is_empty")]
    pub lost: SlotSet,
    /// How programs are stopped.
    pub how: StopHow,
    /// Why the gang restarts, in one sentence.
    pub why: String,
}

impl Barrier {
    /// A barrier that stops `attempt`. The pods of `lost` are replaced from the start, such as those on a lost node.
    pub fn begin(attempt: u32, how: StopHow, why: &str, lost: SlotSet) -> Self {
        Self {
            attempt,
            phase: Phase::Stopping,
            spent: Duration::ZERO,
            waiting: SlotSet::default(),
            lost,
            how,
            why: why.chars().take(MAX_WHY).collect(),
        }
    }

    /// Whether `other` differs in more than whom it waits for and how long it lasted: only then it must be written at once.
    pub fn differs_from(&self, other: &Self) -> bool {
        (self.attempt, self.phase, self.how) != (other.attempt, other.phase, other.how)
            || self.lost != other.lost
    }
}

/// The part of the status that a barrier depends on. It is written as a whole, on top of the one observed, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The attempt of the job.
    pub attempt: u32,
    /// The barrier, while one is under way.
    pub barrier: Option<Barrier>,
}
