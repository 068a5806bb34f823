//! The whole answer: ranked layouts with their bottleneck, what would help, how it scales, what it costs.
//!
//! Invariant: no refusal without the numbers: where nothing fits, the answer gives the shortfall and the
//! smallest change after which something fits.

use serde::Serialize;

use super::{
    hardware::{Cluster, gpus},
    layout::Layout,
    memory::Memory,
    search::{Candidate, Found, Request, search},
    shape::of,
    software::Overlap,
    time::StepTime,
    tuning::{Lora, Optimizer, Tuning},
};

const GIGA: f64 = 1e9;

/// The bottleneck of a layout, in one sentence with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// The part of the step.
    pub part: &'static str,
    /// The sentence.
    pub sentence: String,
}

/// Names the part of the step that is not the model's own products and costs most; where they are more
/// than seven tenths of the step, the products themselves are the bottleneck.
pub fn bound(candidate: &Candidate, request: &Request) -> Bound {
    let gpu = request.cluster.gpu.name;
    let time = &candidate.time;
    let total = time.total();
    let products = time.matrices + time.attention + time.vocabulary;
    let percent = |seconds: f64| 100.0 * seconds / total;
    if products / total > 0.7 {
        return Bound {
            part: "matrices",
            sentence: format!(
                "matrix products: {:.0} % of the step, at {:.0} % of the peak of {gpu}",
                percent(products),
                100.0 * candidate.mfu_causal * total / products
            ),
        };
    }
    let layout = &candidate.layout;
    let (part, seconds) = waits(time)
        .into_iter()
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap_or(("matrices", products));
    let why = match part {
        "bubble" => format!(
            "pipeline bubble: {} stages share few micro-batches",
            layout.pipeline
        ),
        "recompute" => "recomputing activations that do not fit into memory".to_owned(),
        "tensor" => format!("waiting for the other {} tensor ranks", layout.tensor - 1),
        "data" => format!(
            "exchanging gradients and weights of {} data ranks",
            layout.data
        ),
        "expert" if request.software.expert == Overlap::Waited => format!(
            "sending tokens to {} expert ranks, which `--software megatron-bridge` does beside work",
            layout.expert
        ),
        "expert" => format!("sending tokens to {} expert ranks", layout.expert),
        "pipeline" => "sending activations between stages".to_owned(),
        "context" => "exchanging keys and values with other context ranks".to_owned(),
        "memory-bound" => "memory-bound operations".to_owned(),
        _ => "the optimizer".to_owned(),
    };
    Bound {
        part,
        sentence: format!("{why}: {:.0} % of the step", percent(seconds)),
    }
}

fn waits(time: &StepTime) -> [(&'static str, f64); 9] {
    [
        ("memory-bound", time.memory_bound),
        ("recompute", time.recompute),
        ("tensor", time.tensor),
        ("context", time.context),
        ("expert", time.expert),
        ("pipeline", time.pipeline),
        ("bubble", time.bubble),
        ("data", time.data),
        ("optimizer", time.optimizer),
    ]
}

/// A change and its effect on the best layout's step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// What is changed.
    pub change: String,
    /// Tokens per second of the best layout after it.
    pub tokens_per_second: f64,
    /// How much more that is than now, as a share.
    pub gain: f64,
    /// The best layout after it.
    pub layout: Layout,
}

/// Possible changes, the most helpful first.
pub fn what_ifs(request: &Request, best: &Candidate) -> Vec<WhatIf> {
    type Change = (&'static str, fn(&mut Request));
    let changes: [Change; 6] = [
        ("a network ten times slower", |request| {
            request.cluster.network /= 10.0;
        }),
        ("a network twice as fast", |request| {
            request.cluster.network *= 2.0;
        }),
        ("a link inside the node twice as fast", |request| {
            request.cluster.gpu.link.bandwidth *= 2.0;
            if let Some(rates) = &mut request.cluster.rates {
                rates.link_bandwidth = rates.link_bandwidth.map(|link| 2.0 * link);
            }
        }),
        ("twice the memory", |request| {
            request.cluster.gpu.memory_gib *= 2.0;
        }),
        ("twice the memory bandwidth", |request| {
            request.cluster.gpu.memory_bandwidth *= 2.0;
            if let Some(rates) = &mut request.cluster.rates {
                rates.memory_bandwidth *= 2.0;
            }
        }),
        ("a batch twice as large", |request| {
            request.global_batch = request.global_batch.saturating_mul(2);
        }),
    ];
    let mut found: Vec<WhatIf> = changes
        .into_iter()
        .filter_map(|(change, apply)| {
            let mut other = request.clone();
            apply(&mut other);
            let candidate = search(&other).ranked.into_iter().next()?;
            Some(WhatIf {
                change: change.to_owned(),
                tokens_per_second: candidate.tokens_per_second,
                gain: candidate.tokens_per_second / best.tokens_per_second - 1.0,
                layout: candidate.layout,
            })
        })
        .collect();
    found.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    found
}

/// One point of the scaling curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// GPUs.
    pub gpus: u32,
    /// Tokens per second of the best layout, the batch unchanged.
    pub tokens_per_second: f64,
    /// Share of the peak that goes into the model.
    pub mfu: f64,
    /// Tokens per second and GPU over those of the smallest cluster that fits.
    pub efficiency: f64,
    /// The best layout.
    pub layout: Layout,
}

