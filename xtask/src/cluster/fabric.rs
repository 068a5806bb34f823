//! A second network for the pods of the real nodes: Multus in front of the nodes' own one, and an interface
//! for macvlan to stand on.
//!
//! Opt-in: a cluster has it once [`provide`] was called. Every pod that starts from then on goes through Multus,
//! which hands it to the bridge that it had anyway, and adds the networks that its annotation names.

use std::{path::Path, process::Stdio, time::Duration};

use super::{Cluster, binaries, nodes, others, piece, wait};
use crate::{Failure, step};

/// The interface of the nodes that tests attach pods to. The kernel may lack `dummy`, so it is one end of a
/// cable whose other end leads nowhere: macvlan in bridge mode needs no more.
const PARENT: &str = "
set -eu
ip link show fabric0 >/dev/null 2>&1 || ip link add fabric0 type veth peer name fabric0-end
ip link set fabric0-end up
ip link set fabric0 up
";

/// The definition of a network attachment, among the kinds of the cluster.
const DEFINITION: &str = "kinds/network-attachments.yaml";
const ESTABLISHED: Duration = Duration::from_mins(1);

/// Gives the real nodes of the cluster a second network.
pub(super) fn provide(cluster: &Cluster) -> Result<(), Failure> {
    let state = &cluster.state;
    binaries::provide(binaries::FABRIC, &state.file("bin"))?;
    others::provide(state)?;
    let mut parent = cluster.namespaces.command(Path::new("/"), "sh");
    step::run(parent.args(["-c", PARENT]))?;
    let mut define = cluster.command("kubectl");
    define
        .args(["apply", "--server-side", "--filename"])
        .arg(state.file(DEFINITION))
        .stdout(Stdio::null());
    step::run(&mut define)?;
    wait::until("network attachments to be served", ESTABLISHED, || {
        Ok(cluster.kubectl_succeeds(&["get", "network-attachment-definitions"]))
    })?;
    for node in &nodes::NODES {
        if node.write_multus(state)? {
            // It reads what networks there are when it starts.
            piece::stop(cluster, node.containerd, "TERM")?;
            piece::start(cluster, node.containerd)?;
        }
    }
    nodes::await_ready(cluster)
}
