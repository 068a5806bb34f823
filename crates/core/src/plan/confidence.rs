//! How far off a prediction may be: the errors of the published and measured runs that are nearest to it.
//!
//! Owns the distance between two runs. The errors are in `residuals`, which `plan-bench --residuals` prints; the shares
//! of the peak were fitted to the same runs, so intervals of runs like them are a little too narrow.
//!
//! Invariant: an interval holds the prediction itself.

mod residuals;

use serde::Serialize;

use super::{
    hardware::Precision,
    search::Request,
    shape::{Shape, of},
};

pub use residuals::RESIDUALS;

/// Runs whose errors make an interval.
const NEAREST: usize = 12;
/// Beyond this distance no published run is like the one that is planned.
const FAR: f64 = 3.0;
/// What is added to both sides of an interval for each step of distance.
const BY_DISTANCE: f64 = 0.03;
/// What is added to the longer side for each doubling of the GPUs beyond the largest of the nearest runs with such software: stragglers and
/// networks of many tiers are not in any prediction.
const BY_DOUBLING: f64 = 0.05;
/// Least half-width: the same job on the same cluster differs by that much from day to day.
const LEAST: f64 = 0.03;

/// One run with its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// GPU.
    pub gpu: &'static str,
    /// Number format.
    pub precision: Precision,
    /// Software.
    pub software: &'static str,
    /// Whether the model has experts.
    pub experts: bool,
    /// Parameters, in billions.
    pub billions: f64,
    /// GPUs.
    pub gpus: u32,
    /// Published over predicted, less one.
    pub error: f64,
}

/// A range of a step's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// The shortest time, over the prediction.
    pub least: f64,
    /// The longest time, over the prediction.
    pub most: f64,
    /// Mean distance of the runs it is from.
    pub distance: f64,
    /// Whether no run is near.
    pub far: bool,
    /// How many runs it is from.
    pub runs: usize,
}

/// The run that a request is, as far as distance is concerned.
pub fn planned(request: &Request) -> Residual {
    of_run(
        request.cluster.gpu.name,
        request.precision,
        request.software.name,
        &request.shape,
        request.cluster.gpus,
    )
}

/// The same of a run that is described by its parts; its error is 0.
pub fn of_run(
    gpu: &'static str,
    precision: Precision,
    software: &'static str,
    shape: &Shape,
    gpus: u32,
) -> Residual {
    Residual {
        gpu,
        precision,
        software,
        experts: shape.experts.is_some(),
        billions: shape.parameters() / 1e9,
        gpus,
        error: 0.0,
    }
}

/// The range in which nine of ten such runs lie, by those of `runs` that are nearest.
pub fn interval<'a>(run: &Residual, runs: impl Iterator<Item = &'a Residual>) -> Interval {
    let mut near: Vec<(f64, f64, u32)> = runs
        .map(|other| {
            let alike = family(run.software) == family(other.software);
            let gpus = if alike { other.gpus } else { 0 };
            (distance(run, other), other.error, gpus)
        })
        .collect();
    near.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
    near.truncate(NEAREST);
    let count = of(u32::try_from(near.len().max(1)).unwrap_or(1));
    let distance = near.iter().map(|(distance, ..)| distance).sum::<f64>() / count;
    let mut errors: Vec<f64> = near.iter().map(|(_, error, _)| *error).collect();
    errors.sort_by(f64::total_cmp);
    let wide = LEAST + BY_DISTANCE * distance;
    let largest = near.iter().map(|(.., gpus)| *gpus).max().unwrap_or(0);
    let largest = if largest == 0 { run.gpus } else { largest };
    let doublings = (of(run.gpus) / of(largest.max(1))).log2();
    let scale = BY_DOUBLING * doublings.max(0.0);
    Interval {
        least: 1.0 + errors.first().copied().unwrap_or(0.0).min(0.0) - wide.min(0.5),
        most: 1.0 + errors.last().copied().unwrap_or(0.0).max(0.0) + wide + scale,
        distance,
        far: near.is_empty() || near.iter().take(3).all(|(distance, ..)| *distance > FAR),
        runs: near.len(),
    }
}

/// How unlike two runs are: another GPU, format, software or kind of model counts most, then size.
fn distance(one: &Residual, other: &Residual) -> f64 {
    let gpu = if one.gpu == other.gpu {
        0.0
    } else if generation(one.gpu) == generation(other.gpu) {
        1.0
    } else {
        3.0
    };
    let precision = if one.precision == other.precision {
        0.0
    } else {
        1.0
    };
    let software = if one.software == other.software {
        0.0
    } else if family(one.software) == family(other.software) {
        1.0
    } else {
        2.0
    };
    let experts = if one.experts == other.experts {
        0.0
    } else {
        3.0
    };
    let size = (one.billions / other.billions).ln().abs() / 4.0_f64.ln();
    let gpus = (of(one.gpus) / of(other.gpus)).ln().abs() / 16.0_f64.ln();
    gpu + precision + software + experts + 0.5 * size + 0.5 * gpus
}

fn generation(gpu: &str) -> &str {
    let table = [
        ("A100", "ampere"),
        ("A800", "ampere"),
        ("H", "hopper"),
        ("B200", "blackwell"),
        ("B300", "blackwell"),
        ("GB", "blackwell"),
    ];
    let found = table.iter().find(|(start, _)| gpu.starts_with(start));
    found.map_or(gpu, |(_, generation)| generation)
}

fn family(software: &str) -> &str {
    software.split(['-', '2']).next().unwrap_or(software)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{names, software};

    fn run(gpu: &'static str, software: &'static str, model: &str, gpus: u32) -> Residual {
        let shape = names::model(model).unwrap().shape();
        of_run(gpu, Precision::Bf16, software, &shape, gpus)
    }

    #[test]
    fn nine_of_ten_runs_lie_in_the_interval_of_the_others() {
        let inside = RESIDUALS
            .iter()
            .enumerate()
            .filter(|(at, one)| {
                let others = RESIDUALS
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| other != at);
                let found = interval(one, others.map(|(_, other)| other));
                (found.least..=found.most).contains(&(1.0 + one.error))
            })
            .count();
        assert!(
            inside * 10 >= RESIDUALS.len() * 9,
            "{inside} of {}",
            RESIDUALS.len()
        );
    }

    #[test]
    fn larger_clusters_are_less_certain() {
        let most = |gpus| {
            let run = run(
                "H100-80GB",
                software::MEGATRON_CORE.name,
                "llama3-405b",
                gpus,
            );
            interval(&run, RESIDUALS.iter()).most
        };
        let found = [8_192, 16_384, 32_768].map(most);
        assert!(
            found.windows(2).all(|pair| pair[1] > pair[0] + 0.02),
            "{found:?}"
        );
    }

    #[test]
    fn unlike_runs_are_far() {
        let near = interval(
            &run("H100-80GB", software::MEGATRON_CORE.name, "llama3-8b", 64),
            RESIDUALS.iter(),
        );
        let far = interval(
            &run("TPU-v5e", software::MEGATRON_CORE.name, "llama3-8b", 64),
            RESIDUALS.iter(),
        );
        assert!(!near.far && far.far, "{near:?} {far:?}");
        assert!(far.most - far.least > near.most - near.least);
        assert!(near.least < 1.0 && near.most > 1.0);
    }
}
