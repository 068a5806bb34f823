//! Nothing is left behind after the end.

use trainyard_core::{job::PodPhase, spec::CleanPodPolicy};

use super::{Verdict, ensure, foreign, is_terminal};
use crate::world::{World, pods::Pod};

const LEAK: &str = "no pod is leaked after the end";

/// When all is quiet, an ended job has what its policy keeps, and a deleted one nothing.
pub(super) fn nothing_left(world: &World) -> Verdict {
    if foreign::is_foreign(&world.job) {
        return Ok(());
    }
    if !world.job_exists || world.being_deleted {
        // A node that never answers again keeps the objects of a deleted job; only whoever
        // deletes the node can help.
        let left = names(world, |pod| {
            pod.shown.deleted_at.is_none()
                || pod.node.is_none_or(|node| !world.nodes[node].is_silent())
        });
        ensure!(
            LEAK,
            left.is_empty(),
            "the job is deleted, and {left:?} are left"
        );
        return Ok(());
    }
    if !is_terminal(&world.status) {
        return Ok(());
    }
    let left = match world.job.run_policy.clean_pod_policy {
        Some(CleanPodPolicy::None) => Vec::new(),
        Some(CleanPodPolicy::All) => names(world, |_| true),
        Some(CleanPodPolicy::Running) | None => names(world, |pod| {
            matches!(pod.shown.phase, PodPhase::Running | PodPhase::Pending)
        }),
    };
    ensure!(
        LEAK,
        left.is_empty(),
        "the job has ended, and {left:?} are left"
    );
    ensure!(
        LEAK,
        !world.objects.autoscaler,
        "the job has ended, and its autoscaler is left"
    );
    if world.job.run_policy.clean_pod_policy == Some(CleanPodPolicy::All) {
        ensure!(
            LEAK,
            world.objects.services.is_empty(),
            "the job has ended, and services {:?} are left",
            world.objects.services
        );
    }
    Ok(())
}

fn names(world: &World, counts: impl Fn(&Pod) -> bool) -> Vec<&str> {
    world
        .pods
        .iter()
        .filter(|pod| counts(pod))
        .map(|pod| pod.shown.uid.as_str())
        .collect()
}
