//! The attempt is stored: labels, new pods for lost members, Prepare, and Go once all are ready.

use std::time::Duration;

use super::{
    Barrier, Command, Coordinator, CreateWaiting, LostMember, LostWhy, NewPodsReason, Outcome,
    PodHealth, Relabel, SeenJob, StateName, Step, Stored, new_pods,
};
use crate::{
    barrier::{
        message::{Fence, Stage},
        slots::{Roster, SlotSet},
    },
    mutant::{self, Mutant},
};

impl Coordinator {
    pub(super) fn preparing(
        &mut self,
        barrier: &Barrier,
        seen: &SeenJob<'_>,
        now: Duration,
        spent: Duration,
        step: &mut Step,
    ) {
        let attempt = barrier.attempt;
        let roster = self.sort_pods(barrier, seen, step);
        if self.went(attempt, seen) {
            // An operator sent Go and crashed before it wrote so.
            return self.go(attempt, roster, step);
        }
        if !step.relabel.is_empty() {
            // One order for all pods, once all labels are patched.
            step.waiting = step.relabel.iter().map(|relabel| relabel.slot).collect();
            return;
        }
        let ready = |uid: &str| {
            let reported = self.reported(uid);
            reported.is_some_and(|position| position >= (attempt, StateName::Ready))
        };
        let members = seen.slots.iter().copied();
        let unready = members.filter(|slot| !roster.get(*slot).is_some_and(|uid| ready(uid)));
        step.waiting = unready.collect();
        let complete = roster.len() == seen.slots.len();
        let some_ready = step.waiting.len() < u32::try_from(seen.slots.len()).unwrap_or(u32::MAX);
        let kept_ready = !barrier.lost.is_empty() && roster.iter().all(|(_, uid)| ready(uid));
        let enough = some_ready && mutant::is(Mutant::GoesBeforeReady)
            || kept_ready && mutant::is(Mutant::GoesWithoutReplacement);
        if (complete && step.waiting.is_empty()) || enough {
            return self.go(attempt, roster, step);
        }
        let since = self.timed_since(Fence::new(attempt, Stage::Prepare), roster.digest(), now);
        step.incomplete_for = (!complete).then(|| now.saturating_sub(since));
        let deadline = since + self.limits.ready_within;
        if complete && now >= deadline && !mutant::is(Mutant::WaitsForLostMembers) {
            return self.lose_unready(barrier, seen, &roster, spent, step);
        }
        if complete {
            step.wake_at = step.wake_at.min(Some(deadline));
        }
        self.set_order(Command::Prepare { attempt }, roster);
    }

    /// What each pod needs; the pods that carry the attempt are the roster.
    fn sort_pods(&self, barrier: &Barrier, seen: &SeenJob<'_>, step: &mut Step) -> Roster {
        let attempt = barrier.attempt;
        let mut roster = Vec::new();
        for slot in seen.slots {
            let slot = *slot;
            let Some(pod) = seen.pods.get(&slot) else {
                step.create.push(CreateWaiting { slot, attempt });
                continue;
            };
            let uid = pod.uid.clone();
            let dismissed = self.dismissed.contains(&uid);
            let old = pod.attempt < attempt;
            let why = match pod.health {
                PodHealth::Terminating => continue,
                PodHealth::Failed => Some(LostWhy::Failed),
                PodHealth::NodeLost => Some(LostWhy::NodeLost),
                _ if dismissed => Some(LostWhy::NotReady),
                _ if old && barrier.lost.contains(slot) => Some(LostWhy::NotStopped),
                // An image may take minutes; only the bound of the whole barrier counts for it.
                PodHealth::Starting if !old => continue,
                PodHealth::Well | PodHealth::Starting => None,
            };
            if let Some(why) = why {
                step.replace.push(LostMember { slot, uid, why });
            } else if old && !mutant::is(Mutant::LabelsAfterGo) {
                step.relabel.push(Relabel {
                    slot,
                    uid,
                    from: pod.attempt,
                    attempt,
                });
            } else {
                roster.push((slot, uid));
            }
        }
        roster.into_iter().collect()
    }

    /// Whether Go was sent: by what the leader has, or by what a program does.
    fn went(&self, attempt: u32, seen: &SeenJob<'_>) -> bool {
        let leader = self.leader_fence.is_some_and(|fence| {
            fence.attempt == attempt && fence >= Fence::new(attempt, Stage::Go)
        });
        let runs = |uid: &str| {
            let reported = self.reported(uid);
            reported.is_some_and(|position| {
                position.0 == attempt && position >= (attempt, StateName::Running)
            })
        };
        leader || seen.pods.values().any(|pod| runs(&pod.uid))
    }

    fn go(&mut self, attempt: u32, roster: Roster, step: &mut Step) {
        self.set_order(Command::Go { attempt }, roster);
        step.store = Some(Stored {
            attempt,
            barrier: None,
        });
        step.outcome = Some(Outcome::Go { attempt });
        step.replace.clear();
        step.create.clear();
        step.wake_at = None;
    }

    /// The time of those that are not ready is over.
    fn lose_unready(
        &mut self,
        barrier: &Barrier,
        seen: &SeenJob<'_>,
        roster: &Roster,
        spent: Duration,
        step: &mut Step,
    ) {
        if step.waiting.len() as usize >= roster.len() {
            let reason = if self.heard {
                NewPodsReason::NobodyKept
            } else {
                NewPodsReason::LeaderSilent
            };
            return new_pods(seen, reason, step);
        }
        for slot in step.waiting.iter() {
            if let Some(uid) = roster.get(slot) {
                self.dismissed.insert(uid.clone());
                step.replace.push(LostMember {
                    slot,
                    uid: uid.clone(),
                    why: LostWhy::NotReady,
                });
            }
        }
        let lost: SlotSet = barrier.lost.iter().chain(step.waiting.iter()).collect();
        step.store = Some(Stored {
            attempt: seen.stored.attempt,
            barrier: Some(Barrier {
                spent,
                waiting: step.waiting.clone(),
                lost,
                ..barrier.clone()
            }),
        });
    }
}
