//! How a model is spread over the GPUs.
//!
//! Owns the degrees of parallelism and the rules they must keep. The order of ranks is Megatron's:
//! tensor innermost, then context, then data, then pipeline.
//!
//! Invariant: what [`Layout::check`] accepts is divisible wherever the framework needs it.

use serde::Serialize;
use thiserror::Error;

use super::shape::{Shape, nearest_multiple};

/// One way to spread a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// Ranks that share every matrix.
    pub tensor: u32,
    /// Stages of the pipeline.
    pub pipeline: u32,
    /// Ranks that share a sequence.
    pub context: u32,
    /// Ranks that share the experts of a layer; within data and context.
    pub expert: u32,
    /// Copies of all that.
    pub data: u32,
    /// Chunks of layers on each stage; 1 without interleaving.
    pub interleave: u32,
    /// Sequences of one micro-batch.
    pub micro_batch: u32,
    /// What is recomputed instead of kept.
    pub recompute: Recompute,
    /// Whether norms are spread over the tensor ranks too.
    pub sequence_parallel: bool,
    /// What data ranks share instead of each having its own.
    pub sharding: Sharding,
}

/// What is recomputed in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Recompute {
    /// Nothing.
    None,
    /// The core of attention: cheap to compute, large to keep.
    Selective,
    /// Every second layer, from its input; also torchtitan's choice of every second product.
    Half,
    /// Every layer, from its input.
    Full,
}

/// What data ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Sharding {
    /// Nothing; gradients are added up (DDP).
    None,
    /// The optimizer's state (`ZeRO`-1, Megatron's distributed optimizer).
    Zero1,
    /// Gradients too (`ZeRO`-2).
    Zero2,
    /// Weights too, gathered layer by layer (`ZeRO`-3, FSDP).
    Zero3,
}

/// Why a layout is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The degrees do not make the cluster.
    #[error(
        "tensor {tensor} × pipeline {pipeline} × context {context} × data {data} is {product} ranks, but there are {gpus} GPUs"
    )]
    Ranks {
        /// Tensor ranks.
        tensor: u32,
        /// Stages.
        pipeline: u32,
        /// Context ranks.
        context: u32,
        /// Data ranks.
        data: u32,
        /// All of them.
        product: u64,
        /// GPUs of the cluster.
        gpus: u32,
    },
    /// One number is not divisible by another.
    #[error(
        "{what} {found} is not divisible by {by_what} {by}; the nearest valid {by_what} is {nearest}"
    )]
    Division {
        /// What is divided.
        what: &'static str,
        /// How large it is.
        found: u32,
        /// What divides it.
        by_what: &'static str,
        /// How large that is.
        by: u32,
        /// Nearest divisor.
        nearest: u32,
    },
    /// A number is zero.
    #[error("{what} is 0; it must be at least 1")]
    Zero {
        /// Which.
        what: &'static str,
    },
}

impl Layout {
    /// Everything on one rank.
    pub fn single() -> Self {
        Self {
            tensor: 1,
            pipeline: 1,
            context: 1,
            expert: 1,
            data: 1,
            interleave: 1,
            micro_batch: 1,
            recompute: Recompute::None,
            sequence_parallel: false,
            sharding: Sharding::Zero1,
        }
    }

    /// Ranks.
    pub fn ranks(&self) -> u64 {
        [self.tensor, self.pipeline, self.context, self.data]
            .into_iter()
            .map(u64::from)
            .product()
    }

    /// Micro-batches that a rank sees in one step, rounded up.
    pub fn micro_batches(&self, global_batch: u32) -> u32 {
        global_batch
            .div_ceil(self.data.saturating_mul(self.micro_batch).max(1))
            .max(1)
    }

    /// Layers of the slowest stage that is not the last one.
    ///
    /// Where layers do not divide but would with two more, the embedding and the output layer
    /// count as one layer each, as Megatron and `DeepSpeed` place them.
    pub fn stage_layers(&self, layers: u32) -> u32 {
        let stages = self.pipeline.max(1);
        layers.div_ceil(stages)
    }

    /// Layers of the last stage, which has the output layer besides.
    pub fn last_stage_layers(&self, layers: u32) -> u32 {
        let stages = self.pipeline.max(1);
        let all = self.stage_layers(layers);
        if stages == 1 || layers.is_multiple_of(stages) {
            all
        } else if (layers + 2).is_multiple_of(stages) {
            ((layers + 2) / stages).saturating_sub(1)
        } else {
            layers - layers / stages * (stages - 1)
        }
        .min(all)
    }

