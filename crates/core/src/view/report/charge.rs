//! On whose account the time of a run goes that did not train.
//!
//! A failure costs the time until the next attempt trains what was new: its wait for nodes, the creation of its pods, its start, and the steps that it repeats.
//! Saves, stalls and the first start are on nobody's account. What follows a restart of which no failure was recorded is on an unknown one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    account::Account,
    chronicle::{Booked, Chronicle, Content, Headline, Stretch},
    ledger::Phase,
};

/// On whose account lost time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Charge {
    /// Failures of the program.
    User,
    /// People and controllers of the cluster.
    Platform,
    /// Nodes, devices, networks.
    Infrastructure,
    /// Preemption by a job of higher priority.
    Preemption,
    /// No failure: the first start, saves, stalls.
    NoFailure,
    /// A failure whose account was not recorded.
    Unknown,
}

impl Charge {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Platform => "platform",
            Self::Infrastructure => "infrastructure",
            Self::Preemption => "preemption",
            Self::NoFailure => "no failure",
            Self::Unknown => "not recorded",
        }
    }
}

impl From<Account> for Charge {
    fn from(account: Account) -> Self {
        match account {
            Account::User => Self::User,
            Account::Platform => Self::Platform,
            Account::Infrastructure => Self::Infrastructure,
            Account::Preemption => Self::Preemption,
        }
    }
}

/// An attempt that failed.
pub(super) struct Failed<'a> {
    pub(super) attempt: u32,
    pub(super) at: i64,
    pub(super) account: Charge,
    pub(super) why: &'a str,
}

/// What is summed apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) account: Charge,
    /// The attempt whose failure it follows.
    pub(super) failed: Option<u32>,
    pub(super) phase: Phase,
}

/// The accounts of one run.
pub(super) struct Charged<'a> {
    pub(super) sums: BTreeMap<Key, u64>,
    pub(super) failures: Vec<Failed<'a>>,
}

/// The accounts of the time of `inside`, a part of `whole` that is known until `until`.
pub(super) fn charges<'a>(
    whole: &'a Chronicle,
    inside: &Chronicle,
    until: Timestamp,
) -> Charged<'a> {
    let failures = failures(whole);
    let accounts: BTreeMap<u32, Charge> =
        failures.iter().map(|it| (it.attempt, it.account)).collect();
    let suspended: Vec<u32> = parts(whole, until)
        .filter(|part| part.phase == Phase::Suspended)
        .filter_map(|part| part.attempt)
        .collect();
    let mut sums: BTreeMap<Key, u64> = BTreeMap::new();
    for part in parts(inside, until) {
        if matches!(part.phase, Phase::Training | Phase::Suspended) || part.millis == 0 {
            continue;
        }
        let (account, failed) = account_of(&part, &accounts, &suspended);
        let key = Key {
            account,
            failed,
            phase: part.phase,
        };
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(part.millis);
    }
    Charged { sums, failures }
}

fn account_of(
    part: &Booked,
    accounts: &BTreeMap<u32, Charge>,
    suspended: &[u32],
) -> (Charge, Option<u32>) {
    let follows_failure = matches!(part.phase, Phase::Restarting | Phase::Redoing);
    if !follows_failure && !part.phase.precedes_training() {
        return (Charge::NoFailure, None);
    }
    let Some(attempt) = part.attempt else {
        return (Charge::Unknown, None);
    };
    let before = attempt.checked_sub(1);
    let failed = |of: Option<u32>| Some((*accounts.get(&of?)?, of));
    if let Some(found) = failed(before) {
        return found;
    }
    // A gang that stops in its pods is restarting before its next attempt begins.
    if follows_failure && let Some(found) = failed(Some(attempt)) {
        return found;
    }
    let resumes = suspended
        .iter()
        .any(|of| *of == attempt || Some(*of) == before);
    if (attempt <= 1 && !follows_failure) || resumes {
        (Charge::NoFailure, None)
    } else {
        (Charge::Unknown, None)
    }
}

/// The attempts that failed, each once, in order of time.
fn failures(chronicle: &Chronicle) -> Vec<Failed<'_>> {
    let mut by_attempt: BTreeMap<u32, (i64, &Headline)> = BTreeMap::new();
    for (at, headline) in &chronicle.headlines {
        by_attempt
            .entry(headline.attempt)
            .or_insert((*at, headline));
    }
    by_attempt
        .into_iter()
        .map(|(attempt, (at, headline))| {
            let mut verdicts = chronicle.verdicts.iter().rev();
            let verdict = verdicts.find(|(_, it)| it.summary.attempt == attempt);
            let verdict = verdict.map(|(_, it)| &it.summary);
            let account = headline.account.or(verdict.map(|it| it.account));
            Failed {
                attempt,
                at,
                account: account.map_or(Charge::Unknown, Charge::from),
                why: verdict.map_or(&*headline.message, |it| &*it.label),
            }
        })
        .collect()
}

/// The parts of the time of `chronicle`, the open span included.
fn parts(chronicle: &Chronicle, until: Timestamp) -> impl Iterator<Item = Booked> {
    let open = chronicle.open.map(|open| Stretch {
        from: open.since.as_millisecond(),
        to: open.since.max(until).as_millisecond(),
        content: Content::Phase {
            attempt: open.attempt,
            phase: open.phase,
        },
    });
    let closed = chronicle.stretches.iter().flat_map(Stretch::booked);
    closed.chain(open.into_iter().flat_map(|open| open.booked()))
}
