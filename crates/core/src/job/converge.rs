//! What the current attempt still needs: old pods deleted, pods and Services created, and the reason
//! for what it waits for.

use std::collections::BTreeSet;

use super::{
    Action, ConditionType, IndexSet, JobRecord, PodPhase, SeenGang, SharedInputs, Wait, fabric,
    grouping, messages, mutant,
    pass::Pass,
    preflight,
    roster::{self, Roster},
    seating, success,
};
use crate::{
    reason::{Reason, WorkerState},
    spec::{After, Job, Kind, RestartScope, Role, Slot},
};

/// Brings the pods towards what the attempt wants.
pub(super) fn converge(pass: &mut Pass<'_>, roster: &Roster<'_>) {
    remove_unwanted(pass, roster);
    say_refusals(pass);
    let record = &pass.status.trainyard;
    let missing: Vec<Slot> = roster
        .missing
        .iter()
        .copied()
        .filter(|slot| !record.has_succeeded(*slot))
        .collect();
    let leaving = roster
        .notable
        .iter()
        .any(|pod| record.dismissed.contains(&pod.uid));
    if missing.is_empty() && !leaving {
        pass.status.trainyard.formed = true;
    }
    if let Some(reason) = blocked(pass, roster).or_else(|| fabric::settle(pass)) {
        pass.say(reason);
    } else {
        let free = free_slots(pass, roster, &missing);
        create(pass, roster, &free, false);
    }
    report_running(pass, roster);
    say_what_pods_wait_for(pass, roster, missing.len());
}

/// Removes pods of older attempts, pods without a slot, pods that are paid for, and Services
/// without a slot.
pub(super) fn remove_unwanted(pass: &mut Pass<'_>, roster: &Roster<'_>) {
    for pod in &roster.stale {
        pass.remove(pod);
    }
    for pod in &roster.excess {
        pass.status.trainyard.dismissed.insert(pod.uid.clone());
        pass.remove(pod);
    }
    for pod in &roster.notable {
        if pass.status.trainyard.dismissed.contains(&pod.uid) {
            pass.remove(pod);
        }
    }
    let observed = pass.observed;
    for (role, indices) in &observed.services {
        let replicas = pass.job.role_replicas(*role);
        for index in indices.iter().filter(|index| *index >= replicas) {
            pass.actions
                .push(Action::DeleteService(Slot::new(*role, index)));
        }
    }
}

