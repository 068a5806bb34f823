//! The end of a job: its last status, which pods stay, and when the job object goes.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Action, Autoscaler, ConditionType, EventKind, PodPhase, grouping, messages, mutant, pass::Pass,
};
use crate::{
    reason::Code,
    spec::{CleanPodPolicy, Slot},
};

/// What an open `cleanPodPolicy` means. The old operator's `None` leaves the peers of a failed
/// rank running on their GPUs until someone looks.
const DEFAULT_POLICY: CleanPodPolicy = CleanPodPolicy::Running;

/// The job has succeeded.
pub(super) fn succeed(pass: &mut Pass<'_>) {
    end(
        pass,
        ConditionType::Succeeded,
        EventKind::Normal,
        messages::succeeded(pass.job),
    );
    for status in pass.status.replica_statuses.values_mut() {
        status.succeeded += std::mem::take(&mut status.active);
    }
    clean(pass);
}

/// The job has failed.
pub(super) fn fail(pass: &mut Pass<'_>, message: String) {
    end(pass, ConditionType::Failed, EventKind::Warning, message);
    clean(pass);
}

/// The job had ended before this pass.
pub(super) fn ended(pass: &mut Pass<'_>) {
    clean(pass);
}

/// The job object is being deleted: everything goes.
pub(super) fn being_deleted(pass: &mut Pass<'_>) {
    remove_everything(pass);
    let left = pass.observed.pods.len();
    pass.say(
        Code::BeingDeleted,
        format!("the job is being deleted; {left} pods are not gone yet"),
    );
}

/// Removes every pod and Service, whatever the policy.
pub(super) fn remove_everything(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    for pod in &observed.pods {
        pass.remove(pod);
    }
    for (role, indices) in &observed.services {
        for index in indices.iter() {
            pass.actions
                .push(Action::DeleteService(Slot::new(*role, index)));
        }
    }
    if observed.autoscaler != Autoscaler::Missing {
        pass.actions.push(Action::DeleteAutoscaler);
    }
    grouping::dissolve(pass);
}

fn end(pass: &mut Pass<'_>, kind: ConditionType, event: EventKind, message: String) {
    pass.hold(kind, message.clone());
    if !mutant::is(mutant::Mutant::ForgetsCompletionTime) {
        pass.status.completion_time.get_or_insert(pass.stamp);
    }
    pass.status.trainyard.retry_at = None;
    pass.status.trainyard.ledger.end(pass.now);
    pass.tell(event, kind.name(), message);
}

/// Applies `cleanPodPolicy` and `ttlSecondsAfterFinished` to a job that has ended.
fn clean(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    let policy = pass
        .job
        .run_policy
        .clean_pod_policy
        .unwrap_or(DEFAULT_POLICY);
    let mut kept: BTreeSet<Slot> = BTreeSet::new();
    let mut leaving = 0u32;
    for pod in &observed.pods {
        let yard = &pass.status.trainyard;
        let replaced = pod.attempt < yard.attempt || yard.dismissed.contains(&pod.uid);
        let finished = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        let goes = match policy {
            _ if mutant::is(mutant::Mutant::LeaksAtEnd) => false,
            _ if mutant::is(mutant::Mutant::CleansEverything) => true,
            CleanPodPolicy::All => true,
            CleanPodPolicy::Running => !finished || replaced,
            CleanPodPolicy::None => replaced,
        };
        if goes {
            leaving += 1;
            pass.remove(pod);
        } else {
            kept.insert(pod.slot);
        }
    }
    if policy != CleanPodPolicy::None {
        for (role, indices) in &observed.services {
            for index in indices.iter() {
                let slot = Slot::new(*role, index);
                if !kept.contains(&slot) {
                    pass.actions.push(Action::DeleteService(slot));
                }
            }
        }
    }
    if observed.autoscaler != Autoscaler::Missing {
        pass.actions.push(Action::DeleteAutoscaler);
    }
    grouping::dissolve(pass);
    if leaving > 0 {
        pass.say(
            Code::CleaningUp,
            format!("the job has ended; {leaving} pods are not gone yet"),
        );
    }
    expire(pass);
}

/// Deletes the job object once its time is over.
fn expire(pass: &mut Pass<'_>) {
    let (Some(ttl), Some(completion)) = (
        pass.job.run_policy.ttl_seconds_after_finished,
        pass.status.completion_time,
    ) else {
        return pass.say(Code::Ended, "the job has ended");
    };
    let Ok(at) = completion.checked_add(Duration::from_secs(u64::from(ttl))) else {
        return pass.say(Code::Ended, "the job has ended");
    };
    if pass.now >= at {
        pass.actions.push(Action::DeleteJob);
        pass.say(
            Code::WaitingForTtl,
            format!("the job ended {ttl} s ago and is deleted"),
        );
    } else {
        if !mutant::is(mutant::Mutant::SleepsThroughTtl) {
            pass.wake(at);
        }
        pass.say(
            Code::WaitingForTtl,
            format!("the job has ended and is deleted at {at}"),
        );
    }
}
