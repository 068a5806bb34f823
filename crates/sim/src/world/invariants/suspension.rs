//! A suspended job has no pods.

use trainyard_core::job::Action;

use super::{Pass, Verdict, ensure, foreign, is_terminal};
use crate::world::World;

const EMPTY: &str = "no pods while suspended";

/// A pass that sees the suspension starts nothing.
pub(super) fn creates_nothing(pass: &Pass<'_>) -> Verdict {
    if !pass.job.run_policy.suspend {
        return Ok(());
    }
    let created = pass
        .decision
        .actions
        .iter()
        .find(|action| matches!(action, Action::CreatePod { .. }));
    ensure!(
        EMPTY,
        created.is_none(),
        "suspended, and {created:?} is decided"
    );
    Ok(())
}

/// When all is quiet, nothing of a suspended job is left.
pub(super) fn leaves_nothing(world: &World) -> Verdict {
    if !world.stored.exists
        || !world.stored.job.run_policy.suspend
        || is_terminal(&world.stored.status)
        || foreign::is_foreign(&world.stored.job)
        || world.stored.being_deleted
    {
        return Ok(());
    }
    let left: Vec<&str> = world
        .cluster
        .pods
        .iter()
        .map(|pod| pod.shown.uid.as_str())
        .collect();
    ensure!(EMPTY, left.is_empty(), "suspended, and {left:?} are left");
    ensure!(
        EMPTY,
        world.cluster.objects.services.is_empty(),
        "suspended, and services {:?} are left",
        world.cluster.objects.services
    );
    ensure!(
        EMPTY,
        !world.cluster.objects.autoscaler,
        "suspended, and the autoscaler is left"
    );
    Ok(())
}
