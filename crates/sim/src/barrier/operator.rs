//! The operator: it sees late, decides with `Coordinator::step`, calls, and crashes between any two calls.

use std::collections::{BTreeMap, BTreeSet};

use trainyard_core::{
    barrier::{
        Begin, Coordinator, Envelope, NewPodsReason, OperatorMessage, Outcome, Phase, PodHealth,
        SeenJob, SeenPod, Step, Stored, Summary, Wish,
    },
    spec::Slot,
};

use super::{
    coverage::Mark,
    invariants,
    lifecycle::Write,
    world::{Happening, JOB, Rest, World, in_millis, leader_slot, limits, millis, worker},
};

/// A call to the API.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Relabel {
        birth: u32,
        from: u32,
        attempt: u32,
    },
    Delete {
        birth: u32,
    },
    Create {
        slot: Slot,
        attempt: u32,
        begin: Begin,
    },
}

/// An operator that lives.
pub(super) struct Operator {
    pub(super) number: u64,
    pub(super) started: i64,
    pub(super) coordinator: Coordinator,
    /// What it has seen.
    pub(super) stored: Stored,
    pub(super) rest: Rest,
    pub(super) version: u64,
    pub(super) pods: BTreeMap<Slot, SeenPod>,
    pub(super) wish: Wish,
    pub(super) size: u32,
    /// A write is on its way.
    pub(super) writes: bool,
    pub(super) wake_at: i64,
    pub(super) watch_due: bool,
    /// It crashes after so many more calls, for so long.
    pub(super) crash_after: Option<(u32, i64)>,
    pub(super) leader: Option<u32>,
    pub(super) half_open: bool,
    /// The barrier that it found stored when it started.
    pub(super) found: Option<u32>,
}

impl World {
    pub(super) fn start_operator(&mut self) {
        if self.operator.is_some() {
            return;
        }
        self.operators += 1;
        self.trace.note(
            self.now,
            format_args!("op {:<4} starts at {:?}", self.operators, self.api.stored),
        );
        let operator = Operator {
            number: self.operators,
            started: self.now,
            coordinator: Coordinator::new(JOB.to_owned(), limits()),
            stored: self.api.stored.clone(),
            rest: self.api.rest.clone(),
            version: self.api.version,
            pods: self.seen_pods(),
            wish: self.api.wish,
            size: self.api.size,
            writes: false,
            wake_at: i64::MAX,
            watch_due: false,
            crash_after: None,
            leader: None,
            half_open: false,
            found: self.barrier().map(|barrier| barrier.attempt),
        };
        self.operator = Some(operator);
        self.pass();
    }

    pub(super) fn crash_operator(&mut self, down: i64) {
        let Some(operator) = self.operator.take() else {
            return;
        };
        self.trace
            .note(self.now, format_args!("op {:<4} crashes", operator.number));
        match self.barrier().map(|barrier| barrier.phase) {
            Some(Phase::Stopping) => self.coverage.mark(Mark::CrashedStopping),
            Some(Phase::Preparing) => self.coverage.mark(Mark::CrashedPreparing),
            None => {}
        }
        if self.barrier().is_some() {
            self.known.crashes += 1;
        }
        self.schedule(down, Happening::StartOperator);
        if let Some(leader) = operator.leader {
            self.leader_loses_operator(leader, operator.half_open);
        }
    }

    fn leader_loses_operator(&mut self, birth: u32, unnoticed: bool) {
        let container = self.container(birth);
        let up = container.up && !container.cut_off && !unnoticed;
        if let Some(leader) = container.leader.as_mut().filter(|_| up) {
            let actions = leader.operator_gone();
            self.carry_out_leader(birth, actions);
        }
    }

    pub(super) fn cut_operator(&mut self) {
        let Some(operator) = &mut self.operator else {
            return;
        };
        let unnoticed = operator.half_open;
        if let Some(leader) = operator.leader.take() {
            operator.coordinator.leader_gone();
            self.leader_loses_operator(leader, unnoticed);
        }
    }

    /// The leader's container has ended, or the leader redials.
    pub(super) fn leader_link_ends(&mut self, birth: u32) {
        if let Some(operator) = &mut self.operator
            && operator.leader == Some(birth)
        {
            operator.leader = None;
            operator.coordinator.leader_gone();
        }
    }

    pub(super) fn leader_connects(&mut self, birth: u32) {
        if let Some(operator) = &mut self.operator {
            operator.leader = Some(birth);
            operator.half_open = false;
            operator.coordinator.leader_gone();
        }
    }

    pub(super) fn deliver_to_operator(&mut self, summary: &Envelope<Summary>) {
        if let Some(operator) = &mut self.operator {
            operator.coordinator.receive(summary);
            self.pass();
        }
    }

