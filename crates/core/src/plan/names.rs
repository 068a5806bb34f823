//! Models by their short names.
//!
//! Figures are those of the `config.json` that each model was published with, or of its paper.

use super::{
    hardware::{Unknown, closest},
    shape::{Embeddings, Experts, Latent, Mlp, Shape},
};

/// A model of the table.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// As users write it.
    pub name: &'static str,
    /// Length of its training sequences.
    pub sequence: u32,
    numbers: [u32; 7],
    mlp: Mlp,
    embeddings: Embeddings,
    experts: Option<Experts>,
    latent: Option<Latent>,
}

impl Named {
    /// The model's shape.
    pub fn shape(&self) -> Shape {
        let [layers, hidden, heads, kv_heads, head_size, ffn, vocabulary] = self.numbers;
        Shape {
            layers,
            hidden,
            heads,
            kv_heads,
            head_size,
            ffn,
            mlp: self.mlp,
            vocabulary,
            embeddings: self.embeddings,
            experts: self.experts,
            latent: self.latent,
        }
    }
}

const fn gpt(name: &'static str, layers: u32, hidden: u32, heads: u32) -> Named {
    Named {
        name,
        sequence: 2_048,
        numbers: [
            layers,
            hidden,
            heads,
            heads,
            hidden / heads,
            4 * hidden,
            51_200,
        ],
        mlp: Mlp::Plain,
        embeddings: Embeddings::Tied,
        experts: None,
        latent: None,
    }
}

/// Layers, hidden, heads, key-value heads, ffn, vocabulary.
const fn llama(name: &'static str, sequence: u32, numbers: [u32; 6]) -> Named {
    let [layers, hidden, heads, kv_heads, ffn, vocabulary] = numbers;
    Named {
        name,
        sequence,
        numbers: [
            layers,
            hidden,
            heads,
            kv_heads,
            hidden / heads,
            ffn,
            vocabulary,
        ],
        mlp: Mlp::Gated,
        embeddings: Embeddings::Untied,
        experts: None,
        latent: None,
    }
}

const fn mixture(base: Named, head_size: u32, experts: Experts, latent: Option<Latent>) -> Named {
    let mut model = base;
    model.numbers[4] = head_size;
    model.experts = Some(experts);
    model.latent = latent;
    model
}

const fn experts(count: u32, per_token: u32, ffn: u32, shared: u32, dense_layers: u32) -> Experts {
    Experts {
        count,
        per_token,
        ffn,
        shared_ffn: shared,
        dense_layers,
    }
}

const fn plain(base: Named, embeddings: Embeddings) -> Named {
    let mut model = base;
    model.mlp = Mlp::Plain;
    model.embeddings = embeddings;
    model
}

const MLA: Option<Latent> = Some(Latent {
    query_rank: 1_536,
    kv_rank: 512,
    rope_size: 64,
    value_size: 128,
});

