//! Stop(a): until every kept member has stopped, and so has every lost one that the leader still reaches.
//!
//! A lost member may run on: its kubelet does not respond, and its network does. It is fenced before it is replaced. While its pod object is
//! there it gets Stop as the others, and while it is connected it is waited for, no longer than for the others. One without a connection
//! to the leader has none to the first rank, either, which is in the same pod.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Barrier, Command, Coordinator, LostMember, LostWhy, NewPodsReason, Phase, PodHealth, SeenJob,
    SeenPod, StateName, Step, Stored, lost_by_pod, new_pods,
};
use crate::{
    barrier::{
        message::{Fence, Stage},
        slots::{Roster, SlotSet},
    },
    mutant::{self, Mutant},
    spec::Slot,
};

impl Coordinator {
    pub(super) fn stopping(
        &mut self,
        barrier: &Barrier,
        seen: &SeenJob<'_>,
        now: Duration,
        spent: Duration,
        step: &mut Step,
    ) {
        let attempt = barrier.attempt;
        let since = self.timed_since(Fence::new(attempt, Stage::Stop), 0, now);
        let late = now.saturating_sub(since) >= self.limits.stop_within
            && !mutant::is(Mutant::WaitsForLostMembers);
        let mut lost: BTreeMap<Slot, LostWhy> = BTreeMap::new();
        let mut roster = Vec::new();
        let mut fenced = Vec::new();
        for slot in seen.slots {
            let pod = seen.pods.get(slot).filter(|pod| pod.attempt == attempt);
            if let Some(pod) = pod.filter(|pod| may_run_on(pod)) {
                fenced.push((*slot, pod.uid.clone()));
            }
            let unfenced = !late && pod.is_some_and(|pod| self.is_unfenced(pod, attempt));
            if barrier.lost.contains(*slot) {
                if unfenced {
                    step.waiting.insert(*slot);
                }
                continue;
            }
            let reported = pod.and_then(|pod| self.reported(&pod.uid));
            let stopped =
                reported.is_some_and(|position| position >= (attempt, StateName::Stopped));
            let cannot = reported == Some((attempt, StateName::CannotStop));
            match (lost_by_pod(pod), pod) {
                (Some(why), _) => {
                    lost.insert(*slot, why);
                    if unfenced {
                        step.waiting.insert(*slot);
                    }
                }
                (None, _) if cannot => _ = lost.insert(*slot, LostWhy::CannotStop),
                (None, _) if !stopped && late => _ = lost.insert(*slot, LostWhy::NotStopped),
                (None, Some(pod)) => {
                    roster.push((*slot, pod.uid.clone()));
                    if !stopped {
                        step.waiting.insert(*slot);
                    }
                }
                (None, None) => {}
            }
        }
        let all_stopped = step.waiting.is_empty() || mutant::is(Mutant::StoresBeforeStopped);
        let kept = !roster.is_empty();
        let leads = roster.iter().any(|(slot, _)| *slot == seen.leader);
        let all_lost: SlotSet = barrier.lost.iter().chain(lost.keys().copied()).collect();
        let record = |phase, attempt, waiting: &SlotSet| Barrier {
            attempt,
            phase,
            spent,
            waiting: waiting.clone(),
            lost: all_lost.clone(),
            ..barrier.clone()
        };
        if !kept {
            let reason = if late && !self.heard {
                NewPodsReason::LeaderSilent
            } else {
                NewPodsReason::NobodyKept
            };
            return new_pods(seen, reason, step);
        }
        if !all_stopped && !leads {
            // Nobody can report that the others have stopped.
            return new_pods(seen, NewPodsReason::LeaderLost, step);
        }
        if all_stopped {
            let next = attempt.saturating_add(1);
            step.store = Some(Stored {
                attempt: next,
                barrier: Some(record(Phase::Preparing, next, &SlotSet::default())),
            });
            step.wake_at = None;
            return;
        }
        if !lost.is_empty() {
            step.store = Some(Stored {
                attempt,
                barrier: Some(record(Phase::Stopping, attempt, &step.waiting)),
            });
        }
        // Those whose loss is stored.
        let replaced = barrier.lost.iter().filter_map(|slot| {
            let pod = seen.pods.get(&slot)?;
            let why = lost_by_pod(Some(pod)).unwrap_or(LostWhy::NotStopped);
            // A deletion by force ends the object and not the program.
            let forced = pod.health == PodHealth::NodeLost;
            let unfenced = forced && step.waiting.contains(slot);
            (pod.health != PodHealth::Terminating && !unfenced).then(|| LostMember {
                slot,
                uid: pod.uid.clone(),
                why,
            })
        });
        step.replace = replaced.collect();
        let deadline = since + self.limits.stop_within;
        step.wake_at = step.wake_at.min(Some(deadline));
        let how = barrier.how;
        let roster: Roster = roster.into_iter().chain(fenced).collect();
        self.set_order(Command::Stop { attempt, how }, roster);
    }

    /// Whether a program of `attempt` may run in `pod` that the leader still reaches. An operator that has just started does not know whom it
    /// reaches.
    fn is_unfenced(&self, pod: &SeenPod, attempt: u32) -> bool {
        let reported = self.reported(&pod.uid);
        let over = reported.is_some_and(|position| position >= (attempt, StateName::CannotStop));
        let reached = (self.connected.as_ref()).is_none_or(|uids| uids.contains(&pod.uid));
        may_run_on(pod) && !over && reached
    }
}

/// Whether a program may run in the pod although the pod is lost.
fn may_run_on(pod: &SeenPod) -> bool {
    pod.health != PodHealth::Failed && !mutant::is(Mutant::ReplacesUnfenced)
}
