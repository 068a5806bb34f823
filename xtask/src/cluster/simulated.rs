//! Simulated nodes: thousands of pods without a process behind any.
//!
//! kwok plays the kubelet of every node that carries its annotation, by the rules in `stages.yaml`.
//! A test powers such a node off by taking the annotation away: its lease runs out as a dead
//! node's would.

use std::{collections::BTreeSet, fmt::Write as _, io::Write as _, process::Stdio, time::Duration};

use super::{Cluster, binaries::KUBERNETES, control_plane, nodes, piece, piece::Piece, wait};
use crate::Failure;

const STAGES: &str = include_str!("stages.yaml");
const MANAGED: &str = "kwok.x-k8s.io/node";
/// The label that distinguishes simulated nodes from real ones, for a node selector.
pub(super) const KIND: &str = "test.trainyard.dev/node";
/// Seen: 500 nodes in 21 s on two busy cores.
const LIMIT: Duration = Duration::from_mins(5);

/// How long the lease of a node lasts where there are `count`. Each is renewed four times in that time, and thousands of
/// nodes with the kubelet's 40 s would be all that the API server is busy with.
pub(super) fn lease_seconds(count: usize) -> usize {
    40 * count.div_ceil(500).max(1)
}

/// Starts kwok and makes the simulated nodes up to `count`; those that are there stay.
pub(super) fn up(cluster: &Cluster, count: usize) -> Result<(), Failure> {
    let stages = cluster.state.write("config/stages.yaml", STAGES)?;
    let config = control_plane::client_config(cluster, "kwok")?;
    Piece::new("kwok", "kwok")
        .with(format!("--config={}", stages.display()))
        .with(format!("--kubeconfig={config}"))
        .with("--manage-all-nodes=false")
        .with(format!(
            "--manage-nodes-with-annotation-selector={MANAGED}=simulated"
        ))
        .with(format!(
            "--node-lease-duration-seconds={}",
            lease_seconds(count)
        ))
        .with(format!("--node-ip={}", control_plane::ADDRESS))
        // As many as there may be pods; nothing answers there.
        .with("--cidr=10.64.0.0/12")
        .with("--server-address=127.0.0.1:10247")
        .start(cluster)?;
    let wanted: Vec<String> = (0..count).map(|at| format!("sim-{at:04}")).collect();
    let there: BTreeSet<String> = names(cluster)?.into_iter().collect();
    let missing: Vec<&String> = wanted
        .iter()
        .filter(|name| !there.contains(*name))
        .collect();
    if !missing.is_empty() {
        create(cluster, &missing)?;
    }
    wait::until("the simulated nodes to be ready", LIMIT, || {
        piece::must_run(cluster, "kwok")?;
        let ready: BTreeSet<String> = nodes::node_readiness(cluster)
            .into_iter()
            .filter_map(|(name, ready)| ready.then_some(name))
            .collect();
        // Those that a test powered off are none of ours.
        Ok(missing.iter().all(|name| ready.contains(*name)))
    })
}

/// The simulated nodes that are there.
fn names(cluster: &Cluster) -> Result<Vec<String>, Failure> {
    let output = cluster.kubectl(&[
        "get",
        "nodes",
        &format!("--selector={KIND}=simulated"),
        "--output=name",
    ])?;
    Ok(output
        .lines()
        .filter_map(|line| line.strip_prefix("node/"))
        .map(str::to_owned)
        .collect())
}

fn create(cluster: &Cluster, names: &[&String]) -> Result<(), Failure> {
    let lost = |error: std::io::Error| Failure::CouldNotRun(format!("lost `kubectl`: {error}"));
    let mut child = cluster
        .command("kubectl")
        .args(["create", "--filename=-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(lost)?;
    let mut input = child.stdin.take().expect("stdin is piped");
    let mut text = String::new();
    for name in names {
        // A node of the kind that training jobs are given.
        write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  \
             annotations: {{ {MANAGED}: simulated }}\n  labels:\n    \
             kubernetes.io/hostname: {name}\n    kubernetes.io/os: linux\n    \
             kubernetes.io/arch: amd64\n    {KIND}: simulated\nstatus:\n  nodeInfo:\n    \
             architecture: amd64\n    operatingSystem: linux\n    \
             kubeletVersion: {KUBERNETES}\n",
        )
        .expect("a string takes whatever is written");
        for part in ["capacity", "allocatable"] {
            writeln!(
                text,
                "  {part}: {{ cpu: \"96\", memory: 1Ti, ephemeral-storage: 1Ti, pods: \"110\", nvidia.com/gpu: \"8\" }}"
            )
            .expect("a string takes whatever is written");
        }
    }
    input.write_all(text.as_bytes()).map_err(lost)?;
    drop(input);
    let status = child.wait().map_err(lost)?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "cannot make the simulated nodes: `kubectl create` ended with {status}"
        )))
    }
}
