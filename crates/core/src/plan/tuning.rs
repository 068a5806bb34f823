//! What of a model is trained, with which optimizer, and where its state is kept.
//!
//! Owns the bytes and operations that fine-tuning leaves out. The default is training of everything with
//! `AdamW` on the GPU, which changes nothing.

use serde::Serialize;

use super::shape::{Shape, of};

/// Bytes of a parameter in 4 bits: `NF4` with constants that are quantized too (`QLoRA`, arXiv:2305.14314: 4.127 bits).
const FOUR_BITS: f64 = 0.516;
/// Bytes per second at which the host of a node updates states: `DeepSpeed`'s CPU-Adam takes about 0.25 s for a
/// billion parameters, of which it moves 28 bytes each (arXiv:2101.06840).
const HOST_UPDATE: f64 = 110e9;
/// Bytes per second between a GPU and its host.
const TO_HOST: f64 = 20e9;

/// What is trained, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    /// Adapters in place of the model's own weights.
    pub lora: Option<Lora>,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Whether gradients and the optimizer are in the host's memory (`ZeRO`-Offload).
    pub offload: bool,
}

/// Low-rank adapters on every linear layer of attention and of dense feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lora {
    /// Rank of an adapter.
    pub rank: u32,
    /// Whether the frozen weights have 4 bits (`QLoRA`).
    pub four_bits: bool,
}

/// The optimizer, as far as its state is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Optimizer {
    /// Two moments, in the format of the software.
    #[default]
    AdamW,
    /// Two moments of 8 bits (bitsandbytes, torchao).
    Adam8bit,
    /// One moment.
    Sgd,
}

impl Tuning {
    /// Bytes of a frozen or trained weight on the GPU.
    pub fn weight_bytes(&self) -> f64 {
        match self.lora {
            Some(lora) if lora.four_bits => FOUR_BITS,
            _ => 2.0,
        }
    }

    /// Bytes of a trained parameter in the optimizer, of software that has `usual` bytes of it with `AdamW`.
    pub fn optimizer_bytes(&self, usual: f64) -> f64 {
        // 12 bytes are a 32-bit copy and two 32-bit moments; 4 are two moments of 16 bits.
        let moments = if usual > 8.0 { 8.0 } else { usual };
        match self.optimizer {
            Optimizer::AdamW => usual,
            Optimizer::Adam8bit => usual - moments + 2.0,
            Optimizer::Sgd => usual - moments / 2.0,
        }
    }

    /// Parameters that are trained.
    pub fn trained(&self, shape: &Shape) -> f64 {
        match self.lora {
            Some(lora) => adapters(shape, lora.rank),
            None => shape.parameters(),
        }
    }

    /// Share of the model's operations that is done: frozen weights need no gradient of their own.
    pub fn operations(&self) -> f64 {
        if self.lora.is_some() { 2.0 / 3.0 } else { 1.0 }
    }

    /// Seconds of the update in the host's memory, of `parameters` on each of `per_node` GPUs of a node.
    pub(super) fn host_update(parameters: f64, per_node: u32) -> f64 {
        28.0 * parameters * of(per_node) / HOST_UPDATE + 4.0 * parameters / TO_HOST
    }

    /// Bytes that all nodes' hosts hold together.
    pub fn host_bytes(&self, shape: &Shape, optimizer_bytes: f64) -> f64 {
        if self.offload {
            self.trained(shape) * (self.optimizer_bytes(optimizer_bytes) + 4.0)
        } else {
            0.0
        }
    }
}

/// Parameters of adapters of `rank` on every linear layer: attention, and the feed-forward part where it is dense.
fn adapters(shape: &Shape, rank: u32) -> f64 {
    of(shape.layers) * of(rank) * adapted_width(shape)
}

/// Inputs and outputs of the adapted matrices of one layer, summed.
pub(super) fn adapted_width(shape: &Shape) -> f64 {
    let (h, heads) = (of(shape.hidden), of(shape.heads) * of(shape.head_size));
    let kv = of(shape.kv_heads) * of(shape.head_size);
    let attention = 2.0 * (h + heads) + 2.0 * (h + kv);
    let dense = match shape.experts {
        Some(_) => 0.0,
        None => of(shape.mlp.matrices()) * (h + of(shape.ffn)),
    };
    attention + dense
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::names;

    #[test]
    fn adapters_are_those_of_peft() {
        // PEFT prints 41,943,040 for Llama 3 8B with rank 16 on all linear layers.
        let shape = names::model("llama3-8b").unwrap().shape();
        assert!((adapters(&shape, 16) - 41_943_040.0).abs() < 1.0);
    }

    #[test]
    fn optimizers_have_their_bytes() {
        let with = |optimizer| Tuning {
            optimizer,
            ..Tuning::default()
        };
        for (optimizer, usual, want) in [
            (Optimizer::AdamW, 12.0, 12.0),
            (Optimizer::Adam8bit, 12.0, 6.0),
            (Optimizer::Adam8bit, 4.0, 2.0),
            (Optimizer::Sgd, 12.0, 8.0),
        ] {
            let found = with(optimizer).optimizer_bytes(usual);
            assert!((found - want).abs() < 1e-9, "{optimizer:?}: {found}");
        }
    }
}
