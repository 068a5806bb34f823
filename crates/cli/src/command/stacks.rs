//! `trainyard stacks`: what every rank of a job that runs here does right now.
//!
//! The engine of the run reads; this groups and prints.

mod group;
mod text;

use jiff::Timestamp;
use serde::Serialize;
use trainyard_host::stacks::RunStacks;

use self::group::Group;
use crate::{
    args::{Format, Stacks},
    failure::{Exit, Failure},
    printer::Printer,
    stored::{self, Stored},
};

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    version: u32,
    job: &'a str,
    run_id: &'a str,
    read_at: Timestamp,
    /// Ranks with the same main thread, the smallest group first.
    groups: Vec<Group>,
    #[serde(flatten)]
    stacks: &'a RunStacks,
}

/// Prints the stacks.
pub(super) fn run(args: &Stacks, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return Err(Failure::new(
            "`stacks` reads only runs on this machine; it does not read pods of a cluster yet",
        )
        .hint(
            "`kubectl exec POD -- py-spy dump --pid 1` prints the stacks of a pod whose image has `py-spy` and that may trace",
        ));
    }
    let job = &args.job;
    let hint = format!(
        "`trainyard logs {job} --first-failure` prints what it wrote last; `trainyard explain {job}` says why it ended"
    );
    let run = stored::live_for(job, &args.state, "read the stacks of", &hint)?;
    let stacks = read(&run, &args.rank, args.native)?;
    match args.format {
        Format::Json => printer.json(&document(&run, &stacks, Timestamp::now()))?,
        Format::Text => printer.data(text(&run, &stacks, args.native).as_bytes())?,
    }
    Ok(Exit::Done)
}

/// Asks the engine of the run.
pub(super) fn read(run: &Stored, ranks: &[u32], native: bool) -> Result<RunStacks, Failure> {
    let stacks = run.folder.request_stacks(ranks, native);
    stacks.map_err(stored::refused)
}

/// What was read as people read it.
pub(super) fn text(run: &Stored, stacks: &RunStacks, native: bool) -> String {
    let title = text::title(&run.record.name, stacks);
    format!("{title}\n{}", text::page(stacks, native))
}

/// The JSON form of what was read.
pub(super) fn document<'a>(run: &'a Stored, stacks: &'a RunStacks, now: Timestamp) -> Document<'a> {
    Document {
        version: 1,
        job: &run.record.name,
        run_id: &run.folder.id,
        read_at: now,
        groups: group::of(&stacks.ranks),
        stacks,
    }
}
