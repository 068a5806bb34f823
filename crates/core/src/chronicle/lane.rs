//! What the pods of one slot did, and failures, bounded.

use std::collections::BTreeMap;

use super::{
    At,
    fact::{PodState, What},
};
use crate::spec::Slot;

/// What the pods of one slot did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// The first rank, where the pods hold any and it is known.
    pub first_rank: Option<u32>,
    /// How many ranks each holds; 0 where it is not known.
    pub ranks: u32,
    /// Its changes, in order of time.
    pub turns: Vec<Turn>,
    /// Its nodes, in order of time.
    pub seats: Vec<SeatTurn>,
}

/// A change of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When.
    pub at: i64,
    /// The attempt of the pod.
    pub attempt: u32,
    /// What it does from then on.
    pub state: PodState,
}

/// A node that a slot got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatTurn {
    /// When.
    pub at: i64,
    /// The attempt.
    pub attempt: u32,
    /// The node.
    pub node: String,
}

/// One failure, or several of one slot that were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The slot, where it is known; otherwise it is the job's.
    pub slot: Option<Slot>,
    /// The attempt of the first.
    pub attempt: u32,
    /// When the first was.
    pub at: i64,
    /// When the last was.
    pub until: i64,
    /// How many.
    pub count: u64,
}

/// Time, slot, attempt and end of a failure: their order.
pub(super) type FailureKey = (i64, Option<Slot>, u32, i64);

impl Lane {
    /// Adds a change; says whether there is one more. Clocks of nodes differ, so nothing is earlier than what was seen before.
    pub(super) fn turn(&mut self, at: i64, attempt: u32, state: PodState) -> bool {
        let at = self.turns.last().map_or(at, |last| at.max(last.at));
        // Two incarnations of a pod may fail in a row.
        let is_same = |last: &Turn| {
            let fails_again = state == PodState::Failed && at > last.at;
            (last.attempt, last.state) == (attempt, state) && !fails_again
        };
        if self.turns.last().is_some_and(is_same) {
            return false;
        }
        self.turns.push(Turn { at, attempt, state });
        true
    }

    /// Adds a node; says whether there is one more.
    pub(super) fn seat(&mut self, at: i64, attempt: u32, node: &str) -> bool {
        if self
            .seats
            .last()
            .is_some_and(|last| last.attempt == attempt && last.node == node)
        {
            return false;
        }
        let at = self.seats.last().map_or(at, |last| at.max(last.at));
        let node = node.chars().take(super::TEXT_CHARS).collect();
        self.seats.push(SeatTurn { at, attempt, node });
        true
    }

    /// The node at `at`, or the last one before it.
    pub fn node_at(&self, at: i64) -> Option<&str> {
        let after = self.seats.partition_point(|seat| seat.at <= at);
        let seat = after.checked_sub(1).and_then(|last| self.seats.get(last));
        seat.map(|seat| seat.node.as_str())
    }

    pub(super) fn turns_kept(&self) -> usize {
        self.turns.len() + self.seats.len()
    }

    /// The facts that give it again. Its failures are facts of their own.
    pub(super) fn facts(&self, slot: Slot) -> impl Iterator<Item = At<What>> + '_ {
        let seats = self.seats.iter().map(move |seat| {
            let what = What::Seated {
                attempt: seat.attempt,
                slot,
                first_rank: self.first_rank,
                ranks: self.ranks,
                node: seat.node.clone(),
            };
            (seat.at, what)
        });
        let turns = self.turns.iter().map(move |turn| {
            let what = What::Pod {
                attempt: turn.attempt,
                slot,
                state: turn.state,
            };
            (turn.at, what)
        });
        seats.chain(turns)
    }
}

/// Drops the oldest changes of all lanes until at most `most` are left, and says how many. The last change and the last node of each lane stay; failures
/// are kept elsewhere.
pub(super) fn compact(lanes: &mut BTreeMap<Slot, Lane>, most: usize) -> u64 {
    let older = |lane: &Lane| {
        let turns = lane.turns.iter().rev().skip(1).map(|turn| turn.at);
        let seats = lane.seats.iter().rev().skip(1).map(|seat| seat.at);
        turns.chain(seats).collect::<Vec<i64>>()
    };
    let mut times: Vec<i64> = lanes.values().flat_map(older).collect();
    let kept: usize = lanes.values().map(Lane::turns_kept).sum();
    let surplus = kept.saturating_sub(most).min(times.len());
    let Some(last) = surplus.checked_sub(1) else {
        return 0;
    };
    times.sort_unstable();
    let until = times[last];
    for lane in lanes.values_mut() {
        drop_until(&mut lane.turns, until, |turn| turn.at);
        drop_until(&mut lane.seats, until, |seat| seat.at);
    }
    let left: usize = lanes.values().map(Lane::turns_kept).sum();
    u64::try_from(kept - left).unwrap_or(u64::MAX)
}

fn drop_until<T>(all: &mut Vec<T>, until: i64, at: impl Fn(&T) -> i64) {
    let old = all.partition_point(|one| at(one) <= until);
    all.drain(..old.min(all.len().saturating_sub(1)));
}

impl Failure {
    pub(super) fn one(slot: Option<Slot>, attempt: u32, at: i64) -> Self {
        Self {
            slot,
            attempt,
            at,
            until: at,
            count: 1,
        }
    }

    pub(super) fn key(&self) -> FailureKey {
        (self.at, self.slot, self.attempt, self.until)
    }

    pub(super) fn fact(&self) -> At<What> {
        let what = What::Failures {
            slot: self.slot,
            attempt: self.attempt,
            until: self.until,
            count: self.count,
        };
        (self.at, what)
    }
}

/// Merges failures of the same slot, those closest to each other first, until at most `most` are left or each slot has one.
pub(super) fn merge_failures(failures: &mut Vec<Failure>, most: usize) {
    failures.sort_by_key(|failure| (failure.slot, failure.at, failure.until));
    while failures.len() > most {
        let mut gaps: Vec<(i64, usize)> = failures
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| pair[0].slot == pair[1].slot)
            .map(|(at, pair)| (pair[1].at.saturating_sub(pair[0].until), at))
            .collect();
        if gaps.is_empty() {
            break;
        }
        gaps.sort_unstable();
        let mut joins_last = vec![false; failures.len()];
        for (_, at) in gaps.iter().take(failures.len() - most) {
            joins_last[at + 1] = true;
        }
        let mut kept: Vec<Failure> = Vec::with_capacity(most);
        for (at, failure) in std::mem::take(failures).into_iter().enumerate() {
            match kept.last_mut().filter(|_| joins_last[at]) {
                Some(last) => {
                    last.until = last.until.max(failure.until);
                    last.count = last.count.saturating_add(failure.count);
                }
                None => kept.push(failure),
            }
        }
        *failures = kept;
    }
    failures.sort_by_key(Failure::key);
}
