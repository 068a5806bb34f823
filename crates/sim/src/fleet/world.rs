//! The truth of a cluster and its clock.
//!
//! Owns the queue of events: whatever happens is an entry of it, ordered by time and then by when it was put there.
//!
//! Invariant: every change of a pod, a node or a job has a version of its own, and every operator that runs is sent it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use trainyard_core::{
    fleet::{Change, Settings},
    gang::{GangKey, PodKey, PreemptionScope, PriorityClass, PriorityClasses},
    job::Action,
    probe::Cap,
};

use super::{
    Outcome,
    coverage::Coverage,
    draw::{self, JobPlan},
    faults::Fault,
    invariants,
    jobs::StoredJob,
    nodes::StoredNode,
    operator::Operator,
    pods::{Step, StoredPod},
    watch::Channel,
};
use crate::{
    TraceLevel,
    dice::Dice,
    trace::Trace,
    violation::{Verdict, Violation},
};

/// The first millisecond of every run: 2030-01-01T00:00:00Z.
const EPOCH: i64 = 1_893_456_000_000;
/// After the chaos everything must have settled within this: longer than all pauses and all work one after the other.
const HORIZON: i64 = 6 * 3_600_000;
/// More events than this before the chaos ends, or after it, is a livelock.
const MOST_EVENTS: u64 = 30_000;
/// How often it is checked whether everything has settled.
const LOOK: i64 = 30_000;

/// The class of jobs that may evict others.
pub(super) const HIGH: &str = "high";
/// What it is worth.
pub(super) const HIGH_VALUE: i32 = 1_000;

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Happening {
    /// A watch delivers its next change to an operator.
    Deliver(usize, Channel),
    /// An operator processes a job.
    Pass(usize, GangKey),
    /// The same, if this is still the last wake-up that it asked for.
    Wake(usize, GangKey, u64),
    /// A call arrives.
    Arrive(usize, GangKey, Box<Action>),
    /// An operator places the gangs that wait.
    Place(usize),
    /// The same because time has passed, if nothing else came before.
    PlaceAgain(usize, u64),
    /// An operator decides about trials.
    Decide(usize),
    /// The same, if this is still the last wake-up that it asked for.
    DecideAgain(usize, u64),
    /// A trial ends, with a result or not.
    TrialEnds(usize, u64, TrialEnd),
    /// A change of a node arrives.
    NodeArrive(usize, String, Box<Change>),
    /// A preflight of a job ends.
    PreflightEnds(usize, GangKey, u64),
    /// The scheduler binds pods.
    Schedule,
    /// A pod takes a step.
    Pod(PodKey, String, Step),
    /// Something goes wrong, or a user does something.
    Fault(Fault),
    /// An operator process starts.
    Start,
    /// An operator takes the lease, if nobody has it.
    Lead,
    /// The chaos ends.
    Calm,
    /// It is checked whether everything has settled.
    Look,
}

/// How a trial ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialEnd {
    Measured,
    NoResult,
    Late,
}

pub(super) struct World {
    pub(super) now: i64,
    sequence: u64,
    queue: BTreeMap<(i64, u64), Happening>,
    events: u64,
    pub(super) dice: Dice,
    pub(super) trace: Trace,
    pub(super) coverage: Coverage,
    violation: Option<Violation>,

    pub(super) settings: Settings,
    pub(super) scope: PreemptionScope,
    pub(super) classes: PriorityClasses,

    /// The version of the last change.
    pub(super) version: u64,
    pub(super) births: u64,
    pub(super) nodes: BTreeMap<String, StoredNode>,
    /// Nodes that are deleted and will come back.
    pub(super) deleted_nodes: BTreeMap<String, StoredNode>,
    pub(super) pods: BTreeMap<PodKey, StoredPod>,
    pub(super) jobs: BTreeMap<GangKey, StoredJob>,
    pub(super) plans: Vec<JobPlan>,
    pub(super) is_schedule_due: bool,

    pub(super) operators: Vec<Operator>,
    pub(super) leader: Option<usize>,
    /// Operator processes that there should be.
    pub(super) replicas: usize,
    pub(super) is_calm: bool,
    calm_at: i64,
    calm_events: u64,
    pub(super) facts: invariants::Facts,
}

