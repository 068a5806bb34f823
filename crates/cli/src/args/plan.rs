//! The arguments of `trainyard plan`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use trainyard_core::plan::hardware::Spec;

use super::Format;

/// Predict which parallel layouts fit, their speed, failures and cost
///
/// Ranks every layout of the model that fits on the cluster, with its memory, step time and bottleneck. Then shows
/// what would help most, how the job scales, how often to save checkpoints and how many failures to expect.
/// Works offline.
///
/// `--rows FILE` instead predicts the published runs in a table and prints the table with `pred_…` columns
/// appended. `--list gpus` prints the known GPUs; `models`, `software` and `networks` likewise.
///
/// Exit code 0: at least one layout fits. 1: none fits. 2: the input is invalid.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard plan --model llama3-70b --gpu H100 --gpus 512
  trainyard plan --config config.json --gpu B200 --gpus 64 --tp 2 --what-if
  trainyard plan --layers 48 --hidden 8192 --heads 64 --gpu A100-80GB --gpus 256 --network 25gbe
  trainyard plan --model llama3-8b --gpus 64 --tokens 1T --emit job > job.yaml
  trainyard plan --model meta-llama/Llama-3.1-8B --gpu-spec memory=48,tflops=180,bandwidth=900 --gpus 8
  trainyard plan --model llama3-8b --qlora rank=16 --gpu RTX-4090 --gpus 1 --software torch
  trainyard plan --calibrate > h200.json && trainyard plan --model llama3.2-3b --gpu H200 --gpus 1 --profile h200.json
  trainyard plan --list gpus
  trainyard plan --rows published-runs.csv > predicted.csv")]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) model: Model,
    #[command(flatten)]
    pub(crate) on: On,
    #[command(flatten)]
    pub(crate) goal: Goal,
    #[command(flatten)]
    pub(crate) layout: Degrees,
    #[command(flatten)]
    pub(crate) recovery: Recovery,
    /// Predict the runs in this CSV table and print it with columns appended; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "config", "emit", "svg"])]
    pub(crate) rows: Option<PathBuf>,
    /// Measure this machine's first GPU with your own Python and `PyTorch`, and print its profile
    #[arg(long, conflicts_with_all = ["rows", "emit", "svg", "list", "learn"])]
    pub(crate) calibrate: bool,
    /// The Python that `--calibrate` starts
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "python3",
        requires = "calibrate"
    )]
    pub(crate) python: String,
    /// Fit a profile to finished runs and print it: a CSV table (columns as for `--rows`, with `iter_time_s`), or the records
    /// of jobs (`report.json`, or the output of `trainyard status JOB --format json`) of what the other options describe;
    /// may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rows", "emit", "svg", "list"])]
    pub(crate) learn: Vec<PathBuf>,
    /// Print what `--gpu`, `--model`, `--software` or `--network` accepts, with its figures
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["rows", "emit", "svg"])]
    pub(crate) list: Option<Known>,
    /// Number of layouts to list
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) top: usize,
    /// Show which change would help most, and the cost of a slower network
    #[arg(long)]
    pub(crate) what_if: bool,
    /// Show the same job on smaller and larger clusters
    #[arg(long)]
    pub(crate) scaling: bool,
    /// Show the ranks of every process group of the best layout, in this framework's order
    #[arg(long, value_name = "ORDER")]
    pub(crate) groups: Option<GroupOrder>,
    /// Write `memory.svg`, `time.svg`, `scaling.svg` and `ranks.svg` of the best layout to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Print a file for the best layout instead of the plan
    #[arg(long, value_name = "WHAT", conflicts_with = "format")]
    pub(crate) emit: Option<Emit>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// The model.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Model")]
pub(crate) struct Model {
    /// Name of the model, such as `llama3-70b`
    #[arg(long = "model", value_name = "NAME", conflicts_with = "config")]
    pub(crate) name: Option<String>,
    /// The model's Hugging Face `config.json`; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Number of layers; this and the next options also override a named model
    #[arg(long, value_name = "COUNT")]
    pub(crate) layers: Option<u32>,
    /// Hidden size
    #[arg(long, value_name = "SIZE")]
    pub(crate) hidden: Option<u32>,
    /// Attention heads
    #[arg(long, value_name = "COUNT")]
    pub(crate) heads: Option<u32>,
    /// Key-value heads
    #[arg(long, value_name = "COUNT")]
    pub(crate) kv_heads: Option<u32>,
    /// Feed-forward (FFN) hidden size
    #[arg(long, value_name = "SIZE")]
    pub(crate) ffn: Option<u32>,
    /// Gated feed-forward, such as `SwiGLU`
    #[arg(long)]
    pub(crate) gated: bool,
    /// Vocabulary size
    #[arg(long, value_name = "COUNT")]
    pub(crate) vocabulary: Option<u32>,
    /// Experts per layer
    #[arg(long, value_name = "COUNT")]
    pub(crate) experts: Option<u32>,
    /// Experts per token (top-k)
    #[arg(long, value_name = "COUNT", requires = "experts")]
    pub(crate) experts_per_token: Option<u32>,
    /// Feed-forward hidden size of an expert
    #[arg(long, value_name = "SIZE", requires = "experts")]
    pub(crate) expert_ffn: Option<u32>,
}

