//! Seats (assigned nodes): a gang starts when all of it has seats, and releases all of them when it cannot start.
//!
//! Owns when seats are requested, which pods are gated, and when seats are released. Which
//! nodes are seats is decided elsewhere and observed as [`Seating`].
//!
//! Invariant: while a gang has no seats, every pod of it that exists is gated, so that it holds
//! nothing another job could use.

use std::time::Duration;

use super::{
    Account, Action, ConditionType, Decision, Disruption, EventKind, EventReason, GangPhase,
    Observed, ObservedPod, PodPhase, Seat, Seating, Wait,
    cause::{Cause, Failure},
    conditions, elastic,
    messages::Fails,
    mutant,
    pass::Pass,
    preflight, recover,
    roster::Roster,
};
use crate::{
    reason::Reason,
    spec::{Role, Slot},
};

/// A pod that the scheduler still refuses its node after this long will not get it: something else
/// uses the node, or the pod requests what placement does not know. Shorter refusals are pods that
/// are still terminating.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Pause after seats were released; it doubles each time, so that a gang that never starts does not
/// keep seats from gangs that would.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_mins(20);

/// Releases the seats of a gang that does not start, and ends the attempt without a charge.
pub(super) fn release_if_stuck(pass: &mut Pass<'_>, roster: &Roster<'_>) {
    let phase = pass.status.trainyard.gang;
    let Some(since) = phase.starting_since() else {
        return;
    };
    if all_run(pass, roster) {
        pass.status.trainyard.gang = GangPhase::Whole;
        if let Some(state) = &mut pass.status.trainyard.preflight {
            state.clear_results();
        }
        return;
    }
    let given = match pass.observed.seating {
        Seating::Given(_) => true,
        // An operator that crashed while it ungated the pods forgot the seats of the others. Pods that were ungated hold
        // theirs, and must not hold them for as long as the rest waits.
        Seating::Queued(Some(_)) => !phase.has_run(),
        _ => false,
    };
    if !given || mutant::is(mutant::Mutant::KeepsSeats) {
        return;
    }
    let at = |after: Duration| since.checked_add(after).unwrap_or(jiff::Timestamp::MAX);
    let (refused_at, late_at) = (at(REFUSED_FOR), at(pass.job.settings.start_within));
    let refused_seat = refused(roster);
    let mut avoid = Vec::new();
    let mut refused_pod = false;
    let why = if let Some(refusal) = pass.observed.refusals.first()
        && !pass.status.trainyard.formed
        && lacks_pods(roster)
    {
        refused_pod = true;
        refusal.reason(0).to_string()
    } else if let Some((pod, words)) = refused_seat
        && pass.now >= refused_at
    {
        let name = pass.job.pod_name(pod.slot);
        avoid = seat_of(pass, pod.slot).into_iter().collect();
        let node = avoid.first().map_or("?", String::as_str);
        format!("the scheduler refuses pod `{name}` on its assigned node `{node}`: {words}")
    } else if pass.now >= late_at {
        let limit = pass.job.settings.start_within.as_secs();
        let waits = roster
            .notable
            .iter()
            .find(|pod| pod.phase == PodPhase::Pending);
        let first = waits.map_or_else(String::new, |pod| {
            format!(" (first: `{}`)", pass.job.pod_name(pod.slot))
        });
        format!("{limit} s after nodes were assigned, some pods are not running{first}")
    } else {
        pass.wake(late_at);
        if refused_seat.is_some() {
            pass.wake(refused_at);
        }
        return;
    };
    if phase.has_run() {
        return dismiss_unscheduled(pass, roster, why, avoid);
    }
    let message = format!("Releasing the gang's nodes: {why}.");
    if pass.holds(ConditionType::Running) {
        pass.hold(ConditionType::Restarting, message.clone());
    }
    pass.emit(EventKind::Warning, EventReason::SeatsGivenBack, message);
    release_and_restart(pass, why, avoid);
    let record = &mut pass.status.trainyard;
    record.gang = phase.after_failed_start(refused_pod);
    // The adapter retries what was refused, with a growing pause.
    if !refused_pod {
        let doublings = phase.failed_starts().times.min(8);
        let pause = (PAUSE * 2u32.pow(doublings)).min(PAUSE_MAX);
        record.retry_at = pass.now.checked_add(pause).ok();
    }
}

/// Whether a pod is missing that could be gated, its name free or not.
fn lacks_pods(roster: &Roster<'_>) -> bool {
    let mut missing = roster.missing.iter();
    missing.any(|slot| slot.role != Role::Launcher)
}