impl World {
    pub(super) fn new(seed: u64, level: TraceLevel) -> Self {
        let mut dice = Dice::new(seed, 5 << 40);
        let nodes = draw::nodes(&mut dice);
        let mut classes = PriorityClasses::default();
        let high = PriorityClass {
            value: HIGH_VALUE,
            is_default: false,
            never_preempts: false,
        };
        classes.insert(HIGH, high);
        let calm_at = dice.within(200_000..=1_000_000);
        let settings = Settings {
            cap: Cap::percent(dice.pick(&[10, 10, 25, 50])),
            probation_lasts: Duration::from_secs(u64::from(dice.pick(&[30_u32, 60, 120, 300]))),
        };
        let scope = dice.pick(&[
            PreemptionScope::Cluster,
            PreemptionScope::Cluster,
            PreemptionScope::Namespace,
        ]);
        let plans = draw::jobs(&mut dice, calm_at);
        let replicas = 1 + usize::from(dice.chance(50));
        let mut world = Self {
            now: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            events: 0,
            trace: Trace::new(level),
            coverage: Coverage::default(),
            violation: None,
            settings,
            scope,
            classes,
            version: 1,
            births: 0,
            nodes,
            deleted_nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            jobs: BTreeMap::new(),
            plans,
            is_schedule_due: false,
            operators: Vec::new(),
            leader: None,
            replicas,
            is_calm: false,
            calm_at,
            calm_events: 0,
            facts: invariants::Facts::default(),
            dice,
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        for at in 0..self.plans.len() {
            let when = self.plans[at].created;
            self.after(when, Happening::Fault(Fault::CreateJob(at)));
        }
        for (when, fault) in draw::faults(&mut self.dice, self.calm_at, self.plans.len()) {
            self.after(when, Happening::Fault(fault));
        }
        for _ in 0..self.replicas {
            self.after(0, Happening::Start);
        }
        self.after(1, Happening::Lead);
        self.after(self.calm_at, Happening::Calm);
    }

    pub(super) fn run(mut self) -> Outcome {
        let horizon = self.calm_at + HORIZON;
        while self.violation.is_none() {
            let Some(((at, _), happening)) = self.queue.pop_first() else {
                break;
            };
            self.now = at;
            self.events += 1;
            let is_look = matches!(happening, Happening::Look);
            self.happen(happening);
            let verdict = invariants::check_truth(&mut self);
            self.judge(verdict);
            let since = self.events - if self.is_calm { self.calm_events } else { 0 };
            let verdict = invariants::check_bound(&self, since, MOST_EVENTS);
            self.judge(verdict);
            if is_look {
                let settled = invariants::check_settled(&self);
                if settled.is_ok() {
                    break;
                }
                if at >= horizon {
                    self.judge(settled);
                }
                self.after(LOOK, Happening::Look);
            }
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

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Deliver(operator, channel) => self.deliver(operator, channel),
            Happening::Pass(operator, key) => self.pass(operator, &key),
            Happening::Wake(operator, key, wake) => self.wake(operator, &key, wake),
            Happening::Arrive(operator, key, action) => self.arrive(operator, &key, &action),
            Happening::Place(operator) => self.place(operator),
            Happening::PlaceAgain(operator, number) => self.place_again(operator, number),
            Happening::Decide(operator) => self.decide_trials(operator),
            Happening::DecideAgain(operator, wake) => self.decide_again(operator, wake),
            Happening::TrialEnds(operator, number, end) => self.trial_ends(operator, number, end),
            Happening::NodeArrive(operator, node, change) => {
                self.node_arrive(operator, &node, &change);
            }
            Happening::PreflightEnds(operator, key, number) => {
                self.preflight_ends(operator, &key, number);
            }
            Happening::Schedule => self.bind_pods(),
            Happening::Pod(key, uid, step) => self.pod_steps(&key, &uid, step),
            Happening::Fault(fault) => self.strike(fault),
            Happening::Start => self.start_operator(),
            Happening::Lead => self.lead(),
            Happening::Calm => self.calm(),
            Happening::Look => {}
        }
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.calm_events = self.events;
        self.note(format_args!("the chaos ends"));
        self.mend_everything();
        self.after(LOOK, Happening::Look);
    }

    /// Puts an event into the queue.
    pub(super) fn after(&mut self, delay: i64, happening: Happening) {
        self.sequence += 1;
        self.queue
            .insert((self.now + delay, self.sequence), happening);
    }

    pub(super) fn timestamp(&self) -> Timestamp {
        Timestamp::from_millisecond(EPOCH + self.now).unwrap_or(Timestamp::MAX)
    }

    /// Milliseconds of this run until `at`, rounded up; none below 0.
    pub(super) fn until(&self, at: Timestamp) -> i64 {
        let nanoseconds = at.as_nanosecond() - self.timestamp().as_nanosecond();
        let milliseconds = nanoseconds.div_euclid(1_000_000) + 1;
        i64::try_from(milliseconds).unwrap_or(i64::MAX / 2).max(0)
    }

    pub(super) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub(super) fn note(&mut self, words: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, words);
    }

    /// Keeps the first violation.
    pub(super) fn judge(&mut self, verdict: Verdict) {
        if let Err(violation) = verdict {
            self.trace
                .note(self.now, format_args!("VIOLATION {violation}"));
            self.violation.get_or_insert(violation);
        }
    }
}
