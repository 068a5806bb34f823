//! The world around a decider: one job, its pods and nodes, its users, its controllers.
//!
//! Owns the truth and the virtual clock. Everything that happens is an entry of one agenda,
//! ordered by time and then by when it was put there, so a run is the same every time.
//!
//! Invariant: nothing here reads a decision except to carry it out; what is right or wrong about
//! one is asked in [`invariants`].

mod agenda;
pub(crate) mod api;
pub(crate) mod controller;
mod doctor;
pub(crate) mod faults;
mod invariants;
pub(crate) mod nodes;
pub(crate) mod pods;
pub(crate) mod preflight;
mod script;
pub(crate) mod transport;
pub(crate) mod users;
pub(crate) mod view;
mod wait_queue;

use std::{
    collections::{BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use jiff::Timestamp;
use trainyard_core::{
    job::{JobStatus, PodPhase, Progress},
    progress::Figure,
    reason::Reason,
    spec::{Job, JobSettings, Preflight, RequiredTransport},
};

use self::{
    agenda::{Agenda, Happening},
    api::Objects,
    controller::Mishap,
    faults::Planned,
    nodes::Node,
    pods::{Birth, Pod},
    view::Adapter,
};
use crate::{
    Decide,
    coverage::{Coverage, Mark},
    dice::Dice,
    generate,
    trace::Trace,
    violation::{Verdict, Violation},
};

/// The first millisecond of every run: 2030-01-01T00:00:00Z.
pub(crate) const EPOCH: i64 = 1_893_456_000_000;

/// A quiet world must have settled after this: longer than every deadline, limit and pause that a
/// drawn job can have.
const HORIZON: i64 = 24 * 3_600_000;

/// More events than this in one life of a job is a loop.
const MANY_EVENTS: u64 = 20_000;

/// What of a run's plan is left out; nothing is, unless a run is shrunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// Only these faults of the plan strike, where stated.
    pub faults: Option<BTreeSet<usize>>,
    /// These pods, numbered by birth, do nothing bad on their own.
    pub tame: BTreeSet<usize>,
}

/// The world of one job.
pub(crate) struct World {
    pub(crate) decide: Decide,
    pub(crate) seed: u64,
    pub(crate) temper: Temper,
    mask: Mask,
    pub(crate) now: i64,
    pub(crate) agenda: Agenda,
    pub(crate) stored: StoredJob,
    pub(crate) cluster: Cluster,
    pub(crate) controllers: Controllers,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    pub(crate) violation: Option<Violation>,
}

/// The job as the API has it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, not a state of one machine"
)]
pub(crate) struct StoredJob {
    pub(crate) job: Rc<Job>,
    /// Every version that it had.
    pub(crate) specs: Vec<Rc<Job>>,
    pub(crate) exists: bool,
    pub(crate) being_deleted: bool,
    deleted_by_user: bool,
    collector_called: bool,
    pub(crate) status: Rc<JobStatus>,
    pub(crate) status_version: u64,
    spec_version: u64,
}

impl StoredJob {
    fn new(job: Rc<Job>) -> Self {
        Self {
            specs: vec![Rc::clone(&job)],
            job,
            exists: true,
            being_deleted: false,
            deleted_by_user: false,
            collector_called: false,
            status: Rc::default(),
            status_version: 1,
            spec_version: 1,
        }
    }
}

/// What is there beside the job: pods, nodes and other objects, and how far the training is.
pub(crate) struct Cluster {
    pub(crate) pods: Vec<Pod>,
    pub(crate) births: Vec<Birth>,
    /// The attempts that were evicted for another gang.
    pub(crate) evicted: BTreeSet<u32>,
    pods_version: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) fitness: preflight::Fitness,
    pub(crate) objects: Objects,
    progress: Option<Progress>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            pods: Vec::new(),
            births: Vec::new(),
            evicted: BTreeSet::new(),
            pods_version: 1,
            nodes: (0..4).map(Node::new).collect(),
            fitness: preflight::Fitness::default(),
            objects: Objects::default(),
            progress: None,
        }
    }
}

/// The controllers, in the order in which they started, and what happens to their calls.
#[derive(Default)]
pub(crate) struct Controllers {
    adapters: Vec<Adapter>,
    pub(crate) passes: u64,
    pub(crate) passes_before_quiet: u64,
    pub(crate) last_reasons: Vec<Reason>,
    /// Failed pods that were replaced one by one.
    pub(crate) replaced: BTreeSet<String>,
    mishaps: VecDeque<Mishap>,
    write_times_out: bool,
}

/// What kind of world a run has.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn on its own")]
pub(crate) struct Temper {
    /// How long faults strike.
    pub(crate) chaos: i64,
    /// A controller knows what it wrote before its watch brings it.
    reads_its_writes: bool,
    /// The phase of pods on a silent node is `Unknown`.
    hides_phases: bool,
    reports_progress: bool,
    /// Pods born after the chaos may run forever.
    endless: bool,
    /// Pods born after the chaos find no node.
    starved: bool,
    /// Silent nodes come back when the chaos ends.
    nodes_return: bool,
    /// Gangs wait for seats in a queue.
    pub(crate) gives_seats: bool,
    /// The priority of the job counts once its pods were admitted.
    pods_first: bool,
}

