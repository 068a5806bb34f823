//! The operator's side of a barrier: from what is stored and seen to the next step.
//!
//! Owns the order of the steps and the time that members have for each. It does not write, patch, delete or send; the adapter carries out a
//! [`Step`] and calls again. Why a gang restarts is decided before ([`super::choose()`]).
//!
//! Invariants: everything in a step may be done at once, twice, or not at all. What needs a stored status is part of a later step only, one
//! that sees it stored. All memory of a coordinator may be lost at any time: members then get their time again, and nothing else changes.

mod preparing;
mod stopping;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    choose::NewPodsReason,
    limits::Limits,
    message::{
        Command, EndedMember, Envelope, Fence, HangReport, OperatorMessage, Order, StateName,
        StoreReport, Summary,
    },
    record::{Barrier, Phase, Stored},
    slots::{Roster, SlotSet},
};
use crate::{
    mutant::{self, Mutant},
    pod::PodUid,
    spec::Slot,
};

/// What users and the rest of the job's lifecycle want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The job runs.
    Run,
    /// It runs with another number of pods.
    Resize,
    /// It is suspended, or its stored status still says so: a resumed job begins another attempt.
    Suspend,
    /// It is deleted.
    Delete,
    /// It has failed: its deadline passed or its failure budget is used up.
    Fail,
}

/// The health of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodHealth {
    /// Its container runs, and nothing is wrong with its node.
    Well,
    /// Its container does not run yet.
    Starting,
    /// Its container has ended.
    Failed,
    /// Its node is lost.
    NodeLost,
    /// Its deletion was requested.
    Terminating,
}

/// A pod as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPod {
    /// Which incarnation.
    pub uid: PodUid,
    /// The attempt of its label.
    pub attempt: u32,
    /// Its health.
    pub health: PodHealth,
}

/// A job as the operator sees it.
#[derive(Clone, Debug)]
pub struct SeenJob<'a> {
    /// What is stored.
    pub stored: &'a Stored,
    /// The slots of the gang.
    pub slots: &'a BTreeSet<Slot>,
    /// The slot whose supervisor leads.
    pub leader: Slot,
    /// Its pods.
    pub pods: &'a BTreeMap<Slot, SeenPod>,
    /// What is wanted.
    pub wish: Wish,
    /// For how long the gang of the stored attempt is kept for inspection, where it is stored that it is.
    pub hold: Option<Duration>,
}

/// Why a member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostWhy {
    /// Its pod is gone or being deleted.
    Gone,
    /// Its container has ended.
    Failed,
    /// Its node is lost.
    NodeLost,
    /// Its program cannot be stopped.
    CannotStop,
    /// It has not stopped in time.
    NotStopped,
    /// It was not ready in time.
    NotReady,
}

/// A member whose pod is to be deleted, so that a new one replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostMember {
    /// Its slot.
    pub slot: Slot,
    /// Its pod; the deletion carries this uid.
    pub uid: PodUid,
    /// Why.
    pub why: LostWhy,
}

/// A pod whose label is to carry `attempt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relabel {
    /// Its slot.
    pub slot: Slot,
    /// Its pod; the patch is refused for another one.
    pub uid: PodUid,
    /// What the label carries; the patch is refused where it carries something else, so that a late one never takes it back.
    pub from: u32,
    /// The attempt that it is to carry.
    pub attempt: u32,
}

/// A pod that is to be created, and to start as [`super::Begin::Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateWaiting {
    /// Its slot.
    pub slot: Slot,
    /// Its attempt.
    pub attempt: u32,
}

/// How a barrier ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All programs start as this attempt.
    Go {
        /// The attempt.
        attempt: u32,
    },
    /// All pods are replaced by new ones of this attempt, which run at once.
    NewPods {
        /// The attempt.
        attempt: u32,
        /// Why.
        reason: NewPodsReason,
    },
    /// The job gets no pods: it is suspended, deleted, or has failed. The write that ends the barrier also stores that, so that this attempt
    /// never continues.
    NoPods {
        /// What was wanted.
        wish: Wish,
    },
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Store this on top of what was observed. Where the barrier differs from the stored one only in `waiting` or `spent`, it may
    /// wait.
    pub store: Option<Stored>,
    /// Labels to patch.
    pub relabel: Vec<Relabel>,
    /// Pods to delete.
    pub replace: Vec<LostMember>,
    /// Pods to create.
    pub create: Vec<CreateWaiting>,
    /// What to send to the leader, if it is connected.
    pub send: Option<Envelope<OperatorMessage>>,
    /// Programs that ended by themselves in the stored attempt, while no barrier is under way.
    pub ended: Vec<EndedMember>,
    /// The hang of the stored attempt, while no barrier is under way.
    pub hang: Option<HangReport>,
    /// How the barrier ended, in the step that ends it.
    pub outcome: Option<Outcome>,
    /// Whom the barrier waits for.
    pub waiting: SlotSet,
    /// How long the barrier has lasted.
    pub spent: Duration,
    /// How long the pods of the attempt that is prepared have been the same, where some are missing or have not started.
    pub incomplete_for: Option<Duration>,
    /// When to call again even if nothing was seen before.
    pub wake_at: Option<Duration>,
}