/// Ends an attempt that is evicted for another gang. The error is why the job fails.
pub(super) fn end_evicted(pass: &mut Pass<'_>) -> Result<(), Fails> {
    let Seating::Evicted(why) = &pass.observed.seating else {
        return Ok(());
    };
    if mutant::is(mutant::Mutant::KeepsSeats) {
        return Ok(());
    }
    let why = why.clone();
    let record = &pass.status.trainyard;
    if matches!(record.gang, GangPhase::Asking(_)) {
        // No pod is there, or only pods that terminate, so nothing is lost.
        let avoid = Vec::new();
        pass.status.trainyard.released = record.attempt.saturating_sub(1);
        pass.actions.push(Action::ReleaseSeats { why, avoid });
        return Ok(());
    }
    let message = format!("The gang is preempted: {why}.");
    pass.emit(EventKind::Warning, EventReason::Preempted, message);
    let mut slots = pass.job.slots();
    let first = slots.find(|slot| !slot.role.is_initializer());
    let failure = Failure {
        slot: first.unwrap_or(Slot::new(Role::Worker, 0)),
        cause: Cause::Disrupted {
            by: Disruption::Preempted,
        },
        at: Some(pass.stamp),
    };
    // A gang that has not run as a whole yet has nothing to lose, and the end of one that restarts in place is charged already.
    let record = &pass.status.trainyard;
    if record.gang.has_run() && record.barrier.is_none() {
        recover::charge_restart(pass, &failure, Account::Preemption)?;
    }
    release_and_restart(pass, why, Vec::new());
    recover::pause(pass, &failure);
    Ok(())
}

/// Releases the seats and begins the next attempt, which has to request new ones.
fn release_and_restart(pass: &mut Pass<'_>, why: String, avoid: Vec<String>) {
    pass.actions.push(Action::ReleaseSeats { why, avoid });
    pass.status.trainyard.released = pass.status.trainyard.attempt;
    pass.next_attempt();
}

/// Dismisses the pods that wait for their seats while the rest of the gang runs: one that was replaced, or
/// that came with a larger size.
fn dismiss_unscheduled(pass: &mut Pass<'_>, roster: &Roster<'_>, why: String, avoid: Vec<String>) {
    let waits =
        |pod: &&&ObservedPod| pod.phase == PodPhase::Pending && pod.node.is_none() && !pod.gated;
    let record = &mut pass.status.trainyard;
    let unscheduled = roster.notable.iter().filter(waits);
    record
        .dismissed
        .extend(unscheduled.map(|pod| pod.uid.clone()));
    record.gang = GangPhase::Whole;
    // A dismissed pod has not vanished.
    record.formed = false;
    let message = format!("Releasing the nodes of pods that cannot be scheduled: {why}.");
    pass.emit(EventKind::Warning, EventReason::SeatsGivenBack, message);
    pass.actions.push(Action::ReleaseSeats { why, avoid });
}

/// A job that wants no pods leaves the wait queue.
pub(super) fn leave_queue(pass: &mut Pass<'_>) {
    let has_place = matches!(
        pass.observed.seating,
        Seating::Queued(_) | Seating::Given(_) | Seating::Evicted(_)
    );
    let why = if conditions::ended(&pass.status.conditions) {
        "the job has ended"
    } else if pass.observed.being_deleted {
        "the job is being deleted"
    } else if pass.job.run_policy.suspend {
        "the job is suspended"
    } else {
        return;
    };
    if has_place {
        pass.actions.push(Action::ReleaseSeats {
            why: why.to_owned(),
            avoid: Vec::new(),
        });
    }
}

/// How the pods that are created now get their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// The scheduler chooses.
    Open,
    /// They are gated.
    Gated,
    /// To their seats.
    Seated,
}

/// Requests seats where the gang lacks them; how pods may be created now, if at all.
pub(super) fn ask(pass: &mut Pass<'_>, roster: &Roster<'_>, missing: &[Slot]) -> Option<Binding> {
    // A gang that may not exist as a whole needs no seats: what was refused is created first, gated.
    // A launcher is never gated, so it is never created first.
    let held = missing.iter().any(|slot| slot.role != Role::Launcher);
    // Seats that were released for a refusal are not taken again before it is over, also where the pod that
    // is missing cannot be created yet because of its name.
    let refused = pass.observed.refusals.first();
    let refused = refused.filter(|_| held || lacks_pods(roster));
    match (&pass.observed.seating, refused) {
        (Seating::Open, _) => Some(Binding::Open),
        (Seating::Given(_), Some(refusal)) => {
            let why = refusal.reason(0).to_string();
            pass.actions.push(Action::ReleaseSeats {
                why,
                avoid: Vec::new(),
            });
            Some(Binding::Gated)
        }
        (Seating::Given(seats), None) => {
            let record = &pass.status.trainyard;
            let unseated = pass
                .job
                .slots()
                .filter(|slot| !slot.role.is_initializer())
                .any(|slot| !seats.contains_key(&slot) && !record.has_succeeded(slot));
            if unseated {
                pass.actions.push(Action::AskSeats);
            }
            Some(Binding::Seated)
        }
        (Seating::Unadmitted(why), _) => {
            pass.say(Reason::Unadmitted { why: why.clone() });
            Some(Binding::Gated)
        }
        (Seating::Unasked, Some(_)) => Some(Binding::Gated),
        (Seating::Unasked, None)
            if pass.status.trainyard.gang.failed_starts().pods_first && held =>
        {
            Some(Binding::Gated)
        }
        (Seating::Unasked, None) => {
            pass.actions.push(Action::AskSeats);
            pass.say(Reason::LookingForNodes);
            None
        }
        // An event follows when it has released them.
        (Seating::Evicted(why), _) => {
            pass.say(Reason::Evicted { why: why.clone() });
            None
        }
        (Seating::Queued(None), _) => {
            pass.say(Reason::LookingForNodes);
            None
        }
        (Seating::Queued(Some(why)), _) => {
            let unfit = preflight::unfit_so_far(pass);
            pass.say(Reason::NoNodes {
                why: why.message.clone(),
                never_fits: why.never_fits,
                unfit,
            });
            Some(Binding::Gated)
        }
    }
}

