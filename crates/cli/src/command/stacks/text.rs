//! Stacks as people read them.

use std::{collections::BTreeMap, fmt::Write as _};

use trainyard_core::index_set::IndexSet;
use trainyard_host::stacks::{
    MOST_TEXT, MOST_THREADS, RankStacks, RunStacks, StackFrame, ThreadState,
};

use super::group::{self, Group};
use crate::{table::columns, words};

/// Ranks of a group that are listed one by one.
const RANKS_LISTED: usize = 8;
/// Groups of other threads that are printed.
const OTHERS_LISTED: usize = 16;

/// The calls of a thread, and whether there are more.
type Calls<'a> = (&'a [StackFrame], bool);

/// The first line.
pub(super) fn title(job: &str, stacks: &RunStacks) -> String {
    format!(
        "{job}: attempt {}, {} of {} read",
        stacks.attempt,
        stacks.ranks.len(),
        words::counted(stacks.rank_count.into(), "rank")
    )
}

/// All groups, then what is missing.
pub(super) fn page(stacks: &RunStacks, native: bool) -> String {
    let all = stacks.ranks.len();
    let mut page = String::new();
    for group in group::of(&stacks.ranks) {
        page.push('\n');
        page.push_str(&main_threads(&group, &stacks.ranks, all));
    }
    page.push_str(&other_threads(&stacks.ranks));
    if native {
        for seen in &stacks.ranks {
            page.push('\n');
            page.push_str(&kernel_threads(seen));
        }
    }
    let mut missing: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for rank in &stacks.missing {
        missing.entry(&rank.reason).or_default().push(rank.rank);
    }
    for (reason, ranks) in missing {
        line(&mut page, format_args!("\n{}: {reason}", numbers(&ranks)));
    }
    let left_out: u32 = stacks.ranks.iter().map(|seen| seen.threads_left_out).sum();
    if left_out > 0 {
        let threads = words::counted(left_out.into(), "thread");
        line(
            &mut page,
            format_args!(
                "\n{threads} left out: at most {MOST_THREADS} of a rank and {} MiB of all ranks are kept",
                MOST_TEXT >> 20
            ),
        );
    }
    page
}

/// `ranks 0-2,5`, `rank 3`.
fn numbers(ranks: &[u32]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let set: IndexSet = ranks.iter().copied().collect();
    format!("{noun} {set}")
}

fn main_threads(group: &Group, ranks: &[RankStacks], all: usize) -> String {
    let mut text = String::new();
    let waits = group.waits_for.as_ref();
    let verb = if group.ranks.len() == 1 {
        "waits"
    } else {
        "wait"
    };
    let waits = waits.map(|what| format!(": {verb} for {what}"));
    line(
        &mut text,
        format_args!(
            "{} ({} of {all}){}",
            numbers(&group.ranks),
            group.ranks.len(),
            waits.unwrap_or_default()
        ),
    );
    let members: Vec<&RankStacks> = ranks
        .iter()
        .filter(|seen| group.ranks.binary_search(&seen.rank).is_ok())
        .collect();
    let rows: Vec<Vec<String>> = members
        .iter()
        .take(RANKS_LISTED)
        .map(|seen| {
            vec![
                format!("  rank {}", seen.rank),
                format!("pod {}", seen.pod),
                format!("process {} ({})", seen.pid, seen.program),
                state(seen),
                format!("{:.2} CPU seconds", seen.cpu_seconds),
            ]
        })
        .collect();
    text.push_str(&columns(&rows));
    if let Some(more) = members.len().checked_sub(RANKS_LISTED + 1) {
        let more = words::counted(more as u64 + 1, "more rank");
        line(
            &mut text,
            format_args!("  and {more}; `--format json` lists them all"),
        );
    }
    if group.frames.is_empty() {
        let reason = members.first().and_then(|seen| seen.reason.as_deref());
        let reason = reason.unwrap_or("its main thread is not in Python");
        line(&mut text, format_args!("    no Python stack: {reason}"));
    }
    frames(&mut text, &group.frames, group.truncated);
    text
}

fn state(seen: &RankStacks) -> String {
    let main = seen.main();
    let torn = main.is_some_and(|main| main.torn);
    let torn = if torn { ", stack in motion" } else { "" };
    match main.and_then(|main| main.wait_channel.as_deref()) {
        Some(channel) => format!("{} in {channel}{torn}", seen.state),
        None => format!("{}{torn}", seen.state),
    }
}

fn frames(text: &mut String, frames: &[StackFrame], truncated: bool) {
    for frame in frames {
        let StackFrame { function, file, .. } = frame;
        match frame.line {
            Some(at) => line(text, format_args!("    {function} ({file}:{at})")),
            None => line(text, format_args!("    {function} ({file})")),
        }
    }
    if truncated {
        line(text, format_args!("    … further calls were not read"));
    }
}

/// The Python stacks of threads beside the main ones, those of the most ranks first.
fn other_threads(ranks: &[RankStacks]) -> String {
    let mut groups: BTreeMap<Calls<'_>, (Vec<u32>, u64)> = BTreeMap::new();
    for seen in ranks {
        for thread in seen.threads.iter().filter(|thread| !thread.main) {
            if thread.frames.is_empty() {
                continue;
            }
            let group = groups
                .entry((&thread.frames, thread.truncated))
                .or_default();
            group.0.push(seen.rank);
            group.1 += 1;
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (ranks, _))| (std::cmp::Reverse(ranks.len()), ranks.first().copied()));
    let mut text = String::new();
    for ((calls, truncated), (mut ranks, count)) in groups.iter().take(OTHERS_LISTED).cloned() {
        ranks.dedup();
        let threads = words::counted(count, "other thread");
        line(&mut text, format_args!("\n{}: {threads}", numbers(&ranks)));
        frames(&mut text, calls, truncated);
    }
    if let Some(more) = groups.len().checked_sub(OTHERS_LISTED + 1) {
        let more = words::counted(more as u64 + 1, "more stack");
        line(
            &mut text,
            format_args!("\nand {more} of other threads; `--format json` lists them all"),
        );
    }
    text
}

/// Every thread of a rank as the kernel reports it.
fn kernel_threads(seen: &RankStacks) -> String {
    let mut text = String::new();
    let threads = words::counted(seen.threads.len() as u64, "thread");
    line(
        &mut text,
        format_args!("rank {}: {threads} of process {}", seen.rank, seen.pid),
    );
    let cell = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let row = |thread: &ThreadState| {
        vec![
            format!("  {}", cell(thread.tid.map(|tid| tid.to_string()))),
            cell(thread.name.clone()),
            cell(thread.state.clone()),
            cell(thread.wait_channel.clone()),
            cell(thread.system_call.map(|call| format!("system call {call}"))),
        ]
    };
    let rows: Vec<Vec<String>> = seen.threads.iter().map(row).collect();
    text.push_str(&columns(&rows));
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a string takes whatever is written");
}

#[cfg(test)]
mod tests;
