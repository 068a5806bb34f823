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
    probe::{Judgement, NodeRecord},
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
    if pass.job.knobs.preflight != Preflight::Required {
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
    if pass.job.knobs.preflight != Preflight::Required || mutant::is(Mutant::StartsUnmeasured) {
        return true;
    }
    let observed = pass.observed;
    let seats = match &observed.seating {
        Seating::Given(seats) => seats,
        Seating::Open => {
            warn_not_applied(pass);
            return true;
        }
        // No pod goes anywhere.
        _ => return true,
    };
    let here = match &observed.preflight {
        SeenPreflight::Unused => return true,
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
        return true;
    }
    let failed = failed_before(here, &wanted, pass.now);
    if !failed.is_empty() {
        leave_nodes(pass, &failed);
        return false;
    }
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    let passed = |node: &String| is_passed(state, here, node, pass.now);
    if wanted.keys().all(passed) {
        state.forget_trouble();
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
    if let Some(state) = &mut pass.status.trainyard.preflight {
        state.since = None;
        state.passed.clear();
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

/// The nodes of `wanted` that are known to be unfit.
fn failed_before<'a>(
    here: &'a Preflights,
    wanted: &BTreeMap<String, Slot>,
    now: Timestamp,
) -> BTreeMap<&'a str, &'a str> {
    let bad = |record: &NodeRecord| record.is_failed() && record.is_fresh(now);
    let known = here.records.iter();
    known
        .filter(|(node, record)| wanted.contains_key(*node) && bad(record))
        .filter(|_| !mutant::is(Mutant::StartsOnUnfit))
        .map(|(node, record)| (node.as_str(), record.why.as_str()))
        .collect()
}

/// Has the nodes looked at, or takes in what was found; whether the gang may start.
fn look(pass: &mut Pass<'_>, here: &Preflights, wanted: BTreeMap<String, Slot>) -> bool {
    let (now, stamp) = (pass.now, pass.stamp);
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    let count = wanted.len();
    let Some(since) = state.since else {
        state.round += 1;
        state.since = Some(stamp);
        let round = state.round;
        pass.actions.push(Action::StartPreflight {
            round,
            seats: wanted,
        });
        return waits_for(pass, count, stamp);
    };
    let late_at = since.checked_add(WITHIN).unwrap_or(Timestamp::MAX);
    let round = state.round;
    match &here.run {
        PreflightRun::Ended(ended, found) if *ended == round => {
            return conclude(pass, here, found.as_ref().map_err(String::as_str), wanted);
        }
        _ if now >= late_at && !mutant::is(Mutant::WaitsForPreflight) => {
            let why = format!("it did not end within {} s", WITHIN.as_secs());
            return conclude(pass, here, Err(&why), wanted);
        }
        PreflightRun::Runs(runs) if *runs == round => {}
        // Whoever ran it knows nothing of it any more.
        _ => pass.actions.push(Action::StartPreflight {
            round,
            seats: wanted,
        }),
    }
    waits_for(pass, count, since)
}

fn waits_for(pass: &mut Pass<'_>, count: usize, since: Timestamp) -> bool {
    pass.wake(since.checked_add(WITHIN).unwrap_or(Timestamp::MAX));
    pass.say(
        Code::WaitingForPreflight,
        format!("the preflight of {count} nodes runs since {since}"),
    );
    false
}

/// What follows from what a preflight found; whether the gang may start.
fn conclude(
    pass: &mut Pass<'_>,
    here: &Preflights,
    found: Result<&Judgement, &str>,
    wanted: BTreeMap<String, Slot>,
) -> bool {
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    state.since = None;
    let judgement = match found {
        Ok(judgement) => judgement,
        Err(why) => {
            try_later(
                pass,
                format!("the preflight of the seats told nothing: {why}"),
            );
            return false;
        }
    };
    if mutant::is(Mutant::StartsOnUnfit) || judgement.unfit.is_empty() && judgement.alike.is_none()
    {
        let state = pass.status.trainyard.preflight.get_or_insert_default();
        state.passed.extend(judgement.fit.iter().cloned());
        state.forget_trouble();
        let passed = |node: &String| is_passed(state, here, node, pass.now);
        if !mutant::is(Mutant::StartsOnUnfit) && !wanted.keys().all(passed) {
            // The gang has other seats by now.
            return look(pass, here, wanted);
        }
        pass.tell(
            EventKind::Normal,
            "PreflightPassed",
            format!(
                "the {} nodes of the gang passed the preflight",
                wanted.len()
            ),
        );
        return true;
    }
    if !judgement.unfit.is_empty() {
        let unfit = judgement.unfit.iter();
        let unfit = unfit.map(|(node, fault)| (node.as_str(), fault.why.as_str()));
        leave_nodes(pass, &unfit.collect());
    }
    if let Some(why) = &judgement.alike {
        let why = why.clone();
        try_later(pass, why);
    }
    false
}

/// Gives the seats back and asks for others than `unfit`.
fn leave_nodes(pass: &mut Pass<'_>, unfit: &BTreeMap<&str, &str>) {
    let (node, fault) = unfit.first_key_value().unwrap_or((&"?", &"?"));
    let more = match unfit.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let why = format!("node `{node}` failed the preflight: {fault}{more}");
    let state = pass.status.trainyard.preflight.get_or_insert_default();
    state.in_vain = 0;
    for node in unfit.keys() {
        state.passed.remove(*node);
        if state.unfit.len() < NAMED {
            state.unfit.insert((*node).to_owned());
        }
    }
    pass.tell(
        EventKind::Warning,
        "UnfitNodes",
        format!("The gang gives its seats back: {why}."),
    );
    pass.say(
        Code::WaitingForSeats,
        format!("{why}; another seat is looked for"),
    );
    let avoid = unfit.keys().map(|node| (*node).to_owned()).collect();
    pass.actions.push(Action::GiveSeatsBack { why, avoid });
}

/// Gives the seats back until the next try.
fn try_later(pass: &mut Pass<'_>, why: String) {
    let state = pass.status.trainyard.preflight.get_or_insert_default();
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
    let leaves = |action: &Action| matches!(action, Action::GiveSeatsBack { .. });
    if !pass.actions.iter().any(leaves) {
        let avoid = Vec::new();
        pass.actions.push(Action::GiveSeatsBack { why, avoid });
    }
}

/// Says what keeps a preflight from being run; an event once.
fn wait(pass: &mut Pass<'_>, message: String) {
    let waiting = pass.observed.status.trainyard.waiting.as_ref();
    if waiting.is_none_or(|known| known.message != message) {
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
        || pass.job.knobs.preflight != Preflight::Required;
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
