//! How much memory one GPU needs, by part.
//!
//! States follow Megatron's `theoretical_memory_usage.py`, activations the equations of Korthikanti and
//! others (arXiv:2205.05198), which count 16-bit activations of a layer operation by operation. The
//! equations are kept as they are for the models of their time; grouped queries, gates and fused
//! attention change the terms they are about and nothing else.
//!
//! Invariant: the parts of a [`Memory`] add up to its total, which is that of the fullest stage.

use serde::Serialize;

use super::{
    hardware::GIB,
    layout::{Layout, Recompute, Sharding},
    shape::{Mlp, Shape, of},
    software::{AttentionKernel, Plain, Software},
    tuning::Tuning,
};

/// Context of CUDA, buffers of NCCL, workspaces of cuBLAS: what a process holds besides tensors.
const BUFFERS_GIB: f64 = 2.5;
/// The same of a process that is alone and needs no NCCL; 0.69 GiB were measured with `PyTorch` 2.11 on an H200.
const ALONE_GIB: f64 = 0.7;
/// Share of the tensors that the allocator's gaps cost.
const GAPS: f64 = 0.02;

/// Memory of one GPU in GiB, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Weights of the layers.
    pub weights: f64,
    /// Their gradients.
    pub gradients: f64,
    /// Their optimizer state.
    pub optimizer: f64,
    /// The same three of embedding and output layer.
    pub embeddings: f64,
    /// Kept for the backward pass.
    pub activations: f64,
    /// What is kept of the embedding, the logits and their gradient.
    pub logits: f64,
    /// A layer that is gathered or computed again.
    pub working: f64,
    /// What a process holds besides tensors.
    pub buffers: f64,
    /// Gaps between tensors.
    pub margin: f64,
}

impl Memory {
    /// Every part with its name.
    pub fn parts(&self) -> [(&'static str, f64); 9] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("embeddings", self.embeddings),
            ("activations", self.activations),
            ("logits", self.logits),
            ("working", self.working),
            ("buffers", self.buffers),
            ("margin", self.margin),
        ]
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, gib)| gib).sum()
    }
}

/// What memory depends on.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// The model.
    pub shape: &'a Shape,
    /// How it is spread.
    pub layout: &'a Layout,
    /// With what.
    pub software: &'a Software,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Sequences of a step.
    pub global_batch: u32,
    /// What is trained.
    pub tuning: Tuning,
}

/// Memory of the GPU that needs most.
pub fn memory(need: &Need<'_>) -> Memory {
    let first = stage(need, Stage::First);
    if need.layout.pipeline == 1 {
        return first;
    }
    let last = stage(need, Stage::Last);
    if last.total() > first.total() {
        last
    } else {
        first
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Last,
}

fn stage(need: &Need<'_>, at: Stage) -> Memory {
    let Need { shape, layout, .. } = *need;
    let alone = layout.pipeline == 1;
    let layers = match at {
        Stage::First => layout.stage_layers(shape.layers),
        Stage::Last => layout.last_stage_layers(shape.layers),
    };
    let layers = if alone || at == Stage::Last {
        layers + shape.predictions
    } else {
        layers
    };
    let share = of(layers) / of(shape.layers);
    let tensor = of(layout.tensor);
    let dense = shape.dense_parameters() * share / tensor;
    let routed = of(shape.expert_layers()) * shape.routed_parameters() * share
        / tensor.max(1.0)
        / of(layout.expert);
    let data = of(layout.data) * of(layout.context);
    let adapters = adapter_states(need, share / tensor, data);
    let of_layers = states(need, dense, data)
        .plus(&states(need, routed, data / of(layout.expert)))
        .plus(&adapters);
    let matrices = match at {
        _ if alone => shape.embedding_parameters(),
        // A tied output layer is a copy of its own where it is on another stage.
        _ => of(shape.vocabulary) * of(shape.hidden),
    };
    let of_embeddings = embedding_states(need, matrices / tensor, data);
    let held = match at {
        // The first stage holds a micro-batch for every stage behind it.
        Stage::First => layout.pipeline,
        Stage::Last => 1,
    }
    .min(layout.micro_batches(need.global_batch));
    let per_layer = layer_activation_bytes(need);
    let activations = in_flight(per_layer * of(layers) * of(held), layout);
    let logits = logit_bytes(need, at, alone);
    let working = working_bytes(need, per_layer);
    let copies = if alone {
        1.0
    } else {
        need.software.stage_copies
    };
    let mut memory = Memory {
        weights: copies * of_layers.weights / GIB,
        gradients: copies * of_layers.gradients / GIB,
        optimizer: of_layers.optimizer / GIB,
        embeddings: of_embeddings.total() / GIB,
        activations: activations / GIB,
        logits: logits / GIB,
        working: working / GIB,
        buffers: need.software.extra_buffers_gib
            + if layout.ranks() == 1 {
                ALONE_GIB
            } else {
                BUFFERS_GIB
            },
        margin: 0.0,
    };
    if need.software.plain.is_some()
        && layout.data == 1
        && layout.micro_batches(need.global_batch) == 1
    {
        // Gradients take the place of activations that the backward pass frees; only those of the output layer come first.
        let first = of_embeddings.gradients / GIB;
        let later = memory.gradients + first - memory.activations - memory.logits;
        memory.embeddings -= first;
        memory.gradients = later.max(first);
    }
    memory.margin = GAPS * (memory.total() - memory.buffers);
    memory
}

/// Interleaving holds the first chunks of more micro-batches. One division at the end keeps the
/// published values exact.
fn in_flight(bytes: f64, layout: &Layout) -> f64 {
    if layout.interleave <= 1 || layout.pipeline <= 1 {
        return bytes;
    }
    let (stages, chunks) = (of(layout.pipeline), of(layout.interleave));
    bytes * (stages * chunks + stages - 1.0) / (stages * chunks)
}

struct States {
    weights: f64,
    gradients: f64,
    optimizer: f64,
}

impl States {
    fn plus(&self, other: &Self) -> Self {
        Self {
            weights: self.weights + other.weights,
            gradients: self.gradients + other.gradients,
            optimizer: self.optimizer + other.optimizer,
        }
    }

    fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer
    }
}

