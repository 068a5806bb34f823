//! A restart in place: how `decide` drives the machines of [`crate::barrier`].
//!
//! Owns when a failed gang restarts in its pods, and how each step of the [`Coordinator`](crate::barrier::Coordinator) becomes status, actions, events
//! and reasons. What a step is, and when members are lost, is the coordinator's.
//!
//! Invariants:
//! - [`Coordinator::step`](crate::barrier::Coordinator::step) is called at most once in a pass, on a copy; the adapter keeps the copy once the
//!   status is written.
//! - The failure budget is charged in the write that stores the barrier, and in no other of the same restart.
//! - While a barrier is stored nothing counts as a failure, and pods are created only where the coordinator says so.
//! - Pods that are lost when the barrier begins are replaced; the others are kept, with their uids and nodes.
//! - Whatever ends an attempt otherwise (success, suspension, deadline, eviction, another size) ends the barrier in the same write.

mod choice;
mod hang;
mod hold;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub(super) use self::{
    choice::{lost_slots, note_unsupervised, program_ended, programs, template_digest, way},
    hang::with_hang,
    hold::{Held, hold, is_held, lost_words},
};
use super::{
    Action, ConditionType, EventKind, EventReason, GangStep, LastRestart, ObservedPod, PodPhase,
    Seating, SeenGang,
    cause::{Cause, Failure},
    conditions, converge,
    messages::Fails,
    mutant::{self, Mutant},
    pass::Pass,
    roster::{Contact, Roster},
    seating,
};
use crate::{
    barrier::{
        Barrier, Limits, NewPodsReason, Outcome, Phase as BarrierPhase, PodHealth, SeenJob,
        SeenPod, SlotSet, Step, StopHow, Stored, Wish, status_sentence,
    },
    reason::Reason,
    spec::{Slot, leading_slot},
};

/// How soon labels, deletions and new pods are checked again: one that was lost must not hold up the gang for long.
const RECHECK: Duration = Duration::from_secs(2);

/// Forgets a barrier that an operator which knows none went past: it began a later attempt, or gave the prepared one new pods, which
/// run already.
pub(super) fn drop_outdated(pass: &mut Pass<'_>) {
    let record = &mut pass.status.trainyard;
    let (attempt, formed) = (record.attempt, record.formed);
    record.barrier.take_if(|barrier| {
        barrier.attempt != attempt || formed && barrier.phase == BarrierPhase::Preparing
    });
}

/// Answers the leader where the pass decides nothing about the gang: the job has ended or is about to have no pods.
pub(super) fn stand_by(pass: &mut Pass<'_>, wish: Wish) {
    pass.status.trainyard.hold = None;
    step(pass, wish);
}

/// What the coordinator has to say while no barrier is stored: programs that ended, and a hang.
pub(super) fn observe(pass: &mut Pass<'_>) -> Step {
    let wish = wish(pass);
    step(pass, wish).unwrap_or_default()
}

/// One step of the coordinator, on a copy; nothing where pods have no supervisors.
fn step(pass: &mut Pass<'_>, wish: Wish) -> Option<Step> {
    let SeenGang::Here(gang) = &pass.observed.gang else {
        return None;
    };
    let leader = leading_slot(pass.job)?;
    let record = &pass.status.trainyard;
    let stored = Stored {
        attempt: record.attempt,
        barrier: record
            .barrier
            .clone()
            .filter(|barrier| barrier.attempt == record.attempt),
    };
    let slots: BTreeSet<Slot> = pass.job.slots().collect();
    let pods = seen_pods(pass);
    let mut coordinator = gang.coordinator.clone();
    let seen = SeenJob {
        stored: &stored,
        slots: &slots,
        leader,
        pods: &pods,
        wish,
        hold: hold::order(pass),
    };
    let mut step = coordinator.step(&seen, gang.now);
    if let Some(at) = step.wake_at {
        pass.wake_in(at.saturating_sub(gang.now).max(Duration::from_millis(1)));
    }
    let send = step.send.take();
    let outcome = step.outcome.clone();
    pass.gang = Some(Box::new(GangStep {
        coordinator,
        send,
        outcome,
    }));
    Some(step)
}

