//! The models of the table, and their other names.
//!
//! Figures are those of the `config.json` that each model was published with, or of its paper; a test holds their
//! sizes to those of their names.

use super::{
    super::shape::{Embeddings, Experts, Latent, Mlp},
    Named,
};

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
        predictions: 0,
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
        predictions: 0,
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

/// Models of `EleutherAI`: no gate, and an output layer of its own.
const fn neox(name: &'static str, numbers: [u32; 4]) -> Named {
    let mut model = old(name, numbers);
    model.embeddings = Embeddings::Untied;
    model
}

/// Models before Llama: no gate, and the output layer is the embedding.
const fn old(name: &'static str, [layers, hidden, heads, vocabulary]: [u32; 4]) -> Named {
    let mut model = gpt(name, layers, hidden, heads);
    model.numbers[6] = vocabulary;
    model
}

/// A model that predicts a second token in training.
const fn predicting(base: Named) -> Named {
    let mut model = base;
    model.predictions = 1;
    model
}

/// An encoder with a gate.
const fn modern(name: &'static str, [layers, hidden, heads, ffn]: [u32; 4]) -> Named {
    let mut model = encoder(name, layers, hidden, heads, 50_368);
    model.numbers[5] = ffn;
    model.mlp = Mlp::Gated;
    model.sequence = 8_192;
    model
}

const MLA: Option<Latent> = Some(Latent {
    query_rank: 1_536,
    kv_rank: 512,
    rope_size: 64,
    value_size: 128,
});