/// The state machine of one job in the operator. All of it may be lost at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinator {
    job: String,
    limits: Limits,
    /// The order that the leader is to have.
    order: Option<Order>,
    digest: u64,
    /// What pods have reported, as far as they have come.
    reported: BTreeMap<PodUid, (u32, StateName)>,
    /// The pods that were connected to the leader by its last summary; unknown until the first one after a start of the operator.
    connected: Option<BTreeSet<PodUid>>,
    ended: Vec<EndedMember>,
    hang: Option<HangReport>,
    store: Option<StoreReport>,
    leader_fence: Option<Fence>,
    heard: bool,
    /// A summary has no response yet.
    owes_response: bool,
    /// The order that the leader had by that summary.
    echo: Option<(Fence, u64)>,
    unsent: bool,
    /// Pods that were not ready in time.
    dismissed: BTreeSet<PodUid>,
    /// What the time of members is measured for, and since when.
    timer: Option<(Fence, u64, Duration)>,
    /// [`Barrier::spent`] as stored, and since when it is.
    began: Option<(u32, Duration, Duration)>,
}

impl Coordinator {
    /// A coordinator that knows nothing yet.
    pub fn new(job: String, limits: Limits) -> Self {
        Self {
            job,
            limits,
            order: None,
            digest: 0,
            reported: BTreeMap::new(),
            connected: None,
            ended: Vec::new(),
            hang: None,
            store: None,
            leader_fence: None,
            heard: false,
            owes_response: false,
            echo: None,
            unsent: false,
            dismissed: BTreeSet::new(),
            timer: None,
            began: None,
        }
    }

