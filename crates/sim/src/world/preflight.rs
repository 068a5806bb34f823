//! Preflights: nodes are fit or not, and a preflight may never end.
//!
//! What a pod measures is not simulated: what `decide` does with its answers is. Who runs a preflight remembers what it
//! found alone. Nodes that it blames are tried by the operator itself; what that finds is kept on nodes, where every
//! controller sees it. What follows from which of the two is `trainyard_core::probe::consequences`'.
//!
//! Invariant: an answer is what nodes were when it was given.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use trainyard_core::{
    job::{PreflightRun, Preflights, SeenPreflight},
    probe::{
        Blamed, Cap, Check, Consequences, Fault, Judgement, Layer, NodeRecord, NodeReport, Outcome,
        Owner, Probation, Report, Source, Suspects, consequences,
    },
    spec::Slot,
};

use super::{Happening, World, controller::QUEUE_DELAY};
use crate::{coverage::Mark, dice::Dice, invariants};

/// The stream that all of it draws from.
const STREAM: u64 = 4 << 40;
/// How long a result is fresh.
const LASTS: Duration = Duration::from_mins(20);

/// What is true of nodes, and what was found out about them.
#[derive(Debug, Default)]
pub(crate) struct Fitness {
    /// The nodes that fail.
    unfit: BTreeSet<String>,
    /// The nodes that ever passed.
    pub(crate) passed: BTreeSet<String>,
    /// What trials found, on the nodes.
    records: BTreeMap<String, NodeRecord>,
    /// The nodes that jobs blame.
    suspects: Suspects,
    /// The nodes that the operator itself tried.
    pub(crate) tried: BTreeSet<String>,
    /// The nodes that automation keeps from others.
    pub(crate) on_probation: BTreeSet<String>,
}

/// Whether the jobs of a run require preflights.
pub(super) fn requires(seed: u64) -> bool {
    Dice::new(seed, STREAM).chance(50)
}

impl World {
    /// Some nodes are bad from the beginning.
    pub(super) fn draw_fitness(&mut self) {
        let dice = &mut Dice::new(self.seed, STREAM + 1);
        let names = self.nodes.iter().map(|node| node.name.clone());
        self.fitness.unfit = names.filter(|_| dice.chance(30)).collect();
    }

    /// What a controller that starts knows.
    pub(super) fn remembered_preflights(&self) -> SeenPreflight {
        if !self.temper.gives_seats {
            return SeenPreflight::Unused;
        }
        let state = self.status.trainyard.preflight.as_ref();
        let under_way = state.filter(|state| state.since.is_some());
        SeenPreflight::Here(Box::new(Preflights {
            run: under_way.map_or(PreflightRun::Idle, |state| PreflightRun::Left(state.round)),
            records: self.fitness.records.clone(),
        }))
    }

    fn flight(&mut self, number: usize) -> Option<&mut Preflights> {
        match &mut self.adapters[number].view.preflight {
            SeenPreflight::Here(here) => Some(here),
            _ => None,
        }
    }

    /// A controller begins a preflight.
    pub(super) fn start_preflight(
        &mut self,
        number: usize,
        round: u32,
        seats: &BTreeMap<String, Slot>,
    ) {
        let Some(here) = self.flight(number) else {
            return;
        };
        let known = match &here.run {
            PreflightRun::Idle | PreflightRun::Left(_) => None,
            PreflightRun::Runs(known) | PreflightRun::Ended(known, _) => Some(*known),
        };
        if known == Some(round) {
            return;
        }
        here.run = PreflightRun::Runs(round);
        let quiet = self.quiet();
        let dice = &mut self.preflight_dice(number, round);
        if !quiet && dice.chance(15) {
            return self.coverage.mark(Mark::PreflightSilent);
        }
        let nodes = seats.keys().cloned().collect();
        let delay = dice.within(1_000..=120_000);
        self.schedule(delay, Happening::Preflight(number, round, nodes));
    }

    fn preflight_dice(&self, number: usize, round: u32) -> Dice {
        let stream = STREAM + ((number as u64 + 1) << 24) + (u64::from(round) << 4);
        Dice::new(self.seed, stream)
    }

    /// A preflight has its answer.
    pub(crate) fn answer_preflight(&mut self, number: usize, round: u32, nodes: &[String]) {
        let quiet = self.quiet();
        let dice = &mut self.preflight_dice(number, round + 1);
        let lost = !quiet && dice.chance(15);
        // The pods of the job blame a node that is healthy.
        let forged = !quiet && dice.chance(10);
        let alive = self.adapters[number].alive;
        let fitness = &self.fitness;
        let (mut unfit, mut fit): (Vec<&String>, Vec<&String>) =
            nodes.iter().partition(|node| fitness.unfit.contains(*node));
        if forged {
            unfit.extend(fit.pop());
        }
        let judgement = Judgement {
            unfit: unfit
                .into_iter()
                .map(|node| (node.clone(), fault()))
                .collect(),
            fit: fit.into_iter().cloned().collect(),
            ..Judgement::default()
        };
        let Some(here) = self
            .flight(number)
            .filter(|here| here.run == PreflightRun::Runs(round))
        else {
            return;
        };
        if !alive {
            return;
        }
        let passed = judgement.fit.clone();
        let mark = match (lost, judgement.unfit.is_empty()) {
            (true, _) => Mark::PreflightLost,
            (_, true) => Mark::PreflightPassed,
            (_, false) => Mark::PreflightFailed,
        };
        here.run = PreflightRun::Ended(
            round,
            if lost {
                Err("the log of the leader cannot be read".to_owned())
            } else {
                Ok(judgement)
            },
        );
        self.coverage.mark(mark);
        if !lost {
            self.fitness.passed.extend(passed);
        }
        self.want_pass(number, QUEUE_DELAY);
    }

