//! Preflights: nodes are fit or not, and a preflight may never end.
//!
//! What a pod measures is not simulated: what `decide` does with its answers is. Who runs a preflight remembers what it
//! found alone. What the operator does with nodes that a job blames is the fleet's (`crate::fleet`).
//!
//! Invariant: an answer is what nodes were when it was given.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use trainyard_core::{
    job::{PreflightRun, Preflights, SeenPreflight},
    probe::{Fault, Judgement, NodeRecord, Source, consequences},
    spec::Slot,
};

use super::{Happening, World, controller::QUEUE_DELAY};
use crate::{coverage::Mark, dice::Dice, report::report};

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
}

/// Whether the jobs of a run require preflights.
pub(super) fn requires(seed: u64) -> bool {
    Dice::new(seed, STREAM).chance(50)
}

impl World {
    /// Some nodes are bad from the beginning.
    pub(super) fn draw_fitness(&mut self) {
        let dice = &mut Dice::new(self.seed, STREAM + 1);
        let names = self.cluster.nodes.iter().map(|node| node.name.clone());
        self.cluster.fitness.unfit = names.filter(|_| dice.chance(30)).collect();
    }

    /// What a controller that starts knows.
    pub(super) fn remembered_preflights(&self) -> SeenPreflight {
        if !self.temper.gives_seats {
            return SeenPreflight::Unused;
        }
        let state = self.stored.status.trainyard.preflight.as_ref();
        let under_way = state.filter(|state| state.since.is_some());
        SeenPreflight::Here(Box::new(Preflights {
            run: under_way.map_or(PreflightRun::Idle, |state| PreflightRun::Left(state.round)),
            records: BTreeMap::new(),
        }))
    }

    fn flight(&mut self, number: usize) -> Option<&mut Preflights> {
        match &mut self.controllers.adapters[number].view.preflight {
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
        let alive = self.controllers.adapters[number].alive;
        let fitness = &self.cluster.fitness;
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
            self.cluster.fitness.passed.extend(passed);
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
            here.records.extend(own_records(&judgement, now));
        }
        self.want_pass(number, QUEUE_DELAY);
    }
}

fn fault() -> Fault {
    Fault {
        check: "link-speed".to_owned(),
        why: "`link-speed` found 10 Gbit/s, needs 100 Gbit/s".to_owned(),
        blamed: true,
    }
}

/// What a job remembers of what its preflight found at `now`.
fn own_records(judgement: &Judgement, now: Timestamp) -> BTreeMap<String, NodeRecord> {
    let bad: BTreeSet<String> = judgement.unfit.keys().cloned().collect();
    let nodes = judgement.fit.union(&bad).cloned().collect();
    let report = report(&nodes, &bad);
    consequences(Source::Job, &report, judgement, &nodes, "all", (now, LASTS)).own
}
