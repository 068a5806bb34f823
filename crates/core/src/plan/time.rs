//! How long one step takes, by part.
//!
//! A step is made of layers (`layer`), which are made of matrix products, memory traffic and
//! collectives at the rates of a `machine`; here they are put into a pipeline, with the output
//! layer, the exchange of gradients and the optimizer.
//!
//! Invariant: the parts of a [`StepTime`] add up to its total.

mod layer;
mod machine;

use serde::Serialize;

use self::{
    layer::{Bench, Parts},
    machine::{Collective, Group},
};
use super::{
    hardware::{Cluster, Precision},
    layout::{Layout, Sharding},
    shape::{Shape, of},
    software::{Kernels, Overlap, Plain, Software},
    tuning::Tuning,
};

pub use machine::{MEMORY_SHARE, Machine, TILE_START};

/// A step that is to be timed.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The model.
    pub shape: &'a Shape,
    /// How it is spread.
    pub layout: &'a Layout,
    /// On what.
    pub cluster: &'a Cluster,
    /// With what.
    pub software: &'a Software,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Sequences of a step.
    pub global_batch: u32,
    /// Number format of the matrix work.
    pub precision: Precision,
    /// Share of the peak that large products reach, where it is not the fitted one.
    pub efficiency: Option<f64>,
    /// What is trained.
    pub tuning: Tuning,
}

/// Seconds of one step by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepTime {
    /// Matrix products.
    pub matrices: f64,
    /// Attention.
    pub attention: f64,
    /// Work that is bound by memory.
    pub memory_bound: f64,
    /// Computed again instead of kept.
    pub recompute: f64,
    /// Embedding, output layer and loss.
    pub vocabulary: f64,
    /// Tensor traffic that is waited for.
    pub tensor: f64,
    /// Context traffic that is waited for.
    pub context: f64,
    /// Expert traffic that is waited for.
    pub expert: f64,
    /// Traffic between stages that is waited for.
    pub pipeline: f64,
    /// Stages without work at the beginning and the end, and beside slower ones.
    pub bubble: f64,
    /// Gradients and weights of data ranks that are waited for.
    pub data: f64,
    /// The optimizer.
    pub optimizer: f64,
    /// Traffic that runs beside other work; no part of the total.
    pub hidden: f64,
}

