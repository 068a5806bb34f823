//! Stop(a): until every kept member has stopped.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Barrier, Command, Coordinator, LostMember, LostWhy, NewPodsReason, Phase, PodHealth, SeenJob,
    StateName, Step, Stored, lost_by_pod, new_pods,
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
        for slot in seen.slots {
            if barrier.lost.contains(*slot) {
                continue;
            }
            let pod = seen.pods.get(slot).filter(|pod| pod.attempt == attempt);
            let reported = pod.and_then(|pod| self.reported(&pod.uid));
            let stopped =
                reported.is_some_and(|position| position >= (attempt, StateName::Stopped));
            let cannot = reported == Some((attempt, StateName::CannotStop));
            match (lost_by_pod(pod), pod) {
                (Some(why), _) => _ = lost.insert(*slot, why),
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
            (pod.health != PodHealth::Terminating).then(|| LostMember {
                slot,
                uid: pod.uid.clone(),
                why,
            })
        });
        step.replace = replaced.collect();
        let deadline = since + self.limits.stop_within;
        step.wake_at = step.wake_at.min(Some(deadline));
        let how = barrier.how;
        let roster: Roster = roster.into_iter().collect();
        self.set_order(Command::Stop { attempt, how }, roster);
    }
}