    /// A controller remembers what it found, and forgets the preflight.
    pub(super) fn end_preflight(&mut self, number: usize, round: u32) {
        let now = self.timestamp();
        let Some(here) = self.flight(number) else {
            return;
        };
        let (PreflightRun::Left(known) | PreflightRun::Runs(known) | PreflightRun::Ended(known, _)) =
            &here.run
        else {
            return;
        };
        if *known != round {
            return;
        }
        if let PreflightRun::Ended(_, Ok(judgement)) = std::mem::take(&mut here.run) {
            let follows = follows(Source::Job, &judgement, now);
            here.records.extend(follows.own);
            for node in &follows.suspects {
                self.suspect(node, &judgement.fit, now);
            }
            // None, of a job's report.
            for (node, fault) in follows.marks.unfit() {
                self.put_on_probation(node, fault, now);
            }
        }
        self.want_pass(number, QUEUE_DELAY);
    }

    /// A job blames a node.
    fn suspect(&mut self, node: &str, fit: &BTreeSet<String>, now: Timestamp) {
        let fitness = &mut self.fitness;
        if !fitness.on_probation.contains(node)
            && fitness.suspects.blame(node, "team", fit, now) == Blamed::Queued
        {
            let delay = Dice::new(self.seed, STREAM + 2).within(10_000..=60_000);
            self.schedule(delay, Happening::Trial(node.to_owned()));
        }
    }

    /// Every controller sees what is on nodes.
    fn publish_records(&mut self) {
        let records = self.fitness.records.clone();
        for number in 0..self.adapters.len() {
            if let Some(here) = self.flight(number) {
                here.records.retain(|_, record| record.by == Source::Job);
                here.records.extend(records.clone());
            }
        }
    }

    /// The operator tries a node that a job blames.
    fn try_suspect(&mut self) {
        let now = self.timestamp();
        let Some(suspect) = self.fitness.suspects.take(now) else {
            return;
        };
        let node = suspect.node;
        self.fitness.tried.insert(node.clone());
        let judgement = if self.fitness.unfit.contains(&node) {
            Judgement {
                unfit: [(node, fault())].into(),
                ..Judgement::default()
            }
        } else {
            self.coverage.mark(Mark::SuspectCleared);
            Judgement {
                fit: [node].into(),
                ..Judgement::default()
            }
        };
        let follows = follows(Source::Operator, &judgement, now);
        let failed = follows.marks.records().iter();
        let failed = failed.filter(|(_, record)| record.is_failed());
        let failed = failed.map(|(node, record)| (node.clone(), record.clone()));
        self.fitness.records.extend(failed.collect::<Vec<_>>());
        for (node, fault) in follows.marks.unfit() {
            self.put_on_probation(node, fault, now);
        }
        self.publish_records();
    }

    fn put_on_probation(&mut self, node: &str, fault: &Fault, at: Timestamp) {
        let taken = self.fitness.on_probation.len();
        let lasts = Duration::from_mins(10);
        let allowed = Cap::default().allows(taken, self.nodes.len());
        if allowed.is_ok() && Probation::of(fault, at, lasts).is_some() {
            self.coverage.mark(Mark::OnProbation);
            self.fitness.on_probation.insert(node.to_owned());
            self.schedule(600_000, Happening::Trial(node.to_owned()));
        }
        let verdict = invariants::check_nodes(self);
        self.judge(verdict);
    }

    /// A node on probation is tried again, and may be repaired by then; or one that a job blames is tried.
    pub(crate) fn try_node(&mut self, node: &str) {
        if !self.fitness.on_probation.contains(node) {
            return self.try_suspect();
        }
        let dice = &mut Dice::new(self.seed, STREAM + (self.now.unsigned_abs() << 8));
        if self.quiet() || dice.chance(50) {
            self.fitness.unfit.remove(node);
            self.fitness.on_probation.remove(node);
            self.fitness.passed.insert(node.to_owned());
            self.fitness.records.remove(node);
            self.publish_records();
        } else {
            self.schedule(600_000, Happening::Trial(node.to_owned()));
        }
    }

    /// Whether placement gives no seat there.
    pub(super) fn is_kept_away(&self, node: &str) -> bool {
        self.fitness.on_probation.contains(node)
    }
}

fn fault() -> Fault {
    Fault {
        check: "link-speed".to_owned(),
        why: "`link-speed` found 10 Gbit/s, needs 100 Gbit/s".to_owned(),
        blamed: true,
    }
}

/// What follows from what was found at `now`.
fn follows(source: Source, judgement: &Judgement, now: Timestamp) -> Consequences {
    let check = |outcome| Check {
        name: "link-speed".to_owned(),
        layer: Layer::Network,
        subject: String::new(),
        outcome,
        found: "10 Gbit/s".to_owned(),
        needed: "100 Gbit/s".to_owned(),
        cause: String::new(),
        next: String::new(),
        owner: Owner::Network,
    };
    let node = |name: &String, outcome| {
        let checks = vec![check(outcome)];
        (name.clone(), NodeReport { checks })
    };
    let fit = judgement.fit.iter().map(|name| node(name, Outcome::Pass));
    let unfit = judgement.unfit.keys().map(|name| node(name, Outcome::Fail));
    let report = Report {
        nodes: fit.chain(unfit).collect(),
        ..Report::default()
    };
    let nodes = report.nodes.keys().cloned().collect();
    consequences(source, &report, judgement, &nodes, "all", (now, LASTS))
}