/// The pods as the coordinator sees them.
fn seen_pods(pass: &Pass<'_>) -> BTreeMap<Slot, SeenPod> {
    let pods = pass.observed.pods.iter().map(|pod| {
        let seen = SeenPod {
            uid: pod.uid.clone(),
            attempt: pod.attempt,
            health: health(pass, pod),
        };
        (pod.slot, seen)
    });
    pods.collect()
}

fn health(pass: &Pass<'_>, pod: &ObservedPod) -> PodHealth {
    let dismissed = pass.status.trainyard.dismissed.contains(&pod.uid);
    match pod.phase {
        // A pod on a lost node never ends by itself, also where its deletion was requested.
        _ if pass.contact(pod) == Contact::Lost => PodHealth::NodeLost,
        _ if pod.deleted_at.is_some() || dismissed => PodHealth::Terminating,
        PodPhase::Failed | PodPhase::Succeeded => PodHealth::Failed,
        PodPhase::Pending => PodHealth::Starting,
        PodPhase::Running | PodPhase::Unknown => PodHealth::Well,
    }
}

/// What is wanted of a gang that may run.
fn wish(pass: &Pass<'_>) -> Wish {
    let before = &pass.observed.status;
    if conditions::holds(&before.conditions, ConditionType::Suspended) {
        return Wish::Suspend;
    }
    let resized = before.trainyard.replicas != pass.job.replicas();
    if resized { Wish::Resize } else { Wish::Run }
}

/// How the gang restarts, for the event of the failure.
pub(super) fn sentence(pass: &Pass<'_>) -> String {
    let (lost, wanted) = (lost_slots(pass).len(), pass.job.total_replicas());
    if lost == 0 {
        return "The gang restarts in place.".to_owned();
    }
    format!("The gang restarts in place; {lost} of {wanted} pods are replaced.")
}

/// Stores the barrier of a gang whose failure was charged.
pub(super) fn begin(pass: &mut Pass<'_>, failure: &Failure) {
    let how = match failure.cause {
        Cause::NotTraining => StopHow::Hang,
        _ => StopHow::Grace(pass.job.settings.stop_grace),
    };
    let why = format!(
        "pod `{}`: {}",
        pass.job.pod_name(failure.slot),
        failure.cause
    );
    let lost = lost_slots(pass);
    let record = &mut pass.status.trainyard;
    let barrier = Barrier::begin(record.attempt, how, &why, lost);
    record.barrier = Some(barrier);
}

/// Continues the barrier that is stored. The error is why the job fails.
pub(super) fn proceed(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    if matches!(pass.observed.seating, Seating::Evicted(_)) {
        stand_by(pass, Wish::Fail);
        return seating::end_evicted(pass);
    }
    // Kept pods are those of the old template, so neither a new one nor a restart that is asked for may be answered in place.
    if let Some(reason) = choice::overtaken(pass) {
        new_pods(pass, &reason);
        return Ok(());
    }
    let wish = wish(pass);
    let Some(step) = step(pass, wish) else {
        let why = choice::unsupervised(pass.observed).to_owned();
        new_pods(pass, &NewPodsReason::Unsupervised { why });
        return Ok(());
    };
    // Before anything is done for pods that cannot run.
    if step.outcome.is_none()
        && let Some(reason) = no_spare_node(pass, &step)
    {
        new_pods(pass, &reason);
        return Ok(());
    }
    converge::remove_unwanted(pass, roster);
    converge::say_refusals(pass);
    act(pass, roster, &step);
    match step.outcome {
        Some(Outcome::Go { attempt }) => went(pass, roster, attempt, step.spent),
        Some(Outcome::NewPods { reason, .. }) => new_pods(pass, &reason),
        // What ends a job or suspends it has settled the pass before.
        Some(Outcome::NoPods { .. }) => pass.status.trainyard.barrier = None,
        None => {
            if let Some(stored) = step.store {
                store(pass, stored)?;
            }
            report(pass, &step.waiting);
        }
    }
    Ok(())
}

/// Why pods that replace lost ones get no node: placement has refused them for as long as a member has to get ready, counted since the last
/// pod was lost or came. The kept pods must not hold their nodes for longer than that.
fn no_spare_node(pass: &mut Pass<'_>, step: &Step) -> Option<NewPodsReason> {
    let Seating::Queued(Some(lacks)) = &pass.observed.seating else {
        return None;
    };
    let left = Limits::default()
        .ready_within
        .saturating_sub(step.incomplete_for?);
    if left.is_zero() {
        let why = lacks.message.clone();
        return Some(NewPodsReason::NoSpareNode { why });
    }
    pass.wake_in(left);
    None
}

