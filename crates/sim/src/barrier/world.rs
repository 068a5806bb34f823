//! The truth: what is stored, which pods and processes there are, and the clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use trainyard_core::{
    barrier::{
        Barrier, Envelope, Fence, Hello, Leader, LeaderMessage, Limits, Member, OperatorMessage,
        StateName, Stored, Summary,
    },
    job::{Condition, ConditionStatus, ConditionType, JobStatus},
    spec::{Role, Slot},
};

use super::{
    Outcome,
    coverage::Coverage,
    faults::{self, Fault, Planned},
    invariants,
    job::Write,
    operator::{Call, Operator},
};
use crate::{TraceLevel, Violation, dice::Dice, trace::Trace, violation::Verdict};

/// The uid of the job.
pub(super) const JOB: &str = "job";

/// A quiet world must have settled after this: longer than a lost node, a whole barrier and new pods take one after the other.
const HORIZON: i64 = 600_000;

/// More events than this is a loop.
const MANY_EVENTS: u64 = 60_000;

/// How long each side waits: as by default where a bound is named in the contract, fewer reports so that a seed has fewer events.
pub(super) fn limits() -> Limits {
    Limits {
        start_within: Duration::from_secs(150),
        report_every: Duration::from_secs(10),
        report_in_barrier: Duration::from_secs(2),
        silent_after: Duration::from_secs(21),
        ..Limits::default()
    }
}

/// Something that happens.
#[derive(Debug)]
pub(super) enum Happening {
    Fault(Fault),
    Quiet,
    Resume,
    NodeLost(u32),
    /// A container starts.
    Boot(u32),
    /// A container that is terminated has ended.
    Kill(u32),
    MemberTick(u32),
    LeaderTick(u32),
    Dial(u32, u64),
    DialOperator(u32, u64),
    ToMember(u32, Box<Envelope<LeaderMessage>>),
    ToLeader(u32, u64, Box<Envelope<Hello>>),
    ToOperator(Box<Envelope<Summary>>),
    FromOperator(u32, Box<Envelope<OperatorMessage>>),
    /// The supervisor has stopped a program, or has found that it cannot.
    Stopped(u32, u32, bool),
    StartOperator,
    Watch(u64),
    Wake(u64),
    Written(u64, Box<Write>),
    Called(Call),
    Audit,
}

/// A pod object.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) birth: u32,
    pub(super) attempt: u32,
    pub(super) booted: bool,
    /// Its container has ended with this code.
    pub(super) failed: Option<i32>,
    pub(super) node_lost: bool,
    /// When its deletion was requested.
    pub(super) terminating: Option<i64>,
}

/// The API server.
pub(super) struct Api {
    pub(super) status: JobStatus,
    pub(super) version: u64,
    pub(super) suspend: bool,
    pub(super) being_deleted: bool,
    /// The pods that the job wants.
    pub(super) size: u32,
    /// How long a failed gang is kept for inspection.
    pub(super) hold: Option<Duration>,
    /// This attempt hangs.
    pub(super) hangs: Option<u32>,
    pub(super) pods: BTreeMap<Slot, Pod>,
    pub(super) pods_version: u64,
    pub(super) services: BTreeSet<Slot>,
}

impl Api {
    /// What the status keeps of attempt and barrier.
    pub(super) fn stored(&self) -> Stored {
        let record = &self.status.trainyard;
        Stored {
            attempt: record.attempt,
            barrier: record.barrier.clone(),
        }
    }

    /// The pods of the attempt that is stored.
    pub(super) fn stored_size(&self) -> u32 {
        let replicas = &self.status.trainyard.replicas;
        replicas.get(&Role::Worker).copied().unwrap_or(self.size)
    }
}

/// Whether `status` says that the job is suspended.
pub(super) fn is_suspended(status: &JobStatus) -> bool {
    let holds = |condition: &Condition| {
        let suspended = condition.kind == ConditionType::Suspended;
        suspended && condition.status == ConditionStatus::True
    };
    status.conditions.iter().any(holds)
}

/// Whether `status` says that the gang is kept for inspection.
pub(super) fn is_held(status: &JobStatus) -> bool {
    let record = &status.trainyard;
    let hold = record.hold.as_ref();
    hold.is_some_and(|hold| hold.attempt == record.attempt && !hold.ended)
}

