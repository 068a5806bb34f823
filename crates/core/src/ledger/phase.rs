//! Which phase a job is in, from what is seen of its pods.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    mutant::{self, Mutant},
    pod::{ObservedPod, PodPhase, Wait},
    progress::Progress,
    spec::JobSettings,
};

/// Silence of this many reports is a stall.
const STALLED_REPORTS: u32 = 10;
/// Shorter silence is none: programs print in blocks, and collect garbage.
const STALLED_LEAST: Duration = Duration::from_secs(30);

/// What a second was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Held back by a scheduling gate.
    Queued,
    /// Waits for nodes.
    Placing,
    /// Pods and containers are created.
    Creating,
    /// Images are pulled.
    Pulling,
    /// Runs, and no step of this attempt was reported yet.
    Starting,
    /// Trains. Evaluation between two steps counts.
    Training,
    /// Saves a checkpoint.
    Saving,
    /// Runs, and has reported no step for much longer than steps took. Earlier versions stored it as `hanging`.
    #[serde(alias = "hanging")]
    Stalled,
    /// An attempt ended and the next one is not up.
    Restarting,
    /// Trains again what was trained before.
    Redoing,
    /// Suspended.
    Suspended,
    /// A phase of another version. Its time is counted here, and never as training.
    #[serde(other)]
    Other,
}

impl Phase {
    /// Every phase that a job can be in; a stored ledger may also hold [`Phase::Other`].
    pub const ALL: [Self; 11] = [
        Self::Queued,
        Self::Placing,
        Self::Creating,
        Self::Pulling,
        Self::Starting,
        Self::Training,
        Self::Saving,
        Self::Stalled,
        Self::Restarting,
        Self::Redoing,
        Self::Suspended,
    ];

    /// Whether a job is in it only after its program reported a step.
    pub fn follows_step(self) -> bool {
        matches!(
            self,
            Self::Training | Self::Saving | Self::Stalled | Self::Redoing
        )
    }

    /// Whether an attempt that has not trained yet can be in it.
    pub(crate) fn precedes_training(self) -> bool {
        matches!(
            self,
            Self::Queued
                | Self::Placing
                | Self::Creating
                | Self::Pulling
                | Self::Starting
                | Self::Restarting
        )
    }
}

/// How long a training program may report no step before it counts as stalled.
///
/// `set` is what the job says. Without it, ten times its rhythm and at least 30 s; while it saves or evaluates, or before
/// its rhythm is known (it compiles, it warms up), at least [`JobSettings::HANG_AFTER`].
pub fn patience(progress: &Progress, set: Option<Duration>) -> Duration {
    if let Some(set) = set {
        return set;
    }
    let learned = progress.rhythm.map_or(Duration::ZERO, |rhythm| {
        rhythm.saturating_mul(STALLED_REPORTS).max(STALLED_LEAST)
    });
    let busy = progress.rhythm.is_none() || progress.saving || progress.evaluating;
    if busy {
        learned.max(JobSettings::HANG_AFTER)
    } else {
        learned
    }
}

/// A phase, and when it is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The phase.
    pub phase: Phase,
    /// Since when it lasts, where that is known to be before now.
    pub since: Option<Timestamp>,
    /// When it turns into another if nothing is observed.
    pub turns_at: Option<Timestamp>,
}

impl From<Phase> for Turn {
    fn from(phase: Phase) -> Self {
        Self {
            phase,
            since: None,
            turns_at: None,
        }
    }
}

/// What the phase follows from. Add every wanted pod, then ask.
///
/// A gang is as far as the pod that is least far, so the earliest phase of any pod is the job's.
#[derive(Clone, Debug)]
pub struct Scene {
    restarted: bool,
    enough: u32,
    running: u32,
    slowest: Option<Phase>,
}

impl Scene {
    /// `restarted`: an attempt failed before this one. `enough`: with this many running pods the
    /// job trains even if others are missing.
    pub fn new(restarted: bool, enough: u32) -> Self {
        Self {
            restarted,
            enough,
            running: 0,
            slowest: None,
        }
    }

    /// Pods that run and are ready.
    pub fn run(&mut self, pods: u32) {
        self.running += pods;
    }

    /// A wanted pod that does not exist yet.
    pub fn missing(&mut self) {
        self.hold(Phase::Creating);
    }

    /// A wanted pod that exists. One that has ended is not waited for.
    pub fn pod(&mut self, pod: &ObservedPod) {
        match pod.phase {
            PodPhase::Running if pod.deleted_at.is_none() => {
                self.running += 1;
            }
            PodPhase::Succeeded => {}
            PodPhase::Pending if pod.deleted_at.is_none() => self.hold(match &pod.wait {
                Some(Wait::Gate) => Phase::Queued,
                Some(Wait::Seat(_)) => Phase::Placing,
                Some(Wait::Pull | Wait::PullFailed(_)) => Phase::Pulling,
                None if pod.node.is_none() => Phase::Placing,
                Some(Wait::Create) | None => Phase::Creating,
            }),
            _ => self.hold(Phase::Creating),
        }
    }

    /// The phase of a job whose open span is in `open`, where that is of this attempt. `set` is how long it may be silent,
    /// where the job says so.
    pub fn phase(
        &self,
        progress: Option<&Progress>,
        open: Option<Phase>,
        best_step: Option<u64>,
        set: Option<Duration>,
    ) -> Turn {
        if let Some(slowest) = self.slowest
            && (self.running < self.enough || self.running == 0)
        {
            // Creating pods again is part of a restart; waiting for seats and images is not.
            let phase = if self.restarted && slowest == Phase::Creating {
                Phase::Restarting
            } else {
                slowest
            };
            return phase.into();
        }
        let Some(progress) = progress else {
            if mutant::is(Mutant::TrainsWithoutSteps) {
                return Phase::Training.into();
            }
            // The reader of the output may have restarted, and has not read a step yet.
            return open
                .filter(|open| open.follows_step())
                .unwrap_or(Phase::Starting)
                .into();
        };
        let stalls_at = progress
            .at
            .checked_add(patience(progress, set))
            .unwrap_or(Timestamp::MAX);
        if progress.read_at >= stalls_at {
            // It made nothing of the time since its last step.
            let trained = matches!(open, Some(Phase::Training | Phase::Redoing));
            return Turn {
                phase: Phase::Stalled,
                since: trained.then_some(progress.at),
                turns_at: None,
            };
        }
        let phase = if progress.saving {
            Phase::Saving
        } else if best_step.is_some_and(|best| progress.step <= best) {
            Phase::Redoing
        } else {
            Phase::Training
        };
        Turn {
            phase,
            since: (open == Some(Phase::Stalled)).then_some(progress.at),
            turns_at: Some(stalls_at),
        }
    }

    fn hold(&mut self, phase: Phase) {
        self.slowest = Some(self.slowest.map_or(phase, |slowest| slowest.min(phase)));
    }
}
