//! `trainyard profile`: where the time of a training step goes.
//!
//! Analyses traces that exist, or has the engine of a run record them first. What a trace means is `trainyard-profile`'s.

mod files;
mod live;
mod merged;

use std::path::Path;

use serde::Serialize;
use trainyard_profile::analyse::{self, Report, Summary};

use self::files::{TraceFile, Traces};
use crate::{
    args::{Format, Profile},
    failure::{Exit, Failure},
    printer::Printer,
    stored,
};

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    /// Traces that could not be had or read, with the reason.
    missing: &'a [Missing],
    #[serde(flatten)]
    report: &'a Report,
}

/// A trace that there is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Missing {
    /// The file, or the rank.
    source: String,
    reason: String,
}

/// Analyses traces.
pub(super) fn run(args: &Profile, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return Err(Failure::new(
            "cannot record a trace on a cluster: `trainyard profile` records runs of this machine only",
        )
        .hint("copy traces that the program writes with `torch.profiler` here, then `trainyard profile FOLDER`"));
    }
    match args.targets.as_slice() {
        [job] if !looks_like_path(job) || is_live(job, args) => live::run(args, job, printer),
        paths => {
            refuse_recording(args)?;
            let read = files::read(files::find(paths)?, printer)?;
            analyse(args, None, read, Vec::new(), printer)
        }
    }
}

/// A job name has no slash and no dot; a file or folder that exists is meant, unless a job with that name runs.
fn looks_like_path(target: &str) -> bool {
    target.contains(['/', '.']) || Path::new(target).exists()
}

/// A job that runs is meant also where a folder has its name; `./NAME` is the folder.
fn is_live(target: &str, args: &Profile) -> bool {
    let is_name = !target.contains(['/', '.']);
    is_name && stored::open(&args.state).is_ok_and(|store| store.live_run(target).is_some())
}

/// Options of a recording say nothing about traces that exist.
fn refuse_recording(args: &Profile) -> Result<(), Failure> {
    let given = [
        ("--steps", args.steps.is_some()),
        ("--seconds", args.seconds.is_some()),
        ("--ranks", args.ranks.is_some()),
        ("--detailed", args.detailed),
        ("--out", args.out.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Failure::new(format!(
            "`{name}` is for recording a job, but `{}` is a file or folder",
            args.targets.join("`, `")
        ))
        .hint(format!(
            "leave `{name}` out, or name a job that `trainyard ps` lists"
        ))),
        None => Ok(()),
    }
}

/// Prints what follows from the traces that were read.
fn analyse(
    args: &Profile,
    job: Option<&str>,
    read: Traces,
    mut missing: Vec<Missing>,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    missing.extend(read.missing);
    for warning in &read.warnings {
        printer.summary(&format!("warning: {warning}"));
    }
    if read.summaries.is_empty() {
        let reasons: Vec<String> = missing
            .iter()
            .map(|it| format!("{}: {}", it.source, it.reason))
            .collect();
        return Err(Failure::new(format!(
            "no trace to analyse: {}",
            reasons.join("; ")
        )));
    }
    for it in &missing {
        printer.summary(&format!("warning: {}: {}", it.source, it.reason));
    }
    let (traces, mut summaries): (Vec<TraceFile>, Vec<Summary>) =
        read.summaries.into_iter().unzip();
    if let Some(path) = &args.merged {
        merged::write(path, &traces, &summaries)?;
        printer.summary(&format!(
            "wrote {}: open it in https://ui.perfetto.dev",
            path.display()
        ));
    }
    summaries.sort_by_key(|summary| summary.values.rank);
    if let Some(asked) = live::steps(args).filter(|_| job.is_some()) {
        for values in summaries.iter().map(|it| &it.values) {
            if values.steps < asked {
                printer.summary(&format!(
                    "warning: rank {}: the trace has {} of {asked} steps: a program that has not counted a step yet records half a second, and one \
                     with several optimizers counts each; record again once it trains, or more steps",
                    values.rank, values.steps
                ));
            }
        }
    }
    let report = analyse::report(summaries);
    match args.format {
        Format::Json => printer.json(&Document {
            job,
            missing: &missing,
            report: &report,
        })?,
        Format::Text => printer.data(analyse::page(&report).as_bytes())?,
    }
    Ok(if missing.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_paths() {
        for path in ["a/b", "./mnist", "x.json", "traces/", ".", "src"] {
            assert!(looks_like_path(path), "{path}");
        }
        assert!(!looks_like_path("mnist"));
    }
}
