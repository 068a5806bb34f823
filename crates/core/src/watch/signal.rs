//! What the adapters report to the watch, rank by rank.

use std::time::Duration;

use super::collective::Collective;
use crate::progress::{Event, Reading};

/// Longest place (`file:line`) that is kept of a stack.
pub(super) const PLACE_CHARS: usize = 160;
/// Longest wait channel that is kept.
pub(super) const CHANNEL_CHARS: usize = 48;

/// One sign of a rank.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// It reported a step of its training.
    Step(Step),
    /// It wrote a heartbeat. One that repeats the last phase and step is no progress: a thread of its own may write it.
    Beat {
        /// The phase that it is in, where the heartbeat says so.
        phase: Option<Phase>,
        /// The step that it is at, where the heartbeat says so.
        step: Option<u64>,
    },
    /// It finished a phase.
    Done {
        /// Which: the line may arrive when the next phase has begun.
        phase: Phase,
    },
    /// It printed something that is no step.
    Output,
    /// What its processes used so far, from outside.
    Usage(Usage),
    /// What its GPU does.
    Gpu(Gpu),
    /// What it began last in one process group, as its Flight Recorder shows it.
    Collective(Collective),
    /// Where its main thread is.
    Stack(Stack),
    /// Its process ended.
    Ended,
    /// The attempt will be stopped from outside: no rank is called hung before that.
    Notice {
        /// When, since the attempt began.
        deadline: Duration,
    },
}

/// A step that a rank reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Its number; a program may report a loss without one.
    pub step: Option<u64>,
    /// How long the rank itself says that it took.
    pub step_time: Option<Duration>,
    /// The loss. It can be NaN or infinite.
    pub loss: Option<f64>,
    /// The norm of the gradients. It can be NaN or infinite.
    pub grad_norm: Option<f64>,
}

/// What a program does at a time, as far as it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It starts, and has reported no step.
    Start,
    /// It compiles kernels or graphs.
    Compile,
    /// It loads data, weights or a checkpoint.
    Load,
    /// It trains.
    Train,
    /// It evaluates.
    Evaluate,
    /// It saves a checkpoint.
    Save,
}

impl Phase {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Start,
        Self::Compile,
        Self::Load,
        Self::Train,
        Self::Evaluate,
        Self::Save,
    ];

    /// The word in a heartbeat.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Compile => "compile",
            Self::Load => "load",
            Self::Train => "train",
            Self::Evaluate => "eval",
            Self::Save => "save",
        }
    }

    /// The phase of the word in a heartbeat.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == word)
    }
}

/// What the processes of a rank used since they started, all of its children included: the workers of a data loader
/// work for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU time.
    pub cpu: Duration,
    /// Bytes that were read and written, page cache included.
    pub io_bytes: u64,
    /// Bytes over the network interfaces of the pod. `None` where others use the same interfaces, as on the host's
    /// network: their traffic says nothing about the rank.
    pub network_bytes: Option<u64>,
    /// The state of the main thread.
    pub state: ProcessState,
    /// What the main thread waits in, as the kernel names it.
    pub wait_channel: Option<String>,
}

/// The state of a main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// On a processor, or ready (`R`).
    Running,
    /// Waits and can be interrupted (`S`).
    Sleeping,
    /// Waits for a disk, a network file system or a driver and cannot be interrupted (`D`).
    DiskWait,
    /// Stopped by a signal or a debugger (`T`).
    Stopped,
}

/// What the GPU of a rank does. Utilization is left out: a kernel of NCCL that waits shows 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Power, which falls far below its mean in training when kernels only wait.
    pub milliwatts: u32,
    /// What it may draw. A job that uses less than half of it in training draws about as much while it waits, and its power says nothing.
    pub limit_milliwatts: u32,
}

/// Where the main thread of a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// A digest of the frames, equal where files and lines are equal.
    pub digest: u64,
    /// The innermost frame of the user's program, as `file:line`.
    pub place: Option<String>,
    /// Whether it waits for other ranks.
    pub in_collective: bool,
}

impl Signal {
    /// What a line that [`crate::progress`] has read says: a step, a phase, both or none.
    pub fn from_reading(reading: &Reading) -> impl Iterator<Item = Self> {
        let step = Step {
            step: reading.step,
            step_time: reading
                .step_seconds
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            loss: reading.loss,
            grad_norm: reading.grad_norm,
        };
        let trains = step.step.is_some() || step.loss.is_some();
        let begins = |phase| Self::Beat {
            phase: Some(phase),
            step: None,
        };
        let event = reading.event.map(|event| match event {
            Event::Saving => begins(Phase::Save),
            Event::Saved => Self::Done { phase: Phase::Save },
            Event::Evaluating => begins(Phase::Evaluate),
        });
        // The phase comes last: a line that reports a step and begins to save is not a step after the save.
        trains.then_some(Self::Step(step)).into_iter().chain(event)
    }
}

/// The text, cut after `most` characters.
pub(super) fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
    // Memory that a long text held is not kept.
    text.shrink_to_fit();
}
