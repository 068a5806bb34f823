//! Which rank differs from the others.
//!
//! In a hang every rank but the culprit waits for the culprit, so all of them look alike and one does not. A single number
//! never decides: with gloo the ranks that wait use no CPU time and with MPI or NCCL they use a whole core. Ranks are
//! compared with each other.

use std::{collections::BTreeMap, time::Duration};

use super::{
    collective::{Behind, Collective, behind},
    rank::{Rank, STIR_CPU},
    signal::Stack,
    stall::LOOKS_LEAST,
};
use crate::mutant::{self, Mutant};

/// Looks with an equal stack after which a rank that uses CPU time is named before the ceiling.
const EQUAL_LOOKS: u32 = 20;
/// Thousandths of a core from which on a rank counts as busy when ranks are compared by CPU time alone.
const BUSY_CPU: u32 = 500;

/// In what way ranks differ from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// They are stopped.
    Stopped,
    /// They wait for a disk or a driver.
    DiskWait,
    /// They began fewer collectives.
    Behind,
    /// They are elsewhere in the program.
    Elsewhere,
    /// Nobody differs.
    AllAlike,
}

/// Whether ranks move, the least of it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Motion {
    /// There is no evidence.
    Unseen,
    /// Something moves, or too little was seen.
    Moves,
    /// CPU time moves, and the stack was the same in several looks.
    Stands,
    /// CPU time moves, and the stack was the same in so many looks that more would show nothing new.
    Stuck,
    /// Nothing moves.
    Still,
}

/// What a comparison of the ranks gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Apart {
    pub(super) way: Way,
    /// Those that differ, in order; none where all are alike.
    pub(super) ranks: Vec<u32>,
    /// Whether all signs agree: two kinds of evidence, the others wait and are alike, and nothing moves.
    pub(super) sure: bool,
    /// Whether those that differ move; where all are alike, whether anybody does.
    pub(super) motion: Motion,
    /// Whether the others do not move, or are at the same line whenever they are looked at.
    pub(super) others_stand: bool,
    /// Who is behind in which collective, where that is known.
    pub(super) behind: Option<Behind>,
}

/// Compares the ranks that run, as seen in silence `silence`; what did not move for `span` is still.
pub(super) fn apart(ranks: &[Rank], silence: u32, span: Duration) -> Apart {
    let living: Vec<Posture<'_>> = (0_u32..)
        .zip(ranks)
        .filter(|(_, rank)| !rank.ended)
        .map(|(number, rank)| Posture::of(number, rank, silence, span))
        .collect();
    let began: Vec<(u32, &[Collective])> = living
        .iter()
        .map(|posture| (posture.number, posture.collectives))
        .collect();
    let began_less = behind(&began);
    let named = |way, is: &dyn Fn(&Posture<'_>) -> bool| {
        let (those, others): (Vec<_>, Vec<_>) = living.iter().partition(|posture| is(posture));
        let motion = those.iter().map(|posture| posture.motion).min();
        Apart {
            way,
            ranks: those.iter().map(|posture| posture.number).collect(),
            sure: false,
            motion: motion.unwrap_or(Motion::Unseen),
            others_stand: others
                .iter()
                .all(|posture| posture.motion >= Motion::Stands),
            behind: began_less.clone(),
        }
    };
    let held = |hold| {
        living
            .iter()
            .filter(|posture| posture.hold == Some(hold))
            .count()
    };
    if held(Hold::Stopped) > 0 {
        let mut apart = named(Way::Stopped, &|posture| posture.hold == Some(Hold::Stopped));
        apart.sure = true;
        return apart;
    }
    if (1..living.len()).contains(&held(Hold::DiskWait)) {
        let waits = |posture: &Posture<'_>| posture.hold == Some(Hold::DiskWait);
        return named(Way::DiskWait, &waits);
    }
    if let Some(sure) = outside_collective(&living) {
        let accused = mutant::is(Mutant::AccusesMajority);
        let mut apart = named(Way::Elsewhere, &|posture| posture.waits == accused);
        apart.sure = sure;
        return apart;
    }
    if let Some(behind) = &began_less {
        let is_late = |posture: &Posture<'_>| behind.ranks.binary_search(&posture.number).is_ok();
        let mut apart = named(Way::Behind, &is_late);
        let counted = living.iter().all(|posture| !posture.collectives.is_empty());
        apart.sure = apart.ranks.len() == 1 && counted && all_still(&living);
        return apart;
    }
    // Where some wait in a collective and nobody is outside of it, lines differ by the group that they wait in.
    if !living.iter().any(|posture| posture.waits) {
        if let Some(most) = common(&living, Posture::digest) {
            return named(Way::Elsewhere, &|posture| posture.digest() != Some(most));
        }
        if living.iter().all(|posture| posture.digest().is_none()) {
            if let Some(busy) = common(&living, Posture::busy) {
                return named(Way::Elsewhere, &|posture| posture.busy() != Some(busy));
            }
            if let Some(channel) = common(&living, Posture::channel) {
                return named(Way::Elsewhere, &|posture| {
                    posture.channel() != Some(channel)
                });
            }
        }
    }
    // Those of which nothing was seen say nothing.
    let seen = living.iter().map(|posture| posture.motion);
    let motion = seen.filter(|motion| *motion > Motion::Unseen).min();
    Apart {
        way: Way::AllAlike,
        ranks: Vec::new(),
        sure: false,
        motion: motion.unwrap_or(Motion::Unseen),
        others_stand: true,
        behind: None,
    }
}

