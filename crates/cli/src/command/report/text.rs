//! A report as text, at most 80 columns wide: a bar for each phase, the accounts, the losses, the failures, the runs.

use std::{fmt::Write as _, time::Duration};

use jiff::Timestamp;
use trainyard_core::{
    ledger::Phase,
    view::report::{Ratio, Report, RunsLoss},
};

use super::Document;
use crate::{bar::Look, clean, paint::Paint, words};

/// Columns of a line.
const WIDTH: usize = 80;
/// Columns of the longest bar.
const BAR: usize = 30;
/// Runs that are listed; JSON has more.
const RUNS: usize = 10;
/// Columns of a name that is too long for its column.
const NAME: usize = 28;

/// The whole text.
pub(super) fn text(document: &Document, paint: Paint) -> String {
    let report = &document.report;
    let mut text = head(document);
    phases(&mut text, report, paint);
    accounts(&mut text, report);
    losses(&mut text, report);
    failures(&mut text, report);
    runs(&mut text, report);
    text
}

/// What was added up, in one line.
pub(super) fn title(document: &Document) -> String {
    let report = &document.report;
    let noun = if document.source == "cluster" {
        "job"
    } else {
        "run"
    };
    let mut parts = Vec::new();
    if report.live > 0 {
        parts.push(format!("{} live", words::grouped(report.live)));
    }
    if document.from_history > 0 {
        let kept = words::grouped(document.from_history);
        parts.push(format!("{kept} only in the history"));
    }
    let parts = if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    };
    format!(
        "{}{parts}, {} of wall time",
        words::counted(report.run_count, noun),
        duration(report.wall)
    )
}

fn head(document: &Document) -> String {
    let report = &document.report;
    let mut text = title(document);
    text.push('\n');
    let mut line = |name: &str, value: &str| {
        let mut name = name;
        for part in words::wrapped(value, Some(WIDTH - 18)) {
            writeln!(text, "{name:<18}{part}").expect("a string takes whatever is written");
            name = "";
        }
    };
    if let Some(since) = report
        .since
        .and_then(|at| Timestamp::from_millisecond(at).ok())
    {
        line("since", &since.to_string());
    }
    line("ETTR", &ettr(report));
    if let Some(hours) = gpu_hours(report) {
        line("GPU hours", &hours);
    }
    line("MFU", &mfu(document));
    if report.not_placed > 0 {
        let cut = duration(report.not_placed);
        line(
            "unknown phase",
            &format!(
                "{cut}: runs began before `--since`, and nobody observed the order of their phases"
            ),
        );
    }
    text
}

/// The share of the wall time spent training, in a sentence.
pub(super) fn ettr(report: &Report) -> String {
    let ettr = &report.ettr;
    let mut text = match ettr.all {
        Some(all) => format!("{} of wall time spent training", ratio(all)),
        None => "unknown: no step was reported".to_owned(),
    };
    if ettr.all.is_some() {
        let hour = match ettr.last_hour {
            Some(hour) => format!("; last hour {}", ratio(hour)),
            None => "; last hour unknown: nothing was meant to train".to_owned(),
        };
        text.push_str(&hour);
    }
    if ettr.all.is_some() && ettr.runs_without_step > 0 {
        let (noun, verb) = if ettr.runs_without_step == 1 {
            ("run", "is")
        } else {
            ("runs", "are")
        };
        write!(
            text,
            "; {} {noun} ({}) without a step {verb} not in it",
            words::grouped(ettr.runs_without_step),
            duration(ettr.millis_without_step)
        )
        .expect("a string takes whatever is written");
    }
    text
}

/// Hours of accelerators; nothing where no run holds any.
pub(super) fn gpu_hours(report: &Report) -> Option<String> {
    let sum = |wanted: fn(Phase) -> bool| {
        let parts = report.phases.iter().filter(|it| wanted(it.phase));
        parts.fold(0_u64, |sum, it| sum.saturating_add(it.gpu_millis))
    };
    let (held, trained) = (sum(|_| true), sum(|phase| phase == Phase::Training));
    let mut text = match (held, report.unknown_accelerators) {
        (0, 0) => return None,
        (0, _) => "unknown".to_owned(),
        _ => format!(
            "{} held, {} of them did not train",
            hours(held),
            hours(held - trained)
        ),
    };
    if report.unknown_accelerators > 0 {
        let runs = words::counted(report.unknown_accelerators, "run");
        write!(text, "; those of {runs} are not known")
            .expect("a string takes whatever is written");
    }
    Some(text)
}

