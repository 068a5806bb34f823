//! The arguments of `fabric`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::RenderFormat;

/// Generate network attachments from fabrics
///
/// Writes one `NetworkAttachmentDefinition` for every Fabric in the files that has a `network`, for macvlan,
/// ipvlan, host-device or ib-sriov. Checks their address ranges against each other, and against the attachments
/// already in the files.
///
/// Exit code 0: written. 1: the files contain errors, and nothing was written. 2: the command could not run.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  trainyard fabric fabrics.yaml | kubectl apply -f -
  kubectl get fabric roce-a -o yaml | trainyard fabric -
  trainyard fabric roce-a.yaml roce-b.yaml --namespace networks")]
pub(crate) struct Fabric {
    /// Files with fabrics, YAML or JSON; `-` reads stdin
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Namespace of attachments whose fabric sets none
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) format: RenderFormat,
}
