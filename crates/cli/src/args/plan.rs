//! The arguments of `trainyard plan`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::Format;

/// Say what fits, how fast, how often it breaks and what it costs, before any job is written
///
/// Every layout of the model on the cluster that fits, ranked, with memory and time by part and the bound
/// that bites; then what would help most, how it scales, how often to save, how many failures to expect.
/// Nothing is contacted.
///
/// `--rows FILE` instead predicts the published runs of a table and prints it with the columns `pred_…`
/// appended.
///
/// Exit code 0: something fits. 1: nothing does. 2: the question makes no sense.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard plan --model llama3-70b --gpu H100 --gpus 512
  trainyard plan --config config.json --gpu B200 --gpus 64 --tp 2 --what-if
  trainyard plan --layers 48 --hidden 8192 --heads 64 --gpu A100-80GB --gpus 256 --network 25gbe
  trainyard plan --model llama3-8b --gpus 64 --tokens 1T --emit job > job.yaml
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
    /// Predict the runs of this table instead, and print it with columns appended; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "config", "emit", "svg"])]
    pub(crate) rows: Option<PathBuf>,
    /// How many layouts to list
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) top: usize,
    /// Say what would help most, and what a slower network would cost
    #[arg(long)]
    pub(crate) what_if: bool,
    /// The same job on smaller and larger clusters
    #[arg(long)]
    pub(crate) scaling: bool,
    /// The ranks of every group of the best layout, in this framework's order
    #[arg(long, value_name = "ORDER")]
    pub(crate) groups: Option<GroupOrder>,
    /// Write `memory.svg`, `time.svg`, `scaling.svg` and `ranks.svg` of the best layout into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Print a file for the best layout instead of the plan
    #[arg(long, value_name = "WHAT", conflicts_with = "format")]
    pub(crate) emit: Option<Emit>,
    /// How to write the plan
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// The model.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Model")]
pub(crate) struct Model {
    /// By name, such as `llama3-70b`
    #[arg(long = "model", value_name = "NAME", conflicts_with = "config")]
    pub(crate) name: Option<String>,
    /// By the `config.json` it is published with; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Layers; this and the following also change a named model
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
    /// Size of the feed-forward part
    #[arg(long, value_name = "SIZE")]
    pub(crate) ffn: Option<u32>,
    /// The feed-forward part has a gate
    #[arg(long)]
    pub(crate) gated: bool,
    /// Entries of the vocabulary
    #[arg(long, value_name = "COUNT")]
    pub(crate) vocabulary: Option<u32>,
    /// Experts of a layer
    #[arg(long, value_name = "COUNT")]
    pub(crate) experts: Option<u32>,
    /// Experts that a token visits
    #[arg(long, value_name = "COUNT", requires = "experts")]
    pub(crate) experts_per_token: Option<u32>,
    /// Size of an expert
    #[arg(long, value_name = "SIZE", requires = "experts")]
    pub(crate) expert_ffn: Option<u32>,
}

/// The cluster.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct On {
    /// Kind of GPU, such as `H100` or `A100-80GB`
    #[arg(long, value_name = "NAME", default_value = "H100")]
    pub(crate) gpu: String,
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub(crate) gpus: u32,
    /// How many in a node
    #[arg(long, value_name = "COUNT")]
    pub(crate) gpus_per_node: Option<u32>,
    /// Network of a GPU: a name such as `ndr` or `25gbe`, or GB/s
    #[arg(long, value_name = "NAME|GB/S")]
    pub(crate) network: Option<String>,
    /// Link inside the node, GB/s of a GPU in one direction
    #[arg(long, value_name = "GB/S")]
    pub(crate) link: Option<f64>,
    /// Memory of a GPU in GiB
    #[arg(long, value_name = "GIB")]
    pub(crate) memory: Option<f64>,
    /// Nodes under one leaf switch
    #[arg(long, value_name = "COUNT")]
    pub(crate) nodes_per_leaf: Option<u32>,
    /// How many times less bandwidth there is above the leaf switches
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    pub(crate) oversubscription: f64,
    /// Dollars of a GPU-hour
    #[arg(long, value_name = "DOLLARS")]
    pub(crate) price: Option<f64>,
}

