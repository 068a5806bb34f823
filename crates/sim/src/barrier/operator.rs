//! The operator: it sees late, decides with `job::decide`, writes, calls, sends, and crashes between any two of these.

use std::{collections::BTreeMap, time::Duration};

use trainyard_core::{
    barrier::{Begin, Coordinator, Envelope, OperatorMessage, Phase, Summary},
    job::{self, Action, Decision, JobStatus, SharedInputs},
    spec::Slot,
};

use super::{
    coverage::Mark,
    invariants,
    job::{Write, instant, milliseconds_until},
    world::{Happening, JOB, Pod, World, limits, millis},
};

/// How long a status that may wait is put off, in milliseconds.
const PUT_OFF: i64 = 2_000;

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
    Service(Slot, bool),
}

/// An operator that lives.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, not a state of one machine"
)]
pub(super) struct Operator {
    pub(super) number: u64,
    pub(super) started: i64,
    pub(super) coordinator: Coordinator,
    /// The newest summary that no pass has used.
    summary: Option<Box<Envelope<Summary>>>,
    /// A connection of the leader has ended since the last pass.
    leader_gone: bool,
    /// What it has seen.
    pub(super) status: JobStatus,
    pub(super) version: u64,
    pub(super) pods: BTreeMap<Slot, Pod>,
    pub(super) pods_version: u64,
    pub(super) suspend: bool,
    pub(super) being_deleted: bool,
    pub(super) size: u32,
    pub(super) hold: Option<Duration>,
    pub(super) shared: Option<SharedInputs>,
    /// A write is on its way.
    writes: bool,
    /// When a status that may wait is written.
    put_off: Option<i64>,
    wake_at: i64,
    watch_due: bool,
    /// It crashes after so many more calls, for so long.
    pub(super) crash_after: Option<(u32, i64)>,
    pub(super) leader: Option<u32>,
    pub(super) half_open: bool,
    /// The barrier that it found stored when it started.
    pub(super) found: bool,
}

impl World {
    pub(super) fn start_operator(&mut self) {
        if self.operator.is_some() {
            return;
        }
        self.operators += 1;
        self.trace.note(
            self.now,
            format_args!("op {:<4} starts at {:?}", self.operators, self.api.stored()),
        );
        let operator = Operator {
            number: self.operators,
            started: self.now,
            coordinator: Coordinator::new(JOB.to_owned(), limits()),
            summary: None,
            leader_gone: false,
            status: self.api.status.clone(),
            version: self.api.version,
            pods: self.api.pods.clone(),
            pods_version: self.api.pods_version,
            suspend: self.api.suspend,
            being_deleted: self.api.being_deleted,
            size: self.api.size,
            hold: self.api.hold,
            shared: None,
            writes: false,
            put_off: None,
            wake_at: i64::MAX,
            watch_due: false,
            crash_after: None,
            leader: None,
            half_open: false,
            found: self.barrier().is_some(),
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
        self.known.crashes_in_hold += 1;
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
            operator.leader_gone = true;
            self.leader_loses_operator(leader, unnoticed);
        }
    }

    /// The leader's container has ended, or the leader redials.
    pub(super) fn leader_link_ends(&mut self, birth: u32) {
        if let Some(operator) = &mut self.operator
            && operator.leader == Some(birth)
        {
            operator.leader = None;
            operator.leader_gone = true;
        }
    }

    pub(super) fn leader_connects(&mut self, birth: u32) {
        if let Some(operator) = &mut self.operator {
            operator.leader = Some(birth);
            operator.half_open = false;
            operator.leader_gone = true;
        }
    }

    pub(super) fn deliver_to_operator(&mut self, summary: &Envelope<Summary>) {
        if let Some(operator) = &mut self.operator {
            operator.summary = Some(Box::new(summary.clone()));
            self.pass();
        }
    }