fn mfu(document: &Document) -> String {
    let mfu = &document.mfu;
    match mfu.value {
        Some(value) => format!("{} while it trains ({})", percent(value), mfu.why),
        None => format!("unknown: {}", mfu.why),
    }
}

fn phases(text: &mut String, report: &Report, paint: Paint) {
    if report.phases.is_empty() {
        return;
    }
    text.push_str("\nwhere the time went\n");
    let most = report.phases.iter().map(|it| it.millis).max().unwrap_or(0);
    for it in &report.phases {
        let look = Look::of(it.phase);
        let cells = cells(it.millis, most, BAR);
        let bar: String = std::iter::repeat_n(look.sign, cells).collect();
        writeln!(
            text,
            "  {:<20}{:>9}{:>9}  {}",
            look.word,
            duration(it.millis),
            share(it.millis, report.wall),
            paint.apply(look.colour, &bar)
        )
        .expect("a string takes whatever is written");
    }
}

fn accounts(text: &mut String, report: &Report) {
    let lost = report
        .accounts
        .iter()
        .fold(0_u64, |sum, it| sum.saturating_add(it.millis));
    if lost == 0 {
        return;
    }
    text.push_str("\nlost time by account\n");
    for it in &report.accounts {
        let mut line = format!(
            "  {:<20}{:>9}{:>9}",
            it.account.words(),
            duration(it.millis),
            share(it.millis, report.wall)
        );
        if it.failures > 0 {
            write!(line, "  {}", words::counted(it.failures, "failed attempt"))
                .expect("a string takes whatever is written");
        }
        if it.gpu_millis > 0 {
            write!(line, "  {} GPU hours", hours(it.gpu_millis))
                .expect("a string takes whatever is written");
        }
        writeln!(text, "{line}").expect("a string takes whatever is written");
    }
}

fn losses(text: &mut String, report: &Report) {
    if report.losses.is_empty() {
        return;
    }
    text.push_str("\nbiggest losses\n");
    for (loss, number) in report.losses.iter().zip(1..) {
        let mut lead = format!("  {number}. ");
        for sentence in loss_lines(loss, report) {
            for line in words::wrapped(&sentence, Some(WIDTH - 5)) {
                writeln!(text, "{lead:<5}{line}").expect("a string takes whatever is written");
                lead.clear();
            }
        }
    }
}

/// A loss: what, where, and what would help.
pub(super) fn loss_lines(loss: &RunsLoss, report: &Report) -> Vec<String> {
    let mut first = format!(
        "{}: {} ({})",
        Look::of(loss.phase).word,
        duration(loss.millis),
        share(loss.millis, report.wall)
    );
    if loss.gpu_millis > 0 {
        write!(first, ", {} GPU hours", hours(loss.gpu_millis))
            .expect("a string takes whatever is written");
    }
    write!(first, ": {}", loss.why).expect("a string takes whatever is written");
    let most = &loss.most;
    let mut lines = vec![first];
    let attempt = most
        .attempt
        .map_or(String::new(), |attempt| format!(", attempt {attempt}"));
    if report.run_count > 1 || most.attempt.is_some() {
        lines.push(format!(
            "most of it in `{}` (run `{}`{attempt}): {}",
            clean::text(&most.job),
            clean::text(&most.run),
            duration(most.millis)
        ));
    }
    if let Some(win) = &most.would_win {
        lines.push(format!(
            "would help: {} (+{:.1} points of the run's ETTR)",
            win.change, win.points
        ));
    }
    lines
}

fn failures(text: &mut String, report: &Report) {
    let failures = &report.failures;
    if failures.count == 0 && failures.millis == 0 {
        return;
    }
    let count = words::counted(failures.count, "failed attempt");
    let mut head = format!(
        "\nrestarts: {count}; they cost {}",
        duration(failures.millis)
    );
    if failures.gpu_millis > 0 {
        write!(head, ", {} GPU hours", hours(failures.gpu_millis))
            .expect("a string takes whatever is written");
    }
    writeln!(text, "{head}").expect("a string takes whatever is written");
    for it in &failures.costliest {
        let line = format!(
            "{:>9}  attempt {} of `{}` ({}): {}",
            duration(it.millis),
            it.attempt,
            clean::text(&it.job),
            it.account.words(),
            clean::text(&it.why)
        );
        let line: String = if line.chars().count() > WIDTH {
            let start: String = line.chars().take(WIDTH - 1).collect();
            format!("{start}…")
        } else {
            line
        };
        writeln!(text, "{line}").expect("a string takes whatever is written");
    }
}