/// The cluster.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct On {
    /// GPU model, such as `H100` or `A100-80GB`
    #[arg(long, value_name = "NAME", default_value = "H100")]
    pub(crate) gpu: String,
    /// A GPU that is not listed: `memory=GIB,tflops=TFLOPS,bandwidth=GB/S` (dense bf16, memory bandwidth), and optionally
    /// `fp8=TFLOPS`, `link=GB/S`, `network=GB/S`, `per-node=COUNT`, `price=DOLLARS`
    #[arg(long, value_name = "FIGURES", conflicts_with = "gpu", value_parser = parse_spec)]
    pub(crate) gpu_spec: Option<Spec>,
    /// Number of GPUs
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub(crate) gpus: u32,
    /// GPUs per node
    #[arg(long, value_name = "COUNT")]
    pub(crate) gpus_per_node: Option<u32>,
    /// Network per GPU: a name such as `ndr` or `25gbe`, or GB/s
    #[arg(long, value_name = "NAME|GB/S")]
    pub(crate) network: Option<String>,
    /// Intra-node link, GB/s per GPU in one direction
    #[arg(long, value_name = "GB/S")]
    pub(crate) link: Option<f64>,
    /// Memory per GPU, GiB
    #[arg(long, value_name = "GIB")]
    pub(crate) memory: Option<f64>,
    /// Nodes per leaf switch
    #[arg(long, value_name = "COUNT")]
    pub(crate) nodes_per_leaf: Option<u32>,
    /// Oversubscription above the leaf switches; 2 means half the bandwidth
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    pub(crate) oversubscription: f64,
    /// Measured profile of the GPU, as `--calibrate` or `--learn` printed it
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Dollars per GPU-hour
    #[arg(long, value_name = "DOLLARS")]
    pub(crate) price: Option<f64>,
}

/// What to train.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Training")]
pub(crate) struct Goal {
    /// Tokens per sequence [default: the model's context length]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) sequence: Option<u32>,
    /// Sequences per step [default: about four million tokens, half a million below 1 B parameters and one million
    /// below 4 B; at least one sequence per GPU]
    #[arg(long, value_name = "COUNT")]
    pub(crate) batch: Option<u32>,
    /// Number format of matrix multiplications: `bf16`, `fp8`, `nvfp4`
    #[arg(long, value_name = "NAME", default_value = "bf16")]
    pub(crate) precision: String,
    /// Training software, which decides kernels and overlap
    #[arg(long, value_name = "NAME", default_value = "megatron-core")]
    pub(crate) software: String,
    /// Tokens to train, such as `15T` or `300B` [default: 20 per parameter; 100 million when fine-tuning]
    #[arg(long, value_name = "COUNT")]
    pub(crate) tokens: Option<String>,
    /// Fine-tune all weights: changes the defaults of batch and tokens
    #[arg(long)]
    pub(crate) finetune: bool,
    /// Train `LoRA` adapters on every linear layer, such as `rank=16`
    #[arg(long, value_name = "rank=RANK", value_parser = parse_rank)]
    pub(crate) lora: Option<u32>,
    /// The same over frozen weights of 4 bits (`QLoRA`)
    #[arg(long, value_name = "rank=RANK", value_parser = parse_rank, conflicts_with = "lora")]
    pub(crate) qlora: Option<u32>,
    /// Optimizer
    #[arg(long, value_name = "NAME", default_value = "adamw")]
    pub(crate) optimizer: OptimizerName,
    /// Keep gradients and optimizer state in host memory (`ZeRO`-Offload)
    #[arg(long)]
    pub(crate) offload: bool,
}

/// Degrees that are fixed, not searched.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Layout")]
pub(crate) struct Degrees {
    /// Tensor parallel size
    #[arg(long, value_name = "COUNT")]
    pub(crate) tp: Option<u32>,
    /// Pipeline parallel size
    #[arg(long, value_name = "COUNT")]
    pub(crate) pp: Option<u32>,
    /// Context parallel size
    #[arg(long, value_name = "COUNT")]
    pub(crate) cp: Option<u32>,
    /// Expert parallel size
    #[arg(long, value_name = "COUNT")]
    pub(crate) ep: Option<u32>,
    /// Sequences per micro-batch
    #[arg(long, value_name = "COUNT")]
    pub(crate) micro_batch: Option<u32>,
    /// Model chunks per pipeline stage (virtual pipeline)
    #[arg(long, value_name = "COUNT")]
    pub(crate) interleave: Option<u32>,
    /// Activation recomputation
    #[arg(long, value_name = "WHAT")]
    pub(crate) recompute: Option<Recompute>,
    /// Recompute every layer in the backward pass; the same as `--recompute full`
    #[arg(long, conflicts_with = "recompute")]
    pub(crate) gradient_checkpointing: bool,
    /// What is sharded over data parallel ranks
    #[arg(long, value_name = "HOW")]
    pub(crate) sharding: Option<Sharding>,
}

