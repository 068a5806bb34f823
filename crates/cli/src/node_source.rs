//! Reads the nodes that a command is about, from a cluster or a file.

use anyhow::Context as _;
use serde_json::Value;
use trainyard_core::{
    gang::{NotACluster, Snapshot},
    spec,
};
use trainyard_kube::look::Look;

use crate::{args::NodeSource, cluster, failure::Failure, printer::Printer, source};

/// Largest file of nodes: JSON of a hundred thousand nodes with their pods.
const MAX_BYTES: usize = 2 << 30;

/// Lint rules about the limits on YAML files.
const TOO_LARGE: [&str; 3] = ["TY004", "TY006", "TY012"];

/// The cluster snapshot that the arguments select; prints its warnings.
pub(crate) fn snapshot(args: &NodeSource, printer: &mut Printer) -> Result<Snapshot, Failure> {
    let snapshot = read(args)?;
    for warning in warnings(&snapshot) {
        printer.summary(&warning);
    }
    Ok(snapshot)
}

/// One line for each warning of a snapshot.
pub(crate) fn warnings(snapshot: &Snapshot) -> Vec<String> {
    let warnings = snapshot.warnings.iter();
    warnings.map(|it| format!("warning: {it}")).collect()
}

/// The same, of a cluster that may have no nodes yet; prints its warnings.
pub(crate) fn snapshot_or_empty(
    args: &NodeSource,
    printer: &mut Printer,
) -> Result<Snapshot, Failure> {
    let snapshot = read_with(args, true)?;
    for warning in warnings(&snapshot) {
        printer.summary(&warning);
    }
    Ok(snapshot)
}

/// The cluster snapshot that the arguments select.
pub(crate) fn read(args: &NodeSource) -> Result<Snapshot, Failure> {
    read_with(args, false)
}

fn read_with(args: &NodeSource, may_be_empty: bool) -> Result<Snapshot, Failure> {
    let mut snapshot = if let Some(path) = &args.nodes {
        let name = source::name(path);
        let values = values(&name, &source::read(path, MAX_BYTES)?)?;
        // A list without items is a cluster without nodes; a file of something else is a mistake.
        let is_list = values.iter().all(is_empty_list);
        match Snapshot::of_values(values) {
            Err(NotACluster::NoNode) if may_be_empty && is_list => Ok(Snapshot::default()),
            read => read,
        }
        .with_context(|| format!("`{name}` is not a file of nodes"))
        .map_err(|error| {
            Failure::from(error)
                .hint("write one with `kubectl get nodes,pods -A -o json > nodes.json`")
        })?
    } else {
        let server = args.server.clone();
        Look::connect(server.kubeconfig, server.context)
            .and_then(|look| look.snapshot())
            .map_err(cluster::refused)?
    };
    if !args.topology.is_empty() {
        snapshot.set_topology(args.topology.iter().map(String::as_str));
    }
    Ok(snapshot)
}

fn is_empty_list(value: &Value) -> bool {
    let kind = value.get("kind").and_then(Value::as_str);
    let items = value.get("items").and_then(Value::as_array);
    matches!(kind, Some("List" | "NodeList")) && items.is_some_and(Vec::is_empty)
}

/// The objects of a file. JSON is limited by [`MAX_BYTES`] only; YAML by the limits of job files.
fn values(name: &str, bytes: &[u8]) -> Result<Vec<Value>, Failure> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        let value =
            serde_json::from_slice(bytes).with_context(|| format!("`{name}` is not valid JSON"))?;
        return Ok(vec![value]);
    }
    match spec::read(bytes) {
        Ok(file) => Ok(file
            .documents
            .iter()
            .map(|document| document.tree.to_json())
            .collect()),
        Err(finding) => {
            let place = format!("{name}:{}:{}", finding.span.line, finding.span.column);
            let failure = Failure::new(format!("{place}: {}", finding.message));
            let is_large = TOO_LARGE.contains(&finding.code);
            Err(if is_large {
                failure.hint("JSON files may be larger: `kubectl get nodes,pods -A -o json`")
            } else {
                failure
            })
        }
    }
}