    fn seen_pods(&self) -> BTreeMap<Slot, SeenPod> {
        let pods = self.api.pods.iter().map(|(slot, pod)| {
            let health = match () {
                () if pod.node_lost => PodHealth::NodeLost,
                () if pod.terminating => PodHealth::Terminating,
                () if pod.failed => PodHealth::Failed,
                () if !pod.booted => PodHealth::Starting,
                () => PodHealth::Well,
            };
            let seen = SeenPod {
                uid: format!("p{}", pod.birth),
                attempt: pod.attempt,
                health,
            };
            (*slot, seen)
        });
        pods.collect()
    }

    /// Pods or the job changed: the operator sees it soon.
    pub(super) fn pods_changed(&mut self) {
        let slow = !self.quiet() && self.dice.chance(10);
        let most = if slow { 2_000 } else { 60 };
        let delay = self.dice.within(1..=most);
        let Some(operator) = &mut self.operator else {
            return;
        };
        if !operator.watch_due {
            operator.watch_due = true;
            let number = operator.number;
            self.schedule(delay, Happening::Watch(number));
        }
    }

    pub(super) fn watch(&mut self, number: u64) {
        let pods = self.seen_pods();
        let (wish, size) = (self.api.wish, self.api.size);
        if let Some(operator) = self
            .operator
            .as_mut()
            .filter(|found| found.number == number)
        {
            operator.watch_due = false;
            operator.pods = pods;
            operator.wish = wish;
            operator.size = size;
            self.pass();
        }
    }

    pub(super) fn wake(&mut self, number: u64) {
        let now = self.now;
        if let Some(operator) = self
            .operator
            .as_mut()
            .filter(|found| found.number == number)
            && operator.wake_at <= now
        {
            operator.wake_at = i64::MAX;
            self.pass();
        }
    }

    /// One pass.
    pub(super) fn pass(&mut self) {
        let Some(operator) = &mut self.operator else {
            return;
        };
        let slots: BTreeSet<Slot> = (0..operator.rest.size).map(worker).collect();
        let wish = match operator.wish {
            Wish::Run if operator.rest.suspended => Wish::Suspend,
            Wish::Run if operator.size != operator.rest.size => Wish::Resize,
            wish => wish,
        };
        let seen = SeenJob {
            stored: &operator.stored,
            slots: &slots,
            leader: leader_slot(),
            pods: &operator.pods,
            wish,
        };
        let now = millis(self.now - operator.started);
        let mut step = operator.coordinator.step(&seen, now);
        let (number, writes) = (operator.number, operator.writes);
        if let Some(at) = step.wake_at {
            let due = operator.started + in_millis(at);
            let delay = (due - self.now).max(1);
            if due < operator.wake_at || operator.wake_at <= self.now {
                operator.wake_at = self.now + delay;
                self.schedule(delay, Happening::Wake(number));
            }
        }
        if let Some(Outcome::Go { attempt }) = step.outcome
            && self.known.has_gone(attempt)
            && !writes
        {
            self.coverage.mark(Mark::FoundGone);
        }
        if let Some(message) = step.send.take() {
            if let OperatorMessage::Order(order) = &message.message {
                self.trace.note(
                    self.now,
                    format_args!("op {number:<4} orders {:?}", order.command),
                );
                let verdict = invariants::ordered(self, order);
                self.judge(verdict);
            }
            self.send_order(&message);
        }
        self.act(step, &slots);
    }

    /// Carries out a step, a call after the other.
    fn act(&mut self, step: Step, slots: &BTreeSet<Slot>) {
        let Some(operator) = &self.operator else {
            return;
        };
        if operator.writes {
            return;
        }
        let barrier = operator.stored.barrier.is_some();
        for lost in &step.replace {
            self.mark_loss(lost.why);
            if lost.slot == leader_slot() {
                self.coverage.mark(Mark::LeaderReplaced);
            }
        }
        let relabel = step.relabel.iter().map(|relabel| Call::Relabel {
            birth: birth_of(&relabel.uid),
            from: relabel.from,
            attempt: relabel.attempt,
        });
        let delete = step.replace.iter().map(|lost| Call::Delete {
            birth: birth_of(&lost.uid),
        });
        let create = step.create.iter().map(|create| Call::Create {
            slot: create.slot,
            attempt: create.attempt,
            begin: Begin::Wait,
        });
        let calls: Vec<Call> = relabel.chain(delete).chain(create).collect();
        for call in calls {
            if !self.call(call) {
                return;
            }
        }
        if let Some(stored) = step.store {
            self.mark_outcome(step.outcome.as_ref());
            let Some(operator) = &self.operator else {
                return;
            };
            let formed = match &step.outcome {
                Some(Outcome::Go { attempt }) => *attempt,
                _ => operator.rest.formed,
            };
            let resized = matches!(
                step.outcome,
                Some(Outcome::NewPods {
                    reason: NewPodsReason::Resized,
                    ..
                })
            );
            let size = if resized {
                operator.size
            } else {
                operator.rest.size
            };
            let suspends = matches!(step.outcome, Some(Outcome::NoPods { .. }));
            let rest = Rest {
                formed,
                size,
                suspended: suspends || operator.rest.suspended,
                ..operator.rest.clone()
            };
            let ends = step.outcome;
            self.write(Write {
                stored,
                rest,
                version: 0,
                charge: step.charge,
                outcome: ends,
            });
        } else if !barrier {
            self.live(&step.ended, slots);
        }
    }

