//! The bounds of every wait and of every message.

use std::time::Duration;

use crate::checkpoint::SAVES_KEPT;

/// Bytes of one message, at most: the bound of one frame between the pods of a job.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// Members of a gang, at most. A roster of so many fits into [`MAX_MESSAGE`].
pub const MAX_MEMBERS: u32 = 16_384;

/// Bytes of a uid or of a job's name in a message, at most.
pub const MAX_TEXT: usize = 128;

/// Bytes of a sentence in a message, at most.
pub const MAX_SENTENCE: usize = 1024;

/// Groups of a summary, at most. Members of one gang are in a handful of states.
pub const MAX_GROUPS: usize = 64;

/// Saves in a report about a store of checkpoints, at most.
pub const MAX_SAVES: usize = SAVES_KEPT;

/// Ended programs that a summary lists one by one, at most.
pub const MAX_ENDED: usize = 64;

/// How long each side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A member whose program ended waits so long for an order, then exits with the program's own code.
    pub hold: Duration,
    /// A member that has not stopped after this is lost.
    pub stop_within: Duration,
    /// A kept member that is not ready after this, once all pods are there, is lost.
    pub ready_within: Duration,
    /// The whole barrier (`trainyard.dev/start-within`); then all pods are new.
    pub start_within: Duration,
    /// A member that cannot stop its program reports it for so long, then exits.
    pub farewell: Duration,
    /// A member or leader reports its state this often while programs run.
    pub report_every: Duration,
    /// The same inside a barrier.
    pub report_in_barrier: Duration,
    /// Two summaries are at least this far apart, so that a thousand reports become a few summaries.
    pub summary_gap: Duration,
    /// A peer that sent nothing for so long is gone: a half-open connection is noticed before a member would be lost.
    pub silent_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(30),
            stop_within: Duration::from_secs(35),
            ready_within: Duration::from_mins(1),
            start_within: Duration::from_mins(15),
            farewell: Duration::from_secs(5),
            report_every: Duration::from_secs(5),
            report_in_barrier: Duration::from_secs(1),
            summary_gap: Duration::from_millis(100),
            silent_after: Duration::from_secs(12),
        }
    }
}

/// How long a program may take to end after its grace period: it is aborted so that it prints its stacks, then killed.
const STOP_AFTER_GRACE: Duration = Duration::from_secs(30);

impl Limits {
    /// The bounds of a gang whose programs have `stop_grace` to end (`trainyard.dev/stop-grace`) and whose restarts have `start_within`: the same for the
    /// operator and for supervisors.
    pub fn of(stop_grace: Duration, start_within: Duration) -> Self {
        Self {
            stop_within: stop_grace.saturating_add(STOP_AFTER_GRACE),
            start_within,
            ..Self::default()
        }
    }

    /// How long a member without a program waits for the next order before it exits: longer than the operator waits for the
    /// whole barrier, so that the operator decides first.
    pub fn idle_within(&self) -> Duration {
        self.start_within + self.ready_within
    }
}
