//! Runs that `testdata/plan/measure_torch.py` measured on one GPU, read into steps that can be timed.

use serde::Deserialize;

use super::{
    super::{
        flops::Convention,
        hardware::{self, Cluster, Precision},
        layout::{Layout, Recompute, Sharding},
        names, software,
    },
    read::Run,
};

/// One line of the script.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    run: String,
    model: String,
    sequence: u32,
    micro_batch: u32,
    micro_batches: u32,
    format: String,
    recompute: String,
    step_seconds: f64,
    device_gib: f64,
    gpu: String,
}

/// A run with what was measured.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    /// As the script names it.
    pub name: String,
    /// The model.
    pub model: String,
    /// What was run.
    pub run: Run,
    /// Median seconds of a step.
    pub seconds: f64,
    /// GiB of the GPU that were taken at the peak, as the driver counts.
    pub gib: f64,
}

/// Reads the script's lines; the error says in words what a line lacks.
pub fn measured_runs(text: &str) -> Result<Vec<MeasuredRun>, String> {
    text.lines()
        .filter(|line| !line.is_empty())
        .map(read_line)
        .collect()
}

fn read_line(text: &str) -> Result<MeasuredRun, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let gpu = hardware::gpu(&line.gpu).map_err(|error| error.to_string())?;
    let shape = names::model(&line.model)
        .map_err(|error| error.to_string())?
        .shape();
    let software = match line.format.as_str() {
        "bf16" => software::TORCH_BF16,
        _ => software::TORCH,
    };
    let recompute = match line.recompute.as_str() {
        "full" => Recompute::Full,
        _ => Recompute::None,
    };
    Ok(MeasuredRun {
        name: line.run,
        model: line.model,
        run: Run {
            shape,
            layout: Layout {
                micro_batch: line.micro_batch,
                recompute,
                sharding: Sharding::None,
                ..Layout::single()
            },
            cluster: Cluster {
                network: gpu.network,
                gpu,
                gpus: 1,
                nodes_per_leaf: 0,
                oversubscription: 1.0,
                rates: None,
            },
            software,
            sequence: line.sequence,
            global_batch: line.micro_batch * line.micro_batches,
            precision: Precision::Bf16,
            convention: Convention::Model,
            assumed: Vec::new(),
        },
        seconds: line.step_seconds,
        gib: line.device_gib,
    })
}
