//! The words of `place` and `nodes`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Cluster, Format};

/// Say where the pods of a job would go, and why
///
/// Takes the cluster as it is, or a file of nodes, and seats every job of FILE in it: all pods or none, on
/// neighbouring nodes. Nothing is created. Where a job gets no seats, the numbers say why, and what would fit.
///
/// Exit code 0: every job gets seats. 1: at least one does not. 2: it could not be found out.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard place job.yaml
  kubectl get nodes,pods -A -o json > nodes.json
  trainyard place job.yaml --nodes nodes.json
  trainyard place job.yaml --nodes nodes.yaml --format json | jq '.jobs[].seats'")]
pub(crate) struct PlaceJob {
    /// Job file, YAML or JSON; `-` reads stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) node_source: NodeSource,
    /// How to write the seats
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Draw the topology of a cluster, with free and held seats
///
/// Every accelerator is one sign: free, held by a gang, held by other pods, or on a node that is out. Domains of
/// many nodes are summed up unless `--all` is given.
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
    /// Draw every node, however many there are
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Write a drawing to this file too
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// How to write the tree
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Which nodes are meant.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct NodeSource {
    /// Nodes and pods from a file, as `kubectl get nodes,pods -A -o json` writes it; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "context", "kubeconfig"])]
    pub(crate) nodes: Option<PathBuf>,
    /// Label keys of the topology, from wide to narrow; else the well-known ones
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub(crate) topology: Vec<String>,
    /// The nodes of a cluster, which is also the default
    #[arg(long)]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) server: Cluster,
}