impl StepTime {
    /// Every part that is waited for, with its name.
    pub fn parts(&self) -> [(&'static str, f64); 12] {
        [
            ("matrices", self.matrices),
            ("attention", self.attention),
            ("memory-bound", self.memory_bound),
            ("recompute", self.recompute),
            ("vocabulary", self.vocabulary),
            ("tensor", self.tensor),
            ("context", self.context),
            ("expert", self.expert),
            ("pipeline", self.pipeline),
            ("bubble", self.bubble),
            ("data", self.data),
            ("optimizer", self.optimizer),
        ]
    }

    /// Seconds of the step.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }
}

/// Times a step.
pub fn step_time(step: &Step<'_>) -> StepTime {
    let machine = Machine::new(step.cluster, step.precision, step.efficiency);
    step_time_on(step, &machine)
}

pub(crate) fn step_time_on(step: &Step<'_>, machine: &Machine) -> StepTime {
    let layout = step.layout;
    let bench = Bench {
        shape: step.shape,
        layout,
        software: step.software,
        machine,
        sequence: step.sequence,
        tuning: step.tuning,
    };
    let micro_batches = of(layout.micro_batches(step.global_batch));
    let stages = of(layout.pipeline);
    let chunks = of(layout.interleave.max(1));

    let dense = bench.layer(false);
    let expert = if step.shape.experts.is_some() {
        bench.layer(true)
    } else {
        dense
    };
    let expert_share = of(step.shape.expert_layers()) / of(step.shape.layers);
    let mix = |of_dense: &Parts, of_expert: &Parts| {
        of_dense
            .scaled(1.0 - expert_share)
            .plus(&of_expert.scaled(expert_share))
    };
    let forward = mix(&dense.forward, &expert.forward);
    let backward = mix(&dense.backward, &expert.backward);
    let again = mix(&dense.again, &expert.again);
    let (mut forward, mut backward) = (forward, backward);
    let mut time = StepTime::default();
    let layers = of(layout.stage_layers(step.shape.layers));
    let last_layers = of(layout.last_stage_layers(step.shape.layers));

    backward.memory += accumulation_time(step, machine, micro_batches)
        + cast_time(step, machine)
        + OPERATIONS * step.software.host_per_operation;
    let mut sharded_wait = 0.0;
    if layout.sharding == Sharding::Zero3 {
        sharded_wait = shard_traffic(step, machine, &bench, &mut forward, &mut backward, &again);
    }
    let one_layer = forward.total() + backward.total() + again.total() + sharded_wait;
    let vocabulary = vocabulary_time(&bench);
    let inner_stage = layers * one_layer;
    let more = of(step.shape.predictions);
    let outputs = 1.0 + more;
    let last_stage = (last_layers + more) * one_layer + outputs * vocabulary;
    let last_stage = if step.software.stage_copies > 1.0 && layout.pipeline > 1 {
        // The rank of the last stage has the first one too, in the other direction.
        f64::midpoint(layers * one_layer, last_stage)
    } else {
        last_stage
    };
    let slowest = if layout.pipeline == 1 {
        last_stage
    } else {
        inner_stage.max(last_stage)
    };
    // What the average stage works in one micro-batch; the rest of the slowest one's time is waited
    // for by the others.
    let all_layers = of(step.shape.layers) + more;
    let average = (all_layers * one_layer + outputs * vocabulary) / stages;
    let share = all_layers / stages * micro_batches;
    let both = forward.plus(&backward);
    time.matrices = both.matrices * share;
    time.attention = both.attention * share;
    time.memory_bound = both.memory * share;
    time.recompute = again.total() * share;
    time.tensor = both.tensor * share;
    time.context = both.context * share;
    time.expert = both.expert * share;
    time.data = sharded_wait * share;
    time.hidden = (both.hidden + again.hidden) * share;
    time.vocabulary = outputs * vocabulary / stages * micro_batches;
    time.bubble = micro_batches * (slowest - average)
        + (stages - 1.0) / chunks * average * step.software.bubble;

    if layout.pipeline > 1 {
        let stride = layout.tensor * layout.context * layout.data;
        // Every tensor rank sends its part; without sequence parallelism the parts are put together
        // again on the other side.
        let whole = 2.0 * bench.tokens() * of(step.shape.hidden);
        let group = Group {
            size: if layout.sequence_parallel {
                1
            } else {
                layout.tensor
            },
            stride: 1,
        };
        let once = machine.send(stride, whole / of(layout.tensor))
            + machine.collective(Collective::Gather, group, whole);
        // Each micro-batch is sent forward and its gradient back, once for every chunk.
        let sends = 2.0 * chunks * micro_batches;
        let exposed = if step.software.pipeline == Overlap::Beside {
            2.0 * (stages - 1.0)
        } else {
            sends
        };
        // A message that travels beside work still has to be started.
        time.pipeline = exposed * once + (sends - exposed).max(0.0) * machine::COLLECTIVE_START;
        // No more of it than there is work runs beside work.
        let rest = (sends - exposed).max(0.0) * once;
        let work = time.matrices + time.attention + time.memory_bound + time.recompute;
        let beside = rest.min(work);
        time.pipeline += rest - beside;
        time.hidden += beside;
    }
    let (waited, hidden) = data_traffic(
        step,
        machine,
        backward.total() * layers,
        forward.total() * layers,
    );
    time.data += waited;
    time.hidden += hidden;
    time.optimizer = optimizer_time(step, machine);
    time
}

/// Operations of one layer, both passes and the one computed again, as a framework starts them.
const OPERATIONS: f64 = 280.0;

/// Without a fused kernel, each micro-batch's gradients of a layer are added to the sum in a pass of
/// their own: written and read in 16 bits, the sum read and written in 32.
fn accumulation_time(step: &Step<'_>, machine: &Machine, micro_batches: f64) -> f64 {
    if !step.software.separate_accumulation || micro_batches <= 1.0 || step.tuning.lora.is_some() {
        return 0.0;
    }
    let weights = step.shape.dense_parameters() / of(step.shape.layers) / of(step.layout.tensor);
    machine.traffic(12.0 * weights, 4.0)
}

/// Under `autocast` each micro-batch narrows the weights of a layer (4 bytes read, 2 written) and widens their gradients
/// (2 read, 4 written).
fn cast_time(step: &Step<'_>, machine: &Machine) -> f64 {
    if step.software.plain != Some(Plain::Autocast) {
        return 0.0;
    }
    let weights = step.shape.layer_parameters() / of(step.shape.layers) / of(step.layout.tensor);
    machine.traffic(12.0 * weights, 8.0)
}

/// Seconds of the output layer and the loss for one micro-batch, forward and backward.
fn vocabulary_time(bench: &Bench<'_>) -> f64 {
    let machine = bench.machine;
    let tokens = bench.tokens();
    let columns = of(bench.shape.vocabulary) / of(bench.layout.tensor);
    let h = of(bench.shape.hidden);
    let of_weights = if bench.tuning.lora.is_some() {
        0.0
    } else {
        machine.product16(columns, h, tokens)
    };
    let products =
        machine.product16(tokens, columns, h) + machine.product16(tokens, h, columns) + of_weights;
    // Logits are widened to 32 bits, reduced, turned into probabilities and into gradients; a compiled loss reads them
    // twice in 16 bits, once for the backward pass, and writes the gradient.
    let bytes = if bench.software.plain.is_some() {
        10.0
    } else {
        24.0
    };
    let traffic = machine.traffic(tokens * columns * bytes, 8.0);
    let group = Group {
        size: bench.layout.tensor,
        stride: 1,
    };
    let gather = machine.collective(Collective::AllReduce, group, 2.0 * tokens * h);
    products + traffic + gather
}

/// Weights are gathered before each layer's passes and gradients scattered after: beside the
/// layer's own work, as far as that lasts. Answers what is waited for in one layer.
fn shard_traffic(
    step: &Step<'_>,
    machine: &Machine,
    bench: &Bench<'_>,
    forward: &mut Parts,
    backward: &mut Parts,
    again: &Parts,
) -> f64 {
    let layout = step.layout;
    let group = Group {
        size: layout.data * layout.context,
        stride: layout.tensor,
    };
    let weights = step.shape.layer_parameters() / of(step.shape.layers) / of(layout.tensor);
    let gather = machine.collective(Collective::Gather, group, 2.0 * weights);
    let scatter = if step.tuning.lora.is_some() {
        0.0
    } else {
        machine.collective(Collective::Gather, group, 4.0 * weights)
    };
    let mut waited = 0.0;
    let contention = bench.contention();
    if step.software.fully_sharded {
        // Gathered weights are copied out of the buffer they arrive in, gradients into the one they
        // leave from, widened.
        forward.memory += machine.traffic(4.0 * weights, 2.0);
        backward.memory += machine.traffic(10.0 * weights, 4.0);
    }
    {
        let beside = forward.total();
        waited += (gather - beside).max(0.0);
        forward.matrices += gather.min(beside) * contention;
        forward.hidden += gather.min(beside);
    }
    {
        let traffic = gather + scatter;
        let beside = backward.total() + again.total();
        waited += (traffic - beside).max(0.0);
        backward.matrices += traffic.min(beside) * contention;
        backward.hidden += traffic.min(beside);
    }
    waited
}

/// Gradients and weights of data ranks, once a step: what is waited for, and what is not.
fn data_traffic(step: &Step<'_>, machine: &Machine, backward: f64, forward: f64) -> (f64, f64) {
    let layout = step.layout;
    if layout.sharding == Sharding::Zero3 {
        return (0.0, 0.0);
    }
    let group = Group {
        size: layout.data * layout.context,
        stride: layout.tensor,
    };
    let weights = rank_parameters(step);
    // Gradients travel in 16 bits; without overlap every rank gets all of them, as all-reduce does.
    let kind = match step.software.data {
        Overlap::Beside => Collective::Gather,
        Overlap::Waited => Collective::AllReduce,
    };
    let gradients = machine.collective(kind, group, 2.0 * weights);
    let gather = machine.collective(Collective::Gather, group, 2.0 * weights);
    if step.software.data == Overlap::Beside {
        let waited = (gradients - backward).max(0.0) + (gather - forward).max(0.0);
        // The last bucket has no work left to run beside.
        let last = (gradients + gather) / (of(step.shape.layers) / of(layout.pipeline)).max(1.0);
        let waited = (waited + last).min(gradients + gather);
        (waited, gradients + gather - waited)
    } else {
        (gradients + gather, 0.0)
    }
}

/// Trained parameters of one rank before data ranks share any.
fn rank_parameters(step: &Step<'_>) -> f64 {
    let layout = step.layout;
    let shape = step.shape;
    if step.tuning.lora.is_some() {
        return step.tuning.trained(shape) / of(layout.tensor) / of(layout.pipeline);
    }
    let routed = of(shape.expert_layers()) * shape.routed_parameters() / of(layout.expert);
    (shape.dense_parameters() + routed) / of(layout.tensor) / of(layout.pipeline)
        + shape.embedding_parameters() / of(layout.tensor) / of(layout.pipeline)
}

/// Gradients, 32-bit weights and two moments are read; all but the gradients are written.
fn optimizer_time(step: &Step<'_>, machine: &Machine) -> f64 {
    let layout = step.layout;
    let shared = match layout.sharding {
        Sharding::None => 1.0,
        _ => of(layout.data) * of(layout.context),
    };
    // 4 of the gradient twice (norm, then update), 12 read, 12 written, 2 for the 16-bit weights; one
    // kernel for each of Adam's eight operations reads and writes most of that every time.
    if step.tuning.offload {
        let here = step.cluster.gpu.per_node.min(step.cluster.gpus);
        return Tuning::host_update(rank_parameters(step) / shared, here);
    }
    let software = step.software;
    let bytes = match (software.plain, software.kernels) {
        // Fused AdamW without a norm: the state and the weights are read and written, the gradient is read.
        (Some(Plain::Autocast), _) => 28.0,
        (Some(Plain::Bf16), _) => 14.0,
        (None, Kernels::Fused) => 34.0,
        (None, Kernels::Eager) => 100.0,
    };
    machine.traffic(bytes * rank_parameters(step) / shared, 200.0)
}