    /// The arguments by which Megatron-LM trains a model of `layers` layers in this layout. The number of
    /// data ranks is not among them: it follows from all ranks.
    pub fn megatron_arguments(&self, layers: u32) -> Vec<String> {
        let chunk = (self.stage_layers(layers) / self.interleave.max(1)).max(1);
        let mut words = Vec::new();
        let mut option = |name: &str, value: &dyn ToString| {
            words.extend([format!("--{name}"), value.to_string()]);
        };
        option("tensor-model-parallel-size", &self.tensor);
        option("pipeline-model-parallel-size", &self.pipeline);
        if self.context > 1 {
            option("context-parallel-size", &self.context);
        }
        if self.expert > 1 {
            option("expert-model-parallel-size", &self.expert);
        }
        if self.interleave > 1 {
            option("num-layers-per-virtual-pipeline-stage", &chunk);
        }
        match self.recompute {
            Recompute::None => {}
            Recompute::Selective => option("recompute-granularity", &"selective"),
            Recompute::Half | Recompute::Full => {
                let half = self.recompute == Recompute::Half;
                let (method, of) = if half {
                    // Megatron counts them in each chunk.
                    ("block", chunk.div_ceil(2))
                } else {
                    ("uniform", 1)
                };
                option("recompute-granularity", &"full");
                option("recompute-method", &method);
                option("recompute-num-layers", &of);
            }
        }
        if self.sequence_parallel && self.tensor > 1 {
            words.push("--sequence-parallel".to_owned());
        }
        if self.sharding != Sharding::None {
            words.push("--use-distributed-optimizer".to_owned());
        }
        let strategy = match self.sharding {
            Sharding::None | Sharding::Zero1 => None,
            Sharding::Zero2 => Some("optim_grads"),
            Sharding::Zero3 => Some("optim_grads_params"),
        };
        if let Some(strategy) = strategy {
            // The distributed optimizer alone shares no gradients and no weights.
            words.extend(
                [
                    "--use-megatron-fsdp",
                    "--data-parallel-sharding-strategy",
                    strategy,
                    "--no-gradient-accumulation-fusion",
                    "--ckpt-format",
                    "fsdp_dtensor",
                ]
                .map(str::to_owned),
            );
        }
        words
    }

    /// Checks the layout against the model and the cluster.
    pub fn check(&self, shape: &Shape, gpus: u32) -> Result<(), LayoutError> {
        let numbers = [
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
            ("context", self.context),
            ("expert", self.expert),
            ("data", self.data),
            ("interleave", self.interleave),
            ("micro-batch", self.micro_batch),
        ];
        if let Some((what, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
            return Err(LayoutError::Zero { what });
        }
        if self.ranks() != u64::from(gpus) {
            return Err(LayoutError::Ranks {
                tensor: self.tensor,
                pipeline: self.pipeline,
                context: self.context,
                data: self.data,
                product: self.ranks(),
                gpus,
            });
        }
        divides("heads", shape.heads, "tensor", self.tensor)?;
        divides("ffn", shape.ffn, "tensor", self.tensor)?;
        if let Some(experts) = shape.experts {
            divides("experts", experts.count, "expert", self.expert)?;
        }
        if self.pipeline > shape.layers {
            return Err(LayoutError::Division {
                what: "layers",
                found: shape.layers,
                by_what: "pipeline",
                by: self.pipeline,
                nearest: shape.layers,
            });
        }
        // Two layers more: the embedding and the output layer may count as one each.
        if !(shape.layers + 2).is_multiple_of(self.pipeline) {
            divides("layers", shape.layers, "pipeline", self.pipeline)?;
        }
        Ok(())
    }
}

fn divides(
    what: &'static str,
    found: u32,
    by_what: &'static str,
    by: u32,
) -> Result<(), LayoutError> {
    if found.is_multiple_of(by) {
        return Ok(());
    }
    Err(LayoutError::Division {
        what,
        found,
        by_what,
        by,
        nearest: nearest_divisor(found, by),
    })
}

/// The divisor of `value` that is nearest to `by`; the smaller one of two.
pub fn nearest_divisor(value: u32, by: u32) -> u32 {
    let highest = nearest_multiple(by, 1).saturating_mul(2).min(value).max(1);
    (1..=highest)
        .filter(|divisor| value.is_multiple_of(*divisor))
        .min_by_key(|divisor| divisor.abs_diff(by))
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn megatron_arguments_state_the_layout() {
        let divided = Layout {
            tensor: 4,
            pipeline: 2,
            context: 2,
            expert: 8,
            interleave: 5,
            sequence_parallel: true,
            recompute: Recompute::Half,
            ..Layout::single()
        };
        let full = Layout {
            recompute: Recompute::Full,
            sharding: Sharding::None,
            sequence_parallel: true,
            ..Layout::single()
        };
        let weights = Layout {
            data: 8,
            sharding: Sharding::Zero3,
            ..Layout::single()
        };
        let cases = [
            (
                weights,
                "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --use-distributed-optimizer \
                 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params \
                 --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor",
            ),
            (
                divided,
                "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --context-parallel-size 2 \
                 --expert-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 8 \
                 --recompute-granularity full --recompute-method block --recompute-num-layers 4 \
                 --sequence-parallel --use-distributed-optimizer",
            ),
            (
                full,
                "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
                 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            ),
        ];
        for (layout, want) in cases {
            assert_eq!(layout.megatron_arguments(80).join(" "), want);
        }
    }
}
