//! The gate before a gang starts: `trainyard.dev/preflight: required`.
//!
//! Owns when the seats of a gang are looked at, what follows from what was found, and when that is tried again. What a
//! preflight measures and what its report means is [`crate::probe`]'s; how it is run is an adapter's, and observed as
//! [`SeenPreflight`].
//!
//! Invariants: no pod of such a job goes to a node whose last preflight failed, or that nobody has looked at. Nothing of
//! it is paid from any budget. A preflight that does not end is given up after [`WITHIN`].

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{
    Action, EventKind, ObservedPod, PreflightRun, PreflightState, Preflights, Seating,
    SeenPreflight, conditions, mutant, mutant::Mutant, pass::Pass, roster::Roster,
};
use crate::{
    probe::NodeRecord,
    reason::Code,
    spec::{Preflight, Role, Slot},
};

/// A preflight that has not ended after this long is given up. Its pods may have to pull an image first; measuring itself
/// is bounded by two minutes.
pub(super) const WITHIN: Duration = Duration::from_mins(5);
/// Pause after a preflight that told nothing, or that no change of nodes would help; it doubles each time.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause: what is in the way may have been put right meanwhile.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// Unfit nodes that are named in the status.
const NAMED: usize = 8;

/// Why the gang does not even ask for seats: its last preflight was in vain, a moment ago.
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
    pass.say(
        Code::WaitingForPreflight,
        format!("{why}; the preflight is tried again at {retry_at}"),
    );
    true
}

/// Whether the pods of a gang that has seats may go there; says why where they may not.
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
            wait(
                pass,
                format!("the preflight that the job requires cannot be run: {why}"),
            );
            return false;
        }
        SeenPreflight::Here(here) => here,
    };
    let wanted = wanted(pass, roster, missing, seats);
    if wanted.is_empty() {
        // A size without pods for nodes, such as no workers: whatever was begun for a larger one is over.
        stop_waiting(pass);
        return true;
    }
    if !take_in(pass, here, &wanted) {
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
    look(pass, here, wanted)
}

/// Whether `node` passed in this attempt, or passed one that still speaks for it.
fn is_passed(state: &PreflightState, here: &Preflights, node: &String, now: Timestamp) -> bool {
    let record = here.records.get(node);
    state.passed.contains(node) || record.is_some_and(|record| record.is_fresh(now))
}

/// A gang without seats has nothing to look at: what was begun for others is over.
pub(super) fn unseated(pass: &mut Pass<'_>) {
    stop_waiting(pass);
    if let Some(state) = &mut pass.status.trainyard.preflight {
        state.passed.clear();
    }
}

/// No pod is to start on a node that is being looked at: what was begun is ended, see [`leave`].
fn stop_waiting(pass: &mut Pass<'_>) {
    if let Some(state) = &mut pass.status.trainyard.preflight {
        state.since = None;
    }
}

/// The nodes of the pods that are to start, each with a pod that will be there.
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
    // A launcher trains nothing: it starts the ranks in the others.
    for slot in missing.iter().copied().chain(held) {
        if slot.role != Role::Launcher
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

/// Takes in what a preflight that was waited for has come to; whether it told anything.
fn take_in(pass: &mut Pass<'_>, here: &Preflights, wanted: &BTreeMap<String, Slot>) -> bool {
    let now = pass.now;
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    let Some(since) = state.since else {
        return true;
    };
    let judgement = match &here.run {
        PreflightRun::Ended(round, found) if *round == state.round => found.as_ref(),
        _ if now >= late_at(since) && !mutant::is(Mutant::WaitsForPreflight) => {
            let why = format!("it did not end within {} s", WITHIN.as_secs());
            tells_nothing(pass, &why);
            return false;
        }
        _ => return true,
    };
    let judgement = match judgement {
        Ok(judgement) => judgement,
        Err(why) => {
            tells_nothing(pass, why);
            return false;
        }
    };
    state.since = None;
    if let Some(why) = judgement
        .alike
        .clone()
        .filter(|_| !mutant::is(Mutant::StartsOnUnfit))
    {
        note_unfit(state, judgement.unfit.keys());
        let avoid = judgement.unfit.keys().chain(&judgement.leave);
        try_later(pass, why, avoid.cloned().collect());
        return false;
    }
    state.passed.extend(judgement.fit.iter().cloned());
    if mutant::is(Mutant::StartsOnUnfit) {
        state.passed.extend(wanted.keys().cloned());
    }
    if wanted.keys().all(|node| state.passed.contains(node)) {
        let count = wanted.len();
        pass.tell(
            EventKind::Normal,
            "PreflightPassed",
            format!("the {count} nodes of the gang passed the preflight"),
        );
    }
    true
}

fn tells_nothing(pass: &mut Pass<'_>, why: &str) {
    let why = format!("preflight produced no result: {why}");
    try_later(pass, why, Vec::new());
}

fn late_at(since: Timestamp) -> Timestamp {
    since.checked_add(WITHIN).unwrap_or(Timestamp::MAX)
}

/// Has the nodes looked at.
fn look(pass: &mut Pass<'_>, here: &Preflights, wanted: BTreeMap<String, Slot>) -> bool {
    let stamp = pass.stamp;
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    let count = wanted.len();
    if state.since.is_none() {
        // One that has ended and that this status knows nothing of was started by a pass whose status is not seen yet. What it
        // found is of its own nodes: no later round is mistaken for it.
        let ended = match here.run {
            PreflightRun::Ended(round, _) => round,
            _ => 0,
        };
        state.round = state.round.max(ended) + 1;
    }
    let since = *state.since.get_or_insert(stamp);
    let round = state.round;
    // Whoever ran it may know nothing of it any more.
    if here.run != PreflightRun::Runs(round) {
        pass.actions.push(Action::StartPreflight {
            round,
            seats: wanted,
        });
    }
    pass.wake(late_at(since));
    pass.say(
        Code::WaitingForPreflight,
        format!("the preflight of {count} nodes runs since {since}"),
    );
    false
}

/// Writes the nodes down; whether one of them is news.
fn note_unfit<'a>(state: &mut PreflightState, nodes: impl Iterator<Item = &'a String>) -> bool {
    let mut news = false;
    for node in nodes {
        state.passed.remove(node);
        if state.unfit.len() < NAMED {
            news |= state.unfit.insert(node.clone());
        }
    }
    news
}

