//! What comes out of a look.

use std::time::Duration;

use super::collective::MissedCollective;
use crate::{diagnose::Confidence, progress::Figure};

/// Most ranks that a finding names.
pub(super) const NAMED: usize = 8;

/// What a look gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// What was found since the last look. The same is not found twice, unless it became surer.
    pub findings: Vec<Finding>,
    /// Evidence to gather now, of every rank that runs.
    pub ask: Vec<Ask>,
    /// When to look again if nothing else happens: always later than now. Without it only a signal changes anything.
    pub wake_at: Option<Duration>,
}

/// Evidence of every rank that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// [`super::Signal::Usage`].
    Usage,
    /// [`super::Signal::Stack`].
    Stacks,
    /// [`super::Signal::Collective`] from something that counts all the time, such as NCCL's monitor: ranks notice nothing. At most once in a
    /// silence.
    Collectives,
    /// The same from the Flight Recorders of ranks, reported once they have written their dumps. That is work for the ranks: `PyTorch` 2.11
    /// imports modules for it, which takes seconds. So it is asked for only when a silence is long and nothing else was sure, at
    /// most once in a silence.
    Dumps,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// The ranks that it names, in order, at most eight.
    pub ranks: Vec<u32>,
    /// How many ranks it is about.
    pub count: u32,
    /// How sure it is.
    pub confidence: Confidence,
    /// Whether something should follow from it: a new attempt, or for NaN what `trainyard.dev/on-nan` says.
    pub act: bool,
    /// When the last sign of progress was, since the attempt began.
    pub since: Duration,
    /// How long there has been none.
    pub silent_for: Duration,
    /// What the other ranks do, where that is known.
    pub others: Option<Others>,
    /// The collective that ranks wait in, where Flight Recorders show it.
    pub collective: Option<MissedCollective>,
}

/// What can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A rank is somewhere in its program while the others wait for it.
    HangCpuSide {
        /// Where, as `file:line`.
        place: Option<String>,
    },
    /// A rank is stopped.
    HangStopped,
    /// A rank waits for a disk, a network file system or a driver.
    HangDiskWait {
        /// What it waits in, as the kernel names it.
        channel: Option<String>,
    },
    /// A rank began fewer collectives than the others.
    HangInCollective {
        /// The number of its last one.
        sequence: u64,
        /// The highest number of another rank.
        others: u64,
    },
    /// No rank made progress, and none differs: the fabric, storage, or something that all depend on.
    HangAllAlike {
        /// Where all are, if that is the same line.
        place: Option<String>,
    },
    /// The loss stays NaN or infinite.
    NanLoss {
        /// The first step of which it was, where steps have numbers.
        step: Option<u64>,
        /// Whether it is the norm of the gradients, with a finite loss.
        norm: bool,
    },
    /// The loss jumped.
    LossSpike {
        /// The step, where steps have numbers.
        step: Option<u64>,
        /// The loss.
        loss: Figure,
        /// What it is compared with.
        usual: Figure,
    },
    /// A rank is slower than the others.
    Straggler {
        /// How long its steps take in percent of the others', where it reports its own.
        percent: Option<u32>,
    },
    /// The job is slower than it was.
    JobSlower {
        /// How long its steps take in percent of its best.
        percent: u32,
    },
}

/// What the ranks do that are not named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// How many run.
    pub count: u32,
    /// Whether all of them wait in a collective.
    pub in_collective: bool,
    /// Where the first of them is.
    pub place: Option<String>,
}

impl Finding {
    /// A finding that is no hang.
    pub(super) fn new(cause: Cause, rank: Option<u32>, confidence: Confidence) -> Self {
        Self {
            cause,
            ranks: rank.into_iter().collect(),
            count: rank.into_iter().count().try_into().unwrap_or(u32::MAX),
            confidence,
            act: false,
            since: Duration::ZERO,
            silent_for: Duration::ZERO,
            others: None,
            collective: None,
        }
    }
}