static MODELS: [Named; 29] = [
    gpt("gpt2-1.5b", 48, 1_600, 25),
    gpt("gpt3-1.3b", 24, 2_048, 16),
    gpt("gpt3-6.7b", 32, 4_096, 32),
    gpt("gpt-22b", 48, 6_144, 64),
    gpt("gpt3-175b", 96, 12_288, 96),
    gpt("gpt-530b", 105, 20_480, 128),
    gpt("gpt-1t", 128, 25_600, 160),
    llama("llama2-7b", 4_096, [32, 4_096, 32, 32, 11_008, 32_000]),
    llama("llama2-13b", 4_096, [40, 5_120, 40, 40, 13_824, 32_000]),
    llama("llama2-70b", 4_096, [80, 8_192, 64, 8, 28_672, 32_000]),
    llama("llama3-8b", 8_192, [32, 4_096, 32, 8, 14_336, 128_256]),
    llama("llama3-70b", 8_192, [80, 8_192, 64, 8, 28_672, 128_256]),
    llama("llama3-405b", 8_192, [126, 16_384, 128, 8, 53_248, 128_256]),
    llama("mistral-7b", 8_192, [32, 4_096, 32, 8, 14_336, 32_000]),
    llama("qwen2.5-7b", 4_096, [28, 3_584, 28, 4, 18_944, 152_064]),
    llama("qwen2.5-32b", 4_096, [64, 5_120, 40, 8, 27_648, 152_064]),
    llama("qwen2.5-72b", 4_096, [80, 8_192, 64, 8, 29_568, 152_064]),
    plain(
        llama("nemotron4-15b", 4_096, [32, 6_144, 48, 8, 24_576, 256_000]),
        Embeddings::Untied,
    ),
    plain(
        llama(
            "nemotron4-340b",
            4_096,
            [96, 18_432, 96, 8, 73_728, 256_000],
        ),
        Embeddings::Untied,
    ),
    plain(
        llama("bloom-176b", 2_048, [70, 14_336, 112, 112, 57_344, 250_680]),
        Embeddings::Tied,
    ),
    plain(
        llama("opt-175b", 2_048, [96, 12_288, 96, 96, 49_152, 50_272]),
        Embeddings::Tied,
    ),
    mixture(
        llama("mixtral-8x7b", 4_096, [32, 4_096, 32, 8, 14_336, 32_000]),
        128,
        experts(8, 2, 14_336, 0, 0),
        None,
    ),
    mixture(
        llama("mixtral-8x22b", 4_096, [56, 6_144, 48, 8, 16_384, 32_768]),
        128,
        experts(8, 2, 16_384, 0, 0),
        None,
    ),
    mixture(
        llama("grok1", 8_192, [64, 6_144, 48, 8, 32_768, 131_072]),
        128,
        experts(8, 2, 32_768, 0, 0),
        None,
    ),
    mixture(
        llama(
            "deepseek-v2-lite",
            4_096,
            [27, 2_048, 16, 16, 10_944, 102_400],
        ),
        128,
        experts(64, 6, 1_408, 2_816, 1),
        Some(Latent {
            query_rank: 2_048,
            kv_rank: 512,
            rope_size: 64,
            value_size: 128,
        }),
    ),
    mixture(
        llama("deepseek-v3", 4_096, [61, 7_168, 128, 128, 18_432, 129_280]),
        128,
        experts(256, 8, 2_048, 2_048, 3),
        MLA,
    ),
    mixture(
        llama("qwen3-30b-a3b", 4_096, [48, 2_048, 32, 4, 6_144, 151_936]),
        128,
        experts(128, 8, 768, 0, 0),
        None,
    ),
    mixture(
        llama(
            "qwen3-235b-a22b",
            4_096,
            [94, 4_096, 64, 4, 12_288, 151_936],
        ),
        128,
        experts(128, 8, 1_536, 0, 0),
        None,
    ),
    mixture(
        llama("gpt-oss-120b", 4_096, [36, 2_880, 64, 8, 2_880, 201_088]),
        64,
        experts(128, 4, 2_880, 0, 0),
        None,
    ),
];

/// Every model of the table.
pub fn models() -> &'static [Named] {
    &MODELS
}

/// The model of that name, whatever its dashes and capitals.
pub fn model(name: &str) -> Result<Named, Unknown> {
    let wanted = letters(name);
    MODELS
        .iter()
        .find(|model| letters(model.name) == wanted)
        .copied()
        .ok_or_else(|| Unknown {
            what: "model",
            name: name.to_owned(),
            nearest: closest(name, MODELS.iter().map(|model| model.name)),
        })
}

/// The model whose name stands in a text such as `DeepSeekV3 MoE; EP=32`.
pub fn model_in(text: &str) -> Option<Named> {
    let text = letters(text);
    MODELS
        .iter()
        .filter(|model| text.contains(&letters(model.name)))
        .max_by_key(|model| model.name.len())
        .copied()
}

/// `llama-3.1-8b` is `llama3-8b`: point releases of these families changed no shape.
fn letters(name: &str) -> String {
    name.to_ascii_lowercase()
        .replace("3.1", "3")
        .replace("3.3", "3")
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect()
}
