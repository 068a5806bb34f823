//! The gate before a gang starts: `trainyard.dev/preflight: required`.
//!
//! Owns when the nodes of a gang are measured, what follows from the result, and when to retry. What a
//! preflight measures and what its report means is [`crate::probe`]'s; how it is run is an adapter's, and observed as
//! [`SeenPreflight`].
//!
//! Invariants: no pod of such a job goes to a node whose last preflight failed, or that was never measured. A preflight
//! is charged to no failure budget. One that does not finish is abandoned after [`WITHIN`].

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{
    Action, EventKind, EventReason, ObservedPod, PreflightRun, PreflightState, Preflights, Seating,
    SeenPreflight, conditions, mutant, mutant::Mutant, pass::Pass, roster::Roster,
};
use crate::{
    probe::NodeRecord,
    reason::{Reason, words},
    spec::{Preflight, Role, Slot},
};

/// A preflight that has not finished after this long is abandoned. Its pods may have to pull an image first; measuring itself
/// is bounded by two minutes.
pub(super) const WITHIN: Duration = Duration::from_mins(5);
/// Pause after a preflight without a result, or that no change of nodes would help; it doubles each time.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause: the cause may have been fixed meanwhile.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// Unfit nodes that are named in the status.
const NAMED: usize = 8;

/// Whether the gang waits before it requests seats again: its last preflight failed a moment ago.
pub(super) fn pauses(pass: &mut Pass<'_>) -> bool {
    if pass.job.settings.preflight != Preflight::Required {
        pass.status.trainyard.preflight = None;
        return false;
    }
    let Some(state) = &mut pass.status.trainyard.preflight else {
        return false;
    };
    let Some(retry_at) = state.retry_at else {
        return false;
    };
    if pass.now >= retry_at {
        state.retry_at = None;
        return false;
    }
    let why = state.why.clone().unwrap_or_default();
    pass.wake(retry_at);
    pass.say(Reason::PreflightRetry { why, retry_at });
    true
}

/// Whether the pods of a gang that has seats may start there; adds a reason where they may not.
pub(super) fn cleared(pass: &mut Pass<'_>, roster: &Roster<'_>, missing: &[Slot]) -> bool {
    if pass.job.settings.preflight != Preflight::Required || mutant::is(Mutant::StartsUnmeasured) {
        return true;
    }
    let observed = pass.observed;
    let seats = match &observed.seating {
        Seating::Given(seats) => seats,
        Seating::Open => {
            warn_not_applied(pass);
            stop_waiting(pass);
            return true;
        }
        // No pod goes anywhere.
        _ => return true,
    };
    let here = match &observed.preflight {
        SeenPreflight::Unused => {
            stop_waiting(pass);
            return true;
        }
        SeenPreflight::Unable(why) => {
            wait(pass, why.clone());
            return false;
        }
        SeenPreflight::Here(here) => here,
    };
    let wanted = wanted(pass, roster, missing, seats);
    if wanted.is_empty() {
        // A size without pods for nodes, such as no workers: a preflight for a larger size is no longer needed.
        stop_waiting(pass);
        return true;
    }
    if !apply_result(pass, here, &wanted) {
        return false;
    }
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    let unfit = unfit(here, state, &wanted, pass.now);
    if !unfit.is_empty() {
        leave_nodes(pass, &unfit);
        return false;
    }
    if wanted
        .keys()
        .all(|node| is_passed(state, here, node, pass.now))
    {
        state.forget_trouble();
        if *state == PreflightState::default() {
            pass.status.trainyard.preflight = None;
        }
        return true;
    }
    run_preflight(pass, here, wanted)
}

/// Whether `node` passed in this attempt, or has a fresh result that it passed.
fn is_passed(state: &PreflightState, here: &Preflights, node: &String, now: Timestamp) -> bool {
    let record = here.records.get(node);
    state.passed.contains(node) || record.is_some_and(|record| record.is_fresh(now))
}

/// A gang without seats has nothing to measure: a preflight for earlier seats is no longer needed.
pub(super) fn unseated(pass: &mut Pass<'_>) {
    stop_waiting(pass);
    if let Some(state) = &mut pass.status.trainyard.preflight {
        state.passed.clear();
    }
}

/// No pod waits for the preflight that runs: it is ended, see [`end_unneeded`].
fn stop_waiting(pass: &mut Pass<'_>) {
    if let Some(state) = &mut pass.status.trainyard.preflight {
        state.since = None;
    }
}

