//! What shows only across ranks: which rank the others wait for.
//!
//! Ranks have clocks of their own. A collective ends for all of its ranks together, so the ends of matched collectives give the
//! difference of two clocks, and then their starts say who came last.
//!
//! Guarantee: where clocks cannot be aligned, that is reported and nothing is concluded from times of different ranks.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rank::{Collective, RankValues, Summary};
use crate::{
    intervals::Set,
    number::{median, quantile, share},
};

/// Steps that the last rank of each was seen for, before one is named.
const FEWEST_STEPS: usize = 3;
/// The share of steps in which the named rank came last.
const LAST_SHARE: f64 = 0.8;
/// What a slow rank costs at least, of a step.
const LEAST_COST: f64 = 0.03;
/// Clocks are aligned where 9 of 10 ends differ by no more than this part of a step.
const MOST_RESIDUAL: f64 = 0.25;
/// What a slow rank costs is so many times that difference: ranks that leave a collective late by chance, as on a busy machine, may also
/// seem to come late.
const COST_OF_RESIDUAL: u64 = 3;

/// What shows across ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Across {
    /// Collectives that were found in two ranks or more.
    pub matched_collectives: u64,
    /// Collectives that some rank of the group has more often in a step than another.
    pub unmatched_collectives: u64,
    /// How the clocks of ranks were aligned.
    pub clocks: Clocks,
    /// How long each rank waited in collectives for the last.
    pub waits: Vec<RankWait>,
    /// The rank that the others wait for, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_rank: Option<SlowRank>,
}

/// How the clocks of ranks were aligned.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Clocks {
    /// Whether times of different ranks are compared.
    pub aligned: bool,
    /// 9 of 10 collectives end within this time of each other once clocks are aligned.
    pub residual_ns: u64,
}

/// How long a rank waited.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RankWait {
    /// The rank.
    pub rank: u32,
    /// Per step.
    pub wait_ns: u64,
    /// The share of steps in which it came last into the collective that cost most.
    pub last_share: f64,
}

/// The rank that the others wait for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowRank {
    /// The rank.
    pub rank: u32,
    /// The share of steps in which it came last.
    pub last_share: f64,
    /// Steps that were compared.
    pub steps: u64,
    /// What each step loses: from the arrival of the rank before it to its own.
    pub lost_ns: u64,
    /// The median step.
    pub step_ns: u64,
    /// Where it takes longer than the others.
    pub difference: Difference,
}

/// Where a slow rank takes longer than the median of the others, per step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Difference {
    /// Its data loader takes longer.
    Input {
        /// By this much.
        #[serde(rename = "longerNs")]
        longer_ns: u64,
    },
    /// It launches more kernels.
    MoreWork {
        /// By this much.
        #[serde(rename = "longerNs")]
        longer_ns: u64,
        /// Its kernels.
        kernels: u64,
        /// Those of the others.
        others: u64,
    },
    /// It computes the same for longer.
    SlowerCompute {
        /// By this much.
        #[serde(rename = "longerNs")]
        longer_ns: u64,
    },
    /// It does something outside of operators, or launches late.
    Host {
        /// By this much.
        #[serde(rename = "longerNs")]
        longer_ns: u64,
    },
    /// No value of it differs by half of the loss.
    Unknown,
}

/// One collective in the ranks that have it.
#[derive(Debug)]
struct Matched {
    step: i64,
    /// Whether all of its ranks end together.
    ends_together: bool,
    /// Rank index, start, end; each by the clock of its rank.
    members: Vec<(usize, i64, i64)>,
}