fn runs(text: &mut String, report: &Report) {
    if report.run_count < 2 {
        return;
    }
    text.push_str("\nruns that lost most\n");
    writeln!(
        text,
        "  {:<NAME$}  {:<10}{:>9}{:>9}{:>15}",
        "RUN", "STATE", "WALL", "LOST", "ETTR"
    )
    .expect("a string takes whatever is written");
    for row in report.runs.iter().take(RUNS) {
        let name = clean::text(&row.run);
        let name: String = if name.chars().count() > NAME {
            let start: String = name.chars().take(NAME - 1).collect();
            format!("{start}…")
        } else {
            name
        };
        let ettr = row.ettr.map_or_else(|| "-".to_owned(), ratio);
        writeln!(
            text,
            "  {name:<NAME$}  {:<10}{:>9}{:>9}{ettr:>15}",
            row.state.name(),
            duration(row.wall),
            duration(row.lost)
        )
        .expect("a string takes whatever is written");
    }
    let shown = u64::try_from(RUNS).unwrap_or(u64::MAX);
    if let Some(more) = report.run_count.checked_sub(shown).filter(|more| *more > 0) {
        let more = words::grouped(more);
        writeln!(text, "  {more} more; `--format json` lists up to 100")
            .expect("a string takes whatever is written");
    }
}

/// A share of `whole` in percent, with one digit.
pub(super) fn share(part: u64, whole: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds of a fleet fit a double for a share"
    )]
    percent(part as f64 / whole.max(1) as f64)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A ratio, or its bounds where they differ by more than is printed.
pub(super) fn ratio(ratio: Ratio) -> String {
    let (least, most) = (percent(ratio.at_least), percent(ratio.at_most));
    if least == most {
        return least;
    }
    format!("{:.1}–{most}", 100.0 * ratio.at_least)
}

pub(super) fn duration(millis: u64) -> String {
    words::duration(Duration::from_millis(millis))
}

/// Hours of accelerators.
pub(super) fn hours(gpu_millis: u64) -> String {
    let tenths = gpu_millis / 360_000;
    let hours = words::grouped(tenths / 10);
    format!("{hours}.{}", tenths % 10)
}

/// The length of a bar: at least one cell for any time.
fn cells(part: u64, most: u64, width: usize) -> usize {
    let whole = u128::from(most.max(1));
    let scaled = u128::from(part) * width as u128;
    let rounded = usize::try_from((scaled + whole / 2) / whole).unwrap_or(width);
    rounded.clamp(usize::from(part > 0), width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::report::testing::document;

    #[test]
    fn text_fits_80_columns() {
        let text = text(&document(), Paint::Plain);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
            assert!(line.trim_end() == line, "{line:?}");
        }
        assert!(!text.contains('\u{1b}'), "no colour without a terminal");
        let styled = super::text(&document(), Paint::Styled);
        assert!(styled.contains('\u{1b}'));
    }

    #[test]
    fn every_part_is_in_the_text() {
        let text = text(&document(), Paint::Plain);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "2 runs (1 live, 1 only in the history), 4h47m of wall time",
            "ETTR 81.5 % of wall time spent training",
            "GPU hours 37.4 held, 6.2 of them did not train",
            "MFU unknown: it is computed for one job: name it",
            "training 3h54m 81.5 %",
            "infrastructure 35m00s 12.2 % 1 failed attempt 4.6 GPU hours",
            "1. redoing lost steps: 30m00s",
            "restarts: 1 failed attempt; they cost 35m00s, 4.6 GPU hours",
            "attempt 1 of `pretrain` (infrastructure): gpu_lost",
            "runs that lost most",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn bars_show_every_phase() {
        assert_eq!(
            [cells(0, 9, 30), cells(1, 9_999, 30), cells(9, 9, 30)],
            [0, 1, 30]
        );
        let bounds = Ratio {
            at_least: 0.5,
            at_most: 0.625,
        };
        assert_eq!(ratio(bounds), "50.0–62.5 %");
        assert_eq!(
            [hours(0), hours(359_999), hours(3_600_000_000)],
            ["0.0", "0.0", "1,000.0"]
        );
    }
}