/// The same job on clusters from a sixteenth to four times the size.
pub fn scaling(request: &Request) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for (times, over) in [(1, 16), (1, 8), (1, 4), (1, 2), (1, 1), (2, 1), (4, 1)] {
        let Some(gpus) = request.cluster.gpus.checked_mul(times) else {
            continue;
        };
        if !gpus.is_multiple_of(over) || gpus / over == 0 {
            continue;
        }
        let mut changed = request.clone();
        changed.cluster.gpus = gpus / over;
        let Some(best) = search(&changed).ranked.into_iter().next() else {
            continue;
        };
        let each = best.tokens_per_second / of(changed.cluster.gpus);
        let first = points
            .first()
            .map_or(each, |point| point.tokens_per_second / of(point.gpus));
        points.push(Point {
            gpus: changed.cluster.gpus,
            tokens_per_second: best.tokens_per_second,
            mfu: best.mfu,
            efficiency: each / first,
            layout: best.layout,
        });
    }
    points
}

/// Why nothing fits, and what would fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Misfit {
    /// The layout that came nearest, where any is valid.
    pub nearest: Option<(Layout, Memory)>,
    /// GiB of one GPU.
    pub limit_gib: f64,
    /// The smallest change after which something fits, in words.
    pub change: Option<String>,
}

impl Misfit {
    /// One sentence with the numbers.
    pub fn sentence(&self, cluster: &Cluster) -> String {
        let Some((layout, memory)) = &self.nearest else {
            return format!(
                "no valid layout on {} GPUs: under the given options no tensor × pipeline × context × data divides the \
                 heads, the layers, the sequence and the batch",
                cluster.gpus
            );
        };
        format!(
            "nothing fits: tensor {} × pipeline {} × context {} × data {} needs {:.1} GiB on each {}, \
             which has {:.1}: {:.1} too little",
            layout.tensor,
            layout.pipeline,
            layout.context,
            layout.data,
            memory.total(),
            cluster.gpu.name,
            self.limit_gib,
            memory.total() - self.limit_gib
        )
    }
}

/// Looks for the smallest change after which something fits: another batch, more of the same GPUs, or a
/// larger one.
pub fn misfit(request: &Request, found: &Found) -> Misfit {
    let fits = |change: &dyn Fn(&mut Request)| {
        let mut changed = request.clone();
        change(&mut changed);
        !search(&changed).ranked.is_empty()
    };
    let nodes = |times: u32| request.cluster.gpus.saturating_mul(times);
    let batches = batches_near(request);
    let batch = batches
        .into_iter()
        .find(|batch| fits(&|changed| changed.global_batch = *batch))
        .map(|batch| format!("use a global batch of {batch}"));
    let more = [2, 4, 8, 16, 32, 64].into_iter().find(|times| {
        let batch = request.global_batch.max(nodes(*times));
        batch
            .checked_next_multiple_of(nodes(*times))
            .is_some_and(|batch| {
                fits(&|changed| {
                    changed.cluster.gpus = nodes(*times);
                    changed.global_batch = batch;
                })
            })
    });
    let larger = gpus()
        .iter()
        .filter(|gpu| gpu.memory_gib > request.cluster.gpu.memory_gib)
        .filter(|gpu| gpu.link.bandwidth >= request.cluster.gpu.link.bandwidth)
        .filter(|gpu| is_tpu(gpu.name) == is_tpu(request.cluster.gpu.name))
        .filter(|gpu| gpu.has(request.precision))
        .min_by(|one, other| one.memory_gib.total_cmp(&other.memory_gib))
        .filter(|gpu| fits(&|changed| changed.cluster.gpu = (*gpu).clone()));
    let smaller: Vec<String> = if request.tuning == Tuning::default() {
        [false, true]
            .into_iter()
            .filter_map(|adapters| {
                let (words, tuning) = SMALLER
                    .into_iter()
                    .filter(|(_, tuning)| tuning.lora.is_some() == adapters)
                    .filter(|(_, tuning)| host_gigabytes(request, tuning) <= host_of(request))
                    .find(|(_, tuning)| fits(&|changed| changed.tuning = *tuning))?;
                Some(match host_gigabytes(request, &tuning) {
                    none if none <= 0.0 => words.to_owned(),
                    host => format!("{words} ({host:.0} GB of host memory on each node)"),
                })
            })
            .collect()
    } else {
        Vec::new()
    };
    let change = batch
        .or_else(|| more.map(|times| format!("use {} GPUs", nodes(times))))
        .or_else(|| larger.map(|gpu| format!("use `{}` GPUs", gpu.name)));
    let change = match (change, smaller.is_empty()) {
        (change, true) => change,
        (Some(change), false) => Some(format!(
            "{change}; or keep these and {}",
            smaller.join(", or ")
        )),
        (None, false) => Some(smaller.join(", or ")),
    };
    Misfit {
        nearest: found.nearest,
        limit_gib: request.cluster.gpu.memory_gib,
        change,
    }
}

