//! Every layout of a model on a cluster that fits, ranked by the time of a step.
//!
//! What cannot be better is not timed: a layout is tried with the least recomputation that fits, and
//! sequences are cut only where a whole one is a micro-batch. Of the ways to interleave the fastest
//! that fits is kept.
//!
//! A layout that needs more than [`COMFORTABLE`] of the memory is tight: it is ranked below all that do not.
//!
//! Invariant: everything that is returned fits and divides; ties are broken by the layout itself, so
//! the order depends on nothing else.

use serde::Serialize;

use super::{
    flops::{self, Convention},
    hardware::{Cluster, Precision},
    layout::{Layout, Recompute, Sharding, padding},
    memory::{Memory, Need, memory},
    shape::{Shape, of},
    software::{AttentionKernel, Software},
    time::{Machine, Step, StepTime, step_time_on},
    tuning::Tuning,
};

/// Share of a GPU's memory that a layout may need before it is called tight: fragments, longer batches and the framework's
/// next version take the rest.
pub const COMFORTABLE: f64 = 0.92;

/// What is to be trained, on what.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model.
    pub shape: Shape,
    /// The cluster.
    pub cluster: Cluster,
    /// The software.
    pub software: Software,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Sequences of a step.
    pub global_batch: u32,
    /// Number format of the matrix work.
    pub precision: Precision,
    /// Degrees that are given.
    pub fixed: Fixed,
    /// What is trained.
    pub tuning: Tuning,
}

/// Degrees that are given, not searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// Tensor ranks.
    pub tensor: Option<u32>,
    /// Stages.
    pub pipeline: Option<u32>,
    /// Context ranks.
    pub context: Option<u32>,
    /// Expert ranks.
    pub expert: Option<u32>,
    /// Sequences of a micro-batch.
    pub micro_batch: Option<u32>,
    /// Chunks on each stage.
    pub interleave: Option<u32>,
    /// What is computed again.
    pub recompute: Option<Recompute>,
    /// What data ranks share.
    pub sharding: Option<Sharding>,
}

/// One layout with what it takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// The layout.
    pub layout: Layout,
    /// Memory of the fullest GPU.
    pub memory: Memory,
    /// Time of a step.
    pub time: StepTime,
    /// Tokens in a second, over all GPUs.
    pub tokens_per_second: f64,
    /// Share of the peak that goes into the model, attention counted whole.
    pub mfu: f64,
    /// The same with the masked half of attention left out.
    pub mfu_causal: f64,
    /// Share of the peak that goes into all that is computed, again included.
    pub hfu: f64,
    /// Whether it needs more than [`COMFORTABLE`] of the memory.
    pub tight: bool,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Layouts that fit, the fastest first.
    pub ranked: Vec<Candidate>,
    /// Layouts whose memory was looked at.
    pub tried: usize,
    /// The layout that came nearest, where nothing fits.
    pub nearest: Option<(Layout, Memory)>,
}

/// Searches the layouts of a request.
pub fn search(request: &Request) -> Found {
    let machine = Machine::new(&request.cluster, request.precision, None);
    let mut found = Found {
        ranked: Vec::new(),
        tried: 0,
        nearest: None,
    };
    for layout in shapes(request) {
        let best = settle(request, layout, &mut found)
            .into_iter()
            .map(|(layout, memory)| candidate(request, layout, memory, &machine))
            .min_by(|one, other| one.time.total().total_cmp(&other.time.total()));
        found.ranked.extend(best);
    }
    found.ranked.sort_by(|one, other| {
        one.tight
            .cmp(&other.tight)
            .then_with(|| one.time.total().total_cmp(&other.time.total()))
            .then_with(|| key(&one.layout).cmp(&key(&other.layout)))
    });
    prefer_simple(&mut found.ranked);
    found
}

/// Layouts whose steps differ by less than this share are equally fast: no prediction is better than that.
const EQUAL: f64 = 0.01;

/// Puts the simplest of the layouts that are as fast as the first in front.
fn prefer_simple(ranked: &mut [Candidate]) {
    let Some(first) = ranked.first() else {
        return;
    };
    let (tight, least) = (first.tight, first.time.total());
    let equal = ranked
        .iter()
        .take_while(|one| one.tight == tight && one.time.total() <= least * (1.0 + EQUAL))
        .count();
    ranked[..equal].sort_by_key(|one| effort(&one.layout));
}

/// How much has to be set up and understood for a layout: axes and sharded weights first, then what is computed again.
fn effort(layout: &Layout) -> (usize, u32, Recompute) {
    let axes = [
        layout.tensor,
        layout.pipeline,
        layout.context,
        layout.expert,
    ];
    let split = axes.into_iter().filter(|size| *size > 1).count()
        + usize::from(layout.sharding == Sharding::Zero3);
    (split, layout.context, layout.recompute)
}

