//! A barrier in words, for people who wait for it.

use std::fmt;

use super::{
    coordinator::{LostMember, LostWhy, Outcome, Wish},
    record::{Barrier, Phase},
    slots::SlotSet,
};
use crate::spec::Slot;

/// What a barrier of `members` waits for, as the status keeps it: without a number that changes while nothing happens.
pub fn status_sentence(barrier: &Barrier, waiting: &SlotSet, members: u32) -> String {
    let kept = match barrier.phase {
        Phase::Stopping => members.saturating_sub(barrier.lost.len()),
        Phase::Preparing => members,
    };
    // A lost member may be waited for, too, until it is fenced.
    let is_waited_for = |slot: &Slot| match barrier.phase {
        Phase::Stopping => !barrier.lost.contains(*slot),
        Phase::Preparing => true,
    };
    let others = waiting.iter().filter(is_waited_for).count();
    let others = u32::try_from(others).unwrap_or(u32::MAX);
    let done = kept.saturating_sub(others);
    let (phase, verb) = match barrier.phase {
        Phase::Stopping => ("stopping", "have stopped"),
        Phase::Preparing => ("preparing", "are ready"),
    };
    let part = |words: &str, slots: &SlotSet| {
        if slots.is_empty() {
            String::new()
        } else {
            format!(", {words} {slots}")
        }
    };
    let waits = part("waiting for", waiting);
    let replaces = part("replacing", &barrier.lost);
    format!("{phase}: {done} of {kept} members {verb}{waits}{replaces}")
}

impl fmt::Display for LostWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "its pod is gone",
            Self::Failed => "its container has ended",
            Self::NodeLost => "its node is lost",
            Self::CannotStop => "its program cannot be stopped",
            Self::NotStopped => "it has not stopped in time",
            Self::NotReady => "it was not ready in time",
        })
    }
}

impl fmt::Display for LostMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pod of {} is replaced: {}", self.slot, self.why)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go { attempt } => write!(f, "attempt {attempt} starts in place"),
            Self::NewPods { attempt, reason } => {
                write!(f, "attempt {attempt} starts with new pods: {reason}")
            }
            Self::NoPods { wish } => f.write_str(match wish {
                Wish::Suspend => "the restart ends: the job is suspended",
                Wish::Delete => "the restart ends: the job is deleted",
                Wish::Fail => "the restart ends: the job has failed",
                Wish::Run | Wish::Resize => "the restart ends",
            }),
        }
    }
}

#[cfg(test)]
mod tests;