/// What the traces of two ranks or more show together.
pub(crate) fn of(summaries: &[Summary]) -> Option<Across> {
    if summaries.len() < 2 {
        return None;
    }
    let (matched, unmatched) = match_collectives(summaries);
    let (offsets, residual_ns) = fit(summaries.len(), &matched);
    let mut steps: Vec<u64> = summaries.iter().map(|it| it.values.step_ns).collect();
    steps.retain(|step| *step > 0);
    let step_ns = median(&mut steps);
    let is_close = step_ns > 0 && share(residual_ns, step_ns) <= MOST_RESIDUAL;
    let aligned = is_close && offsets.iter().filter(|it| it.is_some()).count() >= 2;
    let mut across = Across {
        matched_collectives: matched.len() as u64,
        unmatched_collectives: unmatched,
        clocks: Clocks {
            aligned,
            residual_ns,
        },
        waits: Vec::new(),
        slow_rank: None,
    };
    if aligned {
        let arrivals = Arrivals::of(summaries, &matched, &offsets);
        across.waits = arrivals.waits(summaries);
        let least_ns = residual_ns.saturating_mul(COST_OF_RESIDUAL);
        let slow = arrivals.slow_rank(summaries, &across.waits, step_ns);
        across.slow_rank = slow.filter(|slow| slow.lost_ns >= least_ns);
    }
    Some(across)
}

/// What is added to a time of each trace so that all have the clock of the first.
pub(crate) fn offsets(summaries: &[Summary]) -> Vec<Option<i64>> {
    let (matched, _) = match_collectives(summaries);
    let (offsets, _) = fit(summaries.len(), &matched);
    let base = |summary: &Summary| i64::try_from(summary.base).unwrap_or(0);
    let all = summaries.iter().zip(offsets);
    all.map(|(summary, offset)| base(summary).checked_sub(offset?))
        .collect()
}

/// A time of a trace by the clock of its machine.
fn clock_time(summary: &Summary, at: u64) -> i64 {
    i64::try_from(summary.base.saturating_add(at)).unwrap_or(i64::MAX)
}

/// How the steps of each trace are numbered, so that equal numbers are the same step.
fn step_shifts(summaries: &[Summary]) -> Vec<i64> {
    let Some(first) = summaries.first() else {
        return Vec::new();
    };
    let shifts = summaries.iter().map(|summary| {
        let numbered = |it: &Summary| it.steps.steps.first().and_then(|step| step.number);
        if let Some(number) = numbered(summary) {
            return i64::try_from(number).unwrap_or(0);
        }
        if summary.base == 0 || first.base == 0 {
            return 0;
        }
        // Traces by time begin in different steps: those that end at nearly the same time are the same.
        let ends = |it: &Summary| -> Vec<i64> {
            it.steps
                .steps
                .iter()
                .map(|step| clock_time(it, step.end))
                .collect()
        };
        let (own, other) = (ends(summary), ends(first));
        let (Some(own_end), false) = (own.first(), other.is_empty()) else {
            return 0;
        };
        let nearest = (0_i64..)
            .zip(&other)
            .min_by_key(|(_, end)| own_end.abs_diff(**end));
        let before = (0_i64..)
            .zip(&own)
            .min_by_key(|(_, end)| other.first().map_or(0, |first| first.abs_diff(**end)));
        let middle = median(
            &mut first
                .steps
                .steps
                .iter()
                .map(|it| it.end - it.start)
                .collect::<Vec<_>>(),
        );
        match (nearest, before) {
            (Some((at, end)), _) if own_end.abs_diff(*end) <= middle / 2 => at,
            (_, Some((at, end)))
                if other
                    .first()
                    .is_some_and(|it| it.abs_diff(*end) <= middle / 2) =>
            {
                -at
            }
            // The clocks are too far apart to tell: by order.
            _ => 0,
        }
    });
    shifts.collect()
}

/// Group and name, step, then the collectives of each rank in order.
type Found<'a> = BTreeMap<((&'a str, &'a str), i64), BTreeMap<usize, Vec<&'a Collective>>>;

