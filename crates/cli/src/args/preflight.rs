//! The words of `preflight`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use trainyard_core::spec::Role;

use super::{Format, Place};

/// The image that a release is published as.
const IMAGE: &str = concat!("trainyard:", env!("CARGO_PKG_VERSION"));

/// Say whether this machine is fit for training, or for a job
///
/// Looks at processors, memory, limits, GPUs, network and RDMA devices, and holds them to what the job and
/// its fabric need, or where none is named to what any training job needs. Each check tells what was found
/// and needed; what is not as it should be also has its likely cause, the next step, and who can take it.
///
/// Only looks, within 3 seconds; nothing is changed. Volumes are tried by writing at most 64 MiB, within
/// 10 seconds, and left as they were.
///
/// With `--cluster` it starts one small pod on each node, with the annotations, devices and volumes of the job's own,
/// has them measure themselves and the paths between them, and removes them, within 5 minutes. Devices that others hold
/// are left alone.
///
/// Exit code 0: fit, perhaps with warnings. 1: a check failed. 2: it could not be found out.
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
    /// Job file, YAML or JSON, with its fabric beside it; `-` reads stdin. With `--cluster` also the name of a job
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,
    /// The role whose pods the machine is for; else Worker, or the first that the job has
    #[arg(long, value_name = "ROLE", requires = "job", value_parser = super::parse_role)]
    pub(crate) role: Option<Role>,
    /// Folder that checkpoints go to, which is tried; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) volume: Vec<PathBuf>,
    /// Folder that stands for `/`: a tree of `proc`, `sys` and `dev` that was written down elsewhere
    #[arg(long, value_name = "DIR", default_value = "/", hide_short_help = true)]
    pub(crate) root: PathBuf,
    /// Nodes of the cluster that are looked at; else those where the job would go, or all with GPUs
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Cluster"
    )]
    pub(crate) nodes: Vec<String>,
    /// Image of this program, which the nodes pull
    #[arg(long, value_name = "IMAGE", default_value = IMAGE, help_heading = "Cluster")]
    pub(crate) image: String,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Take part in a preflight of a cluster, as its variables say
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
    /// How to write the checks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}
