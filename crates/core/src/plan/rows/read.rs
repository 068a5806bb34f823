//! One row, read into a step.

use std::collections::BTreeMap;

use super::{
    super::{
        flops::Convention,
        hardware::{self, Cluster, Precision},
        layout::{Layout, Recompute, Sharding},
        memory::{Need, memory},
        names,
        shape::{Embeddings, Experts, Mlp, Shape},
        software::{self, AttentionKernel, Software},
        tuning::Tuning,
    },
    csv::Table,
};

/// FLOP/s of 16 bits that only GPUs since Hopper have.
const BEFORE_HOPPER: f64 = 5e14;

/// A run as a row describes it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The model.
    pub shape: Shape,
    /// How it is spread; recomputation is the least that fits where the row does not say.
    pub layout: Layout,
    /// On what.
    pub cluster: Cluster,
    /// With what.
    pub software: Software,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Sequences of a step.
    pub global_batch: u32,
    /// Number format of the matrix work.
    pub precision: Precision,
    /// How the source counts operations.
    pub convention: Convention,
    /// What the row does not say and was assumed, in words.
    pub assumed: Vec<String>,
}

/// Reads row `at` of the table; the error says in words what it lacks.
pub fn read(table: &Table, at: usize) -> Result<Run, String> {
    let row = table.rows.get(at).ok_or("no such row")?;
    let cells: BTreeMap<&str, &str> = table
        .header
        .iter()
        .map(String::as_str)
        .zip(row.iter().map(|cell| cell.trim()))
        .collect();
    Row { cells }.read()
}

