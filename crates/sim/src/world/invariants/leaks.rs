//! Nothing is left behind after the end.

use std::time::Duration;

use trainyard_core::{
    job::{Action, ConditionType, PodPhase},
    spec::{CleanPodPolicy, Slot},
};

use super::{Pass, Verdict, ensure, foreign, is_terminal, says};
use crate::world::{World, pods::Pod};

const LEAK: &str = "no pod is leaked after the end";
const KEEPS: &str = "what cleanPodPolicy keeps is kept";
/// For how long a job that states no policy keeps the pods that still run after its success.
const RUNS_ON_FOR: Duration = Duration::from_mins(5);

/// When all is quiet, an ended job has what its policy keeps, and a deleted one nothing.
pub(super) fn nothing_left(world: &World) -> Verdict {
    if foreign::is_foreign(&world.stored.job) {
        return Ok(());
    }
    if !world.stored.exists || world.stored.being_deleted {
        // A node that never responds again keeps the objects of a deleted job until
        // it is deleted.
        let left = names(world, |pod| {
            pod.shown.deleted_at.is_none()
                || pod
                    .node
                    .is_none_or(|node| !world.cluster.nodes[node].is_silent())
        });
        ensure!(
            LEAK,
            left.is_empty(),
            "the job is deleted, and {left:?} are left"
        );
        return Ok(());
    }
    if !is_terminal(&world.stored.status) {
        return Ok(());
    }
    let left = match world.stored.job.run_policy.clean_pod_policy {
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
        !world.cluster.objects.autoscaler,
        "the job has ended, and its autoscaler is left"
    );
    if world.stored.job.run_policy.clean_pod_policy != Some(CleanPodPolicy::None) {
        for (role, indices) in &world.cluster.objects.services {
            for index in indices.iter() {
                let slot = Slot::new(*role, index);
                ensure!(
                    LEAK,
                    world.pod_at(slot).is_some(),
                    "the job has ended, the pod of {slot} is gone, its service is left"
                );
            }
        }
    }
    Ok(())
}

/// What the policy keeps for its logs is not deleted.
pub(super) fn policy_keeps(pass: &Pass<'_>) -> Verdict {
    let status = &pass.decision.status;
    if !is_terminal(status) || pass.observed.being_deleted {
        return Ok(());
    }
    let runs_on = says(status, ConditionType::Succeeded)
        && status
            .completion_time
            .and_then(|end| end.checked_add(RUNS_ON_FOR).ok())
            .is_some_and(|until| pass.now < until);
    for action in &pass.decision.actions {
        let Action::DeletePod { uid, .. } = action else {
            continue;
        };
        let Some(pod) = pass.observed.pods.iter().find(|pod| pod.uid == *uid) else {
            continue;
        };
        let record = &status.trainyard;
        let replaced = pod.attempt < record.attempt || record.dismissed.contains(uid);
        let finished = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        let kept = match pass.job.run_policy.clean_pod_policy {
            Some(CleanPodPolicy::All) => false,
            Some(CleanPodPolicy::None) => true,
            Some(CleanPodPolicy::Running) => finished,
            None => finished || (runs_on && !pod.gated),
        };
        ensure!(
            KEEPS,
            replaced || !kept,
            "{uid} is deleted, which the policy keeps"
        );
    }
    Ok(())
}

fn names(world: &World, counts: impl Fn(&Pod) -> bool) -> Vec<&str> {
    world
        .cluster
        .pods
        .iter()
        .filter(|pod| counts(pod))
        .map(|pod| pod.shown.uid.as_str())
        .collect()
}
