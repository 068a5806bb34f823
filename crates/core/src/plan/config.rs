//! A model from the `config.json` it is published with on Hugging Face.
//!
//! Owns the names that the families give to the same number. Does not fetch anything.

use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    hardware::closest,
    shape::{Embeddings, Experts, Latent, Mlp, Shape, ShapeError},
};

/// Why a text is not a model.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is not JSON, or not all of it.
    #[error("it is not valid JSON, or is truncated: line {line}, column {column}")]
    Json {
        /// Where reading stopped.
        line: usize,
        /// Where in the line.
        column: usize,
    },
    /// It is JSON, but not an object.
    #[error("it is not a JSON object, as a model's `config.json` must be")]
    NotAnObject,
    /// A number is missing.
    #[error("it has no `{field}`{near}")]
    Missing {
        /// The usual name.
        field: &'static str,
        /// The nearest name that is there, as a clause.
        near: String,
    },
    /// A value is not a number.
    #[error("`{field}` is `{found}`; it must be an integer of at least 1")]
    Number {
        /// Which.
        field: String,
        /// What is there.
        found: String,
    },
    /// It has an encoder and a decoder, or no transformer's layers at all.
    #[error(
        "`model_type` is `{found}`, which is not planned; expected a decoder (GPT, Llama) or an encoder (BERT)"
    )]
    Family {
        /// What is there.
        found: String,
    },
    /// The numbers are not those of a valid model.
    #[error(transparent)]
    Shape(ShapeError),
}

/// The model, and the longest sequence it is made for.
pub fn read(text: &str) -> Result<(Shape, Option<u32>), ConfigError> {
    let value: Value = serde_json::from_str(text).map_err(|error| ConfigError::Json {
        line: error.line(),
        column: error.column(),
    })?;
    let object = value.as_object().ok_or(ConfigError::NotAnObject)?;
    // Multimodal models have the language model one level down.
    let object = object
        .get("text_config")
        .and_then(Value::as_object)
        .unwrap_or(object);
    let config = Config { object };
    let shape = config.shape()?;
    shape.check().map_err(ConfigError::Shape)?;
    let sequence = config.optional(&["max_position_embeddings", "n_positions", "max_seq_len"])?;
    Ok((shape, sequence))
}

/// Families whose tokens all see each other.
const ENCODERS: [&str; 12] = [
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "distilbert",
    "electra",
    "deberta",
    "deberta-v2",
    "albert",
    "modernbert",
    "mpnet",
    "esm",
];
/// Families that are not one stack of layers, or not made of attention.
const OTHERS: [&str; 14] = [
    "t5", "mt5", "umt5", "bart", "mbart", "pegasus", "whisper", "marian", "m2m_100", "mamba",
    "mamba2", "rwkv", "clip", "vit",
];

struct Config<'a> {
    object: &'a Map<String, Value>,
}

