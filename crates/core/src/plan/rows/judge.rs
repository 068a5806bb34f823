//! How far predictions are from what was published, and the fit of the shares of the peak.

use std::collections::BTreeMap;

use super::{
    super::hardware::{Precision, gpus},
    csv::Table,
    predict::{predict, predict_with},
    read::{Run, read},
};

/// Errors beyond this count as this in the fit: the cluster makes a run slow, not the GPU.
const MOST: f64 = 0.3;

/// A row with both answers.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Which row of the table.
    pub row: usize,
    /// Its source.
    pub source: String,
    /// What it says.
    pub run: Run,
    /// Seconds of a step as published.
    pub published: f64,
    /// Whether the source prints them; else they follow from its tokens or FLOP/s.
    pub printed: bool,
    /// Seconds of a step as predicted.
    pub predicted: f64,
}

impl Judged {
    /// Predicted over published, less one.
    pub fn error(&self) -> f64 {
        self.predicted / self.published - 1.0
    }
}

/// Errors of several rows, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// How many rows.
    pub rows: usize,
    /// Median of their size.
    pub median: f64,
    /// Mean of their size.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// Mean with its sign.
    pub bias: f64,
}

impl Errors {
    /// Sums errors up.
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Self {
        let signed: Vec<f64> = errors.into_iter().collect();
        let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let Some(worst) = sizes.last().copied() else {
            return Self::default();
        };
        let rows = sizes.len();
        let count = f64::from(u32::try_from(rows).unwrap_or(u32::MAX));
        let upper = sizes[rows / 2];
        let lower = sizes[(rows - 1) / 2];
        Self {
            rows,
            median: f64::midpoint(lower, upper),
            mean: sizes.iter().sum::<f64>() / count,
            worst,
            bias: signed.iter().sum::<f64>() / count,
        }
    }
}

/// Seconds of a step that a row publishes, and whether it prints them as such.
pub fn published(table: &Table, at: usize, run: &Run) -> Option<(f64, bool)> {
    let cell = |column: &str| {
        let at_column = table.column(column)?;
        table.rows.get(at)?.get(at_column).map(String::as_str)
    };
    let number = |column: &str| cell(column)?.trim().parse::<f64>().ok();
    let note = cell("note").unwrap_or_default();
    let noted = |name: &str| {
        let (_, rest) = note.split_once(name)?;
        let digits: String = rest
            .chars()
            .take_while(|letter| letter.is_ascii_digit() || *letter == '.')
            .collect();
        digits.parse::<f64>().ok()
    };
    if let Some(seconds) = number("iter_time_s") {
        return Some((seconds, true));
    }
    if let Some(seconds) = noted("iter_derived_s=") {
        return Some((seconds, false));
    }
    let gpus = f64::from(run.cluster.gpus);
    let tokens = f64::from(run.global_batch) * f64::from(run.sequence);
    if let Some(rate) = noted("tok_s_gpu=") {
        return Some((tokens / rate / gpus, false));
    }
    let operations = run
        .convention
        .operations(&run.shape, run.sequence, run.global_batch);
    let rate = number("tflops_per_gpu")
        .map(|rate| rate * 1e12)
        .or_else(|| {
            number("mfu_pct").map(|mfu| mfu / 100.0 * run.cluster.gpu.peak(run.precision))
        })?;
    Some((operations / rate / gpus, false))
}

/// Every row that has both answers.
pub fn judge(table: &Table) -> Vec<Judged> {
    let source = table.column("source");
    (0..table.rows.len())
        .filter_map(|row| {
            let run = read(table, row).ok()?;
            let (published, printed) = published(table, row, &run)?;
            let predicted = predict(&run).time.total();
            Some(Judged {
                row,
                source: source.map_or_else(String::new, |at| table.rows[row][at].clone()),
                run,
                published,
                printed,
                predicted,
            })
        })
        .collect()
}

/// Errors by source, in the order of their names.
pub fn by_source(judged: &[Judged]) -> BTreeMap<&str, Errors> {
    let mut sources: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in judged {
        sources.entry(&row.source).or_default().push(row.error());
    }
    sources
        .into_iter()
        .map(|(source, errors)| (source, Errors::of(errors)))
        .collect()
}

/// A share of the peak as fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// Of this GPU.
    pub gpu: &'static str,
    /// In this precision.
    pub precision: Precision,
    /// The share.
    pub share: f64,
    /// From so many rows.
    pub rows: usize,
}

/// Fits one share for each GPU and precision: the one with the least mean error of all its rows.
///
/// Rows of mixtures of experts, and rows of clusters with a network of their own, are predicted but not
/// fitted to: what makes them slow is not the GPU. `without` leaves a source out, to see how well the
/// others predict it.
pub fn fit(judged: &[Judged], without: Option<&str>) -> Vec<Fitted> {
    let mut fits = Vec::new();
    for gpu in gpus() {
        for precision in [Precision::Bf16, Precision::Fp8, Precision::Fp4] {
            let rows: Vec<&Judged> = judged
                .iter()
                .filter(|row| {
                    row.run.cluster.gpu.name == gpu.name
                        && row.run.precision == precision
                        && row.run.shape.experts.is_none()
                        && row.run.cluster.network.total_cmp(&gpu.network).is_eq()
                        && without.is_none_or(|source| !row.source.starts_with(source))
                })
                .collect();
            if !rows.is_empty() {
                fits.push(Fitted {
                    gpu: gpu.name,
                    precision,
                    share: best_share(&rows),
                    rows: rows.len(),
                });
            }
        }
    }
    fits
}

/// The share in steps of 0.005 with the least sum of errors.
fn best_share(rows: &[&Judged]) -> f64 {
    let cost = |share: f64| -> f64 {
        rows.iter()
            .map(|row| {
                let predicted = predict_with(&row.run, Some(share)).time.total();
                (predicted / row.published).ln().abs().min(MOST)
            })
            .sum()
    };
    (60..200)
        .map(|step| f64::from(step) * 0.005)
        .map(|share| (share, cost(share)))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
        .map_or(0.5, |(share, _)| share)
}

/// Spearman's rank correlation of pairs; ties share their mean rank.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let first = ranks(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
    let second = ranks(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    let count = f64::from(u32::try_from(pairs.len()).unwrap_or(u32::MAX));
    let mean = f64::midpoint(count, -1.0);
    let (mut both, mut one, mut other) = (0.0, 0.0, 0.0);
    for (a, b) in first.iter().zip(&second) {
        both += (a - mean) * (b - mean);
        one += (a - mean).powi(2);
        other += (b - mean).powi(2);
    }
    both / (one * other).sqrt()
}

fn ranks(values: &[f64]) -> Vec<f64> {
    values
        .iter()
        .map(|value| {
            let below = values.iter().filter(|other| *other < value).count();
            let same = values
                .iter()
                .filter(|other| other.total_cmp(value).is_eq())
                .count();
            let first = u32::try_from(below).unwrap_or(u32::MAX);
            let last = u32::try_from(below + same).unwrap_or(u32::MAX) - 1;
            f64::midpoint(f64::from(first), f64::from(last))
        })
        .collect()
}