/// GB of host memory for each GPU that nodes are usually built with.
const HOST_PER_GPU: f64 = 192.0;

/// GB of host memory of a node.
fn host_of(request: &Request) -> f64 {
    let cluster = &request.cluster;
    HOST_PER_GPU * of(cluster.gpu.per_node.min(cluster.gpus))
}

/// GB that the host of a node holds.
fn host_gigabytes(request: &Request, tuning: &Tuning) -> f64 {
    let cluster = &request.cluster;
    let nodes = cluster.gpus.div_ceil(cluster.gpu.per_node.max(1));
    tuning.host_bytes(&request.shape, request.software.optimizer_bytes) / of(nodes) / GIGA
}

const fn tuned(optimizer: Optimizer, lora: Option<Lora>, offload: bool) -> Tuning {
    Tuning {
        lora,
        optimizer,
        offload,
    }
}

const fn lora(four_bits: bool) -> Lora {
    Lora {
        rank: 16,
        four_bits,
    }
}

/// Ways to train with less memory, the one that changes least first.
const SMALLER: [(&str, Tuning); 4] = [
    (
        "pass `--optimizer adam8bit`",
        tuned(Optimizer::Adam8bit, None, false),
    ),
    ("pass `--offload`", tuned(Optimizer::AdamW, None, true)),
    (
        "train adapters with `--lora rank=16`",
        tuned(Optimizer::AdamW, Some(lora(false)), false),
    ),
    (
        "train adapters with `--qlora rank=16`",
        tuned(Optimizer::AdamW, Some(lora(true)), false),
    ),
];

/// TPUs need another framework than what is planned for GPUs.
fn is_tpu(name: &str) -> bool {
    name.starts_with("TPU")
}

/// Batches that divide where the given one does not: the next multiples of the GPUs.
fn batches_near(request: &Request) -> Vec<u32> {
    let gpus = request.cluster.gpus;
    [gpus / 8, gpus / 4, gpus / 2, gpus]
        .into_iter()
        .filter(|step| *step > 0)
        .filter_map(|step| request.global_batch.checked_next_multiple_of(step))
        .filter(|batch| *batch != request.global_batch)
        .collect()
}

/// Days and dollars of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Tokens that are trained.
    pub tokens: f64,
    /// Seconds of training alone.
    pub train_seconds: f64,
    /// Seconds with what failures cost.
    pub elapsed_seconds: f64,
    /// GPU-hours of those.
    pub gpu_hours: f64,
    /// Dollars of those.
    pub dollars: f64,
}

/// What `tokens` cost with a layout of which `ettr` of the time trains.
pub fn cost(request: &Request, best: &Candidate, tokens: f64, ettr: f64, hourly: f64) -> Cost {
    let train = tokens / best.tokens_per_second;
    let elapsed = train / ettr.max(0.01);
    let gpu_hours = elapsed / 3_600.0 * of(request.cluster.gpus);
    Cost {
        tokens,
        train_seconds: train,
        elapsed_seconds: elapsed,
        gpu_hours,
        dollars: gpu_hours * hourly,
    }
}

/// A bandwidth in words.
pub fn bandwidth(bytes: f64) -> String {
    format!("{:.1} GB/s", bytes / GIGA)
}

#[cfg(test)]
mod tests;