/// Why no pod may be created now.
///
/// Under gang scope no pod of an attempt exists beside one of another: an old rank that is slow to
/// end could join the new gang's rendezvous, which has the same name.
fn blocked(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Option<Reason> {
    let attempt = pass.status.trainyard.attempt;
    let gang = pass.job.restart_scope() == RestartScope::Gang;
    if gang
        && !mutant::is(mutant::Mutant::StartsOverOldPods)
        && let Some(old) = roster.stale.first()
    {
        return Some(Reason::OldPods {
            attempt,
            count: roster.stale.len(),
            first: pass.job.pod_name(old.slot),
        });
    }
    let retry_at = pass.status.trainyard.retry_at?;
    if pass.now < retry_at {
        pass.wake(retry_at);
        let record = &pass.status.trainyard;
        return Some(
            match (record.gang.failed_starts().times, record.quick_failures) {
                (0, failures) => Reason::QuickFailures {
                    failures,
                    attempt,
                    retry_at,
                },
                (times, _) => Reason::NodesReleased {
                    times,
                    attempt,
                    retry_at,
                },
            },
        );
    }
    pass.status.trainyard.retry_at = None;
    None
}

/// The missing slots whose name is free. A pod that is slow to terminate still holds its name.
fn free_slots(pass: &mut Pass<'_>, roster: &Roster<'_>, missing: &[Slot]) -> Vec<Slot> {
    let held: BTreeSet<Slot> = roster.stale.iter().map(|pod| pod.slot).collect();
    let (held, free): (Vec<Slot>, Vec<Slot>) =
        missing.iter().partition(|slot| held.contains(*slot));
    if let Some(first) = held.first() {
        let first = pass.job.pod_name(*first);
        let count = held.len();
        pass.say(Reason::NamesHeld { count, first });
    }
    free
}

/// Creates what the pods of these slots need, and the pods. `waits`: their programs wait for the gang.
pub(super) fn create(pass: &mut Pass<'_>, roster: &Roster<'_>, missing: &[Slot], waits: bool) {
    let attempt = pass.status.trainyard.attempt;
    let is_mpi = pass.job.kind.is_mpi();
    // Supervisors mount the identity of the job; the pods of a `TrainJob` have their Service and claims in common.
    let shares = is_mpi || pass.job.kind == Kind::Train;
    if shares || matches!(pass.observed.gang, SeenGang::Here(_)) {
        let running_workers = is_mpi.then(|| running_workers(pass));
        let inputs = SharedInputs {
            replicas: pass.job.replicas(),
            running_workers: running_workers.unwrap_or_default(),
        };
        if pass.observed.shared.as_ref() != Some(&inputs) {
            pass.actions.push(Action::ApplyShared(inputs));
        }
    }
    if !is_mpi {
        // Services first: the names must resolve when the pods start.
        let services = &pass.observed.services;
        for slot in pass.job.slots() {
            if !services
                .get(&slot.role)
                .is_some_and(|indices| indices.contains(slot.index))
            {
                pass.actions.push(Action::CreateService(slot));
            }
        }
    }
    if !grouping::ensure_group(pass) {
        return;
    }
    if preflight::pauses(pass) {
        return;
    }
    let Some(binding) = seating::ask(pass, roster, missing) else {
        preflight::unseated(pass);
        return;
    };
    if binding == seating::Binding::Gated {
        preflight::unseated(pass);
    } else if !preflight::cleared(pass, roster, missing) {
        return;
    }
    let mut launcher_waits = None;
    for slot in missing {
        if !may_start(pass.job, slot.role, &pass.status.trainyard, roster) {
            continue;
        }
        if slot.role == Role::Launcher && launcher_waits.is_none() {
            launcher_waits = launcher_waits_for(pass.job, &pass.status.trainyard, roster);
            if launcher_waits.is_some() {
                continue;
            }
        }
        if let Some(seat) = seating::seat(pass, binding, *slot) {
            pass.actions.push(Action::CreatePod {
                slot: *slot,
                attempt,
                seat,
                waits,
            });
        }
    }
    seating::ungate(pass, roster, binding);
    if let Some(reason) = launcher_waits {
        pass.say(reason);
    }
}

/// Which workers the launcher still waits for, if it does.
pub(super) fn launcher_waits_for(
    job: &Job,
    record: &JobRecord,
    roster: &Roster<'_>,
) -> Option<Reason> {
    if !job.launcher_waits() {
        return None;
    }
    let wanted = job.role_replicas(Role::Worker);
    let (have, state) = if job.kind == Kind::MpiV1 {
        (roster.active(Role::Worker, record), WorkerState::Running)
    } else {
        let ready = roster.notable.iter().filter(|pod| {
            pod.slot.role == Role::Worker && pod.ready && roster::is_active(pod, record)
        });
        (
            ready.fold(roster.healthy(Role::Worker), |sum, _| sum + 1),
            WorkerState::Ready,
        )
    };
    (have < wanted).then_some(Reason::LauncherWaits {
        have,
        wanted,
        state,
    })
}

/// Whether all that `role` waits for has come to pass.
fn may_start(job: &Job, role: Role, record: &JobRecord, roster: &Roster<'_>) -> bool {
    let after = job.train().and_then(|own| own.after.get(&role));
    after.into_iter().flatten().all(|(other, state)| {
        let done = record.succeeded_in(job, *other);
        let ready = match state {
            After::Complete => 0,
            After::Ready => {
                let ready = roster.notable.iter().filter(|pod| {
                    pod.slot.role == *other && pod.ready && roster::is_active(pod, record)
                });
                ready.fold(roster.healthy(*other), |sum, _| sum + 1)
            }
        };
        done + ready >= job.role_replicas(*other)
    })
}

/// The workers of this attempt that run now.
fn running_workers(pass: &Pass<'_>) -> IndexSet {
    let record = &pass.status.trainyard;
    let wanted = pass.job.role_replicas(Role::Worker);
    let mut indices: Vec<u32> = pass
        .observed
        .pods
        .iter()
        .filter(|pod| pod.slot.role == Role::Worker && pod.attempt == record.attempt)
        .filter(|pod| pod.slot.index < wanted && roster::is_active(pod, record))
        .map(|pod| pod.slot.index)
        .collect();
    // Adding to a set of ranges is cheap only in order.
    indices.sort_unstable();
    indices.into_iter().collect()
}

/// Running is what the deciding role does. After a restart it is true again only when as many pods
/// run as the job needs, so that a job does not flap between the two.
fn report_running(pass: &mut Pass<'_>, roster: &Roster<'_>) {
    let Some(role) = success::deciding_role(pass.job) else {
        return;
    };
    let counts = &pass.status.replica_statuses;
    let active = |role: Role| counts.get(&role).map_or(0, |status| status.active);
    let mut runs = active(role) > 0;
    if pass.job.kind == Kind::MpiV2 {
        runs = runs && active(Role::Worker) == pass.job.role_replicas(Role::Worker);
    }
    if pass.holds(ConditionType::Restarting) {
        let record = &pass.status.trainyard;
        let running: u32 = pass
            .job
            .roles
            .keys()
            .map(|role| roster.active(*role, record))
            .sum();
        let done: u32 = pass
            .job
            .roles
            .keys()
            .map(|role| record.succeeded_in(pass.job, *role))
            .sum();
        let needed = super::elastic::enough(pass.job).min(pass.job.total_replicas());
        runs = runs && running + done >= needed;
    }
    if runs || mutant::is(mutant::Mutant::AlwaysRunning) {
        pass.hold(ConditionType::Running, messages::running(pass.job));
    }
}

pub(super) fn say_refusals(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    let Some(first) = observed.refusals.first() else {
        return;
    };
    pass.say(first.reason(observed.refusals.len() - 1));
}

/// The last reason: what the pods that exist wait for, or that they all run.
fn say_what_pods_wait_for(pass: &mut Pass<'_>, roster: &Roster<'_>, missing: usize) {
    let wanted = pass.job.total_replicas();
    let deciding = success::deciding_role(pass.job);
    if deciding.is_none_or(|role| pass.job.role_replicas(role) == 0) {
        let role = deciding.unwrap_or(Role::Worker);
        return pass.say(Reason::NothingToRun { role });
    }
    let mut without_seat = 0u32;
    let mut scheduler_said = None;
    let mut pull_failed = None;
    let mut pending = 0u32;
    for pod in &roster.notable {
        if pod.phase == PodPhase::Pending {
            pending += 1;
            match &pod.wait {
                Some(Wait::Seat(words)) => {
                    without_seat += 1;
                    scheduler_said.get_or_insert(words.as_str());
                }
                Some(Wait::PullFailed(words)) => {
                    pull_failed.get_or_insert((pod.slot, words.as_str()));
                }
                _ => {}
            }
        }
    }
    if let Some((slot, words)) = pull_failed {
        let pod = pass.job.pod_name(slot);
        let message = words.to_owned();
        pass.say(Reason::NoImage { pod, message });
    } else if let Some(words) = scheduler_said {
        pass.say(Reason::Unscheduled {
            count: without_seat,
            wanted,
            scheduler: words.to_owned(),
        });
    } else if missing > 0 || pending > 0 {
        pass.say(Reason::PodsStarting {
            missing,
            wanted,
            pending,
        });
    } else {
        pass.say(Reason::AllPodsExist { pods: wanted });
    }
}
