//! What a failure means is what the job's policies say.

use trainyard_core::{
    job::{Action, NodeHealth, ObservedPod, PodPhase, Removal},
    reason::Code,
    spec::{Compat, Framework, Job, Kind, RestartPolicy, RestartScope, Role},
};

use super::{Pass, Verdict, ensure, is_terminal};
use crate::world::World;

const FATAL: &str = "a failure that ends the job ends it";
const DONE: &str = "what has ended well is not run again";
const TIME: &str = "a silent node is given its time";

/// The first exit code that asks for a restart under `ExitCode`.
const RETRYABLE: i32 = 128;

/// A pass that sees a program fail for good ends the job, unless something from outside may have
/// made it fail.
pub(super) fn fatal_is_fatal(pass: &Pass<'_>) -> Verdict {
    let (before, after) = (&pass.observed.status, &pass.decision.status);
    if is_terminal(after)
        || pass.job.run_policy.suspend
        || pass.observed.being_deleted
        || before.trainyard.attempt == 0
        || super::says(before, trainyard_core::job::ConditionType::Suspended)
        || pass
            .decision
            .reasons
            .iter()
            .any(|reason| reason.code() == Code::StaleView)
    {
        return Ok(());
    }
    let current = || {
        pass.observed.pods.iter().filter(|pod| {
            pod.attempt == before.trainyard.attempt
                && pod.slot.index < pass.job.role_replicas(pod.slot.role)
                && !before.trainyard.dismissed.contains(&pod.uid)
        })
    };
    let Some(fatal) = current().find(|pod| is_fatal(pass.job, pod)) else {
        return Ok(());
    };
    let gang = pass.job.restart_scope() == RestartScope::Gang;
    let outside = |pod: &ObservedPod| {
        pod.disruption.is_some()
            || pod.deleted_at.is_some()
            || (pod.phase == PodPhase::Failed && pod.exit.is_none())
            || pod
                .node
                .as_ref()
                .is_some_and(|node| pass.observed.nodes.contains_key(node))
    };
    let whole = current().count() == pass.job.total_replicas() as usize;
    // Of several failures of a gang the first explains the others.
    let earlier = |pod: &ObservedPod| {
        pod.phase == PodPhase::Failed
            && !is_fatal(pass.job, pod)
            && pod.exit.map(|exit| exit.at) <= fatal.exit.map(|exit| exit.at)
    };
    if gang && (!whole || current().any(|pod| outside(pod) || earlier(pod))) {
        return Ok(());
    }
    ensure!(
        FATAL,
        false,
        "{} in {} ended with {:?} and the job continues",
        fatal.uid,
        fatal.slot,
        fatal.exit
    );
    Ok(())
}

fn is_fatal(job: &Job, pod: &ObservedPod) -> bool {
    let Some(exit) = pod.exit.filter(|_| pod.phase == PodPhase::Failed) else {
        return false;
    };
    if pod.disruption.is_some() || pod.deleted_at.is_some() {
        return false;
    }
    let gang = job.restart_scope() == RestartScope::Gang;
    let (role, borne) = match (&job.framework, pod.slot.role) {
        (Framework::Tf(tf), Role::Worker) => (Role::Worker, tf.dynamic_worker),
        (Framework::MpiV2(_), Role::Worker) if gang => (Role::Launcher, false),
        (Framework::MpiV2(_), Role::Worker) => (Role::Worker, true),
        (_, role) => (role, false),
    };
    let old_xgboost =
        job.kind == Kind::XgBoost && job.settings.compat.contains(&Compat::XgboostFails);
    let fatal = match job.roles.get(&role).map(|spec| spec.restart_policy) {
        Some(RestartPolicy::Never) => true,
        Some(RestartPolicy::ExitCode) => exit.code < RETRYABLE,
        _ => old_xgboost,
    };
    fatal && !borne
}

/// A pod whose success is on record is not created again in the same attempt.
pub(super) fn done_is_done(pass: &Pass<'_>, world: &World) -> Verdict {
    if pass.job.settings.compat.contains(&Compat::RerunSucceeded) {
        return Ok(());
    }
    for action in &pass.decision.actions {
        let Action::CreatePod { slot, attempt, .. } = action else {
            continue;
        };
        let recorded = pass.observed.status.trainyard.attempt == *attempt
            && pass.observed.status.trainyard.has_succeeded(*slot);
        let true_success = world
            .cluster
            .births
            .iter()
            .any(|birth| birth.slot == *slot && birth.attempt == *attempt && birth.succeeded);
        ensure!(
            DONE,
            !(recorded && true_success),
            "{slot} has ended well in attempt {attempt} and is created again"
        );
    }
    Ok(())
}

/// A pod is only force-deleted when the node is gone or silent for too long.
pub(super) fn nodes_are_given_time(pass: &Pass<'_>) -> Verdict {
    for action in &pass.decision.actions {
        let Action::DeletePod {
            uid,
            removal: Removal::Forced,
            ..
        } = action
        else {
            continue;
        };
        let pod = pass.observed.pods.iter().find(|pod| pod.uid == *uid);
        let node = pod.and_then(|pod| pod.node.as_ref());
        let health = node.and_then(|node| pass.observed.nodes.get(node));
        let lost = match health {
            Some(NodeHealth::Deleted) => true,
            Some(NodeHealth::SilentSince(since)) => {
                let silent = pass.now.duration_since(*since);
                silent.unsigned_abs() >= pass.job.settings.lost_after
            }
            Some(NodeHealth::Ready) | None => false,
        };
        ensure!(
            TIME,
            lost,
            "{uid} is deleted by force while its node is {health:?}"
        );
    }
    Ok(())
}
