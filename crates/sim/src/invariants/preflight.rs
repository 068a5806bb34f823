//! A gang that requires a preflight starts where one passed.

use trainyard_core::{
    job::{Action, Seat, SeenPreflight},
    probe::Cap,
    spec::{Preflight, Role},
};

use super::{Pass, Verdict, ensure, foreign, is_terminal};
use crate::world::World;

const FIT: &str = "no pod that requires a preflight goes to a node that did not pass";
const CAP: &str = "automation puts no more nodes on probation than it may";
const TRIED: &str = "only what the operator itself tried is kept from others";
const ENDS: &str = "a preflight that never ends is abandoned";

/// A pod goes only to a node that passed, and not to one whose last result is a failure.
pub(super) fn only_fit_nodes(pass: &Pass<'_>, world: &World) -> Verdict {
    let SeenPreflight::Here(here) = &pass.observed.preflight else {
        return Ok(());
    };
    if pass.job.settings.preflight != Preflight::Required {
        return Ok(());
    }
    for action in &pass.decision.actions {
        let (Action::SeatPod { slot, node, .. }
        | Action::CreatePod {
            slot,
            seat: Seat::Node(node),
            ..
        }) = action
        else {
            continue;
        };
        if slot.role == Role::Launcher {
            continue;
        }
        let record = here.records.get(node);
        let failed = record.is_some_and(|record| record.is_failed() && record.is_fresh(pass.now));
        ensure!(
            FIT,
            !failed && world.fitness.passed.contains(node),
            "{action:?}: {} and {record:?}",
            if world.fitness.passed.contains(node) {
                "it passed once"
            } else {
                "it was never measured"
            }
        );
    }
    Ok(())
}

/// Nodes that automation took.
pub(super) fn few_are_taken(world: &World) -> Verdict {
    let (taken, most) = (
        world.fitness.on_probation.len(),
        Cap::default().of(world.nodes.len()),
    );
    ensure!(CAP, taken <= most, "{taken} are taken, {most} may be");
    let mut untried = world.fitness.on_probation.difference(&world.fitness.tried);
    let untried = untried.next();
    ensure!(
        TRIED,
        untried.is_none(),
        "{untried:?} is on probation without a trial"
    );
    Ok(())
}

/// When all is quiet, no gang waits for a preflight.
pub(super) fn no_gang_waits(world: &World) -> Verdict {
    let over = !world.job_exists
        || world.being_deleted
        || world.job.run_policy.suspend
        || is_terminal(&world.status)
        || foreign::is_foreign(&world.job);
    let state = world.status.trainyard.preflight.as_ref();
    let since = state.and_then(|state| state.since).filter(|_| !over);
    ensure!(
        ENDS,
        since.is_none(),
        "it has been running since {since:?}, and nothing happens any more"
    );
    Ok(())
}
