//! From failed pods to the next attempt, or to the end of the job.
//!
//! Invariant: a restart and its charge are in the same status. A failed pod is charged once: under
//! gang scope because its attempt is over, under pod scope because it is dismissed.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    Account, ConditionType, EventKind, EventReason, FailedBy, LastFailure, ObservedPod, PodPhase,
    alone, asked, budget,
    cause::{Cause, Failure, headline},
    converge,
    in_place::{self, Held},
    initializer, messages,
    messages::Fails,
    mutant, no_progress,
    pass::Pass,
    restart::{self, Response},
    roster::{Contact, Roster},
    seating, success, verdict,
};
use crate::{
    barrier::{RestartWay, SlotSet},
    reason::Reason,
    spec::{RestartPolicy, RestartScope, Role, Slot},
};

/// Pods that are paid for in one pass under pod scope; the others follow in the next one. Keeps
/// the list of dismissed pods, which is stored, small.
const CHARGES_PER_PASS: usize = 256;
/// Restarted incarnations that are remembered at once, for the same reason.
const RESTARTS_TRACKED: usize = 1024;
/// An attempt that ran for this long was not a quick failure.
const STEADY: Duration = Duration::from_mins(10);
/// Pause after the second quick failure in a row; it doubles with each further one. The first
/// costs no pause: most restarts heal.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause, the same as the kubelet's for a container that keeps crashing.
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// Answers every failure that is seen. The error is why the job fails.
pub(super) fn recover(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    let attempt = pass.status.trainyard.attempt;
    initializer::recover(pass, roster)?;
    match pass.job.restart_scope() {
        RestartScope::Gang => recover_gang(pass, roster)?,
        RestartScope::Pod => recover_pods(pass, roster)?,
    }
    if pass.status.trainyard.attempt == attempt {
        fail_if_none_left(pass, roster)?;
    }
    if pass.status.trainyard.barrier.is_some() {
        // A restart in place has begun, and is charged. The next pass ends it for the eviction.
        return Ok(());
    }
    // Only then: an attempt that ended by itself is charged for that already.
    seating::end_evicted(pass)
}

/// A job that ignores failed pods fails when no pod is left that could finish it: every pod of the
/// deciding role has ended, or the launcher waits for workers that have.
fn fail_if_none_left(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    let Some(role) = success::deciding_role(pass.job) else {
        return Ok(());
    };
    let borne: Vec<Failure> = failures(pass, roster)
        .into_iter()
        .filter(|failure| restart::response(pass.job, failure) == Response::Bear)
        .collect();
    let record = &pass.status.trainyard;
    let ended = |role: Role| {
        let borne = borne.iter().filter(|failure| failure.slot.role == role);
        borne.fold(record.succeeded_in(pass.job, role), |sum, _| sum + 1)
    };
    if let Some(failure) = borne.iter().find(|failure| failure.slot.role == role)
        && ended(role) == pass.job.role_replicas(role)
    {
        return Err(fails(pass, failure, &borne));
    }
    let launcher = Slot::new(Role::Launcher, 0);
    let waits = roster.missing.contains(&launcher)
        && !record.has_succeeded(launcher)
        && converge::launcher_waits_for(pass.job, record, roster).is_some();
    match ended(Role::Worker) {
        count if waits && count > 0 => Err(messages::ended_early(pass.job, count)),
        _ => Ok(()),
    }
}

