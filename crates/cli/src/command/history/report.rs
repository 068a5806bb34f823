//! `trainyard history report`: sums over many runs.

use std::{fmt::Write as _, path::Path, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use trainyard_history::{By, Group, Reader, Report, Sums};

use super::{percent, refused, time};
use crate::{
    args::{Format, HistoryBy, HistoryReport},
    clean,
    failure::{Exit, Failure},
    printer::Printer,
    table::columns,
    words,
};

/// Since when, unless it is said.
const DAYS: i64 = 30;

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Serialize)]
struct Document {
    version: u32,
    #[serde(flatten)]
    report: Report,
}

/// Runs the command.
pub(super) fn run(
    args: &HistoryReport,
    path: &Path,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let reader = Reader::open(path).map_err(refused)?;
    let now = Timestamp::now();
    let since = args.since.unwrap_or_else(|| {
        let days = SignedDuration::from_hours(24 * DAYS);
        now.checked_sub(days).unwrap_or(now)
    });
    let by = match args.by {
        HistoryBy::Team => By::Team,
        HistoryBy::Kind => By::Kind,
        HistoryBy::Day => By::Day,
        HistoryBy::Node => By::Node,
    };
    let report = reader.report(by, since.as_millisecond(), now.as_millisecond());
    let report = report.map_err(refused)?;
    match args.format {
        Format::Json => printer.json(&Document { version: 1, report })?,
        Format::Text => printer.data(text(&report, now).as_bytes())?,
    }
    Ok(Exit::Done)
}

fn text(report: &Report, now: Timestamp) -> String {
    let mut text = format!("since {} (UTC): {}\n", report.since, sums(&report.total));
    if report.live > 0 {
        let live = words::counted(report.live, "live run");
        writeln!(text, "{live} counted until last seen").expect("a string takes it");
    }
    if report.not_observed_millis > 0 {
        let unseen = duration(report.not_observed_millis);
        writeln!(text, "{unseen} of it in an order that nobody observed")
            .expect("a string takes it");
    }
    let mut section = |title: &str, rows: Vec<Vec<String>>| {
        if rows.len() > 1 {
            write!(text, "\n{title}\n{}", columns(&rows)).expect("a string takes it");
        }
    };
    section("time by phase", phases(&report.total));
    let (title, head) = match report.by {
        By::Team => ("by team", "TEAM"),
        By::Kind => ("by kind", "KIND"),
        By::Day => ("by day", "DAY"),
        By::Node => ("", ""),
    };
    section(title, groups(head, &report.groups));
    section("failed attempts by cause", restarts(report));
    section("nodes that failed most", nodes(report, now));
    text
}

fn sums(sums: &Sums) -> String {
    let mut text = format!(
        "{}, {}, {} of wall time",
        words::counted(sums.runs, "run"),
        words::counted(sums.failed_attempts, "failed attempt"),
        duration(sums.wall_millis),
    );
    match sums.trained_ratio {
        Some(share) => write!(text, ", {} of it spent training", percent(share)),
        None => write!(text, ", trained share unknown"),
    }
    .expect("a string takes it");
    if sums.gpu_hours > 0.0 {
        let (lost, held) = (hours(sums.lost_gpu_hours), hours(sums.gpu_hours));
        write!(text, "; {lost} of {held} GPU hours lost").expect("a string takes it");
    }
    text
}

fn phases(sums: &Sums) -> Vec<Vec<String>> {
    let mut all: Vec<_> = sums.phases.iter().collect();
    all.sort_by_key(|(phase, sum)| (std::cmp::Reverse(sum.millis), *phase));
    let mut rows = vec![row(["PHASE", "WALL TIME", "SHARE", "GPU HOURS"])];
    rows.extend(all.into_iter().map(|(phase, sum)| {
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of a fleet fit a double for a share"
        )]
        let share = sum.millis as f64 / sums.wall_millis.max(1) as f64;
        vec![
            phase.clone(),
            duration(sum.millis),
            percent(share),
            hours(sum.gpu_hours),
        ]
    }));
    rows
}

fn groups(head: &str, groups: &[Group]) -> Vec<Vec<String>> {
    let heads = [
        head,
        "RUNS",
        "WALL TIME",
        "TRAINED",
        "FAILED ATTEMPTS",
        "GPU HOURS",
        "LOST",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(groups.iter().map(|group| {
        let sums = &group.sums;
        vec![
            clean::text(&group.key),
            words::grouped(sums.runs),
            duration(sums.wall_millis),
            sums.trained_ratio.map_or_else(|| "-".to_owned(), percent),
            words::grouped(sums.failed_attempts),
            hours(sums.gpu_hours),
            hours(sums.lost_gpu_hours),
        ]
    }));
    rows
}

fn restarts(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![row(["LABEL", "TIMES", "JOBS", "ACCOUNT"])];
    rows.extend(report.restarts.iter().map(|it| {
        let label = it.label.as_deref().unwrap_or("no verdict");
        vec![
            clean::text(label),
            words::grouped(it.times),
            words::grouped(it.jobs),
            it.account
                .as_deref()
                .map_or_else(|| "-".to_owned(), clean::text),
        ]
    }));
    rows
}

fn nodes(report: &Report, now: Timestamp) -> Vec<Vec<String>> {
    let heads = [
        "NODE",
        "FAILED ATTEMPTS",
        "BLAMED",
        "JOBS",
        "LAST",
        "LABELS",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(report.nodes.iter().map(|it| {
        let last = time(it.last_at).map_or_else(
            || "-".to_owned(),
            |at| format!("{} ago", words::age(words::since(at, now))),
        );
        vec![
            clean::text(&it.node),
            words::grouped(it.failed_attempts),
            words::grouped(it.blamed),
            words::grouped(it.jobs),
            last,
            clean::text(&it.labels.join(", ")),
        ]
    }));
    rows
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn duration(millis: u64) -> String {
    words::duration(Duration::from_millis(millis))
}

fn hours(hours: f64) -> String {
    format!("{hours:.1}")
}