/// What is to be trained.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Training")]
pub(crate) struct Goal {
    /// Tokens of a sequence; else what the model is made for
    #[arg(long, value_name = "TOKENS")]
    pub(crate) sequence: Option<u32>,
    /// Sequences of a step; else about four million tokens, and at least one a GPU
    #[arg(long, value_name = "COUNT")]
    pub(crate) batch: Option<u32>,
    /// Number format of the matrix work: `bf16`, `fp8`, `nvfp4`
    #[arg(long, value_name = "NAME", default_value = "bf16")]
    pub(crate) precision: String,
    /// Software: its kernels and overlaps
    #[arg(long, value_name = "NAME", default_value = "megatron-core")]
    pub(crate) software: String,
    /// Tokens to train, such as `15T` or `300B`; else twenty for each parameter
    #[arg(long, value_name = "COUNT")]
    pub(crate) tokens: Option<String>,
}

/// Degrees that are given, not searched.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Layout")]
pub(crate) struct Degrees {
    /// Tensor ranks
    #[arg(long, value_name = "COUNT")]
    pub(crate) tp: Option<u32>,
    /// Pipeline stages
    #[arg(long, value_name = "COUNT")]
    pub(crate) pp: Option<u32>,
    /// Context ranks
    #[arg(long, value_name = "COUNT")]
    pub(crate) cp: Option<u32>,
    /// Expert ranks
    #[arg(long, value_name = "COUNT")]
    pub(crate) ep: Option<u32>,
    /// Sequences of a micro-batch
    #[arg(long, value_name = "COUNT")]
    pub(crate) micro_batch: Option<u32>,
    /// Chunks of layers on each stage
    #[arg(long, value_name = "COUNT")]
    pub(crate) interleave: Option<u32>,
    /// What is computed again
    #[arg(long, value_name = "WHAT")]
    pub(crate) recompute: Option<Recompute>,
    /// What data ranks share
    #[arg(long, value_name = "HOW")]
    pub(crate) sharding: Option<Sharding>,
}

/// How the job is to recover.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Recovery")]
pub(crate) struct Recovery {
    /// Failures per 1,000 GPU-hours; else those of Llama 3's run
    #[arg(long, value_name = "RATE")]
    pub(crate) failures: Option<f64>,
    /// The rate of one component instead of Llama 3's, such as `gpu=0.01`; may be repeated
    #[arg(
        long,
        value_name = "COMPONENT=RATE",
        conflicts_with = "failures",
        value_parser = parse_rate
    )]
    pub(crate) failure: Vec<(String, f64)>,
    /// Storage, GB/s of all nodes together; else 2 for each node
    #[arg(long, value_name = "GB/S")]
    pub(crate) storage: Option<f64>,
    /// How checkpoints are written
    #[arg(long, value_name = "HOW", default_value = "asynchronous")]
    pub(crate) saving: Saving,
    /// Seconds from a failure to the next step
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pub(crate) restart: f64,
    /// Hours that a failed machine is away
    #[arg(long, value_name = "HOURS", default_value_t = 24.0)]
    pub(crate) repair: f64,
}

fn parse_rate(text: &str) -> Result<(String, f64), String> {
    let needed = "a component and a rate are needed, such as `gpu=0.01`";
    let (name, rate) = text.split_once('=').ok_or(needed)?;
    match rate.trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok((name.trim().to_owned(), rate)),
        _ => Err(needed.to_owned()),
    }
}

/// What is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recompute {
    /// Nothing
    None,
    /// The core of attention, or norms and activations where attention is fused
    Selective,
    /// Every second layer
    Half,
    /// Every layer
    Full,
}

/// What data ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sharding {
    /// Nothing
    Ddp,
    /// The optimizer
    Zero1,
    /// Gradients too
    Zero2,
    /// Weights too
    #[value(alias = "fsdp")]
    Zero3,
}

/// How checkpoints are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Saving {
    /// Training waits for the storage
    Blocking,
    /// Training waits for the host's memory
    Asynchronous,
    /// To the memory of peers, beside training
    InMemory,
}

/// Whose order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupOrder {
    /// Megatron's
    Megatron,
    /// That of torch's `DeviceMesh`
    DeviceMesh,
}

/// What is printed instead of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    /// A job file for production
    Job,
}