fn recover_gang(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    let step = in_place::observe(pass);
    let mut failures = failures_of_gang(pass, roster);
    // A pod that failed explains its program, too.
    let known: BTreeSet<Slot> = failures.iter().map(|failure| failure.slot).collect();
    let programs = in_place::programs(pass, &step).into_iter();
    failures.extend(programs.filter(|failure| !known.contains(&failure.slot)));
    let vanished = roster.missing.iter().filter(|slot| vanished(pass, **slot));
    failures.extend(vanished.map(|slot| Failure {
        slot: *slot,
        cause: Cause::Vanished,
        at: None,
    }));
    failures.retain(|failure| restart::response(pass.job, failure) != Response::Bear);
    // A hold that is over is for the failure that it began with, whatever else is seen now.
    let first = match in_place::hold(pass, headline(&failures)) {
        Held::Now => return Ok(()),
        Held::Not(first) => first,
    };
    let Some(first) = &first else {
        let attempt = pass.status.trainyard.attempt;
        resize_gang(pass);
        restart_if_asked(pass, roster, attempt);
        return Ok(());
    };
    if restart::response(pass.job, first) == Response::Fail {
        return Err(fails(pass, first, &failures));
    }
    no_progress::note(pass, first);
    let hopeless = verdict::in_vain(pass, first).map(|reason| (reason, None));
    if let Some((reason, verdict)) = hopeless.or_else(|| no_progress::ends(pass, first)) {
        remember(pass, first, Account::User);
        if let (Some(verdict), Some(last)) = (verdict, &mut pass.status.trainyard.last_failure) {
            last.verdict = Some(verdict);
        }
        let spent = &mut pass.status.trainyard.spent;
        // The job fails whether or not the account has budget left.
        budget::charge(spent, pass.job, Account::User, 1).ok();
        let message = reason.to_string();
        pass.say(reason);
        return Err(Fails::new(FailedBy::RetryDoesNotHelp, message));
    }
    let account = verdict::account(pass, first);
    let way = in_place::way(pass, first);
    charge(pass, first, account, way.as_ref())?;
    if way == Some(RestartWay::InPlace) {
        in_place::begin(pass, first);
        pause(pass, first);
        in_place::report(pass, &SlotSet::default());
        return Ok(());
    }
    verdict::avoid_node(pass, first);
    pass.next_attempt();
    pause(pass, first);
    Ok(())
}

fn recover_pods(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    charge_restarts_in_place(pass, roster)?;
    alone::note_ends(pass, roster)?;
    let failures = failures_of_gang(pass, roster);
    // One pod that ends the job ends it, whatever else is seen.
    if let Some(fatal) = failures
        .iter()
        .find(|failure| restart::response(pass.job, failure) == Response::Fail)
    {
        return Err(fails(pass, fatal, &failures));
    }
    let answered = failures
        .iter()
        .filter(|failure| restart::response(pass.job, failure) == Response::Restart)
        .take(CHARGES_PER_PASS);
    let mut charged = BTreeSet::new();
    for failure in answered {
        let account = verdict::account(pass, failure);
        charge_restart(pass, failure, account)?;
        charged.insert(failure.slot);
    }
    if !mutant::is(mutant::Mutant::ChargesUntilGone) {
        let pods = roster
            .notable
            .iter()
            .filter(|pod| charged.contains(&pod.slot));
        pass.status
            .trainyard
            .dismissed
            .extend(pods.map(|pod| pod.uid.clone()));
    }
    if let Some(first) = headline(&failures).filter(|_| !charged.is_empty()) {
        pause(pass, first);
    }
    pass.status.trainyard.replicas = pass.job.replicas();
    let attempt = pass.status.trainyard.attempt;
    restart_if_asked(pass, roster, attempt);
    Ok(())
}

/// Begins the attempt that is asked for, or the one after seats that did not serve, unless the one after `attempt` has begun already.
fn restart_if_asked(pass: &mut Pass<'_>, roster: &Roster<'_>, attempt: u32) {
    if pass.status.trainyard.attempt == attempt {
        asked::restart(pass);
    }
    if pass.status.trainyard.attempt == attempt {
        seating::release_if_stuck(pass, roster);
    }
    // No reason is needed for the pods of an attempt that has ended.
    if pass.status.trainyard.attempt == attempt {
        say_silent_nodes(pass, roster);
    }
}