/// How the job recovers.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Recovery")]
pub(crate) struct Recovery {
    /// Failures per 1,000 GPU-hours [default: the rate of the Llama 3 run]
    #[arg(long, value_name = "RATE")]
    pub(crate) failures: Option<f64>,
    /// Failure rate of one component, such as `gpu=0.01`; may be repeated
    #[arg(
        long,
        value_name = "COMPONENT=RATE",
        conflicts_with = "failures",
        value_parser = parse_rate
    )]
    pub(crate) failure: Vec<(String, f64)>,
    /// Storage bandwidth of all nodes together, GB/s [default: 2 per node, at most 2,000]
    #[arg(long, value_name = "GB/S")]
    pub(crate) storage: Option<f64>,
    /// How checkpoints are saved
    #[arg(long, value_name = "HOW", default_value = "asynchronous")]
    pub(crate) saving: Saving,
    /// Seconds from a failure to the next step
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pub(crate) restart: f64,
    /// Hours to repair a failed machine
    #[arg(long, value_name = "HOURS", default_value_t = 24.0)]
    pub(crate) repair: f64,
}

fn parse_spec(text: &str) -> Result<Spec, String> {
    let (mut memory, mut tflops, mut bandwidth) = (None, None, None);
    let (mut fp8, mut link, mut network, mut per_node, mut price) = (None, None, None, None, None);
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, figure) = part
            .split_once('=')
            .ok_or_else(|| format!("`{part}` is not NAME=FIGURE"))?;
        let number = figure
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite() && *number > 0.0 && *number < 1e9)
            .ok_or_else(|| format!("`{figure}` is not a number greater than 0"))?;
        let place = match name.trim() {
            "memory" => &mut memory,
            "tflops" => &mut tflops,
            "bandwidth" => &mut bandwidth,
            "fp8" => &mut fp8,
            "link" => &mut link,
            "network" => &mut network,
            "per-node" => &mut per_node,
            "price" => &mut price,
            other => {
                return Err(format!(
                    "unknown figure `{other}`; expected one of `memory`, `tflops`, `bandwidth`, `fp8`, `link`, `network`, `per-node`, `price`"
                ));
            }
        };
        *place = Some(number);
    }
    let needed =
        |name: &str, figure: Option<f64>| figure.ok_or_else(|| format!("`{name}=` is missing"));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked above"
    )]
    let per_node = per_node.map(|count: f64| (count.round() as u32).clamp(1, 1024));
    Ok(Spec {
        memory: needed("memory", memory)?,
        tflops: needed("tflops", tflops)?,
        bandwidth: needed("bandwidth", bandwidth)?,
        fp8,
        link,
        network,
        per_node,
        price,
    })
}

fn parse_rank(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("rank=").unwrap_or(text);
    match digits.parse::<u32>() {
        Ok(rank @ 1..=4096) => Ok(rank),
        _ => Err("expected a rank from 1 to 4096, such as `rank=16`".to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<(String, f64), String> {
    let needed = "expected a component and a rate, such as `gpu=0.01`";
    let (name, rate) = text.split_once('=').ok_or(needed)?;
    match rate.trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok((name.trim().to_owned(), rate)),
        _ => Err(needed.to_owned()),
    }
}

/// Activation recomputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recompute {
    /// Nothing
    None,
    /// Core attention, or norms and activations if attention is fused
    Selective,
    /// Every second layer
    Half,
    /// Every layer
    Full,
}

/// What is sharded over data parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sharding {
    /// Nothing
    Ddp,
    /// Optimizer state
    Zero1,
    /// Optimizer state and gradients
    Zero2,
    /// Optimizer state, gradients and weights
    #[value(alias = "fsdp")]
    Zero3,
}

/// How checkpoints are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Saving {
    /// Training waits until the checkpoint is on storage
    Blocking,
    /// Training waits until the checkpoint is in host memory
    Asynchronous,
    /// The checkpoint goes to the memory of peers while training continues
    InMemory,
}

/// Rank order of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupOrder {
    /// Megatron
    Megatron,
    /// `DeviceMesh` of `PyTorch`
    DeviceMesh,
}

/// What to print instead of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    /// A job file for production
    Job,
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Known {
    /// GPUs and other accelerators
    Gpus,
    /// Models
    Models,
    /// Training software
    Software,
    /// Networks
    Networks,
}

/// Optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimizerName {
    /// Two moments per parameter
    Adamw,
    /// Two moments of 8 bits (bitsandbytes, torchao)
    #[value(name = "adam8bit")]
    Adam8bit,
    /// One moment
    Sgd,
}