/// The k-th collective of the same group and name in the same step of several ranks is one.
fn match_collectives(summaries: &[Summary]) -> (Vec<Matched>, u64) {
    let shifts = step_shifts(summaries);
    let mut found: Found<'_> = BTreeMap::new();
    for (index, summary) in summaries.iter().enumerate() {
        let shift = shifts.get(index).copied().unwrap_or(0);
        for it in &summary.collectives {
            let Some((group, name)) = summary.keys.get(it.key) else {
                continue;
            };
            let step = i64::try_from(it.step)
                .unwrap_or(i64::MAX)
                .saturating_add(shift);
            let ranks = found.entry(((group, name), step)).or_default();
            ranks.entry(index).or_default().push(it);
        }
    }
    let mut matched = Vec::new();
    let mut unmatched = 0_u64;
    for (((_, name), step), ranks) in found {
        let most = ranks.values().map(Vec::len).max().unwrap_or(0);
        let common = if ranks.len() < 2 {
            0
        } else {
            ranks.values().map(Vec::len).min().unwrap_or(0)
        };
        unmatched += (most - common) as u64;
        for at in 0..common {
            let members = ranks.iter().filter_map(|(index, all)| {
                let (it, summary) = (all.get(at)?, summaries.get(*index)?);
                let time = |at| clock_time(summary, at);
                Some((*index, time(it.start), time(it.end)))
            });
            matched.push(Matched {
                step,
                ends_together: ends_together(name),
                members: members.collect(),
            });
        }
    }
    (matched, unmatched)
}

/// Collectives that no rank leaves before all have entered.
fn ends_together(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "");
    [
        "allreduce",
        "allgather",
        "reducescatter",
        "barrier",
        "alltoall",
    ]
    .iter()
    .any(|kind| name.contains(kind))
}

/// How far the clock of each rank is ahead of the first's, and how far 9 of 10 ends are apart after that.
fn fit(count: usize, matched: &[Matched]) -> (Vec<Option<i64>>, u64) {
    let mut offsets: Vec<Option<i64>> = vec![None; count];
    let usable: Vec<&Matched> = matched.iter().filter(|it| it.ends_together).collect();
    let Some(first) = offsets.first_mut() else {
        return (offsets, 0);
    };
    *first = Some(0);
    // Each round reaches ranks that share a group with one that is known.
    loop {
        let mut differences: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for it in &usable {
            let known = it.members.iter().find_map(|(index, _, end)| {
                let offset = offsets.get(*index).copied().flatten()?;
                end.checked_sub(offset)
            });
            let Some(known) = known else {
                continue;
            };
            for (index, _, end) in &it.members {
                if offsets.get(*index) == Some(&None) {
                    let difference = end.saturating_sub(known);
                    differences.entry(*index).or_default().push(difference);
                }
            }
        }
        if differences.is_empty() {
            break;
        }
        for (index, mut all) in differences {
            if let Some(offset) = offsets.get_mut(index) {
                *offset = Some(median(&mut all));
            }
        }
    }
    let mut residuals: Vec<u64> = Vec::new();
    for it in &usable {
        let ends = it.members.iter().filter_map(|(index, _, end)| {
            let offset = offsets.get(*index).copied().flatten()?;
            Some(end.saturating_sub(offset))
        });
        let mut ends: Vec<i64> = ends.collect();
        let middle = median(&mut ends);
        residuals.extend(ends.iter().map(|end| end.abs_diff(middle)));
    }
    (offsets, quantile(&mut residuals, 9, 10))
}

/// When ranks arrived at the collectives of each step.
struct Arrivals {
    /// Per step: the last rank of the collective that cost most, and what that cost all ranks.
    steps: Vec<(usize, u64)>,
    /// Per rank: the time that it waited, over all steps.
    waited: Vec<u64>,
}

impl Arrivals {
    fn of(summaries: &[Summary], matched: &[Matched], offsets: &[Option<i64>]) -> Self {
        let mut waited: Vec<Vec<(u64, u64)>> = vec![Vec::new(); summaries.len()];
        // Per step: by rank the times for which all waited for it, and the largest of them.
        let mut steps: BTreeMap<i64, BTreeMap<usize, Vec<(u64, u64)>>> = BTreeMap::new();
        for it in matched {
            let arrived = it.members.iter().filter_map(|(index, start, _)| {
                let offset = offsets.get(*index).copied().flatten()?;
                Some((start.saturating_sub(offset), *index))
            });
            let mut arrived: Vec<(i64, usize)> = arrived.collect();
            arrived.sort_unstable();
            let Some(((last, index), others)) = arrived.split_last() else {
                continue;
            };
            let Some((before, _)) = others.last() else {
                continue;
            };
            let unsigned = |at: i64| u64::try_from(at).unwrap_or(0);
            for (start, other) in others {
                if let Some(waits) = waited.get_mut(*other) {
                    waits.push((unsigned(*start), unsigned(*last)));
                }
            }
            let between = (unsigned(*before), unsigned(*last));
            let step = steps.entry(it.step).or_default();
            step.entry(*index).or_default().push(between);
        }
        // Collectives of one step overlap, and time is lost once.
        let joined =
            |intervals: &Vec<(u64, u64)>| Set::of(intervals.iter().copied(), (0, u64::MAX));
        let per_step = steps.values().filter_map(|ranks| {
            let costs = ranks
                .iter()
                .map(|(index, all)| (joined(all).length(), *index));
            costs.max().map(|(cost, index)| (index, cost))
        });
        Self {
            steps: per_step.collect(),
            waited: waited.iter().map(|waits| joined(waits).length()).collect(),
        }
    }

