//! What one machine was measured to reach, and how a plan uses it.
//!
//! Owns the file that `trainyard plan --calibrate` and `--learn` write and `--profile` reads, and the fit of its few numbers to
//! what was measured. Does not measure anything.
//!
//! Invariant: a [`Profile`] that was read is in range, so that no plan divides by what a file says.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    hardware::{self, Cluster, GIB, Gpu, Precision, Rates},
    rows::{Judged, predict},
    shape::of,
    time::Machine,
};

/// What the script prints.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The GPU as its driver names it.
    pub gpu: String,
    /// Bytes of memory.
    pub memory: f64,
    /// Compute units.
    pub units: u32,
    /// Version of `PyTorch`.
    pub torch: String,
    /// Products of matrices.
    pub products: Vec<Product>,
    /// Causal attention.
    pub attention: Vec<Attention>,
    /// Bytes per second of memory.
    pub memory_bandwidth: f64,
    /// Bytes per second between two GPUs.
    pub link: Option<f64>,
}

/// One product of `m × k` by `k × n` in 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Product {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Depth.
    pub k: u32,
    /// Median time.
    pub seconds: f64,
}

/// Causal attention of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attention {
    /// Sequences.
    pub batch: u32,
    /// Heads.
    pub heads: u32,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Width of a head.
    pub head_size: u32,
    /// Seconds forward.
    pub forward: f64,
    /// Seconds backward.
    pub backward: f64,
}

/// What later plans use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Version of this file.
    pub version: u32,
    /// The GPU, by its name in the table.
    pub gpu: String,
    /// GiB of its memory.
    pub memory_gib: f64,
    /// What it reaches.
    pub rates: Rates,
    /// How far the fit is from what it was fitted to: the median of the errors, as a share.
    pub median_error: f64,
    /// What it was fitted to, in words.
    pub from: String,
}

/// Why there is no profile.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// It is not the JSON that is expected.
    #[error("it is not a profile: {why}")]
    Json {
        /// What the reader found.
        why: String,
    },
    /// A number is out of range.
    #[error("`{field}` is {found}; it must be between {least} and {most}")]
    Range {
        /// Which.
        field: &'static str,
        /// What is there.
        found: f64,
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// The GPU is not in the table.
    #[error(transparent)]
    Gpu(hardware::Unknown),
    /// Nothing was measured that a profile could be fitted to.
    #[error("{what} of {gpu} were found; at least {needed} are needed")]
    Few {
        /// What, with their number.
        what: String,
        /// Of which GPU.
        gpu: String,
        /// How many are needed.
        needed: usize,
    },
    /// A job's record without the time of a step.
    #[error(
        "its `progress` has no `stepSeconds` between 1e-6 and 1e6: no rank reported the time of a step"
    )]
    NoStep,
    /// The profile is of another GPU.
    #[error("it is of `{profile}`, but the plan is for `{plan}`")]
    Other {
        /// The profile's GPU.
        profile: String,
        /// The plan's GPU.
        plan: String,
    },
}

/// Reads what the script printed.
pub fn measured(text: &str) -> Result<Measured, ProfileError> {
    serde_json::from_str(text).map_err(|error| ProfileError::Json {
        why: error.to_string(),
    })
}