/// The same, without those of initializers.
fn failures_of_gang(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Vec<Failure> {
    let mut failures = failures(pass, roster);
    failures.retain(|failure| !failure.slot.role.is_initializer());
    failures
}

/// Every pod that failed and is not handled yet.
pub(super) fn failures(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Vec<Failure> {
    let mut failures = Vec::new();
    for pod in &roster.notable {
        if let Some(cause) = failure_of(pass, pod) {
            let at = pod.exit.and_then(|exit| exit.at);
            failures.push(Failure {
                slot: pod.slot,
                cause,
                at,
            });
        }
    }
    failures
}

/// Why `pod` failed, where it did and is not handled yet.
fn failure_of(pass: &mut Pass<'_>, pod: &ObservedPod) -> Option<Cause> {
    if pass.status.trainyard.dismissed.contains(&pod.uid) {
        return None;
    }
    match pod.phase {
        PodPhase::Succeeded => None,
        PodPhase::Failed => Some(Cause::of_failed(pod)),
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => match pass.contact(pod) {
            Contact::Lost => Some(Cause::NodeLost),
            contact => {
                if let Contact::LostAt(at) = contact {
                    pass.wake(at);
                }
                pod.deleted_at.map(|_| Cause::of_deleted(pod))
            }
        },
    }
}

/// Names the first pod of this attempt whose node is not responding and that does not count as lost yet.
fn say_silent_nodes(pass: &mut Pass<'_>, roster: &Roster<'_>) {
    let record = &pass.status.trainyard;
    let silent: Vec<(&ObservedPod, Timestamp)> = roster
        .notable
        .iter()
        .filter(|pod| !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed))
        .filter(|pod| !record.dismissed.contains(&pod.uid))
        .filter_map(|pod| match pass.contact(pod) {
            Contact::LostAt(at) => Some((*pod, at)),
            Contact::Fine | Contact::Lost => None,
        })
        .collect();
    let Some((pod, at)) = silent.first() else {
        return;
    };
    pass.say(Reason::NodeSilent {
        node: pod.node.clone().unwrap_or_else(|| "?".to_owned()),
        pod: pass.job.pod_name(pod.slot),
        more: silent.len() - 1,
        lost_at: *at,
    });
}

/// Whether the pod of `slot` existed and is gone, without having succeeded.
fn vanished(pass: &Pass<'_>, slot: Slot) -> bool {
    let record = &pass.status.trainyard;
    // An initializer that is gone is made again, by itself.
    !slot.role.is_initializer()
        && record.formed
        && record
            .replicas
            .get(&slot.role)
            .is_some_and(|replicas| slot.index < *replicas)
        && !record.has_succeeded(slot)
}

/// A collective job of another size is another gang. MPI workers come and go: the launcher reads
/// them from its hostfile.
fn resize_gang(pass: &mut Pass<'_>) {
    let wanted = pass.job.replicas();
    if pass.status.trainyard.replicas == wanted {
        return;
    }
    if pass.job.kind.is_mpi() {
        pass.status.trainyard.replicas = wanted;
        pass.status.trainyard.formed = false;
        return;
    }
    pass.next_attempt();
    if !pass.observed.pods.is_empty() || pass.holds(ConditionType::Running) {
        pass.hold(ConditionType::Restarting, messages::resized(pass.job));
        pass.emit(
            EventKind::Normal,
            EventReason::Restarting,
            messages::resized(pass.job),
        );
    }
}

/// Counts restarts in place by the kubelet against the user's limit.
fn charge_restarts_in_place(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    let restarted = roster.notable.iter().filter(|pod| pod.restarts > 0);
    for pod in restarted.filter(|pod| !pod.slot.role.is_initializer()) {
        let record = &mut pass.status.trainyard;
        let policy = pass
            .job
            .roles
            .get(&pod.slot.role)
            .map(|spec| spec.restart_policy);
        let paid = record.restarts.get(&pod.uid).copied().unwrap_or(0);
        let counts = policy != Some(RestartPolicy::Never)
            && pod.restarts > paid
            && (paid > 0 || record.restarts.len() < RESTARTS_TRACKED);
        if counts {
            record.restarts.insert(pod.uid.clone(), pod.restarts);
            let charged = budget::charge(
                &mut record.spent,
                pass.job,
                Account::User,
                pod.restarts - paid,
            );
            if pod.exit.is_some_and(|exit| exit.code != 0) {
                remember(pass, &alone::failure_of(pod), Account::User);
            }
            charged.map_err(|exhausted| exhausted.fails(pass.job))?;
        }
    }
    Ok(())
}

/// Charges a restart to the failure budget and emits its event.
pub(super) fn charge_restart(
    pass: &mut Pass<'_>,
    failure: &Failure,
    account: Account,
) -> Result<(), Fails> {
    charge(pass, failure, account, None)
}

/// The same; the event says how the gang restarts, where that is a choice.
fn charge(
    pass: &mut Pass<'_>,
    failure: &Failure,
    account: Account,
    way: Option<&RestartWay>,
) -> Result<(), Fails> {
    remember(pass, failure, account);
    budget::charge(&mut pass.status.trainyard.spent, pass.job, account, 1)
        .map_err(|exhausted| exhausted.fails(pass.job))?;
    let spent = pass.status.trainyard.spent.of(account);
    let limit = budget::limit(pass.job, account)
        .map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit}"));
    let name = pass.job.pod_name(failure.slot);
    let verdict = verdict::about(pass, failure).map_or_else(String::new, |verdict| {
        format!(" Verdict `{}`: {}.", verdict.label, verdict.sentence)
    });
    let restarts = match way {
        None => String::new(),
        Some(RestartWay::InPlace) => format!(" {}", in_place::sentence(pass)),
        Some(RestartWay::NewPods(reason)) => {
            format!(" The gang restarts with new pods, because {reason}.")
        }
    };
    let message = format!(
        "{} Pod `{name}`: {}.{verdict} Failure budget ({}): {spent} of {limit} used.{restarts}{}",
        messages::restarting(pass.job, failure),
        failure.cause,
        account.name(),
        in_place::lost_words(pass, failure, way),
    );
    pass.emit(EventKind::Warning, EventReason::Restarting, message);
    Ok(())
}

