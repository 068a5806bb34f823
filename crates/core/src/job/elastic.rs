//! Elastic jobs: how many workers are enough, and saying so when they are fewer than wanted.

use super::{Action, Autoscaler, ConditionType, conditions, pass::Pass, roster::Roster};
use crate::{
    reason::Reason,
    spec::{Job, Role},
};

/// With how many running pods the job trains; a job that is not elastic needs them all.
pub(super) fn enough(job: &Job) -> u32 {
    job.elastic().map_or(u32::MAX, |elastic| {
        elastic
            .min_replicas
            .saturating_add(job.role_replicas(Role::Master))
    })
}

/// Keeps the Degraded condition and the autoscaler up to date.
pub(super) fn report(pass: &mut Pass<'_>, roster: &Roster<'_>) {
    let Some(elastic) = pass.job.elastic() else {
        return;
    };
    let wanted = pass.job.role_replicas(Role::Worker);
    let active = roster.active(Role::Worker, &pass.status.trainyard);
    let degraded = active > 0 && active < wanted && pass.holds(ConditionType::Running);
    let reason = degraded.then_some(Reason::Degraded {
        running: active,
        wanted,
        needed: elastic.min_replicas,
    });
    let message = reason.as_ref().map(Reason::to_string);
    if let Some(reason) = reason {
        pass.say(reason);
    }
    conditions::set_degraded(
        &mut pass.status.conditions,
        pass.job.kind,
        message,
        pass.stamp,
    );
    match pass.observed.autoscaler {
        Autoscaler::Missing | Autoscaler::Outdated if !elastic.metrics.is_empty() => {
            pass.actions.push(Action::ApplyAutoscaler);
        }
        // The spec names no metrics any more.
        Autoscaler::Outdated => pass.actions.push(Action::DeleteAutoscaler),
        Autoscaler::Missing | Autoscaler::Current => {}
    }
}