pub(super) static MODELS: [Named; 132] = [
    encoder("bert-base", 12, 768, 12, 30_522),
    encoder("bert-large", 24, 1_024, 16, 30_522),
    encoder("roberta-base", 12, 768, 12, 50_265),
    encoder("roberta-large", 24, 1_024, 16, 50_265),
    gpt2("gpt2", 12, 768, 12),
    gpt2("gpt2-medium", 24, 1_024, 16),
    gpt2("gpt2-large", 36, 1_280, 20),
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
    predicting(mixture(
        llama("deepseek-v3", 4_096, [61, 7_168, 128, 128, 18_432, 129_280]),
        128,
        experts(256, 8, 2_048, 2_048, 3),
        MLA,
    )),
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
    // Of the same families as above, or of others that people fine-tune.
    gpt2("distilgpt2", 6, 768, 12),
    gpt2("gpt2-xl", 48, 1_600, 25),
    encoder("distilbert-base", 6, 768, 12, 30_522),
    encoder("xlm-roberta-base", 12, 768, 12, 250_002),
    encoder("xlm-roberta-large", 24, 1_024, 16, 250_002),
    encoder("deberta-v3-base", 12, 768, 12, 128_100),
    encoder("deberta-v3-large", 24, 1_024, 16, 128_100),
    modern("modernbert-base", [22, 768, 12, 1_152]),
    modern("modernbert-large", [28, 1_024, 16, 2_624]),
    neox("pythia-160m", [12, 768, 12, 50_304]),
    neox("pythia-410m", [24, 1_024, 16, 50_304]),
    neox("pythia-1b", [16, 2_048, 8, 50_304]),
    neox("pythia-1.4b", [24, 2_048, 16, 50_304]),
    neox("pythia-2.8b", [32, 2_560, 32, 50_304]),
    neox("pythia-6.9b", [32, 4_096, 32, 50_432]),
    neox("pythia-12b", [36, 5_120, 40, 50_688]),
    neox("gpt-neox-20b", [44, 6_144, 64, 50_432]),
    neox("gpt-j-6b", [28, 4_096, 16, 50_400]),
    old("opt-125m", [12, 768, 12, 50_272]),
    old("opt-350m", [24, 1_024, 16, 50_272]),
    old("opt-1.3b", [24, 2_048, 32, 50_272]),
    old("opt-2.7b", [32, 2_560, 32, 50_272]),
    old("opt-6.7b", [32, 4_096, 32, 50_272]),
    old("opt-13b", [40, 5_120, 40, 50_272]),
    old("opt-30b", [48, 7_168, 56, 50_272]),
    old("opt-66b", [64, 9_216, 72, 50_272]),
    old("bloom-560m", [24, 1_024, 16, 250_880]),
    old("bloom-7b1", [30, 4_096, 32, 250_880]),
    old("mpt-7b", [32, 4_096, 32, 50_432]),
    old("mpt-30b", [48, 7_168, 64, 50_432]),
    plain(
        llama("falcon-7b", 2_048, [32, 4_544, 71, 1, 18_176, 65_024]),
        Embeddings::Tied,
    ),
    plain(
        llama("falcon-40b", 2_048, [60, 8_192, 128, 8, 32_768, 65_024]),
        Embeddings::Tied,
    ),
    plain(
        llama("phi2", 2_048, [32, 2_560, 32, 32, 10_240, 51_200]),
        Embeddings::Untied,
    ),
    llama("phi3-medium", 4_096, [40, 5_120, 40, 10, 17_920, 32_064]),
    llama("phi4", 16_384, [40, 5_120, 40, 10, 17_920, 100_352]),
    tied(llama(
        "phi4-mini",
        4_096,
        [32, 3_072, 24, 8, 8_192, 200_064],
    )),
    llama("llama-7b", 2_048, [32, 4_096, 32, 32, 11_008, 32_000]),
    llama("llama-13b", 2_048, [40, 5_120, 40, 40, 13_824, 32_000]),
    llama("llama-30b", 2_048, [60, 6_656, 52, 52, 17_920, 32_000]),
    llama("llama-65b", 2_048, [80, 8_192, 64, 64, 22_016, 32_000]),
    llama("codellama-7b", 16_384, [32, 4_096, 32, 32, 11_008, 32_016]),
    llama("codellama-13b", 16_384, [40, 5_120, 40, 40, 13_824, 32_016]),
    llama("codellama-34b", 16_384, [48, 8_192, 64, 8, 22_016, 32_000]),
    llama("yi-6b", 4_096, [32, 4_096, 32, 4, 11_008, 64_000]),
    llama("yi-34b", 4_096, [60, 7_168, 56, 8, 20_480, 64_000]),
    llama("internlm2-7b", 4_096, [32, 4_096, 32, 8, 14_336, 92_544]),
    llama("internlm2-20b", 4_096, [48, 6_144, 48, 8, 16_384, 92_544]),
    llama("glm4-9b", 8_192, [40, 4_096, 32, 2, 13_696, 151_552]),
    llama("olmo2-7b", 4_096, [32, 4_096, 32, 32, 11_008, 100_352]),
    llama("olmo2-13b", 4_096, [40, 5_120, 40, 40, 13_824, 100_352]),
    llama("olmo2-32b", 4_096, [64, 5_120, 40, 8, 27_648, 100_352]),
    heads_of(
        llama(
            "mistral-nemo-12b",
            8_192,
            [40, 5_120, 32, 8, 14_336, 131_072],
        ),
        128,
    ),
    heads_of(
        llama(
            "mistral-small-24b",
            8_192,
            [40, 5_120, 32, 8, 32_768, 131_072],
        ),
        128,
    ),
    llama(
        "mistral-large-123b",
        8_192,
        [88, 12_288, 96, 8, 28_672, 32_768],
    ),
    tied(llama(
        "smollm2-360m",
        2_048,
        [32, 960, 15, 5, 2_560, 49_152],
    )),
    tied(llama(
        "smollm3-3b",
        4_096,
        [36, 2_048, 16, 4, 11_008, 128_256],
    )),
    tied(heads_of(
        llama("gemma-2b", 8_192, [18, 2_048, 8, 1, 16_384, 256_000]),
        256,
    )),
    tied(heads_of(
        llama("gemma-7b", 8_192, [28, 3_072, 16, 16, 24_576, 256_000]),
        256,
    )),
    tied(heads_of(
        llama("gemma3-1b", 8_192, [26, 1_152, 4, 1, 6_912, 262_144]),
        256,
    )),
    tied(heads_of(
        llama("gemma3-4b", 8_192, [34, 2_560, 8, 4, 10_240, 262_208]),
        256,
    )),
    tied(heads_of(
        llama("gemma3-12b", 8_192, [48, 3_840, 16, 8, 15_360, 262_208]),
        256,
    )),
    tied(heads_of(
        llama("gemma3-27b", 8_192, [62, 5_376, 32, 16, 21_504, 262_208]),
        128,
    )),
    tied(llama(
        "command-r",
        4_096,
        [40, 8_192, 64, 64, 22_528, 256_000],
    )),
    tied(llama(
        "command-r-plus",
        4_096,
        [64, 12_288, 96, 8, 33_792, 256_000],
    )),
    llama(
        "deepseek-llm-7b",
        4_096,
        [30, 4_096, 32, 32, 11_008, 102_400],
    ),
    llama(
        "deepseek-coder-6.7b",
        4_096,
        [32, 4_096, 32, 32, 11_008, 32_256],
    ),
    mixture(
        llama(
            "deepseek-moe-16b",
            4_096,
            [28, 2_048, 16, 16, 10_944, 102_400],
        ),
        128,
        experts(64, 6, 1_408, 2_816, 1),
        None,
    ),
    mixture(
        llama("deepseek-v2", 4_096, [60, 5_120, 128, 128, 12_288, 102_400]),
        128,
        experts(160, 6, 1_536, 3_072, 1),
        MLA,
    ),
    mixture(
        llama("kimi-k2", 4_096, [61, 7_168, 64, 64, 18_432, 163_840]),
        128,
        experts(384, 8, 2_048, 2_048, 1),
        MLA,
    ),
    predicting(mixture(
        llama("glm-4.5", 4_096, [92, 5_120, 96, 8, 12_288, 151_552]),
        128,
        experts(160, 8, 1_536, 1_536, 3),
        None,
    )),
    predicting(mixture(
        llama("glm-4.5-air", 4_096, [46, 4_096, 96, 8, 10_944, 151_552]),
        128,
        experts(128, 8, 1_408, 1_408, 1),
        None,
    )),
    mixture(
        llama(
            "qwen3-coder-480b-a35b",
            4_096,
            [62, 6_144, 96, 8, 8_192, 151_936],
        ),
        128,
        experts(160, 8, 2_560, 0, 0),
        None,
    ),
    mixture(
        llama("gpt-oss-20b", 4_096, [24, 2_880, 64, 8, 2_880, 201_088]),
        64,
        experts(32, 4, 2_880, 0, 0),
        None,
    ),
    mixture(
        llama("dbrx", 4_096, [40, 6_144, 48, 8, 10_752, 100_352]),
        128,
        experts(16, 4, 10_752, 0, 0),
        None,
    ),
    mixture(
        llama("olmoe-1b-7b", 4_096, [16, 2_048, 16, 16, 1_024, 50_304]),
        128,
        experts(64, 8, 1_024, 0, 0),
        None,
    ),
    mixture(
        llama("phi3.5-moe", 4_096, [32, 4_096, 32, 8, 6_400, 32_064]),
        128,
        experts(16, 2, 6_400, 0, 0),
        None,
    ),
    mixture(
        llama("llama4-scout", 8_192, [48, 5_120, 40, 8, 16_384, 202_048]),
        128,
        experts(16, 1, 8_192, 8_192, 0),
        None,
    ),
    // Every second layer has experts.
    mixture(
        llama(
            "llama4-maverick",
            8_192,
            [48, 5_120, 40, 8, 16_384, 202_048],
        ),
        128,
        experts(128, 1, 8_192, 8_192, 24),
        None,
    ),
];

