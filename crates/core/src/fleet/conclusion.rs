//! What the result of a trial changes on nodes.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{Observed, Purpose, Settings, State, Trial};
use crate::{
    mutant::{self, Mutant},
    probe::{CapReached, Fault, Found, NodeRecord, Probation},
};

/// A trial of nodes on probation that produced no result is run again after this.
const AGAIN: Duration = Duration::from_mins(5);

/// One change of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write the result to the node.
    Record(NodeRecord),
    /// Put the node on probation.
    Taint(Probation, Fault),
    /// Keep it on probation until then.
    Extend(Timestamp),
    /// End its probation.
    Untaint,
}

/// What a trial says about one node that it judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOutcome {
    /// It passed.
    Fit,
    /// It failed, with the reason.
    Unfit(String),
    /// Nothing is known.
    NoResult,
}

impl NodeOutcome {
    /// The value of the metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Unfit(_) => "unfit",
            Self::NoResult => "no_result",
        }
    }
}

/// What follows from a trial.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// What is remembered from now on.
    pub(super) state: State,
    /// The changes, in the order in which they are to be made.
    pub changes: Vec<(String, Change)>,
    /// Nodes that failed and stay in use, with the reason.
    pub refused: BTreeMap<String, CapReached>,
    /// The outcome of each node that was judged.
    pub outcomes: BTreeMap<String, NodeOutcome>,
}

pub(super) fn conclude(
    observed: &Observed<'_>,
    state: &State,
    settings: &Settings,
    found: Option<&Found>,
    now: Timestamp,
) -> Conclusion {
    let mut conclusion = Conclusion {
        state: state.clone(),
        changes: Vec::new(),
        refused: BTreeMap::new(),
        outcomes: BTreeMap::new(),
    };
    conclusion.state.settle(observed, now);
    let Some(trial) = conclusion.state.running.take() else {
        return conclusion;
    };
    match found {
        Some(found) => conclusion.found(observed, settings, &trial, found, now),
        None => conclusion.no_result(settings, &trial, now),
    }
    conclusion
}

impl Conclusion {
    fn change(&mut self, node: &str, change: Change) {
        self.changes.push((node.to_owned(), change));
    }

    fn no_result(&mut self, settings: &Settings, trial: &Trial, now: Timestamp) {
        for node in &trial.nodes {
            self.outcomes.insert(node.clone(), NodeOutcome::NoResult);
            if mutant::is(Mutant::ReleasesWithoutResult) {
                self.change(node, Change::Untaint);
            } else if trial.purpose == Purpose::Probation {
                let until = later(now, AGAIN.min(settings.probation_lasts));
                self.change(node, Change::Extend(until));
            }
        }
    }

    fn found(
        &mut self,
        observed: &Observed<'_>,
        settings: &Settings,
        trial: &Trial,
        found: &Found,
        now: Timestamp,
    ) {
        let Found { judgement, follows } = found;
        for (node, record) in follows.marks.records() {
            if trial.nodes.contains(node) {
                self.change(node, Change::Record(record.clone()));
            }
        }
        for (node, fault) in follows.marks.unfit() {
            if trial.nodes.contains(node) || mutant::is(Mutant::JudgesPartners) {
                self.taint(observed, settings, (node, fault), now);
            }
        }
        for node in &trial.nodes {
            let outcome = match (trial.purpose, judgement.unfit.get(node)) {
                (Purpose::Probation, _) if judgement.fit.contains(node) => NodeOutcome::Fit,
                (Purpose::Blamed, _) if !follows.marks.unfit().contains_key(node) => {
                    NodeOutcome::Fit
                }
                (_, Some(fault)) => NodeOutcome::Unfit(fault.why.clone()),
                (_, None) => NodeOutcome::Unfit("every node of the trial failed".to_owned()),
            };
            if trial.purpose == Purpose::Probation {
                let change = if outcome == NodeOutcome::Fit || mutant::is(Mutant::ReleasesUnfit) {
                    Change::Untaint
                } else {
                    Change::Extend(later(now, settings.probation_lasts))
                };
                let forgets = mutant::is(Mutant::ForgetsRelease) && change == Change::Untaint;
                if !forgets {
                    self.change(node, change);
                }
            }
            self.outcomes.insert(node.clone(), outcome);
        }
    }

    /// Puts a node that failed on probation, if the node is to blame and the cap allows one more.
    fn taint(
        &mut self,
        observed: &Observed<'_>,
        settings: &Settings,
        (node, fault): (&String, &Fault),
        now: Timestamp,
    ) {
        let Some(probation) = Probation::of(fault, now, settings.probation_lasts) else {
            return;
        };
        let tainting = &mut self.state.tainting;
        if observed.is_on_probation(node) || tainting.contains_key(node) {
            return;
        }
        let seen = observed.nodes.values();
        let seen = seen.filter(|node| node.is_on_probation()).count();
        let being_written = if mutant::is(Mutant::ForgetsTaints) {
            0
        } else {
            tainting.len()
        };
        match settings
            .cap
            .allows(seen + being_written, observed.nodes.len())
        {
            Ok(()) => {
                tainting.insert(node.clone(), now);
                self.change(node, Change::Taint(probation, fault.clone()));
            }
            Err(why) => {
                self.refused.insert(node.clone(), why);
            }
        }
    }
}

fn later(from: Timestamp, after: Duration) -> Timestamp {
    from.checked_add(after).unwrap_or(Timestamp::MAX)
}
