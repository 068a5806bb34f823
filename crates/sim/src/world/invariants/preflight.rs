//! A gang that requires a preflight starts where one passed.

use trainyard_core::{
    job::{Action, Seat, SeenPreflight},
    spec::{Preflight, Role},
};

use super::{Pass, Verdict, ensure, foreign, is_terminal};
use crate::world::World;

const FIT: &str = "no pod that requires a preflight goes to a node that did not pass";
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
            !failed && world.cluster.fitness.passed.contains(node),
            "{action:?}: {} and {record:?}",
            if world.cluster.fitness.passed.contains(node) {
                "it passed once"
            } else {
                "it was never measured"
            }
        );
    }
    Ok(())
}

/// When all is quiet, no gang waits for a preflight.
pub(super) fn no_gang_waits(world: &World) -> Verdict {
    let over = !world.stored.exists
        || world.stored.being_deleted
        || world.stored.job.run_policy.suspend
        || is_terminal(&world.stored.status)
        || foreign::is_foreign(&world.stored.job);
    let state = world.stored.status.trainyard.preflight.as_ref();
    let since = state.and_then(|state| state.since).filter(|_| !over);
    ensure!(
        ENDS,
        since.is_none(),
        "it has been running since {since:?}, and nothing happens any more"
    );
    Ok(())
}
