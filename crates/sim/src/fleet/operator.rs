//! Operators: they start with a list, lead one at a time, and crash.
//!
//! Invariant: an operator that begins to lead remembers nothing: its wait queue and its trials are rebuilt from what pods and
//! nodes carry. It begins later than any call of the leader before it can arrive, and sees at least that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trainyard_core::{
    fleet::{Change, Fleet},
    gang::GangKey,
    job::Action,
};

use super::{
    World,
    coverage::Mark,
    preflight::Flights,
    trials::RunningTrial,
    watch::{Channel, View},
    world::Happening,
};

/// A lease that nobody renews is free after this; longer than a call may take.
const LEASE: i64 = 5_000;

/// One life of an operator process.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Operator {
    pub(super) alive: bool,
    pub(super) view: View,
    pub(super) fleet: Fleet,
    pub(super) flights: Flights,
    pub(super) stalled_until: [i64; Channel::ALL.len()],
    /// It crashes after so many steps, and starts again so much later.
    pub(super) crash: Option<(u32, i64)>,
    /// It loses the lease after so many steps.
    pub(super) loses_lease: Option<u32>,

    /// Jobs that are about to be processed.
    pub(super) due: BTreeSet<GangKey>,
    /// Calls that are still to be made, of the jobs that are being processed.
    pub(super) busy: BTreeMap<GangKey, VecDeque<Action>>,
    /// Jobs that have changed while they were being processed.
    pub(super) again: BTreeSet<GangKey>,
    /// Only the last wake-up that was asked for counts.
    pub(super) wakes: BTreeMap<GangKey, u64>,
    pub(super) is_place_due: bool,
    pub(super) places: u64,
    pub(super) is_decide_due: bool,
    pub(super) decide_wake: u64,
    pub(super) trial: Option<RunningTrial>,
    pub(super) trials: u64,
    pub(super) node_writes: VecDeque<(String, Change)>,
    /// A change of a node is under way.
    pub(super) is_writing: bool,
    /// What the invariants remember of this life.
    pub(super) facts: super::invariants::OperatorFacts,
}

impl Operator {
    fn new() -> Self {
        Self {
            alive: true,
            view: View::default(),
            fleet: Fleet::default(),
            flights: Flights::default(),
            stalled_until: [0; Channel::ALL.len()],
            crash: None,
            loses_lease: None,
            due: BTreeSet::new(),
            busy: BTreeMap::new(),
            again: BTreeSet::new(),
            wakes: BTreeMap::new(),
            is_place_due: false,
            places: 0,
            is_decide_due: false,
            decide_wake: 0,
            trial: None,
            trials: 0,
            node_writes: VecDeque::new(),
            is_writing: false,
            facts: super::invariants::OperatorFacts::default(),
        }
    }
}

impl Operator {
    /// Sees what was under way, and forgets what it knew when it led before.
    fn begin_to_lead(&mut self, version: u64) {
        for channel in Channel::ALL {
            while let Some(news) = self.view.inbox[channel as usize].pop_front() {
                self.take_in(&news);
            }
        }
        // As a bookmark of the watch says.
        self.view.version = version;
        self.fleet.forget_decisions();
        self.flights = Flights::default();
        self.due.clear();
        self.busy.clear();
        self.again.clear();
        self.is_place_due = false;
        self.is_decide_due = false;
        self.trial = None;
        self.node_writes.clear();
        self.is_writing = false;
        self.facts = super::invariants::OperatorFacts::default();
    }
}

impl World {
    /// A process starts with a list of everything.
    pub(super) fn start_operator(&mut self) {
        let alive = self.operators.iter().filter(|one| one.alive).count();
        if alive >= self.replicas {
            return;
        }
        let mut operator = Operator::new();
        self.list(&mut operator);
        self.operators.push(operator);
        if self.leader.is_none() {
            self.after(LEASE, Happening::Lead);
        }
    }

    fn list(&self, operator: &mut Operator) {
        operator.view = View {
            version: self.version,
            jobs: self.jobs.clone(),
            ..View::default()
        };
        operator.fleet = Fleet::default();
        operator.fleet.queue.set_preemption(self.scope);
        operator.fleet.queue.set_classes(self.classes.clone());
        for (name, node) in &self.nodes {
            operator.view.nodes.insert(name.clone(), node.silent_since);
            operator.fleet.queue.update_node(name, node.node.clone());
        }
        for (name, pod) in &self.pods {
            operator.put_pod(name, pod);
        }
    }

    /// An operator that runs takes the lease, if nobody has it.
    pub(super) fn lead(&mut self) {
        if self.leader.is_some() {
            return;
        }
        let alive: Vec<usize> = (0..self.operators.len())
            .filter(|number| self.operators[*number].alive)
            .collect();
        let Ok(count) = u32::try_from(alive.len()) else {
            return;
        };
        if count == 0 {
            return;
        }
        let number = alive[self.dice.below(count) as usize];
        self.leader = Some(number);
        self.note(format_args!("oper {number}  leads"));
        if number > 0 {
            self.coverage.mark(Mark::TookOver);
        }
        let operator = &mut self.operators[number];
        operator.begin_to_lead(self.version);
        let jobs: Vec<GangKey> = operator.view.jobs.keys().cloned().collect();
        for key in jobs {
            let delay = self.dice.within(1..=300);
            self.want_pass(number, &key, delay);
        }
        self.want_decide(number, 50);
    }

    /// The leader loses the lease; it makes no further call.
    pub(super) fn depose(&mut self) {
        if self.leader.take().is_some() {
            let delay = LEASE + self.dice.within(0..=10_000);
            self.after(delay, Happening::Lead);
        }
    }

    /// Counts a step of the leader; whether it crashed there. It may also lose the lease there, which it learns at its next call.
    pub(super) fn crashes(&mut self, number: usize, mark: Mark) -> bool {
        match &mut self.operators[number].loses_lease {
            Some(0) => {
                self.operators[number].loses_lease = None;
                if self.leader == Some(number) {
                    self.note(format_args!("oper {number}  loses the lease"));
                    self.depose();
                }
            }
            Some(steps) => *steps -= 1,
            None => {}
        }
        let Some((steps, down)) = self.operators[number].crash else {
            return false;
        };
        if steps > 0 {
            self.operators[number].crash = Some((steps - 1, down));
            return false;
        }
        self.coverage.mark(mark);
        self.note(format_args!("oper {number}  crashes"));
        let operator = &mut self.operators[number];
        operator.alive = false;
        operator.busy.clear();
        operator.node_writes.clear();
        operator.view = View::default();
        operator.fleet = Fleet::default();
        if self.leader == Some(number) {
            self.depose();
        }
        self.after(down, Happening::Start);
        true
    }

    /// Whether an operator may make a call now.
    pub(super) fn may_act(&mut self, number: usize) -> bool {
        if !self.operators[number].alive {
            return false;
        }
        if self.leader != Some(number) {
            self.coverage.mark(Mark::Fenced);
            return false;
        }
        true
    }

    /// After how long a job is processed that something has changed for: other jobs may come first.
    pub(super) fn turn(&mut self) -> i64 {
        let is_busy = !self.is_calm && self.dice.chance(15);
        self.dice.within(if is_busy { 50..=2_000 } else { 3..=4 })
    }

    /// How long a call takes.
    pub(super) fn call(&mut self) -> i64 {
        let is_slow = !self.is_calm && self.dice.chance(2);
        self.dice.within(if is_slow { 500..=3_000 } else { 1..=15 })
    }
}