    /// The order that the leader is to have.
    pub fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }

    /// The programs that ended by themselves, by the last summary.
    pub fn ended(&self) -> &[EndedMember] {
        &self.ended
    }

    /// The hang, by the last summary.
    pub fn hang(&self) -> Option<&HangReport> {
        self.hang.as_ref()
    }

    /// What the leader saw in the store of checkpoints, by its last summary that says so.
    pub fn store(&self) -> Option<&StoreReport> {
        self.store.as_ref()
    }

    /// A summary of the leader. Call [`Coordinator::step`] next; its `send` is the response.
    pub fn receive(&mut self, envelope: &Envelope<Summary>) {
        if envelope.job != self.job {
            return;
        }
        let summary = &envelope.message;
        self.heard = true;
        self.owes_response = true;
        self.echo = summary.fence.map(|fence| (fence, summary.roster));
        self.leader_fence = self.leader_fence.max(summary.fence);
        self.ended.clone_from(&summary.ended);
        self.hang.clone_from(&summary.hang);
        // A leader that has just started has not looked yet.
        if summary.store.is_some() {
            self.store.clone_from(&summary.store);
        }
        let Some(order) = &self.order else {
            return;
        };
        if summary.roster != self.digest {
            return;
        }
        let connected = self.connected.insert(BTreeSet::new());
        for group in &summary.groups {
            for slot in group.slots.iter() {
                let Some(uid) = order.roster.get(slot) else {
                    continue;
                };
                connected.insert(uid.clone());
                let position = (group.attempt, group.state);
                let known = self.reported.entry(uid.clone()).or_insert(position);
                *known = (*known).max(position);
            }
        }
    }

    /// The connection of the leader has ended: the next one gets the order again.
    pub fn leader_gone(&mut self) {
        self.owes_response = false;
        self.unsent = true;
    }

    /// What is to be done now.
    pub fn step(&mut self, seen: &SeenJob<'_>, now: Duration) -> Step {
        let pods = || seen.pods.values().map(|pod| &pod.uid);
        if self.reported.len() > seen.pods.len() || self.dismissed.len() > seen.pods.len() {
            let live: BTreeSet<&PodUid> = pods().collect();
            self.reported.retain(|uid, _| live.contains(uid));
            self.dismissed.retain(|uid| live.contains(uid));
        }
        let mut step = Step::default();
        match &seen.stored.barrier {
            None => self.run(seen, &mut step),
            Some(barrier) => self.continue_barrier(barrier, seen, now, &mut step),
        }
        step.send = self.response();
        step
    }

    /// No barrier: programs run.
    fn run(&mut self, seen: &SeenJob<'_>, step: &mut Step) {
        self.timer = None;
        self.began = None;
        let attempt = seen.stored.attempt;
        let pods = seen.pods.iter().filter(|(_, pod)| {
            pod.attempt == attempt && !matches!(pod.health, PodHealth::Terminating)
        });
        let roster: Roster = pods.map(|(slot, pod)| (*slot, pod.uid.clone())).collect();
        step.ended = self
            .ended
            .iter()
            .filter(|ended| ended.attempt == attempt && roster.has(ended.slot, &ended.uid))
            .cloned()
            .collect();
        let of_roster =
            |hang: &&HangReport| hang.attempt == attempt && roster.get(hang.slot).is_some();
        step.hang = self.hang.as_ref().filter(of_roster).cloned();
        // New pods run by themselves, so one order for all of them is enough. A gang that is about to be deleted starts nothing more.
        let wanted = matches!(seen.wish, Wish::Run | Wish::Resize);
        let complete = roster.len() == seen.slots.len();
        match seen.hold {
            // Nobody looks at a gang that is about to be deleted: what has ended leaves.
            Some(_) if !wanted => {
                let within = Duration::ZERO;
                self.set_order(Command::Hold { attempt, within }, roster);
            }
            None if !wanted => {}
            // What is left of the gang is held.
            Some(within) => self.set_order(Command::Hold { attempt, within }, roster),
            None if complete => self.set_order(Command::Go { attempt }, roster),
            None => {}
        }
    }

    fn continue_barrier(
        &mut self,
        barrier: &Barrier,
        seen: &SeenJob<'_>,
        now: Duration,
        step: &mut Step,
    ) {
        let spent = self.spent(barrier, now);
        step.spent = spent;
        match seen.wish {
            Wish::Run => {}
            Wish::Resize => return new_pods(seen, NewPodsReason::Resized, step),
            wish @ (Wish::Suspend | Wish::Delete | Wish::Fail) => {
                step.store = Some(Stored {
                    attempt: seen.stored.attempt,
                    barrier: None,
                });
                step.outcome = Some(Outcome::NoPods { wish });
                return;
            }
        }
        let bound = self.limits.start_within;
        if spent >= bound && !mutant::is(Mutant::WaitsForLostMembers) {
            return new_pods(seen, NewPodsReason::TooLong { bound }, step);
        }
        step.wake_at = Some(now + bound.saturating_sub(spent));
        match barrier.phase {
            Phase::Stopping => self.stopping(barrier, seen, now, spent, step),
            Phase::Preparing => self.preparing(barrier, seen, now, spent, step),
        }
    }

    /// How long the barrier has lasted.
    fn spent(&mut self, barrier: &Barrier, now: Duration) -> Duration {
        let key = (barrier.attempt, barrier.spent);
        let since = match self.began {
            Some((attempt, spent, since)) if (attempt, spent) == key => since,
            _ => {
                self.began = Some((key.0, key.1, now));
                now
            }
        };
        barrier.spent + now.saturating_sub(since)
    }

    /// Since when members have had time for `fence` with the roster of `digest`.
    fn timed_since(&mut self, fence: Fence, digest: u64, now: Duration) -> Duration {
        match self.timer {
            Some((known, of, since)) if (known, of) == (fence, digest) => since,
            _ => {
                self.timer = Some((fence, digest, now));
                self.heard = false;
                now
            }
        }
    }

    fn reported(&self, uid: &str) -> Option<(u32, StateName)> {
        self.reported.get(uid).copied()
    }

    fn set_order(&mut self, command: Command, roster: Roster) {
        let order = Order { command, roster };
        if self.order.as_ref() != Some(&order) {
            self.digest = order.roster.digest();
            self.order = Some(order);
            self.unsent = true;
        }
    }

    /// The order where it is not known to have arrived, an acknowledgement where a summary came in.
    fn response(&mut self) -> Option<Envelope<OperatorMessage>> {
        let order = self.order.as_ref();
        let current = order.map(|order| (order.command.fence(), self.digest));
        let differs = self.unsent || (self.owes_response && self.echo != current);
        let message = match order {
            Some(order) if differs => OperatorMessage::Order(order.clone()),
            _ if self.owes_response => OperatorMessage::Ack,
            _ => return None,
        };
        self.unsent = false;
        self.owes_response = false;
        Some(Envelope {
            job: self.job.clone(),
            message,
        })
    }
}

/// Ends the barrier with new pods. An attempt that is prepared already is left, so that the pods which carry it are not counted.
fn new_pods(seen: &SeenJob<'_>, reason: NewPodsReason, step: &mut Step) {
    let attempt = seen.stored.attempt.saturating_add(1);
    step.store = Some(Stored {
        attempt,
        barrier: None,
    });
    step.outcome = Some(Outcome::NewPods { attempt, reason });
    step.wake_at = None;
}

fn lost_by_pod(pod: Option<&SeenPod>) -> Option<LostWhy> {
    match pod.map(|pod| pod.health) {
        None | Some(PodHealth::Terminating) => Some(LostWhy::Gone),
        Some(PodHealth::Failed) => Some(LostWhy::Failed),
        Some(PodHealth::NodeLost) => Some(LostWhy::NodeLost),
        Some(PodHealth::Well | PodHealth::Starting) => None,
    }
}

#[cfg(test)]
mod tests;