/// Bytes of the states of `parameters`, of which `data` ranks have copies or share.
fn states(need: &Need<'_>, parameters: f64, data: f64) -> States {
    let data = data.max(1.0);
    let shared = |from: Sharding| {
        if need.layout.sharding >= from {
            data
        } else {
            1.0
        }
    };
    let tuning = need.tuning;
    let weights = tuning.weight_bytes() * parameters / shared(Sharding::Zero3);
    if tuning.lora.is_some() {
        return States {
            weights,
            gradients: 0.0,
            optimizer: 0.0,
        };
    }
    let on_gpu = if tuning.offload { 0.0 } else { 1.0 };
    let optimizer_bytes = tuning.optimizer_bytes(need.software.optimizer_bytes);
    States {
        weights,
        gradients: on_gpu * need.software.gradient_bytes * parameters / shared(Sharding::Zero2),
        optimizer: on_gpu * optimizer_bytes * parameters / shared(Sharding::Zero1),
    }
}

/// Embedding and output layer stay in 16 bits where the rest has 4.
fn embedding_states(need: &Need<'_>, parameters: f64, data: f64) -> States {
    let mut own = *need;
    if let Some(lora) = &mut own.tuning.lora {
        lora.four_bits = false;
    }
    states(&own, parameters, data)
}

/// The whole states of the adapters, where there are any.
fn adapter_states(need: &Need<'_>, share: f64, data: f64) -> States {
    if need.tuning.lora.is_none() {
        return States {
            weights: 0.0,
            gradients: 0.0,
            optimizer: 0.0,
        };
    }
    let mut own = *need;
    own.tuning.lora = None;
    states(&own, need.tuning.trained(need.shape) * share, data)
}

/// Bytes that one layer keeps of one micro-batch.
pub fn layer_activation_bytes(need: &Need<'_>) -> f64 {
    let layout = need.layout;
    let stream = tokens(need) * of(need.shape.hidden);
    let spread = if layout.sequence_parallel {
        of(layout.tensor)
    } else {
        1.0
    };
    match layout.recompute {
        Recompute::Full => 2.0 * stream / spread,
        Recompute::Half => f64::midpoint(2.0 * stream / spread, kept_bytes(need, Keep::NoScores)),
        Recompute::Selective if fused(need) => kept_bytes(need, Keep::Products),
        Recompute::Selective => kept_bytes(need, Keep::NoScores),
        Recompute::None => kept_bytes(need, everything(need)),
    }
}