impl Temper {
    fn draw(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, 1);
        Self {
            chaos: dice.within(60_000..=900_000),
            reads_its_writes: dice.chance(60),
            hides_phases: dice.chance(30),
            reports_progress: dice.chance(70),
            endless: dice.chance(20),
            starved: dice.chance(8),
            nodes_return: dice.chance(70),
            gives_seats: dice.chance(40),
            pods_first: dice.chance(30),
        }
    }
}

impl Temper {
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }
}

/// The faults of the run of `seed`.
pub(crate) fn plan(seed: u64) -> Vec<Planned> {
    faults::plan(&mut Dice::new(seed, 2), Temper::draw(seed).chaos)
}

impl World {
    pub(crate) fn new(seed: u64, decide: Decide, mask: Mask, trace: Trace) -> Self {
        let mut job = generate::job(&mut Dice::new(seed, 0));
        let temper = Temper::draw(seed);
        if temper.gives_seats && preflight::requires(seed) {
            job.settings.preflight = Preflight::Required;
        }
        if transport::requires(seed) {
            let required = RequiredTransport::parse_list(transport::REQUIRED);
            job.settings.require_transport = required.unwrap_or_default();
        }
        // By default only attempts that began at a later step count, which few do here.
        if !seed.is_multiple_of(4) {
            let fewer = u32::try_from(seed % 3).unwrap_or(0);
            job.settings.no_progress = Some(JobSettings::NO_PROGRESS - fewer);
        }
        let mut world = Self {
            decide,
            seed,
            temper,
            mask,
            now: 0,
            agenda: Agenda::default(),
            stored: StoredJob::new(Rc::new(job)),
            cluster: Cluster::new(),
            controllers: Controllers::default(),
            trace,
            coverage: Coverage::default(),
            violation: None,
        };
        world.draw_fitness();
        world.note_job();
        world.schedule(1, Happening::StartAdapter);
        world.schedule(temper.chaos, Happening::Quiet);
        if temper.reports_progress {
            world.schedule(10_000, Happening::Progress);
        }
        for (number, planned) in plan(seed).into_iter().enumerate() {
            let kept = world.mask.faults.as_ref();
            if kept.is_none_or(|kept| kept.contains(&number)) {
                let Planned { at, fault } = planned;
                world.schedule(at, Happening::Fault(fault));
            }
        }
        world
    }

    fn note_job(&mut self) {
        let job = &self.stored.job;
        self.trace.note(
            0,
            format_args!(
                "job     {} {:?} {:?} policy {:?} {:?} settings {:?}",
                job.kind.name(),
                job.restart_scope(),
                job.roles
                    .iter()
                    .map(|(role, spec)| (role.name(), spec.replicas, spec.restart_policy))
                    .collect::<Vec<_>>(),
                job.run_policy,
                job.framework,
                job.settings
            ),
        );
    }

