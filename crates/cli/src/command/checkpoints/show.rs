//! `trainyard checkpoints show`: one step, its ranks and its tensors.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trainyard_checkpoint_engine::verify::read_layout;
use trainyard_core::checkpoint::{Commit, Entry, Layout, LayoutId, StepFile, StepState};

use super::{Opened, age, line_json, look, put};
use crate::{
    args::{CheckpointsShow, Format},
    failure::{Exit, Failure},
    printer::Printer,
    table::columns,
    words,
};

/// Tensors that are listed as text; JSON has all.
const LISTED: usize = 200;

/// A part of a tensor in a file.
struct Part {
    rank: u32,
    file: String,
    start: u64,
    bytes: u64,
    region: String,
}

/// Prints the step.
pub(super) fn run(args: &CheckpointsShow, printer: &mut Printer) -> Result<Exit, Failure> {
    let opened = look(&args.root, &args.local)?;
    let line = opened.find(&args.step)?;
    let commit = opened.commit(&line.name).map(|seen| seen.commit.document);
    let (layouts, problems) = match &commit {
        Some(commit) => layouts(&opened, commit),
        None => (BTreeMap::new(), Vec::new()),
    };
    let tensors = tensors(&layouts);
    let parts = match (&args.tensor, &commit) {
        (Some(name), Some(commit)) => {
            if !tensors.contains_key(name.as_str()) {
                return Err(Failure::new(format!(
                    "step {} has no tensor `{name}`",
                    line.name.step
                ))
                .hint("list its tensors with `trainyard checkpoints show ROOT STEP`"));
            }
            parts(commit, &layouts, name)
        }
        _ => Vec::new(),
    };
    let is_good = line.state == StepState::Complete && problems.is_empty();
    if args.format == Format::Json {
        let mut document = line_json(&opened, line);
        document["version"] = json!(1);
        document["problems"] = json!(problems);
        document["seconds"] = json!(commit.as_ref().map(|commit| commit.seconds));
        document["finite"] = json!(commit.as_ref().and_then(|commit| commit.finite));
        match &args.tensor {
            None => {
                document["ranks"] = ranks_json(commit.as_ref());
                document["tensors"] = tensors.values().map(|entry| tensor_json(entry)).collect();
            }
            Some(name) => {
                document["tensor"] = tensors
                    .get(name.as_str())
                    .map_or(Value::Null, |e| tensor_json(e));
                let parts = parts.iter().map(|part| {
                    json!({
                        "rank": part.rank,
                        "file": part.file,
                        "start": part.start,
                        "bytes": part.bytes,
                        "region": part.region,
                    })
                });
                document["parts"] = parts.collect();
            }
        }
        printer.json(&document)?;
    } else {
        let mut text = format!("step {} (`{}`)\n", line.name.step, line.name);
        let mut field = |name: &str, value: &str| {
            put(&mut text, &format!("  {name:<9}{value}\n"));
        };
        let why = line.why.as_ref().map(|why| format!(": {why}"));
        field(
            "state",
            &format!("{}{}", line.state, why.unwrap_or_default()),
        );
        field("attempt", &line.name.attempt.to_string());
        field("age", &age(line));
        field("bytes", &words::grouped(line.bytes));
        if !args.local.is_empty() {
            field("tiers", &opened.tiers_named(&line.name));
        }
        if let Some(commit) = &commit {
            field("ranks", &commit.world.to_string());
            field("write", &format!("{:.1} s", commit.seconds.write));
        }
        for problem in &problems {
            field("problem", problem);
        }
        if args.tensor.is_some() {
            let header = ["RANK", "FILE", "FIRST BYTE", "BYTES", "REGION"];
            let mut rows = vec![header.map(str::to_owned).to_vec()];
            rows.extend(parts.into_iter().map(|part| {
                vec![
                    part.rank.to_string(),
                    part.file,
                    part.start.to_string(),
                    part.bytes.to_string(),
                    part.region,
                ]
            }));
            text.push_str(&columns(&rows));
        } else if !tensors.is_empty() {
            let header = ["TENSOR", "DTYPE", "SHAPE"];
            let mut rows = vec![header.map(str::to_owned).to_vec()];
            rows.extend(tensors.values().take(LISTED).map(|entry| {
                vec![
                    entry.name.clone(),
                    format!("{:?}", entry.dtype),
                    format!("{:?}", entry.shape),
                ]
            }));
            text.push_str(&columns(&rows));
            if let Some(more) = tensors.len().checked_sub(LISTED).filter(|more| *more > 0) {
                put(
                    &mut text,
                    &format!("and {more} more; `--format json` lists all\n"),
                );
            }
        }
        printer.data(text.as_bytes())?;
    }
    Ok(if is_good { Exit::Done } else { Exit::Failed })
}

