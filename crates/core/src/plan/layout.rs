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
    pub fn stage_layers(&self, layers: u32) -> u32 {
        let stages = self.pipeline.max(1);
        layers.div_ceil(stages)
    }

    /// Layers of the last stage, which has the output layer besides.
    pub fn last_stage_layers(&self, layers: u32) -> u32 {
        let stages = self.pipeline.max(1);
        let all = self.stage_layers(layers);
        match padding(layers, stages) {
            Some(0) => all,
            Some(3) => all.saturating_sub(2),
            Some(_) => all.saturating_sub(1),
            None => layers - layers / stages * (stages - 1),
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
        if let Some(3) = padding(layers, self.pipeline) {
            let whole = self.stage_layers(layers);
            option("decoder-first-pipeline-num-layers", &(whole - 1));
            option("decoder-last-pipeline-num-layers", &(whole - 2));
        }
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
        let padding = padding(layers, self.pipeline);
        if padding == Some(2) {
            words.push("--account-for-embedding-in-pipeline-split".to_owned());
        }
        if let Some(1 | 2) = padding {
            words.push("--account-for-loss-in-pipeline-split".to_owned());
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
        let fits = |stages: u32| padding(shape.layers, stages).is_some();
        if fits(self.pipeline) {
            return Ok(());
        }
        let nearest = (1..=shape.layers)
            .filter(|stages| fits(*stages))
            .min_by_key(|stages| stages.abs_diff(self.pipeline));
        Err(LayoutError::Division {
            what: "layers",
            found: shape.layers,
            by_what: "pipeline",
            by: self.pipeline,
            nearest: nearest.unwrap_or(1),
        })
    }
}

/// How many layers are missing so that every stage has as many; none where stages would be too uneven.
///
/// The last stage lacks the one that is missing, which the output layer stands for; of two the first stage lacks the other,
/// for the embedding; of three the last stage lacks two, such as `DeepSeek-V3` in 16 stages, whose prediction of a second
/// token is there.
pub fn padding(layers: u32, stages: u32) -> Option<u32> {
    if stages == 0 || stages > layers {
        return None;
    }
    let missing = layers.div_ceil(stages) * stages - layers;
    let last = match missing {
        0 => 0,
        1 | 2 => 1,
        3 => 2,
        _ => return None,
    };
    (layers.div_ceil(stages) > last).then_some(missing)
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
    fn stages_hold_all_layers() {
        for (layers, stages, want) in [
            (126, 16, Some(2)),
            (61, 16, Some(3)),
            (61, 2, Some(1)),
            (80, 8, Some(0)),
            (32, 6, None),
            (3, 2, Some(1)),
            (4, 5, None),
            (2, 2, Some(0)),
        ] {
            assert_eq!(padding(layers, stages), want, "{layers} in {stages}");
            let Some(missing) = want.filter(|_| stages > 1) else {
                continue;
            };
            let layout = Layout {
                pipeline: stages,
                ..Layout::single()
            };
            let whole = layout.stage_layers(layers);
            let first = whole - u32::from(missing >= 2);
            let all = first + (stages - 2) * whole + layout.last_stage_layers(layers);
            assert_eq!(all, layers, "{layers} in {stages}");
        }
    }

    #[test]
    fn uneven_stages_are_stated_for_megatron() {
        for (layers, stages, want) in [
            (
                126,
                16,
                "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            ),
            (
                61,
                2,
                "--pipeline-model-parallel-size 2 --account-for-loss-in-pipeline-split",
            ),
            (
                61,
                16,
                "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2",
            ),
        ] {
            let layout = Layout {
                pipeline: stages,
                ..Layout::single()
            };
            let found = layout.megatron_arguments(layers).join(" ");
            assert!(found.contains(want), "{found}");
        }
    }

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