    fn mark_outcome(&mut self, outcome: Option<&Outcome>) {
        let mark = match outcome {
            Some(Outcome::Go { .. }) => Mark::WentInPlace,
            Some(Outcome::NoPods { .. }) => Mark::EndedWithoutPods,
            Some(Outcome::NewPods { reason, .. }) => match reason {
                NewPodsReason::LeaderLost => Mark::LeaderLost,
                NewPodsReason::LeaderSilent => Mark::LeaderSilent,
                NewPodsReason::NobodyKept => Mark::NobodyKept,
                NewPodsReason::TooLong { .. } => Mark::TooLong,
                NewPodsReason::Resized => Mark::ResizedInside,
                _ => return,
            },
            None => return,
        };
        self.coverage.mark(mark);
        let Some(operator) = &self.operator else {
            return;
        };
        if mark == Mark::WentInPlace {
            let replaced = operator
                .stored
                .barrier
                .as_ref()
                .is_some_and(|barrier| !barrier.lost.is_empty());
            let found = operator.found.is_some();
            if replaced {
                self.coverage.mark(Mark::WentWithNewMember);
            }
            if found {
                self.coverage.mark(Mark::WentAfterCrash);
            }
        }
    }

    /// Makes a call; whether the operator still lives.
    pub(super) fn call(&mut self, call: Call) -> bool {
        if !self.survives_call() {
            return false;
        }
        let lost = !self.quiet() && self.dice.chance(2);
        if lost {
            // Nothing changes, so nothing is seen: it is tried again later.
            self.schedule(1_500, Happening::Wake(self.operators));
            if let Some(operator) = &mut self.operator {
                operator.wake_at = self.now;
            }
            return true;
        }
        let delay = self.dice.within(2..=150);
        self.schedule(delay, Happening::Called(call));
        true
    }

    /// Counts a call; the operator may crash just before it.
    fn survives_call(&mut self) -> bool {
        let Some(operator) = &mut self.operator else {
            return false;
        };
        match &mut operator.crash_after {
            Some((0, down)) => {
                let down = *down;
                self.crash_operator(down);
                false
            }
            Some((calls, _)) => {
                *calls -= 1;
                true
            }
            None => true,
        }
    }

    pub(super) fn called(&mut self, call: &Call) {
        self.trace.note(self.now, format_args!("api     {call:?}"));
        match *call {
            Call::Relabel {
                birth,
                from,
                attempt,
            } => {
                if let Some(pod) = self.pod_of(birth).filter(|pod| pod.attempt == from) {
                    pod.attempt = attempt;
                    self.pods_changed();
                }
            }
            Call::Delete { birth } => self.delete_pod(birth),
            Call::Create {
                slot,
                attempt,
                begin,
            } => self.create_pod(slot, attempt, begin),
        }
    }

    /// Writes the status on top of the one observed.
    pub(super) fn write(&mut self, write: Write) {
        if !self.survives_call() {
            return;
        }
        let slow = !self.quiet() && self.dice.chance(10);
        let delay = self.dice.within(2..=if slow { 1_500 } else { 120 });
        let Some(operator) = &mut self.operator else {
            return;
        };
        operator.writes = true;
        let (number, version) = (operator.number, operator.version);
        let write = Box::new(Write { version, ..write });
        self.schedule(delay, Happening::Written(number, write));
    }

    pub(super) fn written(&mut self, number: u64, write: Write) {
        if write.version == self.api.version {
            let verdict = invariants::stored(self, &write);
            self.judge(verdict);
            self.trace
                .note(self.now, format_args!("api     stores {:?}", write.stored));
            self.api.stored = write.stored;
            self.api.rest = write.rest;
            self.api.version += 1;
        } else {
            self.coverage.mark(Mark::Conflict);
        }
        let (stored, rest, version) = (
            self.api.stored.clone(),
            self.api.rest.clone(),
            self.api.version,
        );
        if let Some(operator) = self
            .operator
            .as_mut()
            .filter(|found| found.number == number)
        {
            operator.writes = false;
            operator.stored = stored;
            operator.rest = rest;
            operator.version = version;
            if operator.stored.barrier.is_none() {
                operator.found = None;
            }
            self.pass();
        }
    }
}

pub(super) fn birth_of(uid: &str) -> u32 {
    uid.trim_start_matches('p').parse().unwrap_or(0)
}