impl Config<'_> {
    fn shape(&self) -> Result<Shape, ConfigError> {
        let family = self.family();
        if OTHERS.contains(&family) {
            return Err(ConfigError::Family {
                found: family.to_owned(),
            });
        }
        let layers = self.needed(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?;
        let hidden = self.needed(&["hidden_size", "n_embd", "d_model"])?;
        let heads = self.needed(&["num_attention_heads", "n_head", "n_heads"])?;
        let vocabulary = self.needed(&["vocab_size"])?;
        let mut shape = Shape::dense(layers, hidden, heads, vocabulary);
        if let Some(kv_heads) = self.optional(&["num_key_value_heads", "num_kv_heads"])? {
            shape.kv_heads = kv_heads;
        }
        if let Some(size) = self.optional(&["head_dim", "qk_nope_head_dim"])? {
            shape.head_size = size;
        }
        let ffn = ["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"];
        if let Some(ffn) = self.optional(&ffn)? {
            shape.ffn = ffn;
        }
        shape.mlp = self.mlp();
        shape.embeddings = self.embeddings();
        shape.experts = self.experts(shape.ffn)?;
        shape.latent = self.latent()?;
        let decoder = self.object.get("is_decoder") == Some(&Value::Bool(true));
        shape.predictions = self.zero_or("num_nextn_predict_layers").min(8);
        shape.encoder = ENCODERS.contains(&family) && !decoder;
        Ok(shape)
    }

    fn family(&self) -> &str {
        let family = self.object.get("model_type").and_then(Value::as_str);
        family.unwrap_or_default()
    }

    /// Families since Llama gate with `SiLU` or GELU and have no bias in name; the older ones say
    /// `gelu` or `relu` and have no gate.
    fn mlp(&self) -> Mlp {
        let text = |name: &str| self.object.get(name).and_then(Value::as_str);
        let family = self.family();
        let gated_families = [
            "llama", "mistral", "mixtral", "qwen", "gemma", "deepseek", "gpt_oss", "phi3", "olmo",
        ];
        if gated_families.iter().any(|name| family.starts_with(name)) {
            return Mlp::Gated;
        }
        match text("hidden_act").or(text("activation_function")) {
            Some("silu" | "swish" | "swiglu" | "geglu") => Mlp::Gated,
            _ => Mlp::Plain,
        }
    }

    fn embeddings(&self) -> Embeddings {
        match self.object.get("tie_word_embeddings") {
            Some(Value::Bool(false)) => Embeddings::Untied,
            // Tied is the library's own default, and families that untie may leave it out; Gemma leaves it out and ties.
            None if self.mlp() == Mlp::Gated && !self.family().starts_with("gemma") => {
                Embeddings::Untied
            }
            _ => Embeddings::Tied,
        }
    }

    fn experts(&self, ffn: u32) -> Result<Option<Experts>, ConfigError> {
        let counts = ["num_local_experts", "num_experts", "n_routed_experts"];
        let Some(count) = self.optional(&counts)?.filter(|count| *count > 1) else {
            return Ok(None);
        };
        let width = self.optional(&["moe_intermediate_size"])?.unwrap_or(ffn);
        let shared = match self.optional(&["shared_expert_intermediate_size"])? {
            Some(shared) => shared,
            None => self.zero_or("n_shared_experts").saturating_mul(width),
        };
        Ok(Some(Experts {
            count,
            per_token: self
                .optional(&["num_experts_per_tok", "num_experts_per_token", "moe_topk"])?
                .unwrap_or(2),
            ffn: width,
            shared_ffn: shared,
            dense_layers: self.zero_or("first_k_dense_replace"),
        }))
    }

    fn latent(&self) -> Result<Option<Latent>, ConfigError> {
        let Some(kv_rank) = self.optional(&["kv_lora_rank"])? else {
            return Ok(None);
        };
        Ok(Some(Latent {
            // Small models of the family do not compress queries.
            query_rank: match self.object.get("q_lora_rank") {
                None | Some(Value::Null) => self.needed(&["hidden_size"])?,
                Some(_) => self.needed(&["q_lora_rank"])?,
            },
            kv_rank,
            rope_size: self.needed(&["qk_rope_head_dim"])?,
            value_size: self.needed(&["v_head_dim"])?,
        }))
    }

    /// A number that may be left out, null or 0.
    fn zero_or(&self, name: &str) -> u32 {
        self.object
            .get(name)
            .and_then(Value::as_u64)
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(0)
    }

    fn optional(&self, names: &[&'static str]) -> Result<Option<u32>, ConfigError> {
        for name in names {
            match self.object.get(*name) {
                None | Some(Value::Null) => {}
                Some(value) => {
                    let number = value
                        .as_u64()
                        .and_then(|number| u32::try_from(number).ok())
                        .filter(|number| *number > 0);
                    return number.map(Some).ok_or_else(|| ConfigError::Number {
                        field: (*name).to_owned(),
                        found: value.to_string(),
                    });
                }
            }
        }
        Ok(None)
    }

    fn needed(&self, names: &[&'static str]) -> Result<u32, ConfigError> {
        if let Some(number) = self.optional(names)? {
            return Ok(number);
        }
        let field = names.first().copied().unwrap_or_default();
        let near = closest(field, self.object.keys().map(String::as_str));
        Err(ConfigError::Missing {
            field,
            near: if near.is_empty() {
                String::new()
            } else {
                format!("; the nearest field is `{near}`")
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::names;

    #[test]
    fn a_configuration_is_the_model_of_that_name() {
        let cases = [
            (
                "llama3-8b",
                r#"{"model_type":"llama","hidden_act":"silu","num_hidden_layers":32,"hidden_size":4096,
                    "num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,
                    "vocab_size":128256,"max_position_embeddings":8192,"tie_word_embeddings":false}"#,
            ),
            (
                "mixtral-8x7b",
                r#"{"model_type":"mixtral","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
                    "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,
                    "num_local_experts":8,"num_experts_per_tok":2,"tie_word_embeddings":false}"#,
            ),
            (
                "deepseek-v3",
                r#"{"model_type":"deepseek_v3","num_hidden_layers":61,"hidden_size":7168,
                    "num_attention_heads":128,"num_key_value_heads":128,"intermediate_size":18432,
                    "vocab_size":129280,"n_routed_experts":256,"num_experts_per_tok":8,
                    "moe_intermediate_size":2048,"n_shared_experts":1,"first_k_dense_replace":3,
                    "q_lora_rank":1536,"kv_lora_rank":512,"qk_rope_head_dim":64,"qk_nope_head_dim":128,
                    "v_head_dim":128,"num_nextn_predict_layers":1,"tie_word_embeddings":false}"#,
            ),
            (
                "gemma2-9b",
                r#"{"model_type":"gemma2","num_hidden_layers":42,"hidden_size":3584,"num_attention_heads":16,
                    "num_key_value_heads":8,"head_dim":256,"intermediate_size":14336,"vocab_size":256000}"#,
            ),
        ];
        for (name, text) in cases {
            let want = names::model(name).unwrap().shape();
            assert_eq!(read(text).unwrap().0, want, "{name}");
        }
    }

    #[test]
    fn encoders_are_no_decoders() {
        let text = |family: &str| {
            format!(
                r#"{{"model_type":"{family}","num_hidden_layers":12,"hidden_size":768,"num_attention_heads":12,
                    "intermediate_size":3072,"vocab_size":30522,"hidden_act":"gelu"}}"#
            )
        };
        assert_eq!(
            read(&text("bert")).unwrap().0,
            names::model("bert-base").unwrap().shape()
        );
        assert!(!read(&text("gpt2")).unwrap().0.encoder);
        assert_eq!(
            read(&text("t5")).unwrap_err().to_string(),
            "`model_type` is `t5`, which is not planned; expected a decoder (GPT, Llama) or an encoder (BERT)"
        );
    }

    #[test]
    fn invalid_configuration_is_refused() {
        let cases = [
            (
                "{\"hidden_size\": 40",
                "it is not valid JSON, or is truncated: line 1, column 18",
            ),
            (
                "[]",
                "it is not a JSON object, as a model's `config.json` must be",
            ),
            (
                "{\"num_hiden_layers\": 2}",
                "it has no `num_hidden_layers`; the nearest field is `num_hiden_layers`",
            ),
            (
                "{\"num_hidden_layers\": -1}",
                "`num_hidden_layers` is `-1`; it must be an integer of at least 1",
            ),
            (
                r#"{"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":6,"num_key_value_heads":4,"vocab_size":9}"#,
                "heads 6 is not divisible by kv heads 4; the nearest valid value is 4",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(read(text).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn parameters_are_those_of_the_models_names() {
        let cases = [
            ("llama3-8b", 8.0),
            ("llama3-70b", 70.6),
            ("llama3-405b", 405.8),
            ("mixtral-8x7b", 46.7),
            ("deepseek-v3", 671.0),
            ("qwen3-235b-a22b", 235.0),
            ("gpt-oss-120b", 117.0),
            ("grok1", 314.0),
        ];
        for (name, billions) in cases {
            let found = names::model(name).unwrap().shape().parameters() / 1e9;
            assert!((found / billions - 1.0).abs() < 0.02, "{name}: {found}");
        }
        let active = names::model("deepseek-v3")
            .unwrap()
            .shape()
            .active_parameters();
        assert!((active / 37e9 - 1.0).abs() < 0.03, "{active}");
    }
}
