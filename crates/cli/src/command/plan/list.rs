//! `trainyard plan --list`: what the names stand for, with the figures that a plan is made from.

use trainyard_core::plan::{
    hardware::{Precision, gpus, networks},
    names, software,
};

use crate::{args::Known, table::columns};

/// The table of one kind of name.
pub(super) fn list(what: Known) -> String {
    let rows = match what {
        Known::Gpus => gpu_rows(),
        Known::Models => model_rows(),
        Known::Software => software_rows(),
        Known::Networks => network_rows(),
    };
    columns(&rows)
}

/// Models named in a hint; `--list` prints the others.
const MODELS_NAMED: usize = 12;

/// The names alone, for a hint about `wanted`: all of them, or of models those that are most like it.
pub(super) fn names(what: Known, wanted: &str) -> String {
    let names: Vec<&str> = match what {
        Known::Gpus => gpus().iter().map(|gpu| gpu.name).collect(),
        Known::Models => names::nearest(wanted, MODELS_NAMED),
        Known::Software => software::ALL.iter().map(|software| software.name).collect(),
        Known::Networks => networks().iter().map(|network| network.name).collect(),
    };
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn heading(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn gpu_rows() -> Vec<Vec<String>> {
    let mut rows = vec![heading(&[
        "GPU", "GIB", "GB/S", "BF16", "FP8", "LINK", "NETWORK", "SOURCE",
    ])];
    for gpu in gpus() {
        rows.push(vec![
            gpu.name.to_owned(),
            format!("{:.1}", gpu.memory_gib),
            format!("{:.0}", gpu.memory_bandwidth / 1e9),
            format!("{:.0}", gpu.peak(Precision::Bf16) / 1e12),
            format!("{:.0}", gpu.peak(Precision::Fp8) / 1e12),
            format!("{:.0}", gpu.link.bandwidth / 1e9),
            format!("{:.1}", gpu.network / 1e9),
            gpu.source.to_owned(),
        ]);
    }
    rows
}

fn model_rows() -> Vec<Vec<String>> {
    let mut rows = vec![heading(&[
        "MODEL",
        "KIND",
        "PARAMETERS",
        "LAYERS",
        "HIDDEN",
        "HEADS",
        "KV",
        "FFN",
        "SEQUENCE",
    ])];
    for model in names::models() {
        let shape = model.shape();
        let kind = match (shape.encoder, shape.experts) {
            (true, _) => "encoder",
            (false, Some(_)) => "decoder, experts",
            (false, None) => "decoder",
        };
        rows.push(vec![
            model.name.to_owned(),
            kind.to_owned(),
            format!("{:.2} B", shape.parameters() / 1e9),
            shape.layers.to_string(),
            shape.hidden.to_string(),
            shape.heads.to_string(),
            shape.kv_heads.to_string(),
            shape.ffn.to_string(),
            model.sequence.to_string(),
        ]);
    }
    rows
}

fn software_rows() -> Vec<Vec<String>> {
    let mut rows = vec![heading(&["SOFTWARE", "WHAT IT IS"])];
    for software in software::ALL {
        rows.push(vec![software.name.to_owned(), software.about.to_owned()]);
    }
    rows
}

fn network_rows() -> Vec<Vec<String>> {
    let mut rows = vec![heading(&["NETWORK", "GB/S", "SOURCE"])];
    for network in networks() {
        rows.push(vec![
            network.name.to_owned(),
            format!("{:.1}", network.bandwidth / 1e9),
            network.source.to_owned(),
        ]);
    }
    rows
}