/// Lets a job that keeps failing back off before it retries, and marks it as restarting.
pub(super) fn pause(pass: &mut Pass<'_>, failure: &Failure) {
    let failures = quick_failures(pass, failure);
    let record = &mut pass.status.trainyard;
    record.quick_failures = failures;
    if let Some(pause) = pause_after(failure, failures) {
        record.retry_at = pass.now.checked_add(pause).ok();
    }
    pass.hold(
        ConditionType::Restarting,
        messages::restarting(pass.job, failure),
    );
}

/// The quick failures in a row, with `failure`.
pub(super) fn quick_failures(pass: &Pass<'_>, failure: &Failure) -> u32 {
    let before = pass.status.trainyard.quick_failures;
    let user = failure.cause.account() == Account::User;
    match (user, ran_steadily(pass)) {
        (_, true) => u32::from(user),
        (true, false) => before.saturating_add(1),
        (false, false) => before,
    }
}

/// How long the job backs off after so many quick failures of which `failure` is the last.
pub(super) fn pause_after(failure: &Failure, failures: u32) -> Option<Duration> {
    let user = failure.cause.account() == Account::User;
    (user && failures > 1).then(|| {
        let doublings = (failures - 2).min(5);
        (PAUSE * 2u32.pow(doublings)).min(PAUSE_MAX)
    })
}

/// Whether the attempt ran for so long that its end was not a quick failure.
pub(super) fn ran_steadily(pass: &Pass<'_>) -> bool {
    let failed_at = pass.failed_at.unwrap_or(pass.now);
    pass.condition(ConditionType::Running)
        .filter(|_| pass.holds(ConditionType::Running))
        .is_some_and(|running| {
            running
                .last_transition_time
                .checked_add(STEADY)
                .is_ok_and(|steady_at| steady_at <= failed_at)
        })
}

/// Keeps what failed where people look first.
pub(super) fn remember(pass: &mut Pass<'_>, failure: &Failure, account: Account) {
    pass.status.trainyard.last_failure = Some(LastFailure {
        attempt: pass.status.trainyard.attempt,
        pod: pass.job.pod_name(failure.slot),
        account,
        message: failure.cause.to_string(),
        cause: Some(failure.cause),
        step: verdict::step(pass),
        since_attempt: verdict::same_since(pass, failure),
        verdict: verdict::about(pass, failure).cloned(),
    });
}

pub(super) fn fails(pass: &mut Pass<'_>, failure: &Failure, failures: &[Failure]) -> Fails {
    remember(pass, failure, failure.cause.account());
    let job = pass.job;
    let role = failure.slot.role;
    let count = failures
        .iter()
        .filter(|other| other.slot.role == role)
        .count()
        // One that was held may be seen no more.
        .max(1);
    messages::failed(job, failure, count, restart::is_permanent(job, failure))
}
