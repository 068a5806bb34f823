//! Ranks and jobs that train, but slowly.
//!
//! Ranks that train together wait for the slowest, so most programs report the same step time on all of them. A rank is
//! called slow only where ranks report times of their own, or where two signs agree: the job is slower than it was, and
//! whenever it is looked at, all other ranks wait and this one does not.

use std::time::Duration;

use super::rank::Rank;

/// Step times of a rank that are compared.
const STEPS: usize = 20;
/// Ranks that must report their own: among fewer there is no outlier.
const RANKS: usize = 3;
/// Step times whose median is a candidate for the best of the job.
const BLOCK: usize = 100;
/// How much slower than its best a job must be, in percent.
const SLOWER: u64 = 115;
/// For how long.
const SLOWER_FOR: Duration = Duration::from_mins(10);
/// Looks at a slow job: each says who does not wait.
const LOOKS: u32 = 20;
/// How far apart they are.
pub(super) const LOOKS_APART: Duration = Duration::from_secs(15);
/// Looks in which one rank alone does not wait, in percent of all.
const ALONE: u32 = 80;

/// The last step times of one rank, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepTimes {
    times: [u32; STEPS],
    count: usize,
}

impl StepTimes {
    /// Takes the time of a step; whether a window is full and the ranks are worth comparing.
    pub(super) fn take(&mut self, time: Duration) -> bool {
        // 71 minutes; longer ones are compared as if they took that.
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let slots = self.times.len();
        if let Some(slot) = self.times.get_mut(self.count % slots) {
            *slot = micros;
        }
        self.count = self.count.saturating_add(1);
        self.count.is_multiple_of(slots)
    }

    fn median(&self) -> Option<u64> {
        (self.count >= STEPS).then(|| median(&mut self.times.map(u64::from)))
    }
}

/// The rank whose own steps take half as long again as those of the others, and how long they take, in percent of theirs.
pub(super) fn slowest(ranks: &[Rank]) -> Option<(u32, u32)> {
    let mut times: Vec<(u64, u32)> = (0_u32..)
        .zip(ranks)
        .filter(|(_, rank)| !rank.ended)
        .filter_map(|(number, rank)| Some((rank.step_times.median()?, number)))
        .collect();
    if times.len() < RANKS {
        return None;
    }
    times.sort_unstable();
    let (slow, rank) = times.pop()?;
    let (others, _) = *times.get(times.len() / 2)?;
    let percent = slow.saturating_mul(100) / others.max(1);
    (percent >= 150).then(|| (rank, u32::try_from(percent).unwrap_or(u32::MAX)))
}

/// How fast the job as a whole reaches new steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// The last step that was new, and when.
    last: Option<(u64, Duration)>,
    /// The last times of one step, in microseconds, at most [`BLOCK`].
    times: Vec<u64>,
    /// Times of the last [`STEPS`] steps.
    recent: Vec<u64>,
    best: Option<u64>,
    slow_since: Option<Duration>,
    looks: u32,
    alone: Option<(u32, u32)>,
}

impl Pace {
    /// Takes a step that is new to the job; how slow it is in percent of its best, where that lasted.
    pub(super) fn take(&mut self, at: Duration, step: u64) -> Option<u32> {
        let before = self.last.replace((step, at));
        let (last, since) = before?;
        // A bar that begins again with each epoch.
        let steps = step.checked_sub(last).filter(|steps| *steps > 0)?;
        let micros = u64::try_from(at.saturating_sub(since).as_micros()).unwrap_or(u64::MAX);
        let time = micros / steps;
        if self.recent.len() == STEPS {
            self.recent.remove(0);
        }
        self.recent.push(time);
        self.times.push(time);
        if self.times.len() == BLOCK {
            let block = median(&mut self.times);
            self.times.clear();
            self.best = Some(self.best.map_or(block, |best| best.min(block)));
        }
        let best = self.best?;
        let now = median(&mut self.recent.clone());
        if u128::from(now) * 100 < u128::from(best) * u128::from(SLOWER) {
            self.slow_since = None;
            self.looks = 0;
            self.alone = None;
            return None;
        }
        let since = *self.slow_since.get_or_insert(at);
        let percent = now.saturating_mul(100) / best.max(1);
        (at.saturating_sub(since) >= SLOWER_FOR).then(|| u32::try_from(percent).unwrap_or(u32::MAX))
    }

    /// Whether looks would show who is waited for.
    pub(super) fn wants_looks(&self, now: Duration) -> bool {
        self.looks < LOOKS
            && self
                .slow_since
                .is_some_and(|since| now.saturating_sub(since) >= SLOWER_FOR)
    }

    /// Takes the stacks that were asked for at `asked`; the rank that the others wait for, once enough looks agree.
    pub(super) fn take_look(&mut self, ranks: &[Rank], asked: Duration) -> Option<u32> {
        self.looks += 1;
        let living = || (0_u32..).zip(ranks).filter(|(_, rank)| !rank.ended);
        // Stacks of before say nothing about this look.
        let waits = |rank: &Rank| {
            let stack = rank.stack.as_ref().filter(|_| rank.stack_at >= asked);
            stack.map(|stack| stack.in_collective)
        };
        let waiting = living().filter(|(_, rank)| waits(rank) == Some(true));
        let waiting = waiting.count();
        let alone = living().count() == waiting + 1 && waiting + 1 >= RANKS;
        let mut outside = living().filter(|(_, rank)| waits(rank) == Some(false));
        if let Some((rank, _)) = outside.next().filter(|_| alone) {
            self.alone = match self.alone {
                Some((before, count)) if before == rank => Some((rank, count + 1)),
                Some((before, count)) if count > 1 => Some((before, count - 1)),
                _ => Some((rank, 1)),
            };
        }
        let (rank, count) = self.alone?;
        (self.looks >= LOOKS && count * 100 >= self.looks * ALONE).then_some(rank)
    }
}

/// The median; zero of nothing.
fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}
