//! How long the steps of each rank take, and the rank that is clearly slower than the others.
//!
//! Ranks that train together wait for the slowest, so most programs log the same time on all of them. Where each
//! logs its own, the outlier is worth a look before any of them fails.
//!
//! Invariant: a rank is named only where at least [`RANKS`] ranks logged [`SAMPLES`] steps each, and it is further from the
//! median than [`APART`] and than the others are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::source::{Member, Source};

/// Ranks that must have logged step times: among fewer there is no outlier.
const RANKS: usize = 4;
/// Steps that a rank must have logged.
const SAMPLES: u32 = 3;
/// How much longer than the median its steps take, at least: less is within what clocks and logging cost.
const APART: f64 = 1.15;
/// How many times further from the median it is than half of the ranks are.
const SPREADS: f64 = 5.0;
/// The least spread that is assumed, as a share of the median.
const LEAST_SPREAD: f64 = 0.01;

/// The step times that one rank logged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StepTimes {
    count: u32,
    millis: f64,
}

impl StepTimes {
    /// Takes the time of one step.
    pub(super) fn note(&mut self, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            self.count = self.count.saturating_add(1);
            self.millis += seconds * 1000.0;
        }
    }

    fn mean(self) -> Option<f64> {
        (self.count >= SAMPLES).then(|| self.millis / f64::from(self.count))
    }
}

/// A rank whose steps take clearly longer than those of the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowRank {
    /// The rank.
    pub rank: u32,
    /// Its node, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What one of its steps takes on average, in milliseconds.
    pub step_millis: f64,
    /// The median of all ranks that logged step times.
    pub median_millis: f64,
    /// How many ranks logged step times.
    pub ranks: usize,
}

impl SlowRank {
    /// What is found, with the numbers.
    pub fn sentence(&self) -> String {
        let node = self.node.as_deref();
        let node = node.map_or_else(String::new, |node| format!(" on {node}"));
        format!(
            "slowest: rank {}{node} takes {:.0} ms per step, {:.1} times the median of {} ranks ({:.0} ms)",
            self.rank,
            self.step_millis,
            self.step_millis / self.median_millis,
            self.ranks,
            self.median_millis
        )
    }
}

/// The slowest rank, where it is clearly apart.
pub(super) fn slowest<'a>(
    members: impl Iterator<Item = (&'a Source, &'a Member)>,
) -> Option<SlowRank> {
    let mut ranks: BTreeMap<u32, (f64, Option<&str>)> = BTreeMap::new();
    for (source, member) in members {
        if let (Some(rank), Some(mean)) = (member.rank, member.steps.mean()) {
            let node = member.node.as_deref().or(source.node.as_deref());
            ranks.insert(rank, (mean, node));
        }
    }
    if ranks.len() < RANKS {
        return None;
    }
    let median_millis = median(ranks.values().map(|(mean, _)| *mean).collect())?;
    let spread = median(
        ranks
            .values()
            .map(|(mean, _)| (mean - median_millis).abs())
            .collect(),
    )?;
    let spread = spread.max(median_millis * LEAST_SPREAD);
    let (rank, (mean, node)) = ranks
        .iter()
        .max_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))?;
    let apart = *mean >= median_millis * APART && mean - median_millis >= spread * SPREADS;
    apart.then(|| SlowRank {
        rank: *rank,
        node: node.map(str::to_owned),
        step_millis: *mean,
        median_millis,
        ranks: ranks.len(),
    })
}

/// The value in the middle; of two, the lower.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, sync::Arc};

    use crate::diagnose::{Doctor, Rules};

    /// The slowest of ranks that log these times, as `line` writes them.
    fn slowest(times: &[f64], steps: u32, line: fn(u32, f64) -> String) -> Option<String> {
        let mut doctor = Doctor::new(Arc::new(Rules::builtin()));
        for (rank, time) in (0..).zip(times) {
            let source = doctor.source(&format!("rank{rank}.log"));
            doctor.set_rank_and_node(source, Some(rank), Some(&format!("node-{}", rank / 2)));
            let mut text = String::new();
            for step in 0..steps {
                writeln!(text, "{}", line(step, *time)).unwrap();
            }
            doctor.bytes(source, text.as_bytes());
        }
        doctor.finish().facts.slowest.map(|slow| slow.sentence())
    }

    fn megatron(step: u32, time: f64) -> String {
        format!(
            " iteration {step:8}/ 500000 | elapsed time per iteration (ms): {time:.1} | loss: 2.1"
        )
    }

    fn tqdm(step: u32, time: f64) -> String {
        format!(
            " 12%|#4   | {step}/500 [00:10<01:20,  {:.2}s/it]",
            time / 1000.0
        )
    }

    #[test]
    fn slowest_rank_is_named_with_numbers() {
        let apart = [1000.0, 1010.0, 990.0, 1520.0, 1000.0];
        let sentence = "slowest: rank 3 on node-1 takes 1520 ms per step, 1.5 times the median of 5 ranks (1000 ms)";
        let lines: [fn(u32, f64) -> String; 2] = [megatron, tqdm];
        for line in lines {
            assert_eq!(slowest(&apart, 5, line).as_deref(), Some(sentence));
        }
        let cases: [(&str, &[f64], u32); 4] = [
            ("all equal", &[1000.0, 1010.0, 990.0, 1030.0, 1000.0], 5),
            ("all apart", &[600.0, 800.0, 1000.0, 1200.0, 1400.0], 5),
            ("too few ranks", &[1000.0, 1000.0, 1520.0], 5),
            ("too few steps", &apart, 1),
        ];
        for (name, times, steps) in cases {
            assert_eq!(slowest(times, steps, megatron), None, "{name}");
        }
    }
}
