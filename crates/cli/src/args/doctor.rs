//! The arguments of `doctor`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Format, Place, State};

/// Diagnose a failed run: which rank and node broke it, and why
///
/// Reads logs of any number of ranks, in any mixture: files, folders, `.gz` and `.zst`, stdin; with the
/// prefixes of kubectl, container runtimes, Slurm, mpirun, torchrun, Ray, syslog and the kernel. Also reads
/// Flight Recorder dumps, without executing their pickles.
///
/// Prints the verdict first, with the log lines that support it, what would refute it and the next step;
/// then a table of all ranks. Exit code 0: healthy. 1: a problem was found. 2: something could not be read.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard doctor train.log
  trainyard doctor logs/                        every file below the folder
  trainyard doctor rank*.log dmesg.txt /tmp/nccl_trace_rank_*
  kubectl logs -l job-name=j --prefix | trainyard doctor -
  trainyard doctor --job mnist                  the last attempt of a local run
  trainyard doctor --job mnist --follow
  trainyard doctor --job mnist --cluster -n team-a   every pod of the last attempt, from the cluster
  trainyard doctor logs/ --format json | jq -r '.verdicts[0].label'")]
pub(crate) struct Doctor {
    /// Logs, folders of logs, Flight Recorder dumps; `-` reads stdin
    #[arg(value_name = "PATH", required_unless_present = "job")]
    pub(crate) paths: Vec<PathBuf>,
    /// Read the logs of the last attempt of a job, on this machine or in a cluster
    ///
    /// In a cluster, reads the logs of all containers of its pods, including the previous instance of restarted ones.
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    pub(crate) job: Option<String>,
    /// Read this attempt instead of the latest (first is 1)
    #[arg(long, value_name = "N", requires = "job")]
    pub(crate) attempt: Option<u32>,
    /// Keep reading and print each new verdict, until Ctrl-C or the end of the run
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Extra rules file, in the format of docs/reference/doctor-rules.md; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Write a timeline of all ranks to this SVG file
    #[arg(long, value_name = "FILE", conflicts_with = "follow")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: State,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}