/// Labels to patch, pods to delete, pods to create.
fn act(pass: &mut Pass<'_>, roster: &Roster<'_>, step: &Step) {
    for relabel in &step.relabel {
        pass.actions.push(Action::RelabelPod {
            slot: relabel.slot,
            uid: relabel.uid.clone(),
            from: relabel.from,
            attempt: relabel.attempt,
        });
    }
    let observed = pass.observed;
    for lost in &step.replace {
        let pod = observed.pods.iter().find(|pod| pod.uid == lost.uid);
        if let Some(pod) = pod {
            pass.remove(pod);
        }
    }
    let slots: Vec<Slot> = step.create.iter().map(|create| create.slot).collect();
    // A pod that is there and has no seat yet gets it the same way.
    let gated = observed.pods.iter().any(|pod| pod.gated);
    if !slots.is_empty() || gated {
        converge::create(pass, roster, &slots, true);
    }
    if !pass.actions.is_empty() {
        pass.wake_in(RECHECK);
    }
}

/// Stores the next phase of the barrier, or whom it has lost.
fn store(pass: &mut Pass<'_>, stored: Stored) -> Result<(), Fails> {
    let record = &pass.status.trainyard;
    let prepares = stored.attempt > record.attempt;
    if prepares {
        pass.next_attempt_in_place();
    }
    if prepares && mutant::is(Mutant::ChargesHangTwice) {
        let charge = super::budget::charge;
        let account = super::Account::Infrastructure;
        let spent = &mut pass.status.trainyard.spent;
        charge(spent, pass.job, account, 1).map_err(|exhausted| exhausted.fails(pass.job))?;
    }
    let began_at = pass.now;
    let record = &mut pass.status.trainyard;
    if let Some(barrier) = stored.barrier.as_ref().filter(|_| prepares) {
        record.last_restart = Some(LastRestart {
            attempt: barrier.attempt,
            stopping_ms: milliseconds(barrier.spent),
            preparing_ms: None,
            began_at: Some(began_at),
        });
    }
    record.barrier = stored.barrier;
    Ok(())
}

/// All programs start in place: the attempt is as formed as one with new pods.
fn went(pass: &mut Pass<'_>, roster: &Roster<'_>, attempt: u32, spent: Duration) {
    let record = &mut pass.status.trainyard;
    let replaced = record
        .barrier
        .take()
        .map_or(0, |barrier| barrier.lost.len());
    record.formed = roster.missing.is_empty();
    let mut parts = String::new();
    if let Some(last) = record
        .last_restart
        .as_mut()
        .filter(|last| last.attempt == attempt)
    {
        let preparing = milliseconds(spent).saturating_sub(last.stopping_ms);
        last.preparing_ms = Some(preparing);
        parts = format!(
            ": {} ms to stop, {preparing} ms to prepare",
            last.stopping_ms
        );
    }
    let replaced = match replaced {
        1 => "1 pod replaced".to_owned(),
        count => format!("{count} pods replaced"),
    };
    let message = format!("Attempt {attempt} starts in place{parts}, {replaced}.");
    pass.emit(EventKind::Normal, EventReason::RestartedInPlace, message);
}

/// The barrier ends with new pods, on the charge that is stored already.
fn new_pods(pass: &mut Pass<'_>, reason: &NewPodsReason) {
    pass.next_attempt();
    let attempt = pass.status.trainyard.attempt;
    let message = format!("Attempt {attempt} starts with new pods, because {reason}.");
    pass.hold(ConditionType::Restarting, message.clone());
    pass.emit(EventKind::Warning, EventReason::Restarting, message);
}

/// Reports what a stored barrier waits for.
pub(super) fn report(pass: &mut Pass<'_>, waiting: &SlotSet) {
    let Some(barrier) = &pass.status.trainyard.barrier else {
        return;
    };
    let attempt = match barrier.phase {
        BarrierPhase::Stopping => barrier.attempt.saturating_add(1),
        BarrierPhase::Preparing => barrier.attempt,
    };
    let phase = status_sentence(barrier, waiting, pass.job.total_replicas());
    pass.say(Reason::RestartingInPlace { attempt, phase });
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
