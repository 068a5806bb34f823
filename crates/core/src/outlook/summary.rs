//! Statistics of many runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    run::{Run, run},
    world::World,
};
use crate::ledger::Phase;

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval.
    pub plus_minus: f64,
    /// The smallest of all runs.
    pub least: f64,
    /// The largest of all runs.
    pub most: f64,
}

impl Estimate {
    /// Sums values up.
    pub fn of(values: &[f64]) -> Self {
        let count = f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX));
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / count;
        let spread = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>();
        let error = if values.len() > 1 {
            (spread / (count - 1.0) / count).sqrt()
        } else {
            0.0
        };
        Self {
            mean,
            plus_minus: 1.96 * error,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// The statistics of many runs of a world.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// Runs.
    pub runs: u32,
    /// Share of the time that trains.
    pub ettr: Estimate,
    /// Seconds that pass.
    pub seconds: Estimate,
    /// Failures and preemptions.
    pub interruptions: Estimate,
    /// Mean seconds by phase, those without any left out.
    pub phases: BTreeMap<Phase, f64>,
    /// Mean number of times that machines came from the pool.
    pub chosen: f64,
    /// Mean number of times that another job had to release a machine.
    pub lent: f64,
    /// Runs that were abandoned.
    pub given_up: u32,
}

/// Runs `world` `runs` times, with the random numbers of `seed`.
pub fn simulate(world: &World, seed: u64, runs: u32) -> Outlook {
    let all: Vec<Run> = (0..runs)
        .map(|number| run(world, seed, number.into(), false))
        .collect();
    let values = |of: &dyn Fn(&Run) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let mean = |of: &dyn Fn(&Run) -> f64| Estimate::of(&values(of)).mean;
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are small")]
    let counted = |count: u64| count as f64;
    Outlook {
        runs,
        ettr: Estimate::of(&values(&Run::ettr)),
        seconds: Estimate::of(&values(&Run::total)),
        interruptions: Estimate::of(&values(&|run| counted(run.interruptions()))),
        phases: Phase::ALL
            .into_iter()
            .map(|phase| (phase, mean(&|run| run.of(phase))))
            .filter(|(_, seconds)| *seconds > 0.0)
            .collect(),
        chosen: mean(&|run| counted(run.chosen)),
        lent: mean(&|run| counted(run.lent)),
        given_up: u32::try_from(all.iter().filter(|run| run.given_up).count()).unwrap_or(u32::MAX),
    }
}
