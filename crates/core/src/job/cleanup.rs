//! The end of a job: its last status, which pods stay, and when the job object is deleted.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    Action, Autoscaler, ConditionType, EventKind, EventReason, PodPhase, grouping, in_place,
    messages, messages::Fails, mutant, pass::Pass,
};
use crate::{
    barrier::Limits,
    reason::Reason,
    spec::{CleanPodPolicy, Slot},
};

/// How long pods of a job without `cleanPodPolicy` may still run after its success: long enough to write results,
/// short enough not to waste a night of idle GPUs.
const RUNS_ON_FOR: Duration = Duration::from_mins(5);

/// The job has succeeded.
pub(super) fn succeed(pass: &mut Pass<'_>) {
    end(pass, Outcome::Succeeded, messages::succeeded(pass.job));
    for status in pass.status.replica_statuses.values_mut() {
        status.succeeded += std::mem::take(&mut status.active);
    }
    clean(pass);
}

/// The job has failed.
pub(super) fn fail(pass: &mut Pass<'_>, fails: Fails) {
    pass.status.trainyard.failed_by = Some(fails.by);
    let message = fails.message;
    end(pass, Outcome::Failed, message);
    clean(pass);
}

/// The job had ended before this pass.
pub(super) fn ended(pass: &mut Pass<'_>) {
    clean(pass);
}

/// The job object is being deleted: all its objects are deleted.
pub(super) fn being_deleted(pass: &mut Pass<'_>) {
    remove_everything(pass);
    let terminating = pass.observed.pods.len();
    pass.say(Reason::BeingDeleted { terminating });
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
    grouping::delete_group(pass);
}

fn end(pass: &mut Pass<'_>, outcome: Outcome, message: String) {
    let (condition, kind, reason) = match outcome {
        Outcome::Succeeded => (
            ConditionType::Succeeded,
            EventKind::Normal,
            EventReason::Succeeded,
        ),
        Outcome::Failed => (
            ConditionType::Failed,
            EventKind::Warning,
            EventReason::Failed,
        ),
    };
    pass.hold(condition, message.clone());
    if !mutant::is(mutant::Mutant::ForgetsCompletionTime) {
        pass.status.completion_time.get_or_insert(pass.stamp);
    }
    pass.status.trainyard.retry_at = None;
    pass.status.trainyard.barrier = None;
    pass.status.trainyard.ledger.end(pass.now);
    pass.emit(kind, reason, message);
}

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    Failed,
}

/// What happens to the pods of a job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cleaning {
    /// The policy holds from now on.
    Policy(CleanPodPolicy),
    /// Every pod that has started is kept; those that still run then are deleted.
    KeepUntil(Timestamp),
}

/// What `cleanPodPolicy` means for this job now. Where it is not stated, a failed job is cleaned at once: its peers
/// wait for a rank that is gone. A job that succeeded keeps its pods as upstream does, but not on GPUs forever.
fn cleaning(pass: &Pass<'_>) -> Cleaning {
    if let Some(stated) = pass.job.run_policy.clean_pod_policy {
        return Cleaning::Policy(stated);
    }
    let succeeded = pass.holds(ConditionType::Succeeded);
    let end = pass.status.completion_time.filter(|_| succeeded);
    let until = end.and_then(|end| end.checked_add(RUNS_ON_FOR).ok());
    match until {
        Some(at) if pass.now < at => Cleaning::KeepUntil(at),
        _ => Cleaning::Policy(CleanPodPolicy::Running),
    }
}

/// Applies `cleanPodPolicy` and `ttlSecondsAfterFinished` to a job that has ended.
fn clean(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    let cleaning = cleaning(pass);
    let mut kept: BTreeSet<Slot> = BTreeSet::new();
    let (mut leaving, mut running) = (0u32, 0u32);
    let believed_until = program_ends_believed_until(pass);
    for pod in &observed.pods {
        let record = &pass.status.trainyard;
        let replaced = pod.attempt < record.attempt || record.dismissed.contains(&pod.uid);
        let ended = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        // The log of a program that ended is what people look for, and its supervisor is about to end the container.
        let about_to_end = !ended && believed_until.is_some() && in_place::program_ended(pass, pod);
        let finished = ended || about_to_end;
        let goes = match cleaning {
            _ if mutant::is(mutant::Mutant::LeaksAtEnd) => false,
            _ if mutant::is(mutant::Mutant::CleansEverything) => true,
            Cleaning::Policy(CleanPodPolicy::All) => true,
            Cleaning::Policy(CleanPodPolicy::Running) => !finished || replaced,
            Cleaning::Policy(CleanPodPolicy::None) => replaced,
            // A pod that the operator gated has no node and never will have one.
            Cleaning::KeepUntil(_) => replaced || pod.gated,
        };
        if goes {
            leaving += 1;
            pass.remove(pod);
        } else {
            running += u32::from(!finished);
            kept.insert(pod.slot);
            if let Some(until) = believed_until.filter(|_| about_to_end) {
                pass.wake(until);
            }
        }
    }
    if cleaning != Cleaning::Policy(CleanPodPolicy::None) {
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
    grouping::delete_group(pass);
    if leaving > 0 {
        pass.say(Reason::CleaningUp {
            terminating: leaving,
        });
    }
    if let Cleaning::KeepUntil(at) = cleaning
        && running > 0
    {
        if !mutant::is(mutant::Mutant::LetsPodsRunOn) {
            pass.wake(at);
        }
        pass.say(Reason::RunningOn { running, until: at });
    }
    expire(pass);
}

/// Until when a container whose program has ended is taken for one that ends by itself; nothing once that is over. What the leader of the
/// gang reported last may be wrong, and such a container would hold its devices.
fn program_ends_believed_until(pass: &Pass<'_>) -> Option<Timestamp> {
    let end = pass.status.completion_time?;
    let until = end.checked_add(Limits::default().hold).ok()?;
    (pass.now < until).then_some(until)
}

/// Deletes the job object once its time is over.
fn expire(pass: &mut Pass<'_>) {
    let (Some(ttl), Some(completion)) = (
        pass.job.run_policy.ttl_seconds_after_finished,
        pass.status.completion_time,
    ) else {
        return pass.say(Reason::Ended);
    };
    let Ok(at) = completion.checked_add(Duration::from_secs(u64::from(ttl))) else {
        return pass.say(Reason::Ended);
    };
    if pass.now >= at {
        pass.actions.push(Action::DeleteJob);
        pass.say(Reason::Expired { ttl_seconds: ttl });
    } else {
        if !mutant::is(mutant::Mutant::SleepsThroughTtl) {
            pass.wake(at);
        }
        pass.say(Reason::ExpiresAt { at });
    }
}
