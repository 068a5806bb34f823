//! Which nodes the next trial measures, and with which others.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Observed, Purpose, State, Trial};
use crate::{
    gang::Node,
    mutant::{self, Mutant},
    probe::{Source, Suspect},
};

/// Nodes on probation that one trial measures.
const AT_ONCE: usize = 16;
/// Nodes that the others are measured with.
const BESIDE: usize = 2;

/// The next trial. The purposes take turns where both have nodes.
pub(super) fn next(observed: &Observed<'_>, state: &mut State, now: Timestamp) -> Option<Trial> {
    let first_is_blamed =
        state.last == Some(Purpose::Probation) && !mutant::is(Mutant::ProbationFirst);
    if first_is_blamed {
        blamed(observed, state, now).or_else(|| probation(observed, now))
    } else {
        probation(observed, now).or_else(|| blamed(observed, state, now))
    }
}

/// When the first node on probation may be tried.
pub(super) fn next_due(observed: &Observed<'_>) -> Option<Timestamp> {
    let nodes = observed.nodes.values();
    let waiting = nodes.filter(|node| node.ready && node.is_on_probation());
    waiting
        .map(|node| node.probation_until.unwrap_or(Timestamp::MIN))
        .min()
}

/// A trial of the nodes whose probation is over, those that wait longest first.
fn probation(observed: &Observed<'_>, now: Timestamp) -> Option<Trial> {
    let is_due = |node: &Node| {
        let early = mutant::is(Mutant::TriesBeforeTime) && node.is_on_probation();
        node.ready && (node.may_leave_probation(now) || early)
    };
    let mut due: Vec<(Option<Timestamp>, &String)> = observed
        .nodes
        .iter()
        .filter(|(_, node)| is_due(node))
        .map(|(name, node)| (node.probation_until, name))
        .collect();
    due.sort_unstable();
    let nodes: BTreeSet<String> = due
        .into_iter()
        .take(AT_ONCE)
        .map(|(_, name)| name.clone())
        .collect();
    (!nodes.is_empty()).then(|| Trial {
        purpose: Purpose::Probation,
        beside: partners(observed, &nodes, &BTreeSet::new()),
        nodes,
    })
}

/// A trial of the node that waited longest of those that jobs blame and that are still in use.
fn blamed(observed: &Observed<'_>, state: &mut State, now: Timestamp) -> Option<Trial> {
    loop {
        let Suspect { node, beside } = state.suspects.take(now)?;
        // It may be gone by now, or on probation already.
        let known = observed.nodes.get(&node);
        let is_in_use = known.is_some_and(|known| known.ready && !known.is_on_probation());
        if is_in_use && !state.tainting.contains_key(&node) {
            let nodes = BTreeSet::from([node]);
            return Some(Trial {
                purpose: Purpose::Blamed,
                beside: partners(observed, &nodes, &beside),
                nodes,
            });
        }
        state.suspects.was_not_tried(&node);
    }
}

/// Nodes to measure paths with: of those that `passed` beside it and those that passed a trial, the first that are in use.
fn partners(
    observed: &Observed<'_>,
    tried: &BTreeSet<String>,
    passed: &BTreeSet<String>,
) -> BTreeSet<String> {
    let is_open = |name: &str, node: &Node| {
        let mut records = node.preflight.iter();
        let failed = records.any(|record| record.is_failed());
        let closed = node.unschedulable || node.is_quarantined() || node.is_on_probation();
        let usable = node.ready && !closed && !failed;
        (usable || mutant::is(Mutant::MeasuresWithUnfit)) && !tried.contains(name)
    };
    let named = passed
        .iter()
        .filter_map(|name| Some((name, observed.nodes.get(name)?)));
    let with_record = observed.nodes.iter().filter(|(_, node)| {
        let mut records = node.preflight.iter();
        records.any(|record| record.by == Source::Operator)
    });
    named
        .chain(with_record)
        .filter(|(name, node)| is_open(name, node))
        .map(|(name, _)| name.clone())
        .take(BESIDE)
        .collect()
}
