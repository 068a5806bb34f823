//! `trainyard report`: where the time of jobs went.
//!
//! Owns arguments, words and drawings. What is added up, and what is a loss, is decided in [`trainyard_core::view::report`].

mod gather;
mod mfu;
mod svg;
#[cfg(test)]
mod testing;
mod text;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::view::report::Report;

use self::{gather::Gathered, mfu::Mfu};
use crate::{
    args::{Report as Args, ReportFormat},
    environment::Environment,
    failure::{Exit, Failure},
    printer::Printer,
    words,
};

/// Notes of one kind that are printed one by one.
const NOTES_MAX: usize = 10;

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(flatten)]
    report: Report,
    /// `machine` or `cluster`.
    source: &'static str,
    /// Runs that only the history has.
    from_history: u64,
    mfu: Mfu,
    unreadable: Vec<Unreadable>,
    notes: Vec<String>,
}

/// A run, a job or a history that cannot be read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unreadable {
    /// Absent where it is not one of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    reason: String,
}

impl Unreadable {
    fn sentence(&self) -> String {
        match (&self.job, &self.run_id) {
            (Some(job), Some(run)) => format!("job `{job}`, run `{run}`: {}", self.reason),
            (Some(job), None) => format!("job `{job}`: {}", self.reason),
            (None, _) => self.reason.clone(),
        }
    }
}

/// Runs the command.
pub(super) fn run(
    args: &Args,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let now = Timestamp::now();
    if args.since.is_some_and(|since| since > now) {
        return Err(Failure::new(
            "`--since` is in the future: no time lies after it",
        ));
    }
    let is_cluster = args.all_namespaces || args.place.is_cluster();
    if is_cluster && args.store.is_some() {
        return Err(Failure::new(
            "`--store` names a history of this machine; the jobs of a cluster are not in it",
        ));
    }
    // Before anything is read: a model that is not known is said at once.
    let model = mfu::model(&args.model)?;
    let gathered = if is_cluster {
        gather::cluster(args, now)?
    } else {
        gather::machine(args, environment, now)?
    };
    let Gathered {
        report,
        from_history,
        unreadable,
        notes,
        newest,
        if_empty,
    } = gathered;
    let document = Document {
        mfu: mfu::of(model.as_ref(), args.jobs.len(), newest.as_ref()),
        source: if is_cluster { "cluster" } else { "machine" },
        report,
        from_history,
        unreadable,
        notes,
    };
    match args.format {
        ReportFormat::Json => printer.json(&document)?,
        ReportFormat::Svg => printer.data(svg::draw(&document).as_bytes())?,
        ReportFormat::Text if document.report.run_count == 0 => printer.summary(&if_empty),
        ReportFormat::Text => {
            let text = text::text(&document, printer.stdout_paint());
            printer.data(text.as_bytes())?;
        }
    }
    let unreadable = document.unreadable.iter().map(Unreadable::sentence);
    say(printer, "warning", &unreadable.collect());
    say(printer, "note", &document.notes.iter().cloned().collect());
    Ok(if document.unreadable.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// Prints sentences, each once; beyond some, how many more there are.
fn say(printer: &mut Printer, word: &str, sentences: &BTreeSet<String>) {
    let more = sentences.len().saturating_sub(NOTES_MAX);
    for sentence in sentences.iter().take(NOTES_MAX) {
        printer.summary(&format!("{word}: {sentence}"));
    }
    if more > 0 {
        let more = words::grouped(u64::try_from(more).unwrap_or(u64::MAX));
        printer.summary(&format!("{word}: {more} more; `--format json` lists all"));
    }
}