/// Other names of models, without who published them: the same shape, or a fine-tuned model of it.
pub(super) static ALIASES: [(&str, &str); 43] = [
    ("gpt2-350m", "gpt2-medium"),
    ("gpt2-small", "gpt2"),
    ("gpt2-124m", "gpt2"),
    ("gpt2-1.5b", "gpt2-xl"),
    ("gpt3", "gpt3-175b"),
    ("bloom", "bloom-176b"),
    ("phi-3-mini-4k", "phi3-mini"),
    ("phi-3-mini-128k", "phi3-mini"),
    ("phi-3.5-mini", "phi3-mini"),
    ("phi-3-medium-4k", "phi3-medium"),
    ("phi-3-medium-128k", "phi3-medium"),
    (
        "tinyllama-1.1b-intermediate-step-1431k-3t",
        "tinyllama-1.1b",
    ),
    ("deepseek-r1", "deepseek-v3"),
    ("deepseek-v2.5", "deepseek-v2"),
    ("deepseek-r1-distill-llama-8b", "llama3-8b"),
    ("deepseek-r1-distill-llama-70b", "llama3-70b"),
    ("deepseek-r1-distill-qwen-1.5b", "qwen2.5-1.5b"),
    ("deepseek-r1-distill-qwen-7b", "qwen2.5-7b"),
    ("deepseek-r1-distill-qwen-14b", "qwen2.5-14b"),
    ("deepseek-r1-distill-qwen-32b", "qwen2.5-32b"),
    ("llama-3.1-nemotron-70b", "llama3-70b"),
    ("vicuna-7b-v1.5", "llama2-7b"),
    ("vicuna-13b-v1.5", "llama2-13b"),
    ("zephyr-7b-beta", "mistral-7b"),
    ("zephyr-7b-alpha", "mistral-7b"),
    ("qwq-32b", "qwen2.5-32b"),
    ("qwen2-0.5b", "qwen2.5-0.5b"),
    ("qwen2-1.5b", "qwen2.5-1.5b"),
    ("qwen2-7b", "qwen2.5-7b"),
    ("qwen2-72b", "qwen2.5-72b"),
    ("mistral-nemo", "mistral-nemo-12b"),
    ("mistral-large", "mistral-large-123b"),
    ("mistral-small", "mistral-small-24b"),
    ("mpt-7b-8k", "mpt-7b"),
    ("c4ai-command-r-v01", "command-r"),
    ("c4ai-command-r-plus", "command-r-plus"),
    ("olmo-2-1124-7b", "olmo2-7b"),
    ("olmo-2-1124-13b", "olmo2-13b"),
    ("olmo-2-0325-32b", "olmo2-32b"),
    ("olmoe-1b-7b-0924", "olmoe-1b-7b"),
    ("grok", "grok1"),
    ("llama-4-scout-17b-16e", "llama4-scout"),
    ("llama-4-maverick-17b-128e", "llama4-maverick"),
];
