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
    encoder: bool,
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
            encoder: self.encoder,
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
        encoder: false,
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
        encoder: false,
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

/// A small model whose output layer is its embedding.
const fn tied(base: Named) -> Named {
    let mut model = base;
    model.embeddings = Embeddings::Tied;
    model
}

const fn heads_of(base: Named, head_size: u32) -> Named {
    let mut model = base;
    model.numbers[4] = head_size;
    model
}

/// GPT-2 as published: its own vocabulary and sequence.
const fn gpt2(name: &'static str, layers: u32, hidden: u32, heads: u32) -> Named {
    let mut model = gpt(name, layers, hidden, heads);
    model.sequence = 1_024;
    model.numbers[6] = 50_257;
    model
}

/// BERT and its kin: every token sees every other.
const fn encoder(
    name: &'static str,
    layers: u32,
    hidden: u32,
    heads: u32,
    vocabulary: u32,
) -> Named {
    let mut model = gpt(name, layers, hidden, heads);
    model.sequence = 512;
    model.numbers[6] = vocabulary;
    model.encoder = true;
    model
}

const MLA: Option<Latent> = Some(Latent {
    query_rank: 1_536,
    kv_rank: 512,
    rope_size: 64,
    value_size: 128,
});

static MODELS: [Named; 55] = [
    encoder("bert-base", 12, 768, 12, 30_522),
    encoder("bert-large", 24, 1_024, 16, 30_522),
    encoder("roberta-base", 12, 768, 12, 50_265),
    encoder("roberta-large", 24, 1_024, 16, 50_265),
    gpt2("gpt2", 12, 768, 12),
    gpt2("gpt2-medium", 24, 1_024, 16),
    gpt2("gpt2-large", 36, 1_280, 20),
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
    tied(llama(
        "llama3.2-1b",
        8_192,
        [16, 2_048, 32, 8, 8_192, 128_256],
    )),
    tied(llama(
        "llama3.2-3b",
        8_192,
        [28, 3_072, 24, 8, 8_192, 128_256],
    )),
    llama("tinyllama-1.1b", 2_048, [22, 2_048, 32, 4, 5_632, 32_000]),
    tied(llama("smollm2-135m", 2_048, [30, 576, 9, 3, 1_536, 49_152])),
    tied(llama(
        "smollm2-1.7b",
        2_048,
        [24, 2_048, 32, 32, 8_192, 49_152],
    )),
    llama("phi3-mini", 4_096, [32, 3_072, 32, 32, 8_192, 32_064]),
    tied(heads_of(
        llama("gemma2-2b", 8_192, [26, 2_304, 8, 4, 9_216, 256_000]),
        256,
    )),
    tied(heads_of(
        llama("gemma2-9b", 8_192, [42, 3_584, 16, 8, 14_336, 256_000]),
        256,
    )),
    tied(heads_of(
        llama("gemma2-27b", 8_192, [46, 4_608, 32, 16, 36_864, 256_000]),
        128,
    )),
    llama("mistral-7b", 8_192, [32, 4_096, 32, 8, 14_336, 32_000]),
    tied(llama(
        "qwen2.5-0.5b",
        4_096,
        [24, 896, 14, 2, 4_864, 151_936],
    )),
    tied(llama(
        "qwen2.5-1.5b",
        4_096,
        [28, 1_536, 12, 2, 8_960, 151_936],
    )),
    tied(llama(
        "qwen2.5-3b",
        4_096,
        [36, 2_048, 16, 2, 11_008, 151_936],
    )),
    llama("qwen2.5-14b", 4_096, [48, 5_120, 40, 8, 13_824, 152_064]),
    tied(heads_of(
        llama("qwen3-0.6b", 4_096, [28, 1_024, 16, 8, 3_072, 151_936]),
        128,
    )),
    tied(heads_of(
        llama("qwen3-1.7b", 4_096, [28, 2_048, 16, 8, 6_144, 151_936]),
        128,
    )),
    tied(heads_of(
        llama("qwen3-4b", 4_096, [36, 2_560, 32, 8, 9_728, 151_936]),
        128,
    )),
    llama("qwen3-8b", 4_096, [36, 4_096, 32, 8, 12_288, 151_936]),
    llama("qwen3-14b", 4_096, [40, 5_120, 40, 8, 17_408, 151_936]),
    heads_of(
        llama("qwen3-32b", 4_096, [64, 5_120, 64, 8, 25_600, 151_936]),
        128,
    ),
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

/// Other names of models.
static ALIASES: [(&str, &str); 9] = [
    ("gpt2-350m", "gpt2-medium"),
    ("gpt2-small", "gpt2"),
    ("gpt2-124m", "gpt2"),
    ("gpt2-xl", "gpt2-1.5b"),
    ("gpt3", "gpt3-175b"),
    ("bloom", "bloom-176b"),
    ("phi-3-mini-4k", "phi3-mini"),
    (
        "tinyllama-1.1b-intermediate-step-1431k-3t",
        "tinyllama-1.1b",
    ),
    ("deepseek-r1", "deepseek-v3"),
];

/// Words of Hugging Face names that say how a model was tuned, not which shape it has.
static DECORATIONS: [&str; 17] = [
    "meta", "instruct", "base", "chat", "hf", "it", "uncased", "cased", "fb", "v0.1", "v0.2",
    "v0.3", "v1.0", "0324", "2507", "zero", "preview",
];

/// The model of that name, whatever its dashes and capitals: `llama3-8b`, or `meta-llama/Llama-3.1-8B-Instruct`.
pub fn model(name: &str) -> Result<Named, Unknown> {
    let wanted = undecorated(name);
    let named = |wanted: &str| {
        MODELS
            .iter()
            .find(|model| undecorated(model.name) == wanted)
    };
    let alias = || {
        let (_, name) = ALIASES
            .iter()
            .find(|(alias, _)| undecorated(alias) == wanted)?;
        named(&undecorated(name))
    };
    named(&wanted)
        .or_else(alias)
        .copied()
        .ok_or_else(|| Unknown {
            what: "model",
            name: name.to_owned(),
            nearest: closest(
                name.rsplit('/').next().unwrap_or(name),
                MODELS.iter().map(|model| model.name),
            ),
        })
}

/// A name without who published it and without [`DECORATIONS`]. `bert-base` keeps its `base`, which is its size.
fn undecorated(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let bert = name.contains("bert");
    let words: Vec<&str> = name
        .split(['-', '_', ' '])
        .filter(|word| (bert && *word == "base") || !DECORATIONS.contains(word))
        .collect();
    letters(&words.join("-"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugging_face_names_are_models() {
        let cases = [
            ("meta-llama/Llama-3.1-8B", "llama3-8b"),
            ("meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"),
            ("meta-llama/Llama-3.2-1B-Instruct", "llama3.2-1b"),
            ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
            ("meta-llama/Llama-2-13b-chat-hf", "llama2-13b"),
            ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
            ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
            ("mistralai/Mistral-7B-v0.3", "mistral-7b"),
            ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
            ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
            ("openai-community/gpt2-xl", "gpt2-1.5b"),
            ("google-bert/bert-base-uncased", "bert-base"),
            ("google/gemma-2-9b-it", "gemma2-9b"),
            ("LLAMA3_8B", "llama3-8b"),
        ];
        for (name, want) in cases {
            assert_eq!(model(name).unwrap().name, want, "{name}");
        }
        for name in ["llama3", "llama3-8", "qwen", "meta-llama/Llama-4-Scout", ""] {
            assert!(model(name).is_err(), "{name}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_names() {
        let cases = [
            ("bert-base", 0.109),
            ("gpt2", 0.124),
            ("llama3.2-1b", 1.24),
            ("llama3.2-3b", 3.21),
            ("qwen2.5-0.5b", 0.494),
            ("qwen3-4b", 4.02),
            ("qwen3-8b", 8.19),
            ("qwen3-32b", 32.8),
            ("gemma2-2b", 2.61),
            ("gemma2-9b", 9.24),
            ("gemma2-27b", 27.2),
            ("smollm2-1.7b", 1.71),
            ("phi3-mini", 3.82),
        ];
        for (name, billions) in cases {
            let found = model(name).unwrap().shape().parameters() / 1e9;
            assert!((found / billions - 1.0).abs() < 0.02, "{name}: {found}");
        }
    }
}