/// A new job requests seats before its first status is written. The answer comes within moments, and one status then
/// shows both that the job was seen and what it got: with a thousand jobs at once, status writes are most of the load
/// on the API server.
pub(super) fn ask_first(observed: &Observed, decision: Decision) -> Decision {
    Decision {
        actions: vec![Action::AskSeats],
        status: observed.status.clone(),
        events: Vec::new(),
        ..decision
    }
}

/// Where the new pod of `slot` may go; nothing where it is not to be created yet.
pub(super) fn seat(pass: &Pass<'_>, binding: Binding, slot: Slot) -> Option<Seat> {
    if slot.role.is_initializer() {
        // It is no member of the gang, so no node is kept for it.
        return Some(Seat::Open);
    }
    let given = match (binding, &pass.observed.seating) {
        (Binding::Open, _) => return Some(Seat::Open),
        (Binding::Seated, Seating::Given(seats)) => seats.get(&slot),
        _ => None,
    };
    match given {
        Some(node) => Some(Seat::Node(node.clone())),
        None if mutant::is(mutant::Mutant::StartsHalfGangs) => Some(Seat::Open),
        // A launcher has nothing to do before its workers run, and the batch Job that stands for it
        // cannot be changed once it exists.
        None if slot.role == Role::Launcher => None,
        None => Some(Seat::Gated),
    }
}

/// Ungates the pods that have seats, and starts the clock.
pub(super) fn ungate(pass: &mut Pass<'_>, roster: &Roster<'_>, binding: Binding) {
    let (Binding::Seated, Seating::Given(seats)) = (binding, &pass.observed.seating) else {
        return;
    };
    let record = &pass.status.trainyard;
    let held = |pod: &&&ObservedPod| {
        pod.gated && pod.deleted_at.is_none() && !record.dismissed.contains(&pod.uid)
    };
    let released: Vec<Action> = roster
        .notable
        .iter()
        .filter(held)
        .filter_map(|pod| {
            Some(Action::SeatPod {
                slot: pod.slot,
                uid: pod.uid.clone(),
                node: seats.get(&pod.slot)?.clone(),
            })
        })
        .collect();
    pass.actions.extend(released);
    let starts = pass.actions.iter().any(|action| {
        matches!(
            action,
            Action::SeatPod { .. }
                | Action::CreatePod {
                    seat: Seat::Node(_),
                    ..
                }
        )
    });
    if starts {
        let phase = pass.status.trainyard.gang.assigned(pass.stamp);
        pass.status.trainyard.gang = phase;
        let since = phase.starting_since().unwrap_or(pass.stamp);
        let at = |after: Duration| since.checked_add(after).unwrap_or(jiff::Timestamp::MAX);
        pass.wake(at(pass.job.settings.start_within));
        if refused(roster).is_some() {
            pass.wake(at(REFUSED_FOR));
        }
    }
}

/// The first pod that the scheduler refuses its seat, and the scheduler's message.
fn refused<'a>(roster: &Roster<'a>) -> Option<(&'a ObservedPod, &'a str)> {
    let mut pods = roster.notable.iter();
    pods.find_map(|pod| match &pod.wait {
        Some(Wait::Seat(words)) if !words.is_empty() && !pod.gated => Some((*pod, words.as_str())),
        _ => None,
    })
}

fn seat_of(pass: &Pass<'_>, slot: Slot) -> Option<String> {
    match &pass.observed.seating {
        Seating::Given(seats) => seats.get(&slot).cloned(),
        _ => None,
    }
}

/// Whether as many pods run, or have succeeded, as the gang needs, and none is about to start.
fn all_run(pass: &Pass<'_>, roster: &Roster<'_>) -> bool {
    let record = &pass.status.trainyard;
    let there: u32 = pass
        .job
        .roles
        .keys()
        .map(|role| roster.active(*role, record) + record.succeeded_in(pass.job, *role))
        .sum();
    let comes = |slot: &Slot| match &pass.observed.seating {
        Seating::Given(seats) => seats.contains_key(slot) && !record.has_succeeded(*slot),
        _ => false,
    };
    let waits = |pod: &&ObservedPod| {
        pod.phase == PodPhase::Pending
            && (!pod.gated || comes(&pod.slot))
            && !record.dismissed.contains(&pod.uid)
    };
    let under_way = roster.missing.iter().any(comes) || roster.notable.iter().any(waits);
    !under_way && there >= elastic::enough(pass.job).min(pass.job.total_replicas())
}
