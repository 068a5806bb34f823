//! The arguments of `place` and `nodes`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Cluster, Format};

/// Show which nodes the pods of a job would get, and why
///
/// Reads the cluster, or a file of nodes, and assigns nodes to every job in FILE: to all pods or none, on
/// neighbouring nodes. Creates nothing. If a job does not fit, prints the numbers that show why, and what would fit.
///
/// With `--capacity`, says for each job whether it fits now, fits after a scale-up (which nodes, how many, how long such nodes
/// took, what they cost), or never fits, with the smallest change that helps.
///
/// Exit code 0: every job fits. 1: at least one does not fit now. 2: it could not be determined.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard place job.yaml
  trainyard place job.yaml --capacity capacity.yaml
  kubectl get nodes,pods -A -o json > nodes.json
  trainyard place job.yaml --nodes nodes.json
  trainyard place job.yaml --nodes nodes.yaml --format json | jq '.jobs[].seats'")]
pub(crate) struct PlaceJob {
    /// Job file, YAML or JSON; `-` reads stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) node_source: NodeSource,
    /// Read nodes that could be added from this file: `kind: Capacity`, `NodePool` objects of Karpenter, or the Cluster
    /// Autoscaler's status; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) capacity: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Show the topology of a cluster, with free and used accelerators
///
/// Each accelerator is one character: free, used by a gang, used by other pods, or unavailable. Domains with
/// many nodes are summarized unless you pass `--all`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard nodes
  trainyard nodes --nodes nodes.json --svg nodes.svg
  trainyard nodes --topology example.com/row,example.com/rack
  trainyard nodes --format json | jq .cluster.accelerators")]
pub(crate) struct Nodes {
    #[command(flatten)]
    pub(crate) node_source: NodeSource,
    /// Show every node, however many there are
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print it again every two seconds, until Ctrl-C
    #[arg(short, long, conflicts_with_all = ["format", "svg", "nodes"])]
    pub(crate) watch: bool,
    /// Also write an SVG drawing to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Where to read nodes from.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct NodeSource {
    /// Read nodes and pods from a file that `kubectl get nodes,pods -A -o json` wrote; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "context", "kubeconfig"])]
    pub(crate) nodes: Option<PathBuf>,
    /// Topology label keys, from widest to narrowest [default: the well-known labels]
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub(crate) topology: Vec<String>,
    /// Read nodes from a cluster (the default)
    #[arg(long)]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) server: Cluster,
}
