//! Every stable reason code; the sentence is written where the reason is found.
//!
//! Whatever waits, refuses or ends does so with a [`Reason`]: a code that scripts may match and a
//! sentence with the numbers in it that people read. Status, events and command line show the same
//! pair.
//!
//! Invariant: a sentence holds no number that changes while nothing happens (such as seconds
//! waited so far), or every pass would write a new status.

use serde::{Deserialize, Serialize};

/// A stable code. Codes are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// Another controller owns the job.
    ManagedElsewhere,
    /// The view is older than the one the status was decided on.
    StaleView,
    /// The job is suspended.
    Suspended,
    /// Pods of an earlier attempt still terminate.
    WaitingForOldPods,
    /// The next attempt starts after a pause.
    WaitingToRetry,
    /// The launcher waits for its workers.
    WaitingForWorkers,
    /// Not all pods exist and run yet.
    WaitingForPods,
    /// Pods have no node yet.
    WaitingForSeats,
    /// The fabric that the job names does not exist.
    WaitingForFabric,
    /// The nodes of the gang have not passed the preflight that the job requires.
    WaitingForPreflight,
    /// An object could not be created.
    Refused,
    /// A node does not respond; its pods do not count as lost yet.
    NodeSilent,
    /// Fewer workers than wanted train.
    Degraded,
    /// The job trains as requested.
    Training,
    /// A role has no pods to run.
    NothingToRun,
    /// The job object will be deleted.
    WaitingForTtl,
    /// The job has ended and nothing is left to do.
    Ended,
    /// The job object is being deleted.
    BeingDeleted,
    /// Pods are being removed.
    CleaningUp,
    /// The job has ended: it failed in a way that a retry does not help, and its user set no limit.
    RetryDoesNotHelp,
    /// The operator crashed or panicked on the job and has set it aside.
    SetAside,
    /// A code of another version. Never written: what is stored keeps the code it has.
    #[serde(other)]
    Other,
}

/// A code with its sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// For scripts.
    pub code: Code,
    /// For people.
    pub message: String,
}

impl Reason {
    /// A reason with its sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}
