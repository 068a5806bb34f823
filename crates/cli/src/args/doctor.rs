//! The arguments of `doctor`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Format, Place, State};

/// Say which rank and which node broke a run, and why
///
/// Reads logs of any number of ranks, in any mixture: files, folders, `.gz` and `.zst`, stdin; with the
/// prefixes of kubectl, container runtimes, Slurm, mpirun, torchrun, Ray, syslog and the kernel. Flight
/// Recorder dumps among them are read too, without executing anything.
///
/// The verdict comes first, with the lines it rests on, what would refute it and what to do next; then
/// what is known of every rank. Exit code 0: healthy. 1: a problem was found. 2: something could not
/// be read.
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
    /// The logs of the last attempt of a job that runs or ran here, or in a cluster
    ///
    /// Of a cluster, the logs of all containers of its pods are read, also of those that were restarted in place.
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    pub(crate) job: Option<String>,
    /// Of this attempt; the first is 1
    #[arg(long, value_name = "N", requires = "job")]
    pub(crate) attempt: Option<u32>,
    /// Go on reading, and say when the verdict changes, until Ctrl-C or the end of the run
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// More rules, in the form of docs/reference/doctor-rules.md; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Write the timeline of all ranks as a picture
    #[arg(long, value_name = "FILE", conflicts_with = "follow")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: State,
    #[command(flatten)]
    pub(crate) place: Place,
    /// How to write the report
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}
