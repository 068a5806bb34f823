//! `trainyard stacks`: what every rank of a job does right now.
//!
//! The engine of a run on this machine reads, or the supervisors in the pods of a cluster; this groups and prints.

pub(super) mod cluster;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    read_at: Timestamp,
    /// Ranks with the same main thread, the smallest group first.
    groups: Vec<Group>,
    #[serde(flatten)]
    stacks: &'a RunStacks,
}

/// Prints the stacks.
pub(super) fn run(args: &Stacks, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::run(args, printer);
    }
    let job = &args.job;
    let hint = format!(
        "`trainyard logs {job} --first-failure` prints what it wrote last; `trainyard explain {job}` says why it ended"
    );
    let run = stored::live_for(job, &args.state, "read the stacks of", &hint)?;
    let stacks = read(&run, &args.rank, args.native)?;
    print(
        args,
        &run.record.name,
        Some(&run.folder.id),
        &stacks,
        printer,
    )
}

fn print(
    args: &Stacks,
    job: &str,
    run_id: Option<&str>,
    stacks: &RunStacks,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    match args.format {
        Format::Json => printer.json(&document(job, run_id, stacks, Timestamp::now()))?,
        Format::Text => printer.data(text(job, stacks, args.native).as_bytes())?,
    }
    Ok(exit(stacks))
}

/// Nothing was read where not one rank was; a part of them is an answer.
fn exit(stacks: &RunStacks) -> Exit {
    if stacks.ranks.is_empty() {
        Exit::CouldNot
    } else {
        Exit::Done
    }
}

/// Asks the engine of the run.
pub(super) fn read(run: &Stored, ranks: &[u32], native: bool) -> Result<RunStacks, Failure> {
    let stacks = run.folder.request_stacks(ranks, native);
    stacks.map_err(stored::refused)
}

/// What was read as people read it.
pub(super) fn text(job: &str, stacks: &RunStacks, native: bool) -> String {
    let title = text::title(job, stacks);
    format!("{title}\n{}", text::page(stacks, native))
}

/// The JSON form of what was read.
pub(super) fn document<'a>(
    job: &'a str,
    run_id: Option<&'a str>,
    stacks: &'a RunStacks,
    now: Timestamp,
) -> Document<'a> {
    Document {
        version: 1,
        job,
        run_id,
        read_at: now,
        groups: group::of(&stacks.ranks),
        stacks,
    }
}

#[cfg(test)]
mod tests {
    use trainyard_host::stacks::RankStacks;

    use super::*;

    #[test]
    fn without_a_rank_nothing_was_read() {
        let mut stacks = RunStacks {
            rank_count: 2,
            ..RunStacks::default()
        };
        assert_eq!(exit(&stacks), Exit::CouldNot);
        stacks.ranks.push(RankStacks::default());
        assert_eq!(exit(&stacks), Exit::Done);
    }
}
