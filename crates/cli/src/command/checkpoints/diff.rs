//! `trainyard checkpoints diff`: what differs between two checkpoints.

use std::path::Path;

use serde_json::{Value, json};
use trainyard_checkpoint_engine::formats::{
    Contents, FormatError,
    compare::Difference,
    diff::{Diff, diff},
    open,
};

use super::{put, work::with_progress};
use crate::{
    args::{CheckpointsDiff, Format},
    failure::{Exit, Failure},
    printer::Printer,
    table::columns,
    words,
};

/// Lines of each kind that are printed as text; JSON has all.
const LISTED: usize = 50;
/// Letters of a value that are printed as text.
const SHOWN: usize = 60;

/// A sentence about a file, as a failure of the command.
pub(super) fn cannot(error: &FormatError) -> Failure {
    Failure::new(error.to_string())
}

/// Compares and prints.
pub(super) fn run(args: &CheckpointsDiff, printer: &mut Printer) -> Result<Exit, Failure> {
    let open_one = |text: &str| -> Result<Contents, Failure> {
        let opened = match &args.root {
            Some(root) => open(root, Some(text)),
            None => open(Path::new(text), None),
        };
        opened.map_err(|error| {
            let is_step = args.root.is_none() && !Path::new(text).exists();
            let failure = cannot(&error);
            if is_step {
                failure.hint("give a path, or `--root ROOT` and two steps")
            } else {
                failure
            }
        })
    };
    let (a, b) = (open_one(&args.a)?, open_one(&args.b)?);
    let total = a.bytes();
    let (tensors_a, tensors_b) = (a.tensors.len(), b.tensors.len());
    let (format_a, format_b) = (a.format, b.format);
    let found = with_progress(total, "compared", printer, move |done| diff(&a, &b, done))?
        .map_err(|error| cannot(&error))?;
    if args.format == Format::Json {
        printer.json(&document(
            &found,
            [
                (&args.a, format_a.name(), tensors_a),
                (&args.b, format_b.name(), tensors_b),
            ],
        ))?;
    } else {
        printer.data(text(&found).as_bytes())?;
        if !found.has_state {
            printer.summary("note: small state was not compared: A or B has none");
        }
    }
    Ok(if found.is_same() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn document(diff: &Diff, sides: [(&String, &str, usize); 2]) -> Value {
    let [a, b] = sides
        .map(|(path, format, tensors)| json!({"path": path, "format": format, "tensors": tensors}));
    let kinds = diff.other_kind.iter().map(|(name, one, two)| {
        json!({
            "name": name,
            "a": {"dtype": one.0, "shape": one.1},
            "b": {"dtype": two.0, "shape": two.1},
        })
    });
    let differing = diff.differing.iter().map(|(name, one)| {
        json!({
            "name": name,
            "elements": one.elements,
            "differing": one.differing,
            "maxAbsolute": one.max_abs,
            "maxRelative": one.max_rel,
            "at": one.at,
            "nanA": one.nan_a,
            "nanB": one.nan_b,
            "notFinite": one.not_finite,
        })
    });
    let state = diff
        .state
        .iter()
        .map(|one| json!({"path": one.path, "a": one.a, "b": one.b}));
    json!({
        "version": 1,
        "same": diff.is_same(),
        "a": a,
        "b": b,
        "onlyA": diff.only_a,
        "onlyB": diff.only_b,
        "otherType": kinds.collect::<Vec<_>>(),
        "differing": differing.collect::<Vec<_>>(),
        "equal": diff.equal,
        "equalByChecksum": diff.equal_by_checksum,
        "nanA": diff.nan.0,
        "nanB": diff.nan.1,
        "stateCompared": diff.has_state,
        "state": state.collect::<Vec<_>>(),
    })
}

fn more(text: &mut String, count: usize) {
    if let Some(more) = count.checked_sub(LISTED).filter(|more| *more > 0) {
        put(
            text,
            &format!("and {more} more; `--format json` lists all\n"),
        );
    }
}

fn text(diff: &Diff) -> String {
    let mut text = String::new();
    for (side, names) in [("A", &diff.only_a), ("B", &diff.only_b)] {
        for name in names.iter().take(LISTED) {
            put(&mut text, &format!("only in {side}: `{name}`\n"));
        }
        more(&mut text, names.len());
    }
    for (name, one, two) in diff.other_kind.iter().take(LISTED) {
        put(
            &mut text,
            &format!(
                "other type or shape: `{name}` is {:?} {:?} in A and {:?} {:?} in B\n",
                one.0, one.1, two.0, two.1
            ),
        );
    }
    more(&mut text, diff.other_kind.len());
    if !diff.differing.is_empty() {
        let header = [
            "TENSOR",
            "DIFFERING",
            "OF",
            "MAX ABS",
            "MAX REL",
            "NAN A",
            "NAN B",
        ];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let listed = diff.differing.iter().take(LISTED);
        rows.extend(listed.map(|(name, one)| row(name, one)));
        text.push_str(&columns(&rows));
        more(&mut text, diff.differing.len());
    }
    for one in diff.state.iter().take(LISTED) {
        let [a, b] = [&one.a, &one.b].map(|value| match value {
            Some(value) => value.chars().take(SHOWN).collect::<String>(),
            None => "absent".to_owned(),
        });
        put(
            &mut text,
            &format!("state `{}`: {a} in A, {b} in B\n", one.path),
        );
    }
    more(&mut text, diff.state.len());
    let state = match (diff.has_state, diff.state.len() as u64) {
        (false, _) => String::new(),
        (true, 0) => "; small state is equal".to_owned(),
        (true, 1) => "; 1 value of small state differs".to_owned(),
        (true, count) => format!("; {count} values of small state differ"),
    };
    let differing = diff.differing.len() + diff.other_kind.len();
    let missing = diff.only_a.len() + diff.only_b.len();
    put(
        &mut text,
        &format!(
            "{} equal, {differing} different, {missing} only in one{state}\n",
            words::counted(diff.equal, "tensor")
        ),
    );
    text
}

fn row(name: &str, one: &Difference) -> Vec<String> {
    vec![
        name.to_owned(),
        words::grouped(one.differing),
        words::grouped(one.elements),
        format!("{:.3e}", one.max_abs),
        format!("{:.3e}", one.max_rel),
        words::grouped(one.nan_a),
        words::grouped(one.nan_b),
    ]
}