    fn last_share(&self, index: usize) -> f64 {
        let last = self.steps.iter().filter(|(last, _)| *last == index).count();
        share(last as u64, self.steps.len() as u64)
    }

    fn waits(&self, summaries: &[Summary]) -> Vec<RankWait> {
        let waits = summaries.iter().zip(&self.waited).enumerate();
        let waits = waits.map(|(index, (summary, waited))| RankWait {
            rank: summary.values.rank,
            wait_ns: waited / (self.steps.len() as u64).max(1),
            last_share: self.last_share(index),
        });
        waits.collect()
    }

    fn slow_rank(
        &self,
        summaries: &[Summary],
        waits: &[RankWait],
        step_ns: u64,
    ) -> Option<SlowRank> {
        if self.steps.len() < FEWEST_STEPS || summaries.iter().all(|it| it.values.steps == 0) {
            return None;
        }
        let shares = waits.iter().enumerate();
        let (index, wait) =
            shares.max_by(|one, two| one.1.last_share.total_cmp(&two.1.last_share))?;
        let costs = self.steps.iter().filter(|(last, _)| *last == index);
        let mut costs: Vec<u64> = costs.map(|(_, cost)| *cost).collect();
        let lost_ns = median(&mut costs);
        // By chance the last rank waits as long as the others.
        let others = waits.iter().filter(|other| other.rank != wait.rank);
        let least = others.map(|other| other.wait_ns).min()?;
        let is_slow = wait.last_share >= LAST_SHARE
            && share(lost_ns, step_ns) >= LEAST_COST
            && wait.wait_ns.saturating_mul(4) <= least;
        is_slow.then(|| SlowRank {
            rank: wait.rank,
            last_share: wait.last_share,
            steps: self.steps.len() as u64,
            lost_ns,
            step_ns,
            difference: difference(summaries, index, lost_ns),
        })
    }
}

/// Where the rank under `index` takes longer than the others.
fn difference(summaries: &[Summary], index: usize, lost_ns: u64) -> Difference {
    let per_step = |values: &RankValues, value: u64| value / values.steps.max(1);
    let longer = |of: fn(&RankValues) -> u64| {
        let own = summaries.get(index);
        let own = own.map_or(0, |it| per_step(&it.values, of(&it.values)));
        let others = summaries.iter().enumerate().filter(|(at, _)| *at != index);
        let others = others.map(|(_, it)| per_step(&it.values, of(&it.values)));
        let others = median(&mut others.collect::<Vec<u64>>());
        (own.saturating_sub(others), own, others)
    };
    let input = longer(|it| it.idle_causes.input_ns).0;
    let host = longer(|it| it.idle_causes.host_ns + it.idle_causes.synchronization_ns).0;
    let compute = longer(|it| it.compute_ns).0;
    let (_, kernels, others) = longer(|it| it.kernels);
    let most = input.max(host).max(compute);
    if most.saturating_mul(2) < lost_ns {
        Difference::Unknown
    } else if most == input {
        Difference::Input { longer_ns: input }
    } else if most == host {
        Difference::Host { longer_ns: host }
    } else if kernels * 50 > others * 51 {
        Difference::MoreWork {
            longer_ns: compute,
            kernels,
            others,
        }
    } else {
        Difference::SlowerCompute { longer_ns: compute }
    }
}
