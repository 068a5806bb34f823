//! `trainyard checkpoints`: what a folder of checkpoints holds, whether it is intact, and what may be removed.

mod convert;
mod diff;
mod opened;
mod show;
mod work;

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use trainyard_checkpoint_engine::{
    open, remove,
    verify::{Verified, verify_present},
};
use trainyard_core::checkpoint::{Policy, StepLine, StepState};

use self::opened::{Opened, look, open_store};
use crate::{
    args::{
        Checkpoints, CheckpointsCommand, CheckpointsLs, CheckpointsPrune, CheckpointsVerify, Format,
    },
    failure::{Exit, Failure},
    printer::Printer,
    table::columns,
    words,
};

/// Runs the subcommand.
pub(super) fn run(args: &Checkpoints, printer: &mut Printer) -> Result<Exit, Failure> {
    match &args.command {
        CheckpointsCommand::Ls(args) => ls(args, printer),
        CheckpointsCommand::Show(args) => show::run(args, printer),
        CheckpointsCommand::Verify(args) => run_verify(args, printer),
        CheckpointsCommand::Prune(args) => prune(args, printer),
        CheckpointsCommand::Diff(args) => diff::run(args, printer),
        CheckpointsCommand::Convert(args) => convert::run(args, printer),
    }
}

/// Fails for the address of a bucket, which `diff` and `convert` do not read.
fn refuse_address(command: &str, place: &Path) -> Result<(), Failure> {
    match open::scheme(place) {
        Some(scheme) => Err(Failure::new(format!(
            "`checkpoints {command}` does not support `{scheme}://` addresses: `{}`",
            place.display()
        ))
        .hint("copy the checkpoint to a folder first")),
        None => Ok(()),
    }
}

fn line_json(opened: &Opened, line: &StepLine) -> Value {
    let tiers = opened.tiers(&line.name).iter().map(|on| {
        json!({
            "tier": on.tier.name(),
            "root": opened.root_of(on),
            "committed": on.is_committed,
            "pieces": on.pieces,
            "bytes": on.bytes,
        })
    });
    json!({
        "step": line.name.step,
        "attempt": line.name.attempt,
        "restart": line.restart,
        "folder": line.name.to_string(),
        "state": line.state.name(),
        "why": line.why,
        "world": line.world,
        "bytes": line.bytes,
        "ageSeconds": line.age,
        "tiers": tiers.collect::<Vec<_>>(),
    })
}

/// Where the tiers are in the table.
const TIERS_COLUMN: usize = 6;

fn ls(args: &CheckpointsLs, printer: &mut Printer) -> Result<Exit, Failure> {
    let opened = look(&args.root, &args.local)?;
    let summary = &opened.summary;
    if args.format == Format::Json {
        printer.json(&json!({
            "version": 1,
            "run": summary.run,
            "attempt": summary.attempt.map(|id| id.attempt),
            "restart": summary.attempt.map(|id| id.restart),
            "newest": summary.newest().map(|line| line.name.to_string()),
            "steps": summary.steps.iter().map(|line| line_json(&opened, line)).collect::<Vec<_>>(),
            "notes": summary.notes,
        }))?;
        return Ok(Exit::Done);
    }
    if summary.steps.is_empty() {
        printer.summary("no checkpoints");
    } else {
        let header = [
            "STEP", "ATTEMPT", "STATE", "AGE", "BYTES", "RANKS", "TIERS", "REASON",
        ];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(summary.steps.iter().map(|line| {
            let world = line.world.map(|world| world.to_string());
            vec![
                line.name.step.to_string(),
                line.name.attempt.to_string(),
                line.state.to_string(),
                age(line),
                words::grouped(line.bytes),
                world.unwrap_or_else(|| "-".into()),
                opened.tiers_named(&line.name),
                line.why.clone().unwrap_or_default(),
            ]
        }));
        if args.local.is_empty() {
            // With one tier the column says nothing.
            for row in &mut rows {
                row.remove(TIERS_COLUMN);
            }
        }
        printer.data(columns(&rows).as_bytes())?;
    }
    for note in &summary.notes {
        printer.summary(&format!("note: {note}"));
    }
    Ok(Exit::Done)
}

fn put(text: &mut String, part: &str) {
    text.push_str(part);
}

fn age(line: &StepLine) -> String {
    line.age.map_or_else(
        || "unknown".into(),
        |seconds| words::age(std::time::Duration::from_secs(seconds)),
    )
}

fn verified_json(line: &StepLine, verified: &Verified) -> Value {
    let problems = verified.problems.iter().map(|problem| {
        json!({
            "file": problem.file,
            "chunk": problem.chunk,
            "tensors": problem.tensors,
            "why": problem.why,
        })
    });
    json!({
        "step": line.name.step,
        "attempt": line.name.attempt,
        "folder": line.name.to_string(),
        "state": line.state.name(),
        "intact": verified.problems.is_empty(),
        "problems": problems.collect::<Vec<_>>(),
        "surplus": verified.surplus,
        "bytesRead": verified.bytes_read,
    })
}