fn fused(need: &Need<'_>) -> bool {
    need.software.attention > AttentionKernel::Unfused
}

fn everything(need: &Need<'_>) -> Keep {
    if fused(need) {
        Keep::NoScores
    } else {
        Keep::Everything
    }
}

/// What a layer keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// All that its backward pass reads.
    Everything,
    /// All but the scores of attention, which a fused kernel never keeps.
    NoScores,
    /// The results of products; norms and activations are computed again.
    Products,
}

/// Bytes that a layer keeps of one micro-batch.
fn kept_bytes(need: &Need<'_>, keep: Keep) -> f64 {
    let Need { shape, layout, .. } = *need;
    let tokens = tokens(need);
    let (h, t) = (of(shape.hidden), of(layout.tensor));
    let heads = of(shape.heads) * of(shape.head_size);
    let kv = of(shape.kv_heads) * of(shape.head_size);
    let masks = if need.software.dropout { 2.0 } else { 0.0 };
    let products = keep == Keep::Products;
    // The inputs of two norms and two blocks, and the masks of their dropouts.
    let wide = if need.software.plain == Some(Plain::Autocast) {
        4.0
    } else {
        0.0
    };
    let stream = if products {
        4.0 + masks
    } else {
        8.0 + masks + wide
    } * h;
    // Queries, keys, values and the result of attention. `scaled_dot_product_attention` keeps grouped keys and values
    // as wide as queries, and the queries before their rotation.
    let grouped = need.software.attention == AttentionKernel::Sdpa && shape.kv_heads < shape.heads;
    let attention = if grouped {
        10.0 * heads
    } else {
        2.0 * heads + 4.0 * kv + 2.0 * heads
    };
    let per_ffn = match shape.mlp {
        Mlp::Plain if products => 2.0,
        Mlp::Gated if products => 4.0,
        Mlp::Plain => 4.0,
        Mlp::Gated => 6.0,
    };
    let width = match shape.experts {
        Some(experts) => of(experts.per_token) * of(experts.ffn) + of(experts.shared_ffn),
        None => of(shape.ffn),
    };
    let scores = if keep == Keep::Everything {
        5.0 * of(shape.heads) * of(need.sequence)
    } else {
        0.0
    };
    let spread = if layout.sequence_parallel { t } else { 1.0 };
    tokens * (stream / spread + (attention + per_ffn * width + scores) / t)
}

fn logit_bytes(need: &Need<'_>, at: Stage, alone: bool) -> f64 {
    let Need { shape, layout, .. } = *need;
    let stream = tokens(need) * of(shape.hidden);
    let t = of(layout.tensor);
    let embedding = if need.software.dropout {
        stream * of(layout.pipeline) / t
    } else {
        0.0
    };
    if need.software.plain.is_some() && alone {
        // One copy in 16 bits, whose place the gradient takes; two where layers are computed again.
        let copies = if layout.recompute == Recompute::None {
            1.0
        } else {
            2.0
        };
        return copies * 2.0 * tokens(need) * of(shape.vocabulary) / t;
    }
    let output = 4.0 * stream * (1.0 + of(shape.vocabulary) / of(shape.hidden)) / t;
    // The 16-bit gradient is there at the same time as the logits.
    let gradient = 2.0 * tokens(need) * of(shape.vocabulary) / t;
    match at {
        _ if alone => embedding + output + gradient,
        Stage::First => embedding,
        Stage::Last => output + gradient,
    }
}

/// A layer that is computed again needs all it keeps for a moment; gathered weights of two layers and
/// the gradients of one are whole for a moment.
fn working_bytes(need: &Need<'_>, kept: f64) -> f64 {
    let Need { shape, layout, .. } = *need;
    let again = match layout.recompute {
        Recompute::None => 0.0,
        _ => (kept_bytes(need, everything(need)) - kept).max(0.0),
    };
    let gathered = if layout.sharding == Sharding::Zero3 {
        6.0 * shape.layer_parameters() / of(shape.layers) / of(layout.tensor)
    } else {
        0.0
    };
    again + gathered
}

fn tokens(need: &Need<'_>) -> f64 {
    of(need.layout.micro_batch) * of(need.sequence) / of(need.layout.context)
}

#[cfg(test)]
mod tests;