    /// Runs until the world has settled or an invariant is broken.
    pub(crate) fn run(&mut self) {
        while self.violation.is_none() {
            let Some((at, happening)) = self.agenda.pop() else {
                break;
            };
            if at > self.temper.chaos + HORIZON {
                break;
            }
            self.now = at;
            self.agenda.events += 1;
            self.agenda.events_alone += u64::from(!self.contested());
            self.happen(happening);
            if self.agenda.events_alone > MANY_EVENTS {
                self.judge(Err(Violation::new(
                    "no hot loop",
                    format!("{MANY_EVENTS} events and no end"),
                )));
            }
        }
        if self.violation.is_none() {
            let verdict = invariants::check_settled(self);
            self.judge(verdict);
        }
        self.mark_end();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::StartAdapter => self.start_adapter(),
            Happening::Retire(number) => self.retire(number),
            Happening::Deliver(number, channel) => self.deliver(number, channel),
            Happening::Pass(number) => self.pass(number),
            Happening::Act(number) => self.act(number),
            Happening::Wake(number, wake) => self.wake(number, wake),
            Happening::Retry(number) => self.retry(number),
            Happening::Seats(number, asked) => self.answer(number, asked),
            Happening::Preflight(number, round, nodes) => {
                self.answer_preflight(number, round, &nodes);
            }
            Happening::Late(action) => {
                self.trace
                    .note(self.now, format_args!("api     late {action:?}"));
                self.apply(&action);
            }
            Happening::Pod(birth, step) => self.step_pod(birth, step),
            Happening::Fail(birth, exit) => {
                if let Some(at) = self.cluster.pods.iter().position(|pod| pod.birth == birth) {
                    self.fail_pod(at, exit);
                }
            }
            Happening::Node(index, silence, step) => self.step_node(index, silence, step),
            Happening::Fault(fault) => {
                if !self.quiet() {
                    self.strike(fault);
                }
            }
            Happening::Collect => self.collect(),
            Happening::Progress => self.report_progress(),
            Happening::Quiet => self.calm(),
        }
    }

    /// Faults stop: watches catch up, calls arrive, at least one node is well.
    fn calm(&mut self) {
        self.trace.note(self.now, format_args!("world   is quiet"));
        self.controllers.passes_before_quiet = self.controllers.passes;
        self.controllers.mishaps.clear();
        self.controllers.write_times_out = false;
        for adapter in &mut self.controllers.adapters {
            adapter.calm();
        }
        for replaced in 0..self.controllers.adapters.len().saturating_sub(1) {
            self.retire(replaced);
        }
        if self.temper.nodes_return {
            for index in 0..self.cluster.nodes.len() {
                self.return_node(index);
            }
        }
        if !self
            .cluster
            .nodes
            .iter()
            .any(|node| node.state == nodes::NodeState::Ready)
        {
            self.cluster.nodes.push(Node::new(self.cluster.nodes.len()));
        }
    }

    /// Whether the chaos is over.
    pub(crate) fn quiet(&self) -> bool {
        self.now >= self.temper.chaos
    }

    /// What the training reported last.
    pub(crate) fn progress(&self) -> Option<Progress> {
        self.cluster.progress
    }

    fn tamed(&self, birth: usize) -> bool {
        self.mask.tame.contains(&birth)
    }

    fn report_progress(&mut self) {
        if self.quiet() {
            return;
        }
        self.schedule(7_000 + self.now % 5_000, Happening::Progress);
        // Now and then it is silent for minutes.
        let silent = self.now / 200_000 % 3 == 2;
        if !silent
            && self
                .cluster
                .pods
                .iter()
                .any(|pod| pod.shown.phase == PodPhase::Running)
        {
            let attempt = self.cluster.pods.iter().map(|pod| pod.shown.attempt).max();
            let attempt = attempt.unwrap_or(0);
            let now = self.timestamp();
            let before = self.cluster.progress.filter(|seen| seen.attempt == attempt);
            let step = self.cluster.progress.map_or(0, |progress| progress.step);
            // Reports come in whole seconds.
            let beat = self.now / 1_000;
            // A new attempt, and now and then one that continues, begins again at its last checkpoint.
            let step = if before.is_none() || beat % 13 == 0 {
                step / 2
            } else {
                step + 10
            };
            self.cluster.progress = Some(Progress {
                first_at: before.map_or(now, |seen| seen.first_at),
                first_step: match before {
                    None => Some(step),
                    Some(seen) => seen.first_step.filter(|_| step >= seen.step),
                },
                saving: beat % 5 == 0,
                // One of three programs reports often enough for its rhythm to be known.
                rhythm: (beat % 3 == 0).then_some(Duration::from_secs(9)),
                loss: Some(Figure(if beat % 11 == 0 { f64::NAN } else { 0.5 })),
                nan_since: (beat % 11 == 0).then_some(step),
                ..Progress::new(attempt, step, now)
            });
            self.progress_changed();
        }
    }

    pub(crate) fn schedule(&mut self, delay: i64, happening: Happening) {
        self.agenda.push(self.now + delay, happening);
    }

    /// The clock as the controller reads it.
    pub(crate) fn timestamp(&self) -> Timestamp {
        self.at(self.now)
    }

    /// The clock as the API stores it: in whole seconds.
    pub(crate) fn whole_second(&self) -> Timestamp {
        self.at(self.now - self.now.rem_euclid(1000))
    }

    /// The timestamp of a millisecond of the run.
    #[expect(clippy::unused_self, reason = "reads as the world's clock")]
    pub(crate) fn at(&self, millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(EPOCH + millisecond).expect("runs last hours, not millennia")
    }

    pub(crate) fn remember_spec(&mut self) {
        self.stored.specs.push(Rc::clone(&self.stored.job));
    }

    /// Keeps the first broken invariant.
    pub(crate) fn judge(&mut self, verdict: Verdict) {
        if let Err(violation) = verdict
            && self.violation.is_none()
        {
            self.trace.note(
                self.now,
                format_args!("broken  {}: {}", violation.invariant, violation.detail),
            );
            self.violation = Some(violation);
        }
    }

    fn mark_end(&mut self) {
        let record = &self.stored.status.trainyard;
        if record.attempt > 1 {
            self.coverage.mark(Mark::SeveralAttempts);
        }
        if record.attempt > 3 {
            self.coverage.mark(Mark::ManyAttempts);
        }
        let mark = invariants::ending(self);
        self.coverage.mark(mark);
    }

    /// Whether a user asked for the deletion of the job.
    pub(crate) fn deleted_by_user(&self) -> bool {
        self.stored.deleted_by_user
    }
}
