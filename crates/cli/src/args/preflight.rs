//! The arguments of `preflight`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use trainyard_core::spec::Role;

use super::{Format, Place};

/// The image of this release.
const IMAGE: &str = concat!("trainyard:", env!("CARGO_PKG_VERSION"));

/// Check whether this machine, or a cluster, is fit for training
///
/// Checks CPUs, memory, limits, GPUs, network and RDMA devices against the needs of the job and its fabric, or
/// without a job against the needs of any training job. Each check shows what was found and what is needed. A check
/// that warns or fails also shows its likely cause, the next step, and who can do it.
///
/// The checks only read and take at most 3 seconds. A volume is tested by writing at most 64 MiB, within
/// 10 seconds, and restored.
///
/// With `--cluster`, starts one small pod on each node with the annotations, devices and volumes of the job's pods,
/// measures each node and the paths between them, and deletes the pods, all within 5 minutes. Devices in use by other
/// pods are not touched.
///
/// Exit code 0: fit, possibly with warnings. 1: a check failed. 2: the checks could not run.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard preflight
  trainyard preflight --job job.yaml
  trainyard preflight --job job.yaml --role Master --volume /mnt/checkpoints
  trainyard preflight --cluster --nodes node-a,node-b
  trainyard preflight --cluster --job job.yaml
  trainyard preflight --format json | jq -r '.nodes[].checks[] | select(.outcome == \"fail\") | .name'")]
pub(crate) struct Preflight {
    /// Job file, YAML or JSON, which may contain its fabric; `-` reads stdin. With `--cluster` also a job name
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,
    /// Role whose pods will run here [default: Worker, or the first role of the job]
    #[arg(long, value_name = "ROLE", requires = "job", value_parser = super::parse_role)]
    pub(crate) role: Option<Role>,
    /// Checkpoint folder to test; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) volume: Vec<PathBuf>,
    /// Folder to read instead of `/`: a copy of `proc`, `sys` and `dev` from another machine
    #[arg(long, value_name = "DIR", default_value = "/", hide_short_help = true)]
    pub(crate) root: PathBuf,
    /// Nodes to check [default: the nodes that the job would get, or all nodes with GPUs]
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Cluster"
    )]
    pub(crate) nodes: Vec<String>,
    /// Image of this program that the nodes pull
    #[arg(long, value_name = "IMAGE", default_value = IMAGE, help_heading = "Cluster")]
    pub(crate) image: String,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}
