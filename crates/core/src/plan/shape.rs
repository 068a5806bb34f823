//! The model that is to be trained, as the few numbers that its cost depends on.
//!
//! Owns parameter counts. Does not know how the model is spread over GPUs (see [`super::layout`])
//! nor how operations are counted for an MFU (see [`super::flops`]).
//!
//! Invariant: a [`Shape`] has been checked: no number is zero, heads are divisible by key-value heads, and
//! no model is so large that a product of its numbers leaves a double's exact range by more than
//! rounding.

use serde::Serialize;
use thiserror::Error;

/// Largest value of any single number of a shape; beyond it a typing mistake is more likely than a
/// model.
const LARGEST: u32 = 1 << 24;

/// A transformer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key-value heads; as many as `heads` without grouped queries.
    pub kv_heads: u32,
    /// Width of one head.
    pub head_size: u32,
    /// Width of the dense feed-forward part.
    pub ffn: u32,
    /// How the feed-forward part is made.
    pub mlp: Mlp,
    /// Entries of the vocabulary.
    pub vocabulary: u32,
    /// Whether the output layer is the embedding.
    pub embeddings: Embeddings,
    /// Experts, where the model has any.
    pub experts: Option<Experts>,
    /// Compressed keys and values, where the model has them.
    pub latent: Option<Latent>,
    /// Whether every token sees every other (BERT), not only those before it.
    pub encoder: bool,
    /// Further tokens that training predicts besides the next one, by a layer and an output each (`DeepSeek-V3`). They are not
    /// counted among the parameters.
    pub predictions: u32,
}

/// How a feed-forward part is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Mlp {
    /// Two matrices around an activation (GELU, squared `ReLU`).
    Plain,
    /// Three matrices, one of them a gate (`SwiGLU`, `GeGLU`).
    Gated,
}

impl Mlp {
    /// Matrices of hidden by ffn.
    pub fn matrices(self) -> u32 {
        match self {
            Self::Plain => 2,
            Self::Gated => 3,
        }
    }
}

/// Whether the output layer has weights of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Embeddings {
    /// One matrix for both.
    Tied,
    /// A matrix each.
    Untied,
}

impl Embeddings {
    /// Matrices of vocabulary by hidden.
    pub fn matrices(self) -> u32 {
        match self {
            Self::Tied => 1,
            Self::Untied => 2,
        }
    }
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Experts {
    /// Routed experts of a layer.
    pub count: u32,
    /// How many of them a token visits.
    pub per_token: u32,
    /// Width of one expert.
    pub ffn: u32,
    /// Width of the part that every token visits besides; 0 where there is none.
    pub shared_ffn: u32,
    /// Layers at the beginning that have a dense feed-forward part instead.
    pub dense_layers: u32,
}

/// Keys and values through a narrow matrix, as `DeepSeek` models have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latent {
    /// Width that queries are compressed to.
    pub query_rank: u32,
    /// Width that keys and values are compressed to.
    pub kv_rank: u32,
    /// Width of a head's part that carries the position.
    pub rope_size: u32,
    /// Width of a head's values.
    pub value_size: u32,
}

/// Why a shape is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// A number is zero or beyond any model.
    #[error("{field} is {found}; it must be between 1 and {LARGEST}")]
    Range {
        /// Which number.
        field: &'static str,
        /// What it is.
        found: u64,
    },
    /// Two numbers are incompatible.
    #[error(
        "{field} {found} is not divisible by {by_field} {by}; the nearest valid value is {nearest}"
    )]
    Division {
        /// What is divided.
        field: &'static str,
        /// How large it is.
        found: u32,
        /// What divides it.
        by_field: &'static str,
        /// How large that is.
        by: u32,
        /// Nearest value of the first that divides.
        nearest: u32,
    },
    /// More experts are visited than there are.
    #[error("{per_token} experts per token, but there are only {count} experts")]
    Experts {
        /// Visited.
        per_token: u32,
        /// There.
        count: u32,
    },
}

/// A dense model, from which the others are made by setting more fields.
impl Shape {
    /// A dense model with as many key-value heads as heads, heads that share the hidden width, an
    /// ffn of four times the hidden width, and tied embeddings.
    pub fn dense(layers: u32, hidden: u32, heads: u32, vocabulary: u32) -> Self {
        Self {
            layers,
            hidden,
            heads,
            kv_heads: heads,
            head_size: hidden / heads.max(1),
            ffn: hidden.saturating_mul(4),
            mlp: Mlp::Plain,
            vocabulary,
            embeddings: Embeddings::Tied,
            experts: None,
            latent: None,
            encoder: false,
            predictions: 0,
        }
    }

