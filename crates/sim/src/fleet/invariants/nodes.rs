//! Probation: only trials put nodes there, few at a time, and only trials end it.

use trainyard_core::{
    fleet::{Change, Purpose, Trial},
    gang::Node,
};

use super::World;
use crate::violation::{Verdict, ensure};

const CAP: &str = "never more nodes are on probation than the cap allows";
const TRIALS: &str = "only a trial of a node changes it";
const PASSED: &str = "a node leaves probation only by passing a trial";
const EARLY: &str = "a node on probation is not tried before its time";
const PARTNERS: &str = "nodes are measured only with nodes that are in use and fit";
const TURNS: &str = "a node that a job blames waits for one other trial at most";

/// Counts taints as they are written. Nodes that are deleted come back, so the cap is one of all nodes.
pub(super) fn stay_within_the_cap(world: &World) -> Verdict {
    let nodes = world.nodes.values();
    let taken = nodes.filter(|node| node.node.is_on_probation()).count();
    let all = world.nodes.len() + world.deleted_nodes.len();
    let most = world.settings.cap.of(all);
    ensure!(
        CAP,
        taken <= most,
        "{taken} of {all} nodes, the cap is {most}"
    );
    Ok(())
}

/// A node is written to only for what the last trial of this operator found on it; its partners never are. A node is put on
/// probation only if it did not pass.
pub(super) fn only_trials_change_nodes(
    world: &World,
    number: usize,
    node: &str,
    change: &Change,
) -> Verdict {
    let facts = &world.operators[number].facts;
    // A dead operator remembers nothing, and neither does one that leads again.
    if !world.operators[number].alive || facts.judged.is_empty() {
        return Ok(());
    }
    let taints = matches!(change, Change::Taint(..));
    ensure!(
        TRIALS,
        facts.judged.contains(node) && !(taints && facts.passed.contains(node)),
        "{change:?} of `{node}` after a trial of {:?} that {:?} passed",
        facts.judged,
        facts.passed
    );
    Ok(())
}

/// Probation ends by a trial that the node passed.
pub(super) fn only_a_passed_trial_ends_probation(
    world: &World,
    number: usize,
    node: &str,
    change: &Change,
) -> Verdict {
    let operator = &world.operators[number];
    let ends = *change == Change::Untaint && operator.alive && !operator.facts.judged.is_empty();
    ensure!(
        PASSED,
        !ends || operator.facts.passed.contains(node),
        "`{node}` leaves probation; only {:?} passed",
        operator.facts.passed
    );
    Ok(())
}

/// The node as an operator sees it.
fn seen<'a>(world: &'a World, number: usize, name: &str) -> Option<&'a Node> {
    world.operators[number]
        .fleet
        .queue
        .snapshot()
        .nodes
        .get(name)
}

/// Nodes on probation are tried when their time is over.
pub(super) fn are_tried_in_time(world: &World, number: usize, trial: &Trial) -> Verdict {
    let now = world.timestamp();
    let is_early = |name: &&String| {
        let node = seen(world, number, name);
        node.is_some_and(|node| node.is_on_probation() && !node.may_leave_probation(now))
    };
    let early = trial.nodes.iter().find(is_early);
    ensure!(EARLY, early.is_none(), "{early:?} is tried in {trial:?}");
    Ok(())
}

/// The partners of a trial are known to be in use and fit.
pub(super) fn partners_are_fit(world: &World, number: usize, trial: &Trial) -> Verdict {
    let is_fit = |node: &Node| {
        let failed = node
            .preflight
            .as_ref()
            .is_some_and(|record| record.is_failed());
        node.ready && !node.unschedulable && !node.is_on_probation() && !failed
    };
    for name in &trial.beside {
        ensure!(
            PARTNERS,
            seen(world, number, name).is_some_and(is_fit),
            "`{name}` is a partner in {trial:?}"
        );
    }
    Ok(())
}

/// The two purposes of trials take turns, and nothing waits while no trial runs.
pub(super) fn blamed_nodes_take_turns(
    world: &mut World,
    number: usize,
    trial: Option<&Trial>,
) -> Verdict {
    let purpose = trial.map(|trial| trial.purpose);
    let facts = &world.operators[number].facts;
    let is_in_use = |name: &str| {
        let seen = seen(world, number, name);
        let is_tainted = world
            .nodes
            .get(name)
            .is_some_and(|node| node.node.is_on_probation());
        seen.is_some_and(|node| node.ready && !node.is_on_probation()) && !is_tainted
    };
    let waiting = facts.blamed.iter().find(|name| is_in_use(name));
    let passes_over = match purpose {
        None => true,
        Some(Purpose::Probation) => facts.last == Some(Purpose::Probation),
        Some(Purpose::Blamed) => false,
    };
    ensure!(
        TURNS,
        !passes_over || waiting.is_none(),
        "{waiting:?} waits, and the next trial is {trial:?}"
    );
    let mut left = facts.blamed.clone();
    if passes_over || purpose == Some(Purpose::Blamed) {
        // Nodes that are not in use are not tried; a job may blame them again.
        let tried = |name: &String| trial.is_some_and(|trial| trial.nodes.contains(name));
        left.retain(|name| is_in_use(name) && !tried(name));
    }
    let facts = &mut world.operators[number].facts;
    facts.blamed = left;
    facts.last = purpose.or(facts.last);
    Ok(())
}