/// Seconds of a step by the record of a finished job: the report of `trainyard run`, or the output of `trainyard status JOB
/// --format json`.
pub fn recorded_step(text: &str) -> Result<f64, ProfileError> {
    #[derive(Deserialize)]
    struct Record {
        progress: Option<Progress>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        step_seconds: Option<serde_json::Value>,
    }
    let record: Record = serde_json::from_str(text).map_err(|error| ProfileError::Json {
        why: error.to_string(),
    })?;
    let found = record.progress.and_then(|progress| progress.step_seconds);
    let seconds = match &found {
        Some(serde_json::Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_f64(),
        None => None,
    };
    seconds
        .filter(|seconds| (1e-6..=1e6).contains(seconds))
        .ok_or(ProfileError::NoStep)
}

/// Reads a profile.
pub fn read(text: &str) -> Result<Profile, ProfileError> {
    let profile: Profile = serde_json::from_str(text).map_err(|error| ProfileError::Json {
        why: error.to_string(),
    })?;
    profile.check()?;
    Ok(profile)
}

impl Profile {
    fn check(&self) -> Result<(), ProfileError> {
        let rates = &self.rates;
        let mut ranges = vec![
            ("version", f64::from(self.version), 1.0, 1.0),
            ("memoryGib", self.memory_gib, 1.0, 4096.0),
            ("share", rates.share, 0.02, 1.2),
            ("tileStart", rates.tile_start, 0.0, 1e-3),
            ("memoryBandwidth", rates.memory_bandwidth, 1e9, 1e15),
        ];
        for shares in [rates.attention64, rates.attention128] {
            ranges.extend(shares.map(|share| ("attention", share, 0.01, 1.2)));
        }
        if let Some(link) = rates.link_bandwidth {
            ranges.push(("linkBandwidth", link, 1e6, 1e14));
        }
        for (field, found, least, most) in ranges {
            if !(least..=most).contains(&found) {
                return Err(ProfileError::Range {
                    field,
                    found,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }

    /// Puts what was measured in place of what the table says.
    pub fn apply(&self, cluster: &mut Cluster) -> Result<(), ProfileError> {
        if self.gpu != cluster.gpu.name {
            return Err(ProfileError::Other {
                profile: self.gpu.clone(),
                plan: cluster.gpu.name.to_owned(),
            });
        }
        cluster.gpu.memory_gib = self.memory_gib;
        cluster.rates = Some(self.rates);
        Ok(())
    }
}

fn alone(gpu: Gpu, rates: Option<Rates>) -> Cluster {
    Cluster {
        network: gpu.network,
        gpu,
        gpus: 1,
        nodes_per_leaf: 0,
        oversubscription: 1.0,
        rates,
    }
}

/// Fits a profile to what the script measured.
pub fn calibrate(measured: &Measured) -> Result<Profile, ProfileError> {
    let gpu = hardware::gpu(&measured.gpu).map_err(ProfileError::Gpu)?;
    for (what, found, needed) in [
        ("matrix products", measured.products.len(), 5),
        ("attention kernels", measured.attention.len(), 2),
    ] {
        if found < needed {
            return Err(ProfileError::Few {
                what: format!("{found} {what}"),
                gpu: gpu.name.to_owned(),
                needed,
            });
        }
    }
    for product in &measured.products {
        // A time of 0 has no logarithm, so that no share would fit it.
        if !(1e-9..=1e3).contains(&product.seconds) {
            return Err(ProfileError::Range {
                field: "seconds",
                found: product.seconds,
                least: 1e-9,
                most: 1e3,
            });
        }
    }
    let attention = |narrow: bool| {
        let shares = |pass: fn(&Attention) -> f64, times: f64| {
            let mut found: Vec<f64> = measured
                .attention
                .iter()
                .filter(|shape| (shape.head_size < 96) == narrow)
                .map(|shape| times * filled_operations(shape) / pass(shape) / gpu.peak_bf16)
                .collect();
            median(&mut found)
        };
        let found = [
            shares(|shape| shape.forward, 1.0),
            shares(|shape| shape.backward, 2.5),
        ];
        [found[0].unwrap_or(0.5), found[1].unwrap_or(0.4)]
    };
    let mut rates = Rates {
        share: 0.5,
        tile_start: 0.0,
        attention64: attention(true),
        attention128: attention(false),
        memory_bandwidth: measured.memory_bandwidth,
        link_bandwidth: measured.link,
    };
    let error = |rates: Rates| {
        let machine = Machine::new(&alone(gpu.clone(), Some(rates)), Precision::Bf16, None);
        let mut errors: Vec<f64> = measured
            .products
            .iter()
            .map(|product| {
                let seconds = machine.bf16_product(of(product.m), of(product.n), of(product.k));
                (seconds / product.seconds).ln().abs()
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / of(u32::try_from(errors.len()).unwrap_or(1));
        (mean, median(&mut errors).unwrap_or(0.0))
    };
    let mut best = (f64::INFINITY, 0.0);
    for step in 20..=220_u32 {
        for start in 0..=12_u32 {
            let tried = Rates {
                share: of(step) * 0.005,
                tile_start: of(start) * 0.5e-6,
                ..rates
            };
            let (mean, median) = error(tried);
            if mean < best.0 {
                best = (mean, median);
                rates = tried;
            }
        }
    }
    let profile = Profile {
        version: 1,
        gpu: gpu.name.to_owned(),
        memory_gib: measured.memory / GIB,
        rates,
        median_error: best.1,
        from: format!(
            "{} matrix products and {} attention kernels, PyTorch {}",
            measured.products.len(),
            measured.attention.len(),
            measured.torch
        ),
    };
    profile.check()?;
    Ok(profile)
}

/// Operations of attention forward, over what a kernel of that length is filled by.
fn filled_operations(shape: &Attention) -> f64 {
    let s = of(shape.sequence);
    let whole = 2.0 * of(shape.batch) * of(shape.heads) * s * s * of(shape.head_size);
    whole * (s + 512.0) / s
}

/// Fits the share of the peak of the first run's GPU to runs of one's own. Memory stays the table's, and attention that of
/// `scaled_dot_product_attention`, as measured on one H200: with these the runs are predicted here and in later plans.
pub fn learn(judged: &[Judged]) -> Result<Profile, ProfileError> {
    let few = |found: usize, gpu: &str| ProfileError::Few {
        what: format!("{found} runs in bf16 with a step time"),
        gpu: gpu.to_owned(),
        needed: 1,
    };
    let first = judged.first().ok_or_else(|| few(0, "any GPU"))?;
    let gpu = first.run.cluster.gpu.clone();
    let own: Vec<&Judged> = judged
        .iter()
        .filter(|row| row.run.cluster.gpu.name == gpu.name && row.run.precision == Precision::Bf16)
        .collect();
    if own.is_empty() {
        return Err(few(0, gpu.name));
    }
    let rates = |share: f64| Rates {
        share,
        memory_bandwidth: gpu.memory_bandwidth * super::time::MEMORY_SHARE,
        tile_start: super::time::TILE_START,
        attention64: [0.47, 0.37],
        attention128: [0.58, 0.50],
        link_bandwidth: None,
    };
    let errors = |share: f64| -> Vec<f64> {
        own.iter()
            .map(|row| {
                let mut run = row.run.clone();
                run.cluster.rates = Some(rates(share));
                (predict(&run).time.total() / row.published).ln().abs()
            })
            .collect()
    };
    let mut best = (f64::INFINITY, 0.5);
    for step in 20..=220_u32 {
        let share = of(step) * 0.005;
        let sum = errors(share).iter().sum::<f64>();
        if sum < best.0 {
            best = (sum, share);
        }
    }
    let profile = Profile {
        version: 1,
        gpu: gpu.name.to_owned(),
        memory_gib: gpu.memory_gib,
        rates: rates(best.1),
        median_error: median(&mut errors(best.1)).unwrap_or(0.0),
        from: format!("{} finished runs", own.len()),
    };
    profile.check()?;
    Ok(profile)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests;