/// Times one layout that was already found to fit.
pub fn candidate(
    request: &Request,
    layout: Layout,
    memory: Memory,
    machine: &Machine,
) -> Candidate {
    let step = Step {
        shape: &request.shape,
        layout: &layout,
        cluster: &request.cluster,
        software: &request.software,
        sequence: request.sequence,
        global_batch: request.global_batch,
        precision: request.precision,
        efficiency: None,
        tuning: request.tuning,
    };
    let time = step_time_on(&step, machine);
    let seconds = time.total();
    let whole = of(request.cluster.gpus) * request.cluster.gpu.peak(request.precision) * seconds;
    let trained = request.tuning.operations();
    let masked = request.software.attention > AttentionKernel::Unfused;
    let (shape, sequence, batch) = (&request.shape, request.sequence, request.global_batch);
    Candidate {
        layout,
        memory,
        time,
        tokens_per_second: of(batch) * of(sequence) / seconds,
        mfu: trained * Convention::Model.operations(shape, sequence, batch) / whole,
        mfu_causal: trained * Convention::Causal.operations(shape, sequence, batch) / whole,
        hfu: trained * flops::done(shape, sequence, batch, layout.recompute, masked) / whole,
        tight: memory.total() > COMFORTABLE * request.cluster.gpu.memory_gib,
    }
}

fn key(layout: &Layout) -> [u32; 6] {
    [
        layout.tensor,
        layout.pipeline,
        layout.context,
        layout.expert,
        layout.micro_batch,
        layout.interleave,
    ]
}

/// Every combination of degrees that divides, without recomputation and interleaving.
fn shapes(request: &Request) -> Vec<Layout> {
    let shape = &request.shape;
    let gpus = request.cluster.gpus;
    let fixed = request.fixed;
    let mut layouts = Vec::new();
    let tensors = (1..=request.cluster.gpu.domain.min(64))
        .filter(|tensor| tensor.is_power_of_two() || fixed.tensor == Some(*tensor))
        .filter(|tensor| {
            shape.heads.is_multiple_of(*tensor)
                && shape.ffn.is_multiple_of(*tensor)
                && gpus.is_multiple_of(*tensor)
        })
        .filter(|tensor| fixed.tensor.is_none_or(|wanted| wanted == *tensor))
        .filter(|tensor| *tensor == 1 || fixed.tensor.is_some() || !data_only(request));
    for tensor in tensors {
        for pipeline in pipelines(request, gpus / tensor) {
            for context in contexts(request, gpus / tensor / pipeline) {
                let data = gpus / tensor / pipeline / context;
                for expert in experts(request, data * context) {
                    let sizes = micro_batches(request, data)
                        .into_iter()
                        .filter(|size| context == 1 || *size == 1 || fixed.micro_batch.is_some());
                    for micro_batch in sizes {
                        for sharding in shardings(request, pipeline, data * context) {
                            layouts.push(Layout {
                                tensor,
                                pipeline,
                                context,
                                expert,
                                data,
                                micro_batch,
                                sharding,
                                sequence_parallel: tensor > 1,
                                ..Layout::single()
                            });
                        }
                    }
                }
            }
        }
    }
    layouts
}

/// Plain `PyTorch` has no other ranks than data ranks, unless they are asked for.
fn data_only(request: &Request) -> bool {
    request.software.plain.is_some()
}

fn pipelines(request: &Request, ranks: u32) -> Vec<u32> {
    let layers = request.shape.layers;
    divisors(ranks)
        .into_iter()
        .filter(|stages| *stages <= layers)
        .filter(|stages| *stages == 1 || request.fixed.pipeline.is_some() || !data_only(request))
        .filter(|stages| padding(layers, *stages).is_some())
        .filter(|stages| {
            request
                .fixed
                .pipeline
                .is_none_or(|wanted| wanted == *stages)
        })
        .collect()
}

/// Sequences are only cut where they are long: a part of 2,048 tokens keeps a GPU busy.
fn contexts(request: &Request, ranks: u32) -> Vec<u32> {
    (0..8)
        .map(|power| 1_u32 << power)
        .filter(|context| ranks.is_multiple_of(*context))
        .filter(|context| *context == 1 || request.fixed.context.is_some() || !data_only(request))
        .filter(|context| {
            *context == 1
                || request.fixed.context == Some(*context)
                || request.sequence / context >= 2_048
        })
        .filter(|context| request.sequence.is_multiple_of(2 * context) || *context == 1)
        .filter(|context| {
            request
                .fixed
                .context
                .is_none_or(|wanted| wanted == *context)
        })
        .collect()
}

