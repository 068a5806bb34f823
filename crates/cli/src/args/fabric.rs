//! The words of `fabric`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::RenderFormat;

/// Write the network attachments that fabrics describe
///
/// Every Fabric of the files whose `network` says how pods reach it becomes one
/// `NetworkAttachmentDefinition`, for macvlan, ipvlan, host-device or ib-sriov. Their address ranges are
/// checked against each other, and against the attachments that the files hold already.
///
/// Exit code 0: written. 1: something in the files is wrong, and nothing was written. 2: it could not be done.
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
    /// Namespace of attachments whose fabric states none
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// How to write them
    #[arg(long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) format: RenderFormat,
}