/// A container with its supervisor and its program.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, not a state of one machine"
)]
pub(super) struct Container {
    pub(super) slot: Slot,
    pub(super) born: i64,
    pub(super) member: Member,
    pub(super) leader: Option<Leader>,
    pub(super) program: Option<u32>,
    pub(super) up: bool,
    /// Nothing gets in or out: its node is lost.
    pub(super) cut_off: bool,
    /// Its kubelet does not respond: its pod does not end before its node counts as lost.
    pub(super) kubelet_gone: bool,
    /// Its pod was deleted by force, and its program may still run.
    pub(super) ghost: bool,
    /// When that was.
    pub(super) forced_at: i64,
    pub(super) half_open: bool,
    pub(super) stuck: bool,
    /// Its supervisor does nothing until then.
    pub(super) frozen_until: i64,
    pub(super) connection: Option<u64>,
    /// Since when it has that connection.
    pub(super) connected_at: i64,
    pub(super) dials: u64,
    pub(super) operator_dials: u64,
    pub(super) member_wake: i64,
    pub(super) leader_wake: i64,
    /// How far the member ever came.
    pub(super) reached: (u32, StateName),
    /// Since when the member is in its state.
    pub(super) state_since: i64,
    /// The newest command that was delivered.
    pub(super) delivered: Option<Fence>,
    /// The newest order that was delivered.
    pub(super) ordered: Option<Fence>,
    /// The attempt of which its leader reported that it hangs.
    pub(super) found_hung: Option<u32>,
}

/// The world of one gang.
pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) chaos: i64,
    pub(super) now: i64,
    agenda: BTreeMap<(i64, u64), Happening>,
    turns: u64,
    events: u64,
    pub(super) api: Api,
    /// In boxes: the map moves its values around.
    pub(super) containers: BTreeMap<u32, Box<Container>>,
    pub(super) births: u32,
    pub(super) connections: u64,
    /// Connection to container, to route what a leader sends.
    pub(super) routes: BTreeMap<u64, u32>,
    pub(super) operator: Option<Operator>,
    pub(super) operators: u64,
    /// How much longer new pods take to start.
    pub(super) pod_delay: i64,
    /// This share of messages is lost until then.
    pub(super) storm: (u32, i64),
    pub(super) known: invariants::Known,
    pub(super) trace: Trace,
    pub(super) coverage: Coverage,
    violation: Option<Violation>,
    settled: bool,
}

impl World {
    pub(super) fn new(seed: u64, level: TraceLevel, kept: Option<&BTreeSet<usize>>) -> Self {
        let mut dice = Dice::new(seed, 2);
        let size = dice.pick(&[2, 2, 3, 3, 4, 5]);
        let plan = faults::plan(seed);
        let chaos = faults::quiet_at(&plan);
        let mut world = Self {
            dice,
            chaos,
            now: 0,
            agenda: BTreeMap::new(),
            turns: 0,
            events: 0,
            api: Api {
                status: JobStatus::default(),
                version: 1,
                suspend: false,
                being_deleted: false,
                size,
                hold: faults::hold(seed),
                hangs: None,
                pods: BTreeMap::new(),
                pods_version: 1,
                services: BTreeSet::new(),
            },
            containers: BTreeMap::new(),
            births: 0,
            connections: 0,
            routes: BTreeMap::new(),
            operator: None,
            operators: 0,
            pod_delay: 0,
            storm: (0, 0),
            known: invariants::Known::default(),
            trace: Trace::new(level),
            coverage: Coverage::default(),
            violation: None,
            settled: false,
        };
        world.schedule(1, Happening::StartOperator);
        world.schedule(chaos, Happening::Quiet);
        world.schedule(5_000, Happening::Audit);
        for (number, Planned { at, fault }) in plan.into_iter().enumerate() {
            if kept.is_none_or(|kept| kept.contains(&number)) {
                world.schedule(at, Happening::Fault(fault));
            }
        }
        world
    }

    pub(super) fn run(mut self) -> Outcome {
        while self.violation.is_none() && !self.settled {
            let Some(((at, _), happening)) = self.agenda.pop_first() else {
                break;
            };
            if at > self.chaos + HORIZON {
                break;
            }
            self.now = at;
            self.events += 1;
            self.happen(happening);
            if self.events > MANY_EVENTS {
                let detail = format!("{MANY_EVENTS} events and no end");
                self.judge(Err(Violation::new("no hot loop", detail)));
            }
        }
        if self.violation.is_none() {
            let verdict = invariants::settled(&self);
            self.judge(verdict);
        }
        let (lines, digest) = self.trace.finish();
        Outcome {
            violation: self.violation,
            coverage: self.coverage,
            events: self.events,
            lines,
            digest,
        }
    }