    /// Checks every number.
    pub fn check(&self) -> Result<(), ShapeError> {
        let numbers = [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("heads", self.heads),
            ("kv heads", self.kv_heads),
            ("head size", self.head_size),
            ("ffn", self.ffn),
            ("vocabulary", self.vocabulary),
        ];
        let of_experts = self.experts.iter().flat_map(|experts| {
            [
                ("experts", experts.count),
                ("experts per token", experts.per_token),
                ("ffn of an expert", experts.ffn),
            ]
        });
        for (field, found) in numbers.into_iter().chain(of_experts) {
            if found == 0 || found > LARGEST {
                let found = found.into();
                return Err(ShapeError::Range { field, found });
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ShapeError::Division {
                field: "heads",
                found: self.heads,
                by_field: "kv heads",
                by: self.kv_heads,
                nearest: nearest_multiple(self.heads, self.kv_heads),
            });
        }
        match self.experts {
            Some(experts) if experts.per_token > experts.count => Err(ShapeError::Experts {
                per_token: experts.per_token,
                count: experts.count,
            }),
            _ => Ok(()),
        }
    }

    /// Layers that have experts.
    pub fn expert_layers(&self) -> u32 {
        self.experts.map_or(0, |experts| {
            self.layers.saturating_sub(experts.dense_layers)
        })
    }

    /// Parameters of the attention of one layer.
    pub fn attention_parameters(&self) -> f64 {
        let (h, a, d) = (of(self.hidden), of(self.heads), of(self.head_size));
        if let Some(latent) = self.latent {
            let (q, kv) = (of(latent.query_rank), of(latent.kv_rank));
            let (rope, value) = (of(latent.rope_size), of(latent.value_size));
            let queries = h * q + q * a * (d + rope);
            let keys = h * (kv + rope) + kv * a * (d + value);
            return queries + keys + a * value * h;
        }
        h * d * (2.0 * a + 2.0 * of(self.kv_heads))
    }

    /// Parameters of a feed-forward part of width `ffn`.
    pub fn mlp_parameters(&self, ffn: u32) -> f64 {
        of(self.mlp.matrices()) * of(self.hidden) * of(ffn)
    }

    /// Parameters of the routed experts of one layer.
    pub fn routed_parameters(&self) -> f64 {
        self.experts.map_or(0.0, |experts| {
            of(experts.count) * self.mlp_parameters(experts.ffn)
        })
    }

    /// Parameters of all layers, without embeddings, norms and biases.
    pub fn layer_parameters(&self) -> f64 {
        self.dense_parameters() + of(self.expert_layers()) * self.routed_parameters()
    }

    /// Parameters of all layers but those of routed experts.
    pub fn dense_parameters(&self) -> f64 {
        let expert_layers = of(self.expert_layers());
        let dense_layers = of(self.layers) - expert_layers;
        let besides = self.experts.map_or(0.0, |experts| {
            self.mlp_parameters(experts.shared_ffn) + of(self.hidden) * of(experts.count)
        });
        of(self.layers) * self.attention_parameters()
            + dense_layers * self.mlp_parameters(self.ffn)
            + expert_layers * besides
    }

    /// Parameters of the embedding and the output layer.
    pub fn embedding_parameters(&self) -> f64 {
        of(self.embeddings.matrices()) * of(self.vocabulary) * of(self.hidden)
    }

    /// All parameters. Norms and biases, under a thousandth, are left out.
    pub fn parameters(&self) -> f64 {
        self.layer_parameters() + self.embedding_parameters()
    }

    /// Parameters that are active for one token.
    pub fn active_parameters(&self) -> f64 {
        let visited = self.experts.map_or(0.0, |experts| {
            of(experts.per_token) * self.mlp_parameters(experts.ffn)
        });
        self.dense_parameters() + of(self.expert_layers()) * visited + self.embedding_parameters()
    }
}

/// A count as a double.
pub(super) fn of(count: u32) -> f64 {
    f64::from(count)
}

/// The multiple of `by` that is nearest to `value`, and at least `by`.
pub(super) fn nearest_multiple(value: u32, by: u32) -> u32 {
    let by = by.max(1);
    let below = value - value % by;
    let up = below.saturating_add(by);
    if below > 0 && value - below <= up - value {
        below
    } else {
        up
    }
}
