//! The arguments of `report`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::{Place, State};

/// Report where time went: ETTR, phases, accounts, biggest losses and what would help
///
/// Adds up every run on this machine, of all jobs or of those that you name, also runs that only the history (`trainyard history`) still has. With
/// `--cluster`, adds up the jobs of the namespace from their statuses. The phases of each run are those of its ledger, to the millisecond.
///
/// ETTR is the time spent training over all time but suspension, of runs that reported a step; `last hour` is the hour before now. What follows a failure (the
/// wait for nodes, the restart, the start and the steps that are repeated) is on the account of that failure: user, platform, infrastructure or preemption.
///
/// MFU is computed for one job, from the step time that it reported, if you name the model, the GPU and the batch.
///
/// Exit code 0: everything was added up. 1: a run cannot be read; the others are in the report. 2: the report could not be made.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard report
  trainyard report pretrain --since 7d
  trainyard report --since 2026-01-31 --format json | jq '.ettr.all'
  trainyard report --format svg > report.svg
  trainyard report --cluster -n team-a
  trainyard report pretrain --model llama3-8b --gpu H100 --batch 512")]
pub(crate) struct Report {
    /// Names of jobs [default: all]
    #[arg(value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Only time since then, such as `7d`, `12h`, `2026-01-31` (UTC) or `2026-01-31T12:00:00Z` [default: all time]
    #[arg(long, value_name = "TIME", value_parser = super::logs::parse_since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Jobs in all namespaces; implies `--cluster`
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) state: State,
    /// File of the history [default: `trainyard/history.db` in the folder for data of your user, if it exists]
    #[arg(long, value_name = "FILE", conflicts_with = "cluster")]
    pub(crate) store: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: ReportFormat,
    #[command(flatten)]
    pub(crate) model: Utilization,
}

/// What MFU is computed from, besides the reported step time.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "MFU")]
pub(crate) struct Utilization {
    /// Name of the model, such as `llama3-70b`; `trainyard plan --list models` prints all
    #[arg(long, value_name = "NAME", requires = "gpu", requires = "batch")]
    pub(crate) model: Option<String>,
    /// GPU model, such as `H100`; `trainyard plan --list gpus` prints all
    #[arg(long, value_name = "NAME", requires = "model")]
    pub(crate) gpu: Option<String>,
    /// Sequences per step
    #[arg(long, value_name = "COUNT", requires = "model", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: Option<u32>,
    /// Tokens per sequence [default: the model's context length]
    #[arg(long, value_name = "TOKENS", requires = "model", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sequence: Option<u32>,
    /// Number format of matrix multiplications: `bf16`, `fp8`, `nvfp4`
    #[arg(long, value_name = "NAME", default_value = "bf16")]
    pub(crate) precision: String,
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Human-readable text, at most 80 columns wide
    Text,
    /// One object with `"version":1`
    Json,
    /// A drawing for light and dark pages
    Svg,
}
