//! The arguments of `profile`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Format, Place, State};

/// Show where the time of a training step goes
///
/// With files or folders: analyses traces that `torch.profiler` or Kineto's daemon mode wrote, one for each rank. A trace
/// that is cut off is used as far as it goes.
///
/// With the name of a job that runs on this machine: records a trace of its ranks and analyses it. The script needs no change.
/// Programs are prepared for that when they start: those with `PyTorch` 2.10 or newer, and those with `TRAINYARD_PROFILE=on` in the
/// environment of their container.
///
/// The losses come first, the largest on top, each with its time per step and what to do about it. With several
/// ranks, their collectives are matched, and the rank is named that the others wait for.
///
/// The exit code is 0 if all traces were analysed, 1 if some could not, 2 if none.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard profile mnist
  trainyard profile mnist --seconds 2 --ranks 0,3 --out traces
  trainyard profile traces/
  trainyard profile rank0.json.gz rank1.json.gz --merged all.json.gz
  trainyard profile traces/ --format json | jq '.findings[0]'")]
pub(crate) struct Profile {
    /// Name of a running job, or traces: files (`.json`, `.json.gz`) and folders of them
    #[arg(value_name = "JOB|PATH", required = true)]
    pub(crate) targets: Vec<String>,
    /// Record this many whole steps of `optimizer.step()` [default: 5]
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) steps: Option<u32>,
    /// Record for this long, for programs without `torch.optim`
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=30))]
    pub(crate) seconds: Option<u32>,
    /// Record these ranks, such as `0,3,8-11` [default: all, at most 8]
    #[arg(long, value_name = "LIST")]
    pub(crate) ranks: Option<String>,
    /// Also record the shapes and the Python stacks of operators; traces grow to nearly twice the size
    #[arg(long)]
    pub(crate) detailed: bool,
    /// Give up waiting for traces after this many seconds
    #[arg(long, value_name = "S", default_value = "60", value_parser = clap::value_parser!(u32).range(5..=600))]
    pub(crate) timeout: u32,
    /// Copy the recorded traces into this folder as `rank-N.json.gz`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write one trace with all ranks on one clock, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "FILE")]
    pub(crate) merged: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}