    /// Pods or the job changed: the operator sees it soon.
    pub(super) fn pods_changed(&mut self) {
        self.api.pods_version += 1;
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
        let api = &self.api;
        if let Some(operator) = self
            .operator
            .as_mut()
            .filter(|found| found.number == number)
        {
            operator.watch_due = false;
            operator.pods = api.pods.clone();
            operator.pods_version = api.pods_version;
            operator.suspend = api.suspend;
            operator.being_deleted = api.being_deleted;
            operator.size = api.size;
            operator.hold = api.hold;
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

    fn wake_in(&mut self, delay: i64) {
        let Some(operator) = &mut self.operator else {
            return;
        };
        let due = self.now + delay.max(1);
        if due < operator.wake_at || operator.wake_at <= self.now {
            operator.wake_at = due;
            let number = operator.number;
            self.schedule(delay.max(1), Happening::Wake(number));
        }
    }

    /// One pass, unless a write is on its way: what it comes to is seen first.
    pub(super) fn pass(&mut self) {
        let Some(operator) = self.operator.as_mut().filter(|found| !found.writes) else {
            return;
        };
        if std::mem::take(&mut operator.leader_gone) {
            operator.coordinator.leader_gone();
        }
        if let Some(summary) = operator.summary.take() {
            operator.coordinator.receive(&summary);
        }
        let observed = operator.observe(&self.api, millis(self.now - operator.started));
        let wanted = operator.job();
        let decision = job::decide(&wanted, &observed, instant(self.now));
        let verdict = invariants::decided(&observed, &decision);
        self.judge(verdict);
        if let Some(at) = decision.wake_at {
            self.wake_in(milliseconds_until(at, self.now));
        }
        let Some(operator) = &mut self.operator else {
            return;
        };
        let changed = decision.status != operator.status;
        let due = *operator.put_off.get_or_insert(self.now + PUT_OFF);
        if changed && !(job::may_wait(&operator.status, &decision) && due > self.now) {
            operator.put_off = None;
            return self.write(decision);
        }
        if changed {
            self.wake_in(due - self.now);
        } else {
            operator.put_off = None;
        }
        self.act(decision);
    }

    /// Keeps what a decision says about the gang, sends it, and makes the calls.
    fn act(&mut self, decision: Decision) {
        let Decision { actions, gang, .. } = decision;
        if let Some(gang) = gang {
            let send = gang.send;
            let Some(operator) = &mut self.operator else {
                return;
            };
            operator.coordinator = gang.coordinator;
            if send.is_some() && !self.survives_call() {
                return;
            }
            if let Some(message) = send {
                self.order(&message);
            }
        }
        for action in actions {
            let call = match action {
                Action::CreatePod {
                    slot,
                    attempt,
                    waits,
                    ..
                } => Call::Create {
                    slot,
                    attempt,
                    begin: if waits { Begin::Wait } else { Begin::Run },
                },
                Action::RelabelPod {
                    uid, from, attempt, ..
                } => Call::Relabel {
                    birth: birth_of(&uid),
                    from,
                    attempt,
                },
                Action::DeletePod { uid, .. } => Call::Delete {
                    birth: birth_of(&uid),
                },
                Action::CreateService(slot) => Call::Service(slot, true),
                Action::DeleteService(slot) => Call::Service(slot, false),
                Action::ApplyShared(inputs) => {
                    if let Some(operator) = &mut self.operator {
                        operator.shared = Some(inputs);
                    }
                    continue;
                }
                _ => continue,
            };
            if !self.call(call) {
                return;
            }
        }
    }

    fn order(&mut self, message: &Envelope<OperatorMessage>) {
        if let OperatorMessage::Order(order) = &message.message {
            let number = self.operators;
            self.trace.note(
                self.now,
                format_args!("op {number:<4} orders {:?}", order.command),
            );
            let verdict = invariants::ordered(self, order);
            self.judge(verdict);
        }
        self.send_order(message);
    }

    /// Makes a call; whether the operator still lives.
    fn call(&mut self, call: Call) -> bool {
        if !self.survives_call() {
            return false;
        }
        if !self.quiet() && self.dice.chance(2) {
            // It is lost. Nothing changes, so nothing is seen: it is tried again later.
            self.wake_in(1_500);
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
            Call::Service(slot, wanted) => {
                let there = if wanted {
                    self.api.services.insert(slot)
                } else {
                    self.api.services.remove(&slot)
                };
                if there {
                    self.pods_changed();
                }
            }
        }
    }

    /// Writes the status on top of the one observed.
    fn write(&mut self, decision: Decision) {
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
        let found = operator.found;
        let write = Box::new(Write {
            decision,
            version,
            found,
        });
        self.schedule(delay, Happening::Written(number, write));
    }

    pub(super) fn written(&mut self, number: u64, write: Write) {
        let accepted = write.version == self.api.version;
        if accepted {
            self.mark_write(&write);
            let verdict = invariants::stored(self, &write);
            self.judge(verdict);
            self.api.status = write.decision.status.clone();
            self.api.version += 1;
            let stored = self.api.stored();
            self.trace
                .note(self.now, format_args!("api     stores {stored:?}"));
        } else {
            self.coverage.mark(Mark::Conflict);
        }
        let (status, version) = (self.api.status.clone(), self.api.version);
        let barrier = self.barrier().is_some();
        let Some(operator) = self
            .operator
            .as_mut()
            .filter(|found| found.number == number)
        else {
            return;
        };
        operator.writes = false;
        operator.status = status;
        operator.version = version;
        operator.found &= barrier;
        if accepted {
            self.act(write.decision);
        }
        self.pass();
    }
}

pub(super) fn birth_of(uid: &str) -> u32 {
    uid.trim_start_matches('p').parse().unwrap_or(0)
}