/// Whether enough was seen of every rank that runs to compare them.
pub(super) fn is_seen(ranks: &[Rank], silence: u32) -> bool {
    let mut living = ranks.iter().filter(|rank| !rank.ended);
    living.all(|rank| rank.seen(silence).is_seen(LOOKS_LEAST))
}

/// A state in which a process cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Stopped,
    DiskWait,
}

/// One rank, as it is compared.
struct Posture<'a> {
    number: u32,
    rank: &'a Rank,
    /// Its stack in this silence: an earlier one says nothing.
    stack: Option<&'a Stack>,
    /// What it began in its groups, as reported in this silence.
    collectives: &'a [Collective],
    /// Whether there are samples of usage in this silence.
    sampled: bool,
    /// Whether it waits in a collective.
    waits: bool,
    motion: Motion,
    hold: Option<Hold>,
}

impl<'a> Posture<'a> {
    fn of(number: u32, rank: &'a Rank, silence: u32, span: Duration) -> Self {
        let seen = rank.seen(silence);
        let stack = rank.stack.as_ref().filter(|_| seen.has_stack());
        let collectives = rank.collectives(silence);
        let pending = collectives.iter().any(|began| began.pending.is_some());
        let waits = pending || stack.is_some_and(|stack| stack.in_collective);
        let motion = if !seen.has_stack() && !seen.has_usage() {
            Motion::Unseen
        } else if seen.is_still(waits, span, LOOKS_LEAST) {
            Motion::Still
        } else if !seen.is_still(true, span, LOOKS_LEAST) {
            Motion::Moves
        } else if seen.equal_stacks >= EQUAL_LOOKS {
            Motion::Stuck
        } else if seen.equal_stacks >= LOOKS_LEAST * 2 {
            Motion::Stands
        } else {
            Motion::Moves
        };
        let hold = if seen.stopped >= 2 {
            Some(Hold::Stopped)
        } else if seen.disk_wait >= LOOKS_LEAST && motion == Motion::Still {
            Some(Hold::DiskWait)
        } else {
            None
        };
        Self {
            number,
            rank,
            stack,
            collectives,
            sampled: seen.has_usage(),
            waits,
            motion,
            hold,
        }
    }

    fn digest(&self) -> Option<u64> {
        self.stack.map(|stack| stack.digest)
    }

    fn channel(&self) -> Option<&'a str> {
        self.rank.wait_channel.as_deref().filter(|_| self.sampled)
    }

    /// Whether it uses a core or none; `None` between.
    fn busy(&self) -> Option<bool> {
        match self.rank.cpu.filter(|_| self.sampled)? {
            cpu if cpu >= BUSY_CPU => Some(true),
            cpu if cpu < STIR_CPU => Some(false),
            _ => None,
        }
    }
}

/// Whether two kinds of evidence show of every rank that it does not move.
fn all_still(living: &[Posture<'_>]) -> bool {
    living.iter().all(|posture| {
        posture.sampled && posture.stack.is_some() && posture.motion == Motion::Still
    })
}

/// Some ranks wait in a collective and no more than as many do not: whether it is sure that those are waited for.
fn outside_collective(living: &[Posture<'_>]) -> Option<bool> {
    let (waiting, outside): (Vec<_>, Vec<_>) = living.iter().partition(|posture| posture.waits);
    if waiting.is_empty() || outside.is_empty() || outside.len() > waiting.len() {
        return None;
    }
    let first = waiting.first().and_then(|posture| posture.digest());
    let alike = waiting.iter().all(|posture| posture.digest() == first);
    Some(outside.len() == 1 && alike && all_still(living))
}

/// The value that more than half of the ranks share, at least two of them, while at least one does not.
fn common<'a, T: Ord + 'a>(
    living: &'a [Posture<'a>],
    value: impl Fn(&'a Posture<'a>) -> Option<T>,
) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in living.iter().filter_map(value) {
        *counts.entry(value).or_default() += 1;
    }
    let (value, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (count >= 2 && count * 2 > living.len() && count < living.len()).then_some(value)
}