/// The nodes of the pods that are about to start, each with the slot of one such pod.
fn wanted(
    pass: &Pass<'_>,
    roster: &Roster<'_>,
    missing: &[Slot],
    seats: &BTreeMap<Slot, String>,
) -> BTreeMap<String, Slot> {
    let dismissed = &pass.status.trainyard.dismissed;
    let held = |pod: &&&ObservedPod| {
        pod.gated && pod.deleted_at.is_none() && !dismissed.contains(&pod.uid)
    };
    let held = roster.notable.iter().filter(held).map(|pod| pod.slot);
    let mut wanted = BTreeMap::new();
    // A launcher trains nothing: it starts the ranks in the others. Initializers run before them.
    for slot in missing.iter().copied().chain(held) {
        if slot.role != Role::Launcher
            && !slot.role.is_initializer()
            && let Some(node) = seats.get(&slot)
        {
            wanted.entry(node.clone()).or_insert(slot);
        }
    }
    wanted
}

/// The nodes of `wanted` that are known to be unfit, and why.
fn unfit<'a>(
    here: &'a Preflights,
    state: &PreflightState,
    wanted: &BTreeMap<String, Slot>,
    now: Timestamp,
) -> BTreeMap<&'a str, &'a str> {
    if mutant::is(Mutant::StartsOnUnfit) {
        return BTreeMap::new();
    }
    let bad = |record: &NodeRecord| record.is_failed() && record.is_fresh(now);
    let before = here.records.iter().filter(|(_, record)| bad(record));
    let before = before.map(|(node, record)| (node, &record.why));
    let found = match &here.run {
        PreflightRun::Ended(round, Ok(found)) if *round == state.round => Some(&found.unfit),
        _ => None,
    };
    let found = found.into_iter().flatten();
    let found = found.map(|(node, fault)| (node, &fault.why));
    before
        .chain(found)
        .filter(|(node, _)| wanted.contains_key(*node))
        .map(|(node, why)| (node.as_str(), why.as_str()))
        .collect()
}

/// Applies the result of the preflight that was waited for; false where it has none, or is retried later.
fn apply_result(pass: &mut Pass<'_>, here: &Preflights, wanted: &BTreeMap<String, Slot>) -> bool {
    let now = pass.now;
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    let Some(since) = state.since else {
        return true;
    };
    let judgement = match &here.run {
        PreflightRun::Ended(round, found) if *round == state.round => found.as_ref(),
        _ if now >= late_at(since) && !mutant::is(Mutant::WaitsForPreflight) => {
            let why = format!("it did not finish within {} s", WITHIN.as_secs());
            retry_without_result(pass, &why);
            return false;
        }
        _ => return true,
    };
    let judgement = match judgement {
        Ok(judgement) => judgement,
        Err(why) => {
            retry_without_result(pass, why);
            return false;
        }
    };
    state.since = None;
    if let Some(why) = judgement
        .all_failed
        .clone()
        .filter(|_| !mutant::is(Mutant::StartsOnUnfit))
    {
        record_unfit(state, judgement.unfit.keys());
        let avoid = judgement.unfit.keys().chain(&judgement.leave);
        retry_later(pass, why, avoid.cloned().collect());
        return false;
    }
    state.passed.extend(judgement.fit.iter().cloned());
    if mutant::is(Mutant::StartsOnUnfit) {
        state.passed.extend(wanted.keys().cloned());
    }
    if wanted.keys().all(|node| state.passed.contains(node)) {
        let count = wanted.len();
        pass.emit(
            EventKind::Normal,
            EventReason::PreflightPassed,
            format!("all {count} nodes of the gang passed the preflight"),
        );
    }
    true
}

fn retry_without_result(pass: &mut Pass<'_>, why: &str) {
    let why = format!("preflight produced no result: {why}");
    retry_later(pass, why, Vec::new());
}

fn late_at(since: Timestamp) -> Timestamp {
    since.checked_add(WITHIN).unwrap_or(Timestamp::MAX)
}

/// Starts the preflight, or waits for the one that runs.
fn run_preflight(pass: &mut Pass<'_>, here: &Preflights, wanted: BTreeMap<String, Slot>) -> bool {
    let stamp = pass.stamp;
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    let count = wanted.len();
    if state.since.is_none() {
        // One that has ended and is not in this status was started by a pass whose status is not seen yet. Its result
        // is about its own nodes: no later round is mistaken for it.
        let ended = match here.run {
            PreflightRun::Ended(round, _) => round,
            _ => 0,
        };
        state.round = state.round.max(ended) + 1;
    }
    let since = *state.since.get_or_insert(stamp);
    let round = state.round;
    // The adapter may have restarted and forgotten it.
    if here.run != PreflightRun::Runs(round) {
        pass.actions.push(Action::StartPreflight {
            round,
            seats: wanted,
        });
    }
    pass.wake(late_at(since));
    pass.say(Reason::PreflightRuns {
        nodes: count,
        since,
    });
    false
}

/// Records the unfit nodes; whether one of them is new.
fn record_unfit<'a>(state: &mut PreflightState, nodes: impl Iterator<Item = &'a String>) -> bool {
    let mut found_new = false;
    for node in nodes {
        state.passed.remove(node);
        if state.unfit.len() < NAMED {
            found_new |= state.unfit.insert(node.clone());
        }
    }
    found_new
}

