//! Models by their short names.
//!
//! Figures are those of the `config.json` that each model was published with, or of its paper.

mod table;

use super::{
    hardware::{Unknown, closest},
    shape::{Embeddings, Experts, Latent, Mlp, Shape},
};

use crate::spec::distance;
use table::{ALIASES, MODELS};

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
    predictions: u32,
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
            predictions: self.predictions,
        }
    }
}

/// Every model of the table.
pub fn models() -> &'static [Named] {
    &MODELS
}

/// Words of Hugging Face names that say how a model was tuned, not which shape it has.
static DECORATIONS: [&str; 35] = [
    "meta", "instruct", "base", "chat", "hf", "it", "pt", "uncased", "cased", "fb", "v0.1", "v0.2",
    "v0.3", "v1", "v1.0", "0324", "0528", "2407", "2411", "2501", "2507", "zero", "preview",
    "thinking", "coder", "math", "deduped", "fp8", "bf16", "awq", "gptq", "bnb", "4bit", "unsloth",
    "hybrid",
];

/// The model of that name, whatever its dashes and capitals: `llama3-8b`, or `meta-llama/Llama-3.1-8B-Instruct`. Dots may be
/// left out where one model alone has the name without them: `opt-13b` is not `opt-1.3b`.
pub fn model(name: &str) -> Result<Named, Unknown> {
    let wanted = undecorated(name);
    let bare = |name: &str| undecorated(name).replace('.', "");
    let same = |known: &str| undecorated(known) == wanted;
    let named = |name: &str| MODELS.iter().find(|model| model.name == name);
    let alias = || {
        let (_, name) = ALIASES.iter().find(|(alias, _)| same(alias))?;
        named(name)
    };
    let dotless = || {
        let mut found = MODELS.iter().filter(|model| bare(model.name) == wanted);
        found.next().filter(|_| found.next().is_none())
    };
    MODELS
        .iter()
        .find(|model| same(model.name))
        .or_else(alias)
        .or_else(dotless)
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

/// The `count` models whose names are most like `name`.
pub fn nearest(name: &str, count: usize) -> Vec<&'static str> {
    let wanted = undecorated(name);
    let mut names: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
    names.sort_by_key(|known| distance(&wanted, &undecorated(known)));
    names.truncate(count);
    names
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
        .filter(|letter| letter.is_ascii_alphanumeric() || *letter == '.')
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
            ("openai-community/gpt2-xl", "gpt2-xl"),
            ("gpt2-1.5b", "gpt2-xl"),
            ("facebook/opt-1.3b", "opt-1.3b"),
            ("facebook/opt-13b", "opt-13b"),
            ("qwen25-7b", "qwen2.5-7b"),
            ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b"),
            ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b"),
            ("unsloth/llama-3-8b-bnb-4bit", "llama3-8b"),
            ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
            ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4-scout"),
            ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2.5-7b"),
            ("deepseek-ai/DeepSeek-V3.1", "deepseek-v3"),
            ("microsoft/Phi-3.5-mini-instruct", "phi3-mini"),
            ("microsoft/phi-4", "phi4"),
            ("microsoft/deberta-v3-base", "deberta-v3-base"),
            ("FacebookAI/xlm-roberta-large", "xlm-roberta-large"),
            ("answerdotai/ModernBERT-base", "modernbert-base"),
            ("distilbert/distilbert-base-uncased", "distilbert-base"),
            ("google/gemma-3-27b-it", "gemma3-27b"),
            ("google/gemma-2b", "gemma-2b"),
            ("google/gemma-2-2b", "gemma2-2b"),
            ("EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"),
            ("EleutherAI/gpt-neox-20b", "gpt-neox-20b"),
            ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"),
            (
                "mistralai/Mistral-Small-24B-Instruct-2501",
                "mistral-small-24b",
            ),
            ("mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b"),
            ("HuggingFaceH4/zephyr-7b-beta", "mistral-7b"),
            ("lmsys/vicuna-7b-v1.5", "llama2-7b"),
            ("codellama/CodeLlama-7b-hf", "codellama-7b"),
            ("tiiuae/falcon-7b-instruct", "falcon-7b"),
            ("allenai/OLMo-2-1124-7B", "olmo2-7b"),
            ("01-ai/Yi-34B", "yi-34b"),
            ("openai/gpt-oss-20b", "gpt-oss-20b"),
            ("zai-org/GLM-4.5-Air", "glm-4.5-air"),
            ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
            ("google-bert/bert-base-uncased", "bert-base"),
            ("google/gemma-2-9b-it", "gemma2-9b"),
            ("LLAMA3_8B", "llama3-8b"),
        ];
        for (name, want) in cases {
            assert_eq!(model(name).unwrap().name, want, "{name}");
        }
        for name in [
            "llama3",
            "llama3-8",
            "qwen",
            "meta-llama/Llama-5-8B",
            "opt",
            "13b",
            "",
        ] {
            assert!(model(name).is_err(), "{name}");
        }
    }

    #[test]
    fn gpt2_has_its_own_sequence_and_vocabulary() {
        for name in ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"] {
            let found = model(name).unwrap();
            assert_eq!(found.sequence, 1_024, "{name}");
            assert_eq!(found.shape().vocabulary, 50_257, "{name}");
        }
    }

    #[test]
    fn names_are_unique_and_shapes_valid() {
        let mut seen = std::collections::BTreeSet::new();
        let names = MODELS.iter().map(|model| model.name);
        for name in names.chain(ALIASES.iter().map(|(alias, _)| *alias)) {
            assert!(seen.insert(undecorated(name)), "{name}");
            model(name).unwrap().shape().check().unwrap();
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
            ("gpt2-xl", 1.56),
            ("distilgpt2", 0.082),
            ("xlm-roberta-base", 0.278),
            ("deberta-v3-base", 0.184),
            ("modernbert-base", 0.149),
            ("modernbert-large", 0.395),
            ("pythia-160m", 0.162),
            ("pythia-1.4b", 1.41),
            ("pythia-6.9b", 6.86),
            ("pythia-12b", 11.85),
            ("gpt-neox-20b", 20.6),
            ("gpt-j-6b", 6.05),
            ("opt-1.3b", 1.32),
            ("opt-13b", 12.85),
            ("opt-66b", 65.7),
            ("bloom-7b1", 7.07),
            ("mpt-7b", 6.65),
            ("mpt-30b", 29.96),
            ("falcon-7b", 6.92),
            ("falcon-40b", 41.3),
            ("phi2", 2.78),
            ("phi3-medium", 13.96),
            ("phi4", 14.66),
            ("phi4-mini", 3.84),
            ("llama-30b", 32.5),
            ("llama-65b", 65.3),
            ("codellama-34b", 33.7),
            ("yi-6b", 6.06),
            ("yi-34b", 34.4),
            ("internlm2-7b", 7.74),
            ("internlm2-20b", 19.86),
            ("glm4-9b", 9.4),
            ("olmo2-7b", 7.3),
            ("olmo2-13b", 13.7),
            ("olmo2-32b", 32.2),
            ("mistral-nemo-12b", 12.25),
            ("mistral-small-24b", 23.57),
            ("mistral-large-123b", 122.6),
            ("smollm2-360m", 0.362),
            ("smollm3-3b", 3.08),
            ("gemma-2b", 2.51),
            ("gemma-7b", 8.54),
            ("gemma3-1b", 1.0),
            ("gemma3-4b", 3.88),
            ("gemma3-12b", 11.77),
            ("gemma3-27b", 27.0),
            ("command-r", 35.0),
            ("command-r-plus", 103.8),
            ("deepseek-llm-7b", 6.91),
            ("deepseek-coder-6.7b", 6.74),
            ("deepseek-moe-16b", 16.4),
            ("deepseek-v2", 236.0),
            ("kimi-k2", 1026.0),
            ("glm-4.5", 355.0),
            ("glm-4.5-air", 107.0),
            ("qwen3-coder-480b-a35b", 480.0),
            ("gpt-oss-20b", 20.9),
            ("dbrx", 131.6),
            ("olmoe-1b-7b", 6.92),
            ("phi3.5-moe", 41.9),
            ("llama4-scout", 107.8),
            ("llama4-maverick", 400.7),
        ];
        for (name, billions) in cases {
            let found = model(name).unwrap().shape().parameters() / 1e9;
            assert!((found / billions - 1.0).abs() < 0.02, "{name}: {found}");
        }
    }
}
