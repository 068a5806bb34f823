//! The arguments of `checkpoints`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::Format;

/// List, show, verify, prune, compare and convert checkpoints
///
/// Reads the folder that a training program saves into; `ls`, `show`, `verify` and `prune` also read the prefix of a bucket
/// (`s3://bucket/prefix`). Works while the program runs, and without a cluster.
///
/// Exit code 0: done. 1: a checkpoint is not complete or not intact, differs from another, or could not be removed. 2: the command could
/// not run.
#[derive(Debug, ClapArgs)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "\
Examples:
  trainyard checkpoints ls /checkpoints/run1
  trainyard checkpoints ls /checkpoints/run1 --local /nvme/run1
  trainyard checkpoints show /checkpoints/run1 12500
  trainyard checkpoints verify /checkpoints/run1 --deep
  trainyard checkpoints prune /checkpoints/run1 --keep 3 --dry-run
  trainyard checkpoints ls s3://my-bucket/run1
  trainyard checkpoints diff --root /checkpoints/run1 12000 12500
  trainyard checkpoints convert /checkpoints/run1 model.safetensors --to safetensors --only model. --strip model."
)]
pub(crate) struct Checkpoints {
    #[command(subcommand)]
    pub(crate) command: CheckpointsCommand,
}

/// What to do with them.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointsCommand {
    Ls(CheckpointsLs),
    Show(CheckpointsShow),
    Verify(CheckpointsVerify),
    Prune(CheckpointsPrune),
    Diff(CheckpointsDiff),
    Convert(CheckpointsConvert),
}

/// List the steps, oldest first
///
/// States: `complete`, `partial` (not committed), `fenced` (committed, but not part of the history of the newest attempt), `suspect`
/// (must not be restored) and `removed` (removal has begun). With `--local`, lists the steps of all tiers and which tier has what.
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointsLs {
    /// Folder of the checkpoints, or `s3://bucket/prefix`
    #[arg(value_name = "ROOT")]
    pub(crate) root: PathBuf,
    /// Local tier in front of ROOT (`local=` of the Checkpointer); repeat it for the tiers of several nodes
    #[arg(long, value_name = "DIR")]
    pub(crate) local: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Show one step: its ranks and tensors
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointsShow {
    /// Folder of the checkpoints, or `s3://bucket/prefix`
    #[arg(value_name = "ROOT")]
    pub(crate) root: PathBuf,
    /// Number of the step, or name of its folder
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
    /// Local tier in front of ROOT (`local=` of the Checkpointer); repeat it for the tiers of several nodes
    #[arg(long, value_name = "DIR")]
    pub(crate) local: Vec<PathBuf>,
    /// Show where the parts of this tensor are
    #[arg(long, value_name = "NAME")]
    pub(crate) tensor: Option<String>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Check that steps can be restored
///
/// Checks that every file is there with its size, and the checksums of the small files. With `--deep`, reads all data and compares
/// the checksum of every chunk; names the file, the chunk and the tensors where one differs.
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointsVerify {
    /// Folder of the checkpoints, or `s3://bucket/prefix`
    #[arg(value_name = "ROOT")]
    pub(crate) root: PathBuf,
    /// Number of the step, or name of its folder [default: every committed step]
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
    /// Read all data
    #[arg(long)]
    pub(crate) deep: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Remove steps that need not be kept
///
/// Keeps the newest complete steps, at least two, and the step that the newest attempt resumed from. Removes partial
/// folders that nobody can write any more. Never removes files that are not part of a checkpoint.
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointsPrune {
    /// Folder of the checkpoints, or `s3://bucket/prefix`
    #[arg(value_name = "ROOT")]
    pub(crate) root: PathBuf,
    /// Number of newest complete steps to keep
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: u32,
    /// Print what would be removed and why, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Compare two checkpoints: tensors by value, small state by path
///
/// A and B are paths: a safetensors file, a folder with `model.safetensors.index.json`, a folder of `torch.distributed.checkpoint`
/// (`.metadata`), a folder of checkpoints (its newest complete step) or one of its step folders. With `--root`, A and B are steps of that
/// folder. Formats may differ.
///
/// Elements differ if their bits differ; two NaN are equal. Tensors whose recorded checksums are equal are not read.
///
/// Exit code 0: no difference. 1: they differ. 2: one of them cannot be read.
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointsDiff {
    /// The first: a path, or a step with `--root`
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The second: a path, or a step with `--root`
    #[arg(value_name = "B")]
    pub(crate) b: String,
    /// Folder of the checkpoints; A and B are numbers of steps or names of their folders
    #[arg(long, value_name = "ROOT")]
    pub(crate) root: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Write a checkpoint in another format
///
/// Reads and writes: safetensors files, shards with an index as Hugging Face libraries write them (`hf`), folders of
/// `torch.distributed.checkpoint` (`dcp`) and folders of checkpoints (`trainyard`). The format of SRC is recognised. No pickle is
/// executed.
///
/// DST gets its name when everything is written and was read back. It must not exist, unless `--force` is set. `--force` refuses a folder
/// with files that are not part of the checkpoint, and a folder of checkpoints with more than one step.
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointsConvert {
    /// File or folder to read
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// File or folder to write
    #[arg(value_name = "DST")]
    pub(crate) destination: PathBuf,
    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: ConvertTo,
    /// Step of SRC, where that is a folder of checkpoints [default: the newest complete one]; with `--to trainyard` the number to save
    /// under, which is 0 where SRC has none
    #[arg(long, value_name = "STEP")]
    pub(crate) step: Option<String>,
    /// Take only tensors whose names begin with this; small state is left out
    #[arg(long, value_name = "PREFIX")]
    pub(crate) only: Option<String>,
    /// Remove this from the beginning of names of tensors; small state is left out
    #[arg(long, value_name = "PREFIX")]
    pub(crate) strip: Option<String>,
    /// Most bytes of tensors in a shard, with `--to hf`: a number with `KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = size)]
    pub(crate) max_shard_size: u64,
    /// Replace DST where it is one checkpoint and nothing else
    #[arg(long)]
    pub(crate) force: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// A format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConvertTo {
    /// One safetensors file
    Safetensors,
    /// Safetensors shards and `model.safetensors.index.json`
    Hf,
    /// A folder that `torch.distributed.checkpoint` loads
    Dcp,
    /// A folder of checkpoints with one step
    Trainyard,
}

/// A number of bytes with a unit.
fn size(text: &str) -> Result<u64, String> {
    let units: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("", 1),
    ];
    let found = units
        .iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    found
        .and_then(|(number, bytes)| number.trim().parse::<u64>().ok()?.checked_mul(bytes))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected a size such as `5GB` or `512MiB`".to_owned())
}