struct Row<'a> {
    cells: BTreeMap<&'a str, &'a str>,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        self.cells.get(column).copied().unwrap_or_default()
    }

    fn number(&self, column: &'static str) -> Result<Option<u32>, String> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<u32>() {
            Ok(0) | Err(_) => Err(format!(
                "`{column}` is `{text}`; it must be an integer of at least 1"
            )),
            Ok(number) => Ok(Some(number)),
        }
    }

    fn needed(&self, column: &'static str) -> Result<u32, String> {
        self.number(column)?
            .ok_or_else(|| format!("`{column}` is blank"))
    }

    fn note(&self) -> String {
        format!("{} {}", self.text("source"), self.text("note"))
    }

    fn read(&self) -> Result<Run, String> {
        let gpu = hardware::gpu(self.text("gpu")).map_err(|error| error.to_string())?;
        let note = self.note();
        let sequence = self.needed("seq_len")?;
        let shape = self.shape(&note)?;
        shape.check().map_err(|error| error.to_string())?;
        let gpus = self.needed("gpu_count")?;
        let software = self.software(&note, gpu.peak_bf16);
        let precision = match self.text("precision") {
            "" => Precision::Bf16,
            name => Precision::named(name).ok_or_else(|| format!("unknown precision `{name}`"))?,
        };
        let mut layout = self.layout(&note, gpus, &software, &shape)?;
        let known = match self.text("recompute") {
            "" => false,
            words => {
                layout.recompute = if words == "none" {
                    Recompute::None
                } else if words.starts_with("full") {
                    Recompute::Full
                } else if words.starts_with("selective-")
                    || (words == "selective" && software.name.starts_with("fsdp2"))
                {
                    Recompute::Half
                } else {
                    Recompute::Selective
                };
                true
            }
        };
        layout.sequence_parallel = sequence_parallel(&note, &layout, &software);
        let global_batch = self.needed("global_batch")?;
        if !known {
            let need = |layout: &Layout| {
                let need = Need {
                    shape: &shape,
                    layout,
                    software: &software,
                    sequence,
                    global_batch,
                    tuning: Tuning::default(),
                };
                memory(&need).total()
            };
            // The least that fits; sources that recompute everything say so.
            if need(&layout) > gpu.memory_gib {
                layout.recompute = Recompute::Selective;
            }
        }
        let lowered = note.to_ascii_lowercase();
        let network = if lowered.contains("omnipath") || lowered.contains("bigscience") {
            hardware::network("omnipath-4x100").map_or(gpu.network, |network| network.bandwidth)
        } else {
            gpu.network
        };
        let mut assumed = Vec::new();
        if self.text("micro_batch").is_empty() {
            assumed.push("micro_batch assumed 1".to_owned());
        }
        if !known {
            let word = match layout.recompute {
                Recompute::None => "none",
                _ => "selective",
            };
            assumed.push(format!("recompute assumed {word}"));
        }
        Ok(Run {
            assumed,
            convention: Self::convention(&lowered),
            cluster: Cluster {
                network,
                gpu,
                gpus,
                nodes_per_leaf: 0,
                oversubscription: 1.0,
                rates: None,
            },
            shape,
            layout,
            software,
            sequence,
            global_batch,
            precision,
        })
    }

    fn shape(&self, note: &str) -> Result<Shape, String> {
        if self.text("layers").is_empty() || self.text("hidden").is_empty() {
            return names::model_in(note)
                .map(|model| model.shape())
                .ok_or_else(|| "the model's layers and hidden size are blank".to_owned());
        }
        let heads = self.needed("heads")?;
        let mut shape = Shape::dense(
            self.needed("layers")?,
            self.needed("hidden")?,
            heads,
            self.needed("vocab")?,
        );
        shape.kv_heads = self.number("kv_heads")?.unwrap_or(heads);
        let width = self.number("ffn_hidden")?;
        shape.ffn = width.unwrap_or(shape.ffn);
        let lowered = note.to_ascii_lowercase();
        if let Some(count) = number_before(&lowered, "experts") {
            shape.experts = Some(Experts {
                count,
                per_token: number_after(&lowered, "top-").unwrap_or(2),
                ffn: shape.ffn,
                shared_ffn: 0,
                dense_layers: 0,
            });
        }
        // Which of the four a model is follows from its size; without it, from its proportions.
        let kinds = [
            (Mlp::Plain, Embeddings::Tied),
            (Mlp::Plain, Embeddings::Untied),
            (Mlp::Gated, Embeddings::Tied),
            (Mlp::Gated, Embeddings::Untied),
        ];
        let best = match self.text("model_params_b").parse::<f64>() {
            Ok(size) if size > 0.0 => kinds
                .into_iter()
                .min_by(|one, other| {
                    let away = |(mlp, embeddings): &(Mlp, Embeddings)| {
                        let mut candidate = shape.clone();
                        candidate.mlp = *mlp;
                        candidate.embeddings = *embeddings;
                        (candidate.parameters() / 1e9 - size).abs()
                    };
                    away(one).total_cmp(&away(other))
                })
                .unwrap_or(kinds[0]),
            _ if shape.ffn == shape.hidden.saturating_mul(4) => kinds[0],
            _ => kinds[3],
        };
        (shape.mlp, shape.embeddings) = best;
        Ok(shape)
    }

    fn layout(
        &self,
        note: &str,
        gpus: u32,
        software: &Software,
        shape: &Shape,
    ) -> Result<Layout, String> {
        let tensor = self.needed("tp")?;
        let pipeline = self.needed("pp")?;
        let context = self.number("cp")?.unwrap_or(1);
        let model = tensor.saturating_mul(pipeline).saturating_mul(context);
        // Some sources print the data ranks after those of experts are taken out.
        let data = (gpus / model.max(1)).max(1);
        if u64::from(model) * u64::from(data) != u64::from(gpus) {
            return Err(format!(
                "tensor {tensor} × pipeline {pipeline} × context {context} does not divide {gpus} GPUs"
            ));
        }
        let expert = number_after(note, "EP=").unwrap_or(1).clamp(1, gpus);
        let expert = shape.experts.map_or(1, |experts| expert.min(experts.count));
        let lowered = note.to_ascii_lowercase();
        let fully = software.fully_sharded || lowered.contains("fsdp");
        Ok(Layout {
            tensor,
            pipeline,
            context,
            expert,
            data,
            interleave: self.number("interleave")?.unwrap_or(1),
            micro_batch: self.number("micro_batch")?.unwrap_or(1),
            recompute: Recompute::None,
            sequence_parallel: false,
            sharding: if lowered.contains("shard_grad_op") {
                Sharding::Zero2
            } else if fully {
                Sharding::Zero3
            } else {
                Sharding::Zero1
            },
        })
    }

    /// The software, by who published the row and when.
    fn software(&self, note: &str, peak: f64) -> Software {
        let lowered = note.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| lowered.contains(word));
        let bf16 = self.text("precision") == "bf16";
        if says(&["llm-foundry", "ibm pytorch fsdp"]) {
            if says(&["mp=pure"]) {
                software::FSDP_2023_PURE
            } else {
                software::FSDP_2023
            }
        } else if says(&["2412.19437"]) {
            software::DUALPIPE
        } else if says(&["2407.21783"]) {
            // Llama 3's own stack: FSDP, tensor traffic that is waited for.
            software::FSDP_2
        } else if says(&["torchtitan"]) {
            if self.text("note").to_ascii_lowercase().contains("asynctp") {
                software::FSDP_2_ASYNC
            } else if bf16 && !says(&["asynctp", "compile"]) {
                // Narrow formats and asynchronous tensor parallelism need the compiler.
                software::FSDP_2_EAGER
            } else {
                software::FSDP_2
            }
        } else if says(&["bigscience"]) {
            if bf16 {
                software::DEEPSPEED_2022_BF16
            } else {
                software::DEEPSPEED_2022
            }
        } else if says(&["korthikanti", "2205.05198"])
            || (says(&["nemo", "bignlp"]) && peak < BEFORE_HOPPER)
        {
            // NeMo's own figures on A100 are from before it had fused attention.
            software::MEGATRON_2022
        } else if says(&["sc21", "2104.04473", "opt-175b", "deepspeed"])
            || (!bf16 && peak < BEFORE_HOPPER)
        {
            software::MEGATRON_2021
        } else if says(&["megatron-bridge"]) {
            software::MEGATRON_BRIDGE
        } else {
            software::MEGATRON_CORE
        }
    }

    fn convention(lowered: &str) -> Convention {
        if lowered.contains("flops=hardware")
            || lowered.contains("incl recompute")
            || lowered.contains("96bslh^2")
        {
            Convention::Hardware
        } else if lowered.contains("megatron-bridge") || lowered.contains("maxtext") {
            Convention::Causal
        } else {
            Convention::Model
        }
    }
}

/// Sequence parallelism came in 2022 and is the rule since; earlier runs say so where they have it.
fn sequence_parallel(note: &str, layout: &Layout, software: &Software) -> bool {
    let lowered = note.to_ascii_lowercase();
    if layout.tensor == 1 || lowered.contains("no sequence parallelism") {
        return false;
    }
    lowered.contains("sequence parallelism")
        || software.attention > AttentionKernel::Unfused
        || layout.recompute == Recompute::Selective
}

fn number_after(text: &str, words: &str) -> Option<u32> {
    let (_, rest) = text.split_once(words)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|number| *number > 0)
}

fn number_before(text: &str, word: &str) -> Option<u32> {
    let (before, _) = text.split_once(word)?;
    before.split_whitespace().next_back()?.parse().ok()
}
