//! Which phase a job is in, from what is seen of its pods.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{ObservedPod, PodPhase, Progress, Wait};

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
        Self::Hanging,
        Self::Restarting,
        Self::Redoing,
        Self::Suspended,
    ];
}

/// What the phase is told from. Feed it every wanted pod, then ask.
///
/// A gang is as far as the pod that is least far, so the earliest phase of any pod is the job's.
#[derive(Clone, Debug)]
pub struct Scene {
    restarted: bool,
    enough: u32,
    running: u32,
    unready: bool,
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
            unready: false,
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
                self.unready |= !pod.ready;
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

    /// The phase at `now`, and when it would turn into another if nothing is observed.
    pub fn phase(
        &self,
        progress: Option<&Progress>,
        best_step: Option<u64>,
        hang_after: Duration,
        now: Timestamp,
    ) -> (Phase, Option<Timestamp>) {
        if let Some(slowest) = self.slowest
            && (self.running < self.enough || self.running == 0)
        {
            // Making pods again is the price of a restart; waiting for seats and images is not.
            let phase = if self.restarted && slowest == Phase::Creating {
                Phase::Restarting
            } else {
                slowest
            };
            return (phase, None);
        }
        let Some(progress) = progress else {
            // Training that has reported before and has not yet in this attempt is still on its
            // way; a job that never reports counts as training once its pods are ready.
            let starting = self.unready || best_step.is_some();
            return (
                if starting {
                    Phase::Starting
                } else {
                    Phase::Training
                },
                None,
            );
        };
        let hangs_at = progress
            .at
            .checked_add(hang_after)
            .unwrap_or(Timestamp::MAX);
        if now >= hangs_at {
            return (Phase::Hanging, None);
        }
        let phase = if progress.saving {
            Phase::Saving
        } else if best_step.is_some_and(|best| progress.step <= best) {
            Phase::Redoing
        } else {
            Phase::Training
        };
        (phase, Some(hangs_at))
    }

    fn hold(&mut self, phase: Phase) {
        self.slowest = Some(self.slowest.map_or(phase, |slowest| slowest.min(phase)));
    }
}