/// The layouts of a commit that can be read, and what is wrong with the others.
fn layouts(opened: &Opened, commit: &Commit) -> (BTreeMap<LayoutId, Layout>, Vec<String>) {
    let (mut found, mut problems) = (BTreeMap::new(), Vec::new());
    for wanted in &commit.layouts {
        let mut failure = None;
        for store in opened.stores() {
            match read_layout(store, &commit.folder(), wanted) {
                Ok(layout) => {
                    found.insert(wanted.id, layout);
                    break;
                }
                // What the root says is said; a local tier has the files of its own ranks.
                Err(problem) => failure = Some(problem.why),
            }
        }
        if !found.contains_key(&wanted.id) {
            problems.extend(failure);
        }
    }
    (found, problems)
}

/// The tensors by name; parts of one tensor once.
fn tensors(layouts: &BTreeMap<LayoutId, Layout>) -> BTreeMap<&str, &Entry> {
    let entries = layouts.values().flat_map(|layout| &layout.tensors);
    entries.map(|entry| (entry.name.as_str(), entry)).collect()
}

fn tensor_json(entry: &Entry) -> Value {
    json!({"name": entry.name, "dtype": entry.dtype, "shape": entry.shape})
}

fn ranks_json(commit: Option<&Commit>) -> Value {
    let pieces = commit.into_iter().flat_map(|commit| &commit.pieces);
    pieces
        .map(|piece| {
            let bytes: u64 = piece.files.iter().map(|file| file.bytes).sum();
            json!({"rank": piece.rank, "files": piece.files.len(), "bytes": bytes, "layout": piece.layout})
        })
        .collect()
}

fn parts(commit: &Commit, layouts: &BTreeMap<LayoutId, Layout>, name: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in &commit.pieces {
        let Some(layout) = piece.layout.and_then(|id| layouts.get(&id)) else {
            continue;
        };
        // Coordinates come from another file than the mesh; only those that fit can be placed.
        let fits = piece.at.len() == layout.mesh.len()
            && piece
                .at
                .iter()
                .zip(&layout.mesh)
                .all(|(at, axis)| *at < axis.size);
        for entry in layout.tensors.iter().filter(|entry| entry.name == name) {
            let data = match &entry.shared {
                Some(hash) => (commit.shared.iter())
                    .find(|file| file.blake3 == *hash)
                    .map(|file| file.data),
                None => piece.files.get(entry.file as usize).map(|file| file.data),
            };
            let own = StepFile::Data {
                rank: piece.rank,
                file: entry.file,
            };
            parts.push(Part {
                rank: piece.rank,
                file: match &entry.shared {
                    Some(hash) => format!("shared/{hash}.safetensors"),
                    None => own.to_string(),
                },
                start: data.unwrap_or(0).saturating_add(entry.start),
                bytes: entry.bytes().unwrap_or(0),
                region: if fits {
                    entry.region(&layout.mesh, &piece.at).to_string()
                } else {
                    "unknown".into()
                },
            });
        }
    }
    parts
}
