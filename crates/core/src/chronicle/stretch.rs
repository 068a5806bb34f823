//! Closed time of a job, in order, and how it becomes less detailed without losing a millisecond.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::Phase;

/// Sums that one stretch keeps by attempt; where there would be more, attempts are added up.
pub const BOOKED_MAX: usize = 64;

/// Time that is accounted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Since then, in Unix milliseconds.
    pub from: i64,
    /// Until then.
    pub to: i64,
    /// Where it went.
    pub content: Content,
}

/// Where the time of a stretch went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it to one phase of one attempt.
    Phase {
        /// The attempt.
        attempt: u32,
        /// The phase.
        phase: Phase,
    },
    /// To several, which were observed and merged to save room.
    Merged(Vec<Booked>),
    /// To several, in an order that nobody observed.
    NotObserved(Vec<Booked>),
}

/// A part of the time of a stretch. Stored as `[attempt, phase, milliseconds]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Option<u32>, Phase, u64)", into = "(Option<u32>, Phase, u64)")]
pub struct Booked {
    /// The attempt, where it is known.
    pub attempt: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// How long.
    pub millis: u64,
}

impl From<(Option<u32>, Phase, u64)> for Booked {
    fn from((attempt, phase, millis): (Option<u32>, Phase, u64)) -> Self {
        Self {
            attempt,
            phase,
            millis,
        }
    }
}

impl From<Booked> for (Option<u32>, Phase, u64) {
    fn from(booked: Booked) -> Self {
        (booked.attempt, booked.phase, booked.millis)
    }
}

impl Stretch {
    /// How long it lasts.
    pub fn millis(&self) -> u64 {
        length(self.from, self.to)
    }

    /// The parts that it consists of; together they are as long as it.
    pub fn booked(&self) -> Vec<Booked> {
        match &self.content {
            Content::Phase { attempt, phase } => vec![Booked {
                attempt: Some(*attempt),
                phase: *phase,
                millis: self.millis(),
            }],
            Content::Merged(booked) | Content::NotObserved(booked) => booked.clone(),
        }
    }

    /// Whether its parts add up to it. What was read from a file may not.
    pub(super) fn adds_up(&self) -> bool {
        let booked = match &self.content {
            Content::Phase { .. } => return self.from <= self.to,
            Content::Merged(booked) | Content::NotObserved(booked) => booked,
        };
        let sum = booked
            .iter()
            .try_fold(0_u64, |sum, part| sum.checked_add(part.millis));
        self.from <= self.to && sum == Some(self.millis()) && booked.len() <= 4 * BOOKED_MAX
    }

    /// Adds the stretch that follows it.
    fn absorb(&mut self, next: &Self) {
        let mut sums: BTreeMap<(Option<u32>, Phase), u64> = BTreeMap::new();
        for part in self.booked().into_iter().chain(next.booked()) {
            *sums.entry((part.attempt, part.phase)).or_default() += part.millis;
        }
        sums.retain(|_, millis| *millis > 0);
        if sums.len() > BOOKED_MAX {
            let by_attempt = std::mem::take(&mut sums);
            for ((_, phase), millis) in by_attempt {
                *sums.entry((None, phase)).or_default() += millis;
            }
        }
        let booked = sums.into_iter();
        let booked: Vec<Booked> = booked
            .map(|((attempt, phase), millis)| Booked {
                attempt,
                phase,
                millis,
            })
            .collect();
        let unseen = |it: &Self| matches!(it.content, Content::NotObserved(_));
        let is_unseen = unseen(self) || unseen(next);
        self.to = next.to;
        self.content = match booked.as_slice() {
            [
                Booked {
                    attempt: Some(attempt),
                    phase,
                    ..
                },
            ] if !is_unseen => Content::Phase {
                attempt: *attempt,
                phase: *phase,
            },
            _ if is_unseen => Content::NotObserved(booked),
            _ => Content::Merged(booked),
        };
    }

    /// Whether merging it with `next` turns observed time into time that is not observed.
    fn is_other_kind(&self, next: &Self) -> bool {
        let unseen = |it: &Self| matches!(it.content, Content::NotObserved(_));
        unseen(self) != unseen(next)
    }
}

/// Adds `stretch` at the end. Equal neighbours become one; what takes no time is left out.
pub(super) fn push(stretches: &mut Vec<Stretch>, stretch: Stretch) {
    if stretch.millis() == 0 {
        return;
    }
    if let Some(last) = stretches.last_mut()
        && last.to == stretch.from
        && matches!(last.content, Content::Phase { .. })
        && last.content == stretch.content
    {
        last.to = stretch.to;
        return;
    }
    stretches.push(stretch);
}

/// Merges neighbours, the shortest first, until at most `most` are left.
pub(super) fn compact(stretches: &mut Vec<Stretch>, most: usize) {
    let most = most.max(1);
    while stretches.len() > most {
        let mut pairs: Vec<(bool, u64, usize)> = stretches
            .windows(2)
            .enumerate()
            .map(|(at, pair)| {
                let millis = pair[0].millis().saturating_add(pair[1].millis());
                (pair[0].is_other_kind(&pair[1]), millis, at)
            })
            .collect();
        pairs.sort_unstable();
        let mut joined = vec![false; stretches.len()];
        let mut left = stretches.len() - most;
        for (_, _, at) in pairs {
            if left == 0 {
                break;
            }
            // Each takes part once in a round.
            if joined[at] || joined[at + 1] || (at > 0 && joined[at - 1]) {
                continue;
            }
            joined[at] = true;
            left -= 1;
        }
        let mut kept: Vec<Stretch> = Vec::with_capacity(stretches.len());
        for (at, stretch) in std::mem::take(stretches).into_iter().enumerate() {
            let joins_last = at > 0 && joined[at - 1];
            match kept.last_mut().filter(|_| joins_last) {
                Some(last) => last.absorb(&stretch),
                None => kept.push(stretch),
            }
        }
        *stretches = kept;
    }
}

pub(super) fn length(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}