/// Releases the seats and requests others than `unfit`.
fn leave_nodes(pass: &mut Pass<'_>, unfit: &BTreeMap<&str, &str>) {
    let (node, fault) = unfit.first_key_value().unwrap_or((&"?", &"?"));
    let more = unfit.len().saturating_sub(1);
    let why = words::unfit_node(node, fault, more);
    let reason = Reason::UnfitNode {
        node: (*node).to_owned(),
        fault: (*fault).to_owned(),
        more,
    };
    let avoid: Vec<String> = unfit.keys().map(|node| (*node).to_owned()).collect();
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    state.forget_trouble();
    let found_new = record_unfit(state, avoid.iter());
    // The reason for waiting may have other words, so comparing it does not show whether the event was emitted.
    if found_new {
        let message = format!("Releasing the gang's nodes: {why}.");
        pass.emit(EventKind::Warning, EventReason::UnfitNodes, message);
    }
    pass.say(reason);
    pass.actions.push(Action::ReleaseSeats { why, avoid });
}

/// Releases the seats until the next retry.
fn retry_later(pass: &mut Pass<'_>, why: String, avoid: Vec<String>) {
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    state.since = None;
    let pause = (PAUSE * 2u32.pow(state.in_vain.min(8))).min(PAUSE_MAX);
    state.in_vain = state.in_vain.saturating_add(1);
    let reported = state.why.as_ref() == Some(&why);
    state.why = Some(why.clone());
    let retry_at = pass.stamp.checked_add(pause).unwrap_or(Timestamp::MAX);
    state.retry_at = Some(retry_at);
    if !reported {
        pass.emit(
            EventKind::Warning,
            EventReason::PreflightFailed,
            why.clone(),
        );
    }
    pass.wake(retry_at);
    pass.say(Reason::PreflightRetry {
        why: why.clone(),
        retry_at,
    });
    pass.actions.push(Action::ReleaseSeats { why, avoid });
}

/// Adds a reason why the preflight cannot run; emits the event once.
fn wait(pass: &mut Pass<'_>, why: String) {
    let reason = Reason::NoPreflight { why };
    let message = reason.to_string();
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    if state.why.as_ref() != Some(&message) {
        state.why = Some(message.clone());
        pass.emit(
            EventKind::Warning,
            EventReason::WaitingForPreflight,
            message,
        );
    }
    pass.say(reason);
}

/// A gang that another scheduler starts has no preflight: its nodes are known only once its pods exist.
fn warn_not_applied(pass: &mut Pass<'_>) {
    let first = pass.observed.status.trainyard.attempt != pass.status.trainyard.attempt;
    if let SeenPreflight::Unable(why) = &pass.observed.preflight
        && first
    {
        let message = format!("skipping the required preflight: {why}");
        pass.emit(EventKind::Warning, EventReason::PreflightNotRun, message);
    }
}

/// What a gang in the wait queue adds to the reason: the nodes that it left.
pub(super) fn unfit_so_far(pass: &Pass<'_>) -> Vec<String> {
    let state = pass.status.trainyard.preflight.as_ref();
    state.map_or_else(Vec::new, |state| state.unfit.iter().cloned().collect())
}

/// Ends a preflight that no pod waits for any more.
pub(super) fn end_unneeded(pass: &mut Pass<'_>) {
    let SeenPreflight::Here(here) = &pass.observed.preflight else {
        return;
    };
    let (round, followed) = match &here.run {
        PreflightRun::Idle => return,
        PreflightRun::Left(round) => (*round, false),
        PreflightRun::Runs(round) | PreflightRun::Ended(round, _) => (*round, true),
    };
    let begun = |action: &Action| matches!(action, Action::StartPreflight { .. });
    if !followed && pass.actions.iter().any(begun) {
        return;
    }
    let over = conditions::ended(&pass.status.conditions)
        || pass.observed.being_deleted
        || pass.job.run_policy.suspend
        || pass.job.settings.preflight != Preflight::Required;
    let awaited =
        |state: &PreflightState| followed && state.since.is_some() && state.round == round;
    let is_awaited = pass
        .status
        .trainyard
        .preflight
        .as_ref()
        .is_some_and(awaited);
    let end = Action::EndPreflight { round };
    if (over || !is_awaited) && !pass.actions.contains(&end) {
        pass.actions.push(end);
    }
}

impl PreflightState {
    /// The next attempt runs its own preflight, wherever its seats are.
    pub(super) fn next_attempt(self) -> Self {
        Self {
            round: self.round,
            unfit: self.unfit,
            ..Self::default()
        }
    }

    /// All of the gang runs: earlier results are no longer needed.
    pub(super) fn clear_results(&mut self) {
        self.passed.clear();
        self.unfit.clear();
    }

    fn forget_trouble(&mut self) {
        self.in_vain = 0;
        self.why = None;
        self.retry_at = None;
        self.since = None;
    }
}
