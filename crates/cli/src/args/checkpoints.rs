//! The arguments of `checkpoints`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use super::Format;

/// List, show, verify and prune the checkpoints in a folder or bucket
///
/// Reads the folder, or the prefix of a bucket (`s3://bucket/prefix`), that a training program saves into. Works while the program runs, and without a cluster.
///
/// Exit code 0: done. 1: a checkpoint is not complete or not intact, or could not be removed. 2: the command could not run.
#[derive(Debug, ClapArgs)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "\
Examples:
  trainyard checkpoints ls /checkpoints/run1
  trainyard checkpoints show /checkpoints/run1 12500
  trainyard checkpoints verify /checkpoints/run1 --deep
  trainyard checkpoints prune /checkpoints/run1 --keep 3 --dry-run
  trainyard checkpoints ls s3://my-bucket/run1"
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
}

/// List the steps, oldest first
///
/// States: `complete`, `partial` (not committed), `fenced` (committed, but not part of the history of the newest attempt), `suspect`
/// (must not be restored) and `removed` (removal has begun).
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointsLs {
    /// Folder of the checkpoints, or `s3://bucket/prefix`
    #[arg(value_name = "ROOT")]
    pub(crate) root: PathBuf,
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