/// Gives the seats back and asks for others than `unfit`.
fn leave_nodes(pass: &mut Pass<'_>, unfit: &BTreeMap<&str, &str>) {
    let (node, fault) = unfit.first_key_value().unwrap_or((&"?", &"?"));
    let more = match unfit.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let why = format!("node `{node}` failed the preflight: {fault}{more}");
    let avoid: Vec<String> = unfit.keys().map(|node| (*node).to_owned()).collect();
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    state.forget_trouble();
    let news = note_unfit(state, avoid.iter());
    let message = format!("{why}; another seat is looked for");
    // What the job waits for may be told in other words, so those cannot say whether this was told.
    if news {
        let message = format!("The gang gives its seats back: {why}.");
        pass.tell(EventKind::Warning, "UnfitNodes", message);
    }
    pass.say(Code::WaitingForSeats, message);
    pass.actions.push(Action::GiveSeatsBack { why, avoid });
}

/// Gives the seats back until the next try.
fn try_later(pass: &mut Pass<'_>, why: String, avoid: Vec<String>) {
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    state.since = None;
    let pause = (PAUSE * 2u32.pow(state.in_vain.min(8))).min(PAUSE_MAX);
    state.in_vain = state.in_vain.saturating_add(1);
    let told = state.why.as_ref() == Some(&why);
    state.why = Some(why.clone());
    let retry_at = pass.stamp.checked_add(pause).unwrap_or(Timestamp::MAX);
    state.retry_at = Some(retry_at);
    if !told {
        pass.tell(EventKind::Warning, "PreflightFailed", why.clone());
    }
    pass.wake(retry_at);
    pass.say(
        Code::WaitingForPreflight,
        format!("{why}; the preflight is tried again at {retry_at}"),
    );
    pass.actions.push(Action::GiveSeatsBack { why, avoid });
}

/// Says what keeps a preflight from being run; an event once.
fn wait(pass: &mut Pass<'_>, message: String) {
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    if state.why.as_ref() != Some(&message) {
        state.why = Some(message.clone());
        pass.tell(EventKind::Warning, "WaitingForPreflight", message.clone());
    }
    pass.say(Code::WaitingForPreflight, message);
}

/// A gang that somebody else starts is started without: its nodes are known only once its pods are there.
fn warn_not_applied(pass: &mut Pass<'_>) {
    let first = pass.observed.status.trainyard.attempt != pass.status.trainyard.attempt;
    if let SeenPreflight::Unable(why) = &pass.observed.preflight
        && first
    {
        let message = format!("the preflight that the job requires is not run: {why}");
        pass.tell(EventKind::Warning, "PreflightNotRun", message);
    }
}

/// What a gang that waits in line adds to the reason: the nodes that it was taken from.
pub(super) fn unfit_so_far(pass: &Pass<'_>) -> Option<String> {
    let unfit = &pass.status.trainyard.preflight.as_ref()?.unfit;
    let names: Vec<&str> = unfit.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{} of the nodes that it had failed the preflight (`{}`)",
            names.len(),
            names.join("`, `")
        )
    })
}

/// Ends a preflight that nobody waits for any more.
pub(super) fn leave(pass: &mut Pass<'_>) {
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
    /// The next attempt looks again, wherever its seats are.
    pub(super) fn next_attempt(self) -> Self {
        Self {
            round: self.round,
            unfit: self.unfit,
            ..Self::default()
        }
    }

    /// All of the gang runs: what was looked at before that is over.
    pub(super) fn is_whole(&mut self) {
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
