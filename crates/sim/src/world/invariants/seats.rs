//! A gang without seats holds nothing.

use trainyard_core::job::{Action, Seat, Seating};

use super::{Pass, Verdict, ensure, foreign, is_terminal};
use crate::world::World;

const GIVEN: &str = "no pod goes to a seat that was not given";
const BACK: &str = "a gang that cannot start releases its seats";

/// A pod is bound to the node that was given, or gated.
pub(super) fn only_given_ones(pass: &Pass<'_>) -> Verdict {
    let given = |slot, node: &String| match &pass.observed.seating {
        Seating::Given(seats) => seats.get(slot) == Some(node),
        _ => false,
    };
    for action in &pass.decision.actions {
        let fits = match action {
            Action::CreatePod { slot, seat, .. } => match seat {
                Seat::Open => pass.observed.seating == Seating::Open,
                Seat::Gated => pass.observed.seating != Seating::Open,
                Seat::Node(node) => given(slot, node),
            },
            Action::SeatPod { slot, node, .. } => given(slot, node),
            _ => true,
        };
        ensure!(
            GIVEN,
            fits,
            "{action:?} is decided where seats are {:?}",
            pass.observed.seating
        );
    }
    Ok(())
}

/// When all is quiet, no pod waits for a node that it is bound to.
pub(super) fn are_not_kept_in_vain(world: &World) -> Verdict {
    if !world.stored.exists
        || is_terminal(&world.stored.status)
        || foreign::is_foreign(&world.stored.job)
    {
        return Ok(());
    }
    let waits =
        world.cluster.pods.iter().find(|pod| {
            pod.pinned.is_some() && pod.node.is_none() && pod.shown.deleted_at.is_none()
        });
    ensure!(
        BACK,
        waits.is_none() || world.stored.being_deleted,
        "{:?} waits for its seat, and nothing happens any more",
        waits.map(|pod| &pod.shown.uid)
    );
    Ok(())
}