    /// The supervisor to which this happens, where it is one that can be frozen.
    fn supervisor_of(happening: &Happening) -> Option<u32> {
        match happening {
            Happening::MemberTick(birth)
            | Happening::LeaderTick(birth)
            | Happening::Dial(birth, _)
            | Happening::DialOperator(birth, _)
            | Happening::ToMember(birth, _)
            | Happening::ToLeader(birth, ..)
            | Happening::FromOperator(birth, _)
            | Happening::Stopped(birth, ..) => Some(*birth),
            _ => None,
        }
    }

    fn happen(&mut self, happening: Happening) {
        let frozen = Self::supervisor_of(&happening)
            .and_then(|birth| self.containers.get(&birth))
            .map_or(0, |container| container.frozen_until - self.now);
        if frozen > 0 {
            // It happens once the supervisor goes on.
            return self.schedule(frozen, happening);
        }
        match happening {
            Happening::Fault(fault) => self.strike(fault),
            Happening::Quiet => self.calm(),
            Happening::Resume => {
                if std::mem::take(&mut self.api.suspend) {
                    self.pods_changed();
                }
            }
            Happening::NodeLost(birth) => self.lose_node(birth),
            Happening::Boot(birth) => self.boot(birth),
            Happening::Kill(birth) => self.kill(birth),
            Happening::MemberTick(birth) => self.tick_member(birth),
            Happening::LeaderTick(birth) => self.tick_leader(birth),
            Happening::Dial(birth, number) => self.dial(birth, number),
            Happening::DialOperator(birth, number) => self.dial_operator(birth, number),
            Happening::ToMember(birth, message) => self.deliver_to_member(birth, &message),
            Happening::ToLeader(birth, connection, message) => {
                self.deliver_to_leader(birth, connection, &message);
            }
            Happening::ToOperator(message) => self.deliver_to_operator(&message),
            Happening::FromOperator(birth, message) => self.deliver_order(birth, &message),
            Happening::Stopped(birth, attempt, well) => self.stopped(birth, attempt, well),
            Happening::StartOperator => self.start_operator(),
            Happening::Watch(operator) => self.watch(operator),
            Happening::Wake(operator) => self.wake(operator),
            Happening::Written(operator, write) => self.written(operator, *write),
            Happening::Called(call) => self.called(&call),
            Happening::Audit => {
                let verdict = invariants::audit(self);
                self.judge(verdict);
                self.settled = self.quiet() && invariants::settled(self).is_ok();
                // A run ends with the first audit that finds it settled.
                let pause = if self.quiet() { 1_000 } else { 5_000 };
                self.schedule(pause, Happening::Audit);
            }
        }
    }

    /// Faults stop: messages arrive, connections can be made, an operator runs, a suspended job is resumed.
    fn calm(&mut self) {
        self.trace.note(self.now, format_args!("world   is quiet"));
        self.storm = (0, 0);
        self.pod_delay = 0;
        if std::mem::take(&mut self.api.suspend) {
            self.pods_changed();
        }
    }

    pub(super) fn quiet(&self) -> bool {
        self.now >= self.chaos
    }

    pub(super) fn schedule(&mut self, delay: i64, happening: Happening) {
        self.turns += 1;
        self.agenda
            .insert((self.now + delay, self.turns), happening);
    }

    /// Keeps the first broken invariant.
    pub(super) fn judge(&mut self, verdict: Verdict) {
        if let Err(violation) = verdict
            && self.violation.is_none()
        {
            self.trace
                .note(self.now, format_args!("broken  {violation}"));
            self.violation = Some(violation);
        }
    }

    pub(super) fn container(&mut self, birth: u32) -> &mut Container {
        self.containers
            .get_mut(&birth)
            .expect("containers are never forgotten")
    }

    /// The running container of a slot, counted around the gang.
    pub(super) fn container_in(&self, slot: u32) -> Option<u32> {
        let slot = worker(slot % self.api.stored_size().max(1));
        let birth = self.api.pods.get(&slot)?.birth;
        self.containers
            .get(&birth)
            .filter(|container| container.up)
            .map(|_| birth)
    }

    /// The monotonic clock of a container's supervisor.
    pub(super) fn clock_of(&self, birth: u32) -> Duration {
        let born = self.containers.get(&birth).map_or(0, |found| found.born);
        millis(self.now - born)
    }

    pub(super) fn barrier(&self) -> Option<&Barrier> {
        self.api.status.trainyard.barrier.as_ref()
    }
}

/// The slot of a worker.
pub(super) fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

/// The slot whose supervisor leads.
pub(super) fn leader_slot() -> Slot {
    worker(0)
}

pub(super) fn millis(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

pub(super) fn in_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
