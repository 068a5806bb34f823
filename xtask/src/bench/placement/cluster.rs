//! Gangs in a real cluster of simulated nodes, until every pod has a node: with seats of ours, and by the cluster's own
//! scheduler alone, without and with its own gangs. The operator, its pods and the scheduler that binds them are the same both times.

use super::super::{
    Figure,
    operator::{number, ready, tools},
};
use crate::{Failure, report, step};

const NODES: usize = 5_000;
const JOBS: usize = 250;
const PODS: usize = 16;
/// GPUs of a pod, as many as a node has.
const GPUS: usize = 8;
/// Pods a second, as a part of what the scheduler does alone.
const OF_THE_SCHEDULER: f64 = 0.9;

/// Measures all three, each on a fresh cluster.
pub(super) fn figures() -> Result<Vec<Figure>, Failure> {
    let alone = rate("the scheduler alone", &["--no-placement"])?;
    let ours = rate("seats of ours", &[])?;
    let native = rate(
        "Kubernetes' own gangs",
        &["--no-placement", "--gang-scheduler-name", "native"],
    )?;
    let ratio = ours / alone;
    Ok(vec![
        Figure {
            name: format!("{JOBS} gangs of {PODS} pods on {NODES} nodes, until all have a node"),
            measured: format!(
                "{ours:.0} pods/s, kube-scheduler alone {alone:.0} pods/s: {ratio:.2} of it"
            ),
            bound: format!("at least {OF_THE_SCHEDULER} of it"),
            met: ratio >= OF_THE_SCHEDULER,
        },
        Figure {
            name: "the same, beside Kubernetes' own gang scheduling".to_owned(),
            measured: format!(
                "{ours:.0} pods/s, native {native:.0} pods/s: {:.2} of it",
                ours / native
            ),
            bound: String::new(),
            met: true,
        },
    ])
}

/// Pods a second.
fn rate(name: &str, flags: &[&str]) -> Result<f64, Failure> {
    let (binary, load) = tools()?;
    report::progress(&format!("{JOBS} gangs on {NODES} nodes, {name}"));
    let fixture = ready(NODES)?;
    let mut command = fixture.command(&load.to_string_lossy());
    command
        .args(["--jobs", &JOBS.to_string(), "--pods", &PODS.to_string()])
        .args(["--gpus", &GPUS.to_string(), "--until-bound", "yes"])
        .args(["--metrics", "127.0.0.1:8080", "--"])
        .arg(binary)
        .args(["operator", "--no-leader-elect"])
        .args(["--metrics-bind", "127.0.0.1:8080"])
        .args(flags);
    let text = step::capture(&mut command)?;
    Ok(number(&text, "pods")? / number(&text, "boundSeconds")?)
}