fn run_verify(args: &CheckpointsVerify, printer: &mut Printer) -> Result<Exit, Failure> {
    let opened = look(&args.root, &[])?;
    let lines: Vec<&StepLine> = match &args.step {
        Some(step) => vec![opened.find(step)?],
        None => opened.summary.steps.iter().collect(),
    };
    let mut results = Vec::new();
    for line in lines {
        let verified = match opened.commit(&line.name) {
            Some(seen) => {
                let commit = &seen.commit.document;
                match verify_present(&opened.store, &seen.folder, commit, args.deep) {
                    Some(verified) => verified,
                    // A job that runs removes steps while they are read.
                    None if args.step.is_none() => continue,
                    None => {
                        return Err(Failure::new(format!(
                            "step {} was removed while it was verified",
                            line.name.step
                        )));
                    }
                }
            }
            // A save that was not finished is no fault of the store; one that was asked for by name is not intact.
            None if args.step.is_none() && line.state != StepState::Suspect => continue,
            None => {
                let mut verified = Verified::default();
                let why = line.why.clone().unwrap_or_else(|| "not committed".into());
                verified.add(format!("{}/COMMIT.json", line.name.path()), why);
                verified
            }
        };
        results.push((line, verified));
    }
    let is_intact = results
        .iter()
        .all(|(_, verified)| verified.problems.is_empty());
    let has_any = !results.is_empty();
    if args.format == Format::Json {
        let steps: Vec<Value> = results
            .iter()
            .map(|(line, verified)| verified_json(line, verified))
            .collect();
        printer.json(&json!({"version": 1, "deep": args.deep, "steps": steps}))?;
    } else {
        for (line, verified) in &results {
            let state = if verified.problems.is_empty() {
                "intact"
            } else {
                "damaged"
            };
            let mut text = format!("step {} (`{}`): {state}\n", line.name.step, line.name);
            for problem in &verified.problems {
                put(&mut text, &format!("  {}", problem.why));
                if !problem.tensors.is_empty() {
                    let names: Vec<String> = problem
                        .tensors
                        .iter()
                        .map(|name| format!("`{name}`"))
                        .collect();
                    put(&mut text, &format!("; tensors {}", names.join(", ")));
                }
                text.push('\n');
            }
            for name in &verified.surplus {
                put(
                    &mut text,
                    &format!("  note: `{name}` is not part of the checkpoint\n"),
                );
            }
            printer.data(text.as_bytes())?;
        }
        if !has_any {
            printer.summary("no committed checkpoint");
        }
    }
    Ok(if is_intact && has_any {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn prune(args: &CheckpointsPrune, printer: &mut Printer) -> Result<Exit, Failure> {
    let store = open_store(&args.root)?;
    let policy = Policy {
        last: args.keep,
        ..Policy::default()
    };
    let pruned = remove::prune(&store, None, &policy, args.dry_run)
        .with_context(|| format!("cannot prune the checkpoints in `{}`", args.root.display()))?;
    if args.format == Format::Json {
        let removed = pruned.removed.iter().map(
            |(folder, why)| json!({"folder": folder.to_string(), "step": folder.step, "why": why.to_string()}),
        );
        let kept = pruned.kept.iter().map(|(folder, reasons)| {
            let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            json!({"folder": folder, "why": reasons})
        });
        printer.json(&json!({
            "version": 1,
            "dryRun": args.dry_run,
            "removed": removed.collect::<Vec<_>>(),
            "kept": kept.collect::<Vec<_>>(),
            "abortedUploads": pruned.uploads,
            "failures": pruned.failures,
        }))?;
    } else {
        let verb = if args.dry_run {
            "would remove"
        } else {
            "removed"
        };
        let mut text = String::new();
        for (folder, why) in &pruned.removed {
            put(&mut text, &format!("{verb} `{folder}`: {why}\n"));
        }
        for (folder, reasons) in &pruned.kept {
            let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            put(
                &mut text,
                &format!("kept `{folder}`: {}\n", reasons.join(", ")),
            );
        }
        printer.data(text.as_bytes())?;
        for failure in &pruned.failures {
            printer.message(&format!("error: {failure}\n"));
        }
        let count = words::counted(pruned.removed.len() as u64, "folder");
        let mut summary = format!("{verb} {count}, kept {}", pruned.kept.len());
        if pruned.uploads > 0 {
            let uploads = words::counted(pruned.uploads, "incomplete upload");
            put(&mut summary, &format!(", aborted {uploads}"));
        }
        printer.summary(&summary);
    }
    Ok(if pruned.failures.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}
