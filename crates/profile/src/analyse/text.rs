//! A report as people read it.

use std::fmt::Write as _;

use super::{Report, rank::RankValues, tops::Top};
use crate::number::{float, share};

/// Findings that are printed; JSON has all.
const FINDINGS: usize = 3;
/// Kernels or operators that are printed.
const TOPS: usize = 5;
/// Characters of a name that are printed.
const NAME_WIDTH: usize = 60;

/// A duration with three digits.
pub fn time(nanoseconds: u64) -> String {
    let value = float(nanoseconds);
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..999_500 => (value / 1e3, "µs"),
        999_500..999_500_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    if value < 9.995 {
        format!("{value:.2} {unit}")
    } else if value < 99.95 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// A share as whole percent, or with a decimal below 10.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// The whole report: findings, a line for each rank, what took most time.
pub fn page(report: &Report) -> String {
    let mut page = format!("{}\n", title(report));
    for (at, finding) in report.findings.iter().take(FINDINGS).enumerate() {
        write!(
            page,
            "\n{}. {}: {}\n   {}\n",
            at + 1,
            finding.label.word(),
            finding.sentence,
            finding.action
        )
        .ok();
    }
    page.push('\n');
    page.push_str(&rows(report));
    page.push_str(&clocks(report));
    let first = report.ranks.first();
    for (title, tops) in [
        ("kernels", first.map(|it| &it.top_kernels)),
        (
            "operators, without those inside them",
            first.map(|it| &it.top_operators),
        ),
    ] {
        let (Some(first), Some(tops)) = (first, tops) else {
            continue;
        };
        if !tops.is_empty() {
            write!(page, "\nrank {}: {title}\n", first.rank).ok();
            page.push_str(&top_lines(tops, first));
        }
    }
    for values in &report.ranks {
        if values.truncated {
            write!(
                page,
                "\nrank {}: the trace ends early (its program was killed, or the file was cut); what was read is shown",
                values.rank
            )
            .ok();
        }
        if values.skipped_events > 0 {
            write!(
                page,
                "\nrank {}: {} events could not be read or were beyond the bound of events",
                values.rank, values.skipped_events
            )
            .ok();
        }
    }
    if !page.ends_with('\n') {
        page.push('\n');
    }
    page
}

fn title(report: &Report) -> String {
    let count = report.ranks.len();
    let ranks = if count == 1 { "rank" } else { "ranks" };
    let steps = report.ranks.iter().map(|it| it.steps).max().unwrap_or(0);
    let longest = report.ranks.iter().max_by_key(|it| it.steps);
    let longest = longest.map_or((0, 0), |it| (it.step_ns, it.window_ns));
    match steps {
        0 => format!(
            "{count} {ranks}, {} without marks of steps",
            time(longest.1)
        ),
        1 => format!("{count} {ranks}, 1 step of {}", time(longest.0)),
        _ => format!("{count} {ranks}, {steps} steps of {}", time(longest.0)),
    }
}

/// A line for each rank.
fn rows(report: &Report) -> String {
    let waits = report.across.as_ref().map(|across| &across.waits);
    let waits = waits.filter(|waits| !waits.is_empty());
    let mut lines = vec![
        [
            "RANK",
            "STEP",
            "COMPUTE",
            "EXPOSED COMM",
            "COPIES",
            "IDLE",
            "INPUT",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    if let (Some(_), Some(head)) = (waits, lines.first_mut()) {
        head.push("WAITS".to_owned());
    }
    for values in &report.ranks {
        let part = |ns: u64| percent(share(ns, values.window_ns));
        let step = if values.steps == 0 {
            "-".to_owned()
        } else {
            time(values.step_ns)
        };
        let mut line = vec![
            values.rank.to_string(),
            step,
            part(values.compute_ns),
            part(values.exposed_communication_ns),
            part(values.memory_ns),
            part(values.idle_ns),
            part(values.idle_causes.input_ns),
        ];
        if let Some(waits) = waits {
            let own = waits.iter().find(|wait| wait.rank == values.rank);
            line.push(own.map_or("-".to_owned(), |wait| time(wait.wait_ns)));
        }
        lines.push(line);
    }
    aligned(&lines)
}

/// Why ranks are not compared, where they are not.
fn clocks(report: &Report) -> String {
    let Some(across) = &report.across else {
        return String::new();
    };
    if across.matched_collectives == 0 {
        return "\nranks are not compared: no collective was found in two of them in the same step\n".to_owned();
    }
    if !across.clocks.aligned {
        let apart = time(across.clocks.residual_ns);
        return format!(
            "\nranks are not compared: their clocks could not be aligned, collectives end up to {apart} apart\n"
        );
    }
    let mut line = String::new();
    if across.unmatched_collectives > 0 {
        line = format!(
            "\ncollectives without a partner in another rank: {}; with one: {}\n",
            across.unmatched_collectives, across.matched_collectives
        );
    }
    if across.slow_rank.is_none() {
        line.push_str("\nno single rank is slow\n");
    }
    line
}

fn top_lines(tops: &[Top], values: &RankValues) -> String {
    let lines = tops.iter().take(TOPS).map(|top| {
        let name: String = if top.name.chars().count() > NAME_WIDTH {
            let kept: String = top.name.chars().take(NAME_WIDTH - 1).collect();
            kept + "…"
        } else {
            top.name.clone()
        };
        vec![
            String::new(),
            percent(share(top.total_ns, values.window_ns)),
            format!("{} ×", top.count),
            time(top.mean_ns),
            name,
        ]
    });
    aligned(&lines.collect::<Vec<_>>())
}

/// Columns, each as wide as its widest cell; nothing behind the last.
fn aligned(lines: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        for (at, cell) in line.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(at) {
                Some(widest) => *widest = (*widest).max(width),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let fill = width.saturating_sub(cell.chars().count()) + 2;
            row.push_str(cell);
            row.extend(std::iter::repeat_n(' ', fill));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
