//! How operations are counted, so that two MFUs can be compared at all.
//!
//! Invariant: an MFU is never given without its [`Convention`].

use serde::Serialize;

use super::{
    layout::Recompute,
    shape::{Shape, of},
};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Convention {
    /// The model's operations, attention without regard to the mask: Megatron-LM, `NeMo`,
    /// llm-foundry, torchtitan.
    Model,
    /// The model's operations, the masked half of attention left out: Megatron-Bridge, `MaxText`.
    Causal,
    /// As the first, and a whole forward pass more for what is computed again: SC21, BLOOM,
    /// `DeepSpeed`.
    Hardware,
}

impl Convention {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Causal => "causal",
            Self::Hardware => "hardware",
        }
    }

    /// Operations of a step of `batch` sequences.
    pub fn operations(self, shape: &Shape, sequence: u32, batch: u32) -> f64 {
        let tokens = of(sequence) * of(batch);
        match self {
            Self::Model => tokens * per_token(shape, sequence, 1.0),
            Self::Causal if shape.encoder => tokens * per_token(shape, sequence, 1.0),
            Self::Causal => tokens * per_token(shape, sequence, 0.5),
            Self::Hardware => {
                let output = 6.0 * of(shape.vocabulary) * of(shape.hidden);
                let layers = per_token(shape, sequence, 1.0) - output;
                tokens * (layers * 4.0 / 3.0 + output)
            }
        }
    }
}

/// The share of `peak`, the operations per second of all GPUs, that goes into the model where a step takes `seconds` and does `operations`: MFU. Nothing where
/// that is no share.
pub fn utilization(operations: f64, peak: f64, seconds: f64) -> Option<f64> {
    let share = operations / (peak * seconds);
    (share.is_finite() && share > 0.0).then_some(share)
}

/// Operations that are really done in a step: with what is computed again, and without the masked half of attention
/// where the kernel leaves it out, as all fused ones do (`masked`).
pub fn done(shape: &Shape, sequence: u32, batch: u32, recompute: Recompute, masked: bool) -> f64 {
    let attended = if masked && !shape.encoder { 0.5 } else { 1.0 };
    let tokens = of(sequence) * of(batch);
    let all = per_token(shape, sequence, attended);
    let layers = all - 6.0 * of(shape.vocabulary) * of(shape.hidden);
    let again = match recompute {
        Recompute::None => 0.0,
        // A fused kernel computes scores again anyway; norms and activations are no products.
        Recompute::Selective if masked => 0.0,
        Recompute::Selective => attended * scores(shape, sequence) / 3.0,
        Recompute::Half => layers / 6.0,
        Recompute::Full => layers / 3.0,
    };
    tokens * (all + again)
}

/// Forward and backward operations of one token.
fn per_token(shape: &Shape, sequence: u32, attended: f64) -> f64 {
    let once = shape.active_parameters() - shape.embedding_parameters();
    let output = of(shape.vocabulary) * of(shape.hidden);
    6.0 * (once + output) + attended * scores(shape, sequence)
}

/// Forward and backward operations of one token's scores and their product with the values.
fn scores(shape: &Shape, sequence: u32) -> f64 {
    let width = match shape.latent {
        Some(latent) => of(shape.head_size) + of(latent.rope_size) + of(latent.value_size),
        None => 2.0 * of(shape.head_size),
    };
    6.0 * of(shape.layers) * of(shape.heads) * width * of(sequence)
}
