//! Trials: `Fleet::decide` picks them, the nodes decide what they measure, `Fleet::conclude` what follows.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use trainyard_core::{
    fleet::{Change, Purpose, Trial},
    gang::{Taint, TaintEffect},
    probe::{Found, PROBATION, Source},
};

use super::{
    World,
    coverage::Mark,
    invariants,
    world::{Happening, TrialEnd},
};
use crate::report::report;

/// A trial that has not ended by then is given up.
const LIMIT: i64 = 120_000;
/// How long a result counts.
const LASTS: Duration = Duration::from_mins(20);

/// The trial that an operator runs.
#[derive(Clone, Debug)]
pub(super) struct RunningTrial {
    pub(super) number: u64,
    pub(super) trial: Trial,
}

impl World {
    pub(super) fn want_decide(&mut self, number: usize, delay: i64) {
        let operator = &mut self.operators[number];
        if !operator.is_decide_due {
            operator.is_decide_due = true;
            self.after(delay, Happening::Decide(number));
        }
    }

    pub(super) fn decide_again(&mut self, number: usize, wake: u64) {
        if self.leader == Some(number) && self.operators[number].decide_wake == wake {
            self.want_decide(number, 0);
        }
    }

    pub(super) fn decide_trials(&mut self, number: usize) {
        let now = self.timestamp();
        let operator = &mut self.operators[number];
        operator.is_decide_due = false;
        if !operator.alive || self.leader != Some(number) || operator.is_writing {
            return;
        }
        let is_idle = operator.fleet.running().is_none();
        let decision = operator.fleet.decide(now);
        operator.decide_wake += 1;
        let wake = operator.decide_wake;
        if let Some(at) = decision.wake_at {
            let delay = self.until(at);
            self.after(delay, Happening::DecideAgain(number, wake));
        }
        if is_idle {
            let verdict = invariants::check_trial(self, number, decision.trial.as_ref());
            self.judge(verdict);
        }
        if let Some(trial) = decision.trial {
            self.start_trial(number, trial);
        }
    }

    fn start_trial(&mut self, number: usize, trial: Trial) {
        self.note(format_args!("oper {number}  starts {trial:?}"));
        self.coverage.mark(match trial.purpose {
            Purpose::Blamed => Mark::TrialOfBlamed,
            Purpose::Probation => Mark::TrialOfProbation,
        });
        let operator = &mut self.operators[number];
        operator.trials += 1;
        let running = RunningTrial {
            number: operator.trials,
            trial,
        };
        let which = running.number;
        operator.trial = Some(running);
        let (delay, end) = match self.dice.below(100) {
            0..=11 if !self.is_calm => (self.dice.within(500..=30_000), TrialEnd::NoResult),
            12..=16 if !self.is_calm => (LIMIT, TrialEnd::Late),
            17..=60 => (self.dice.within(500..=5_000), TrialEnd::Measured),
            _ => (self.dice.within(5_000..=30_000), TrialEnd::Measured),
        };
        self.after(delay, Happening::TrialEnds(number, which, end));
    }

    pub(super) fn trial_ends(&mut self, number: usize, which: u64, end: TrialEnd) {
        let operator = &mut self.operators[number];
        if !operator.alive || self.leader != Some(number) {
            return;
        }
        let running = operator.trial.take_if(|running| running.number == which);
        let Some(RunningTrial { trial, .. }) = running else {
            return;
        };
        let now = self.timestamp();
        let found = match end {
            TrialEnd::Measured => self.measure(&trial, now),
            TrialEnd::NoResult | TrialEnd::Late => None,
        };
        self.coverage_of(end, &trial, found.is_none());
        let operator = &mut self.operators[number];
        let found = found.as_ref();
        let concluded = operator.fleet.conclude(&self.settings, found, now);
        operator.node_writes = concluded.changes.into();
        let passed = found
            .map(|found| found.judgement.fit.clone())
            .unwrap_or_default();
        operator.facts.tried(&trial, &passed);
        for _ in &concluded.refused {
            self.coverage.mark(Mark::CapReached);
        }
        self.note(format_args!(
            "oper {number}  concludes {:?}, refused {:?}",
            concluded.outcomes, concluded.refused
        ));
        self.write_node(number);
    }

    fn coverage_of(&mut self, end: TrialEnd, trial: &Trial, is_err: bool) {
        if end == TrialEnd::Late {
            self.coverage.mark(Mark::TrialLate);
        } else if is_err {
            self.coverage.mark(Mark::TrialNoResult);
        } else if trial.beside.iter().any(|node| self.is_bad(node)) {
            self.coverage.mark(Mark::BadPartner);
        }
    }

    /// What a trial finds on its nodes as they are now. A node that is gone or does not respond reports nothing.
    fn measure(&self, trial: &Trial, now: Timestamp) -> Option<Found> {
        let nodes: BTreeSet<String> = trial.nodes.union(&trial.beside).cloned().collect();
        let responds = |name: &String| self.nodes.get(name).is_some_and(|node| node.node.ready);
        if !nodes.iter().all(responds) {
            return None;
        }
        let bad = nodes
            .iter()
            .filter(|node| self.is_bad(node))
            .cloned()
            .collect();
        let report = report(&nodes, &bad);
        Found::of(Source::Operator, &report, &nodes, "", (now, LASTS)).ok()
    }

    /// Makes the next change of a node.
    pub(super) fn write_node(&mut self, number: usize) {
        if !self.may_act(number) {
            self.operators[number].node_writes.clear();
            return;
        }
        let Some((node, change)) = self.operators[number].node_writes.pop_front() else {
            self.want_decide(number, 10);
            return;
        };
        self.operators[number].is_writing = true;
        let delay = self.call();
        let arrival = Happening::NodeArrive(number, node, Box::new(change));
        self.after(delay, arrival);
        self.crashes(number, Mark::CrashedBetweenNodeWrites);
    }

    /// A change of a node arrives. The operator sees it only when its watch delivers it.
    pub(super) fn node_arrive(&mut self, number: usize, name: &str, change: &Change) {
        let verdict = invariants::check_change(self, number, name, change);
        self.judge(verdict);
        self.note(format_args!("oper {number}  writes {name}: {change:?}"));
        if let Some(stored) = self.nodes.get_mut(name) {
            let node = &mut stored.node;
            match change {
                Change::Record(record) => node.preflight = Some(Box::new(record.clone())),
                Change::Taint(probation, _) => {
                    self.coverage.mark(Mark::Tainted);
                    node.taints.push(Taint {
                        key: PROBATION.to_owned(),
                        value: probation.check.clone(),
                        effect: TaintEffect::NoSchedule,
                    });
                    node.probation_until = Some(probation.until);
                }
                Change::Extend(until) => {
                    self.coverage.mark(Mark::Extended);
                    node.probation_until = Some(*until);
                }
                Change::Untaint => {
                    self.coverage.mark(Mark::Untainted);
                    node.taints.retain(|taint| taint.key != PROBATION);
                    node.probation_until = None;
                }
            }
            if matches!(change, Change::Taint(..)) {
                self.disturb_taint();
            }
            self.node_changed(name);
        }
        let verdict = invariants::check_cap(self);
        self.judge(verdict);
        self.operators[number].is_writing = false;
        if self.operators[number].alive && !self.crashes(number, Mark::CrashedBetweenNodeWrites) {
            self.write_node(number);
        }
    }
}