fn experts(request: &Request, ranks: u32) -> Vec<u32> {
    let Some(experts) = request.shape.experts else {
        return vec![1];
    };
    divisors(experts.count)
        .into_iter()
        .filter(|expert| ranks.is_multiple_of(*expert))
        .filter(|expert| request.fixed.expert.is_none_or(|wanted| wanted == *expert))
        .collect()
}

fn micro_batches(request: &Request, data: u32) -> Vec<u32> {
    (0..6)
        .map(|power| 1_u32 << power)
        .chain(
            request
                .fixed
                .micro_batch
                .filter(|size| !size.is_power_of_two()),
        )
        .filter(|size| {
            data.checked_mul(*size)
                .is_some_and(|part| request.global_batch.is_multiple_of(part))
        })
        .filter(|size| {
            request
                .fixed
                .micro_batch
                .is_none_or(|wanted| wanted == *size)
        })
        .collect()
}

/// Weights that are gathered for every micro-batch do not go with a pipeline of many.
fn shardings(request: &Request, pipeline: u32, ranks: u32) -> Vec<Sharding> {
    let choices = match request.fixed.sharding {
        Some(sharding) => vec![sharding],
        None if request.software.fully_sharded => vec![Sharding::Zero3],
        None if data_only(request) => vec![Sharding::None],
        None if ranks == 1 => vec![Sharding::Zero1],
        None if pipeline == 1 => vec![Sharding::Zero1, Sharding::Zero3],
        None => vec![Sharding::Zero1],
    };
    choices
        .into_iter()
        .filter(|sharding| *sharding < Sharding::Zero3 || pipeline == 1)
        .collect()
}

/// The least recomputation that fits comfortably, else the least that fits at all, with every way to interleave that fits.
fn settle(request: &Request, layout: Layout, found: &mut Found) -> Vec<(Layout, Memory)> {
    let limit = request.cluster.gpu.memory_gib;
    let mut need = |layout: &Layout, first: bool| {
        found.tried += usize::from(first);
        let memory = memory(&Need {
            shape: &request.shape,
            layout,
            software: &request.software,
            sequence: request.sequence,
            global_batch: request.global_batch,
            tuning: request.tuning,
        });
        let nearer = found
            .nearest
            .is_none_or(|(_, least)| memory.total() < least.total());
        if nearer {
            found.nearest = Some((*layout, memory));
        }
        memory
    };
    let choices = [
        Recompute::None,
        Recompute::Selective,
        Recompute::Half,
        Recompute::Full,
    ];
    let allowed = |recompute: &Recompute| {
        request
            .fixed
            .recompute
            .is_none_or(|wanted| wanted == *recompute)
    };
    for share in [COMFORTABLE, 1.0] {
        for recompute in choices.into_iter().filter(allowed) {
            let mut fitting = Vec::new();
            for interleave in interleaves(request, &layout) {
                let layout = Layout {
                    interleave,
                    recompute,
                    ..layout
                };
                let memory = need(&layout, share < 1.0);
                if memory.total() <= share * limit {
                    fitting.push((layout, memory));
                }
            }
            if !fitting.is_empty() {
                return fitting;
            }
        }
    }
    Vec::new()
}

/// Ways to interleave: the finer, the fewer bubbles, the more memory and the more messages.
fn interleaves(request: &Request, layout: &Layout) -> Vec<u32> {
    if let Some(interleave) = request.fixed.interleave {
        return vec![interleave];
    }
    let layers = request.shape.layers;
    let few = layout.micro_batches(request.global_batch) < layout.pipeline;
    // Chunks of stages that are that uneven have no argument in Megatron; the other direction of DualPipe takes their place.
    let plain = padding(layers, layout.pipeline) == Some(3) || request.software.bubble < 1.0;
    if layout.pipeline == 1 || few || plain {
        return vec![1];
    }
    let per_stage = layout.stage_layers(request.shape.layers);
    divisors(per_stage)
}

/// Every divisor, the smallest first; absurd numbers cost no more than their root.
fn divisors(value: u32) -> Vec<u32> {
    let mut small = Vec::new();
    let mut large = Vec::new();
    for divisor in 1..=value.isqrt() {
        if value.is_multiple_of(divisor) {
            small.push(divisor);
            if value / divisor != divisor {
                large.push(value / divisor);
            }
        }
    }
    small.extend(large.into_iter().rev());
    small
}

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn divisors_are_all_there_and_in_order() {
        let cases: [(u32, &[u32]); 4] = [
            (1, &[1]),
            (12, &[1, 2, 3, 4, 6, 12]),
            (16, &[1, 2, 4, 8, 16]),
            (13, &[1, 13]),
        ];
        for (value, want) in cases {
            assert_eq!(divisors(value), want, "{value}");
        }
    }
}
