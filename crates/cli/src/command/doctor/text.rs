//! The report for people: the verdict first.

use std::{collections::BTreeSet, fmt::Write as _};

use trainyard_core::diagnose::{Ended, Moment, Report, Verdict, account_word};

use super::table;
use crate::{clean, paint::Paint, words};

/// Columns of the timeline.
const LINE: usize = 40;
/// Moments of the timeline that are shown.
const MAX_MOMENTS: usize = 16;
/// Ends of pods that are shown.
const MAX_ENDED: usize = 8;
/// Verdicts that are shown whole; the others in one line.
const WHOLE: usize = 2;

/// The whole report.
pub(super) fn render(report: &Report, width: Option<usize>, paint: Paint) -> String {
    let mut text = String::new();
    let mut verdicts = report.verdicts.iter();
    for verdict in verdicts.by_ref().take(WHOLE) {
        put_verdict(&mut text, verdict, width, paint);
    }
    let others: Vec<String> = verdicts
        .map(|verdict| format!("{} ({})", verdict.label, clean::text(&verdict.sentence)))
        .collect();
    if !others.is_empty() {
        put(&mut text, &format!("also: {}\n\n", others.join("; ")));
    }
    let facts = &report.facts;
    ended(&mut text, &facts.ended);
    if !facts.labels.is_empty() {
        put(&mut text, &format!("facts: {}\n", facts.labels.join(", ")));
    }
    if !facts.missing_ranks.is_empty() {
        let missing: BTreeSet<u32> = facts.missing_ranks.iter().copied().collect();
        put(
            &mut text,
            &format!("no logs of ranks {}\n", table::runs(&missing)),
        );
    }
    for disagreement in &facts.disagreements {
        let disagreement = clean::text(disagreement);
        put(
            &mut text,
            &format!("ranks disagree about the {disagreement}\n"),
        );
    }
    if let Some(slow) = &facts.slowest {
        put(&mut text, &format!("{}\n", clean::text(&slow.sentence())));
    }
    let rows = table::render(&facts.ranks);
    if !rows.is_empty() && !text.ends_with("\n\n") {
        text.push('\n');
    }
    for row in rows {
        put(&mut text, &format!("{}\n", clean::text(&row)));
    }
    timeline(&mut text, &facts.timeline);
    text
}

/// How pods ended, the first first.
fn ended(text: &mut String, ended: &[Ended]) {
    for (at, end) in ended.iter().take(MAX_ENDED).enumerate() {
        let rank = end
            .rank
            .map_or_else(String::new, |rank| format!(" (rank {rank})"));
        let heading = if at == 0 { "ended first" } else { "then" };
        let when = end
            .at
            .as_ref()
            .map_or_else(String::new, |at| format!(" at {at}"));
        let line = format!("{heading}: pod {}{rank} {}{when}", end.pod, end.how);
        put(text, &format!("{}\n", clean::text(&line)));
    }
    if let Some(more) = ended.len().checked_sub(MAX_ENDED + 1) {
        put(text, &format!("and {} more pods that failed\n", more + 1));
    }
}

/// One line for a verdict, as `--follow` says it.
pub(super) fn headline(verdict: &Verdict, paint: Paint) -> String {
    let label = paint.apply(colour(verdict), &verdict.label);
    format!(
        "{label}: {}{}",
        clean::text(&verdict.sentence),
        place(verdict)
    )
}

fn put_verdict(text: &mut String, verdict: &Verdict, width: Option<usize>, paint: Paint) {
    put(text, &headline(verdict, paint));
    text.push('\n');
    for evidence in &verdict.evidence {
        let place = match evidence.line {
            0 => evidence.file.clone(),
            line => format!("{}:{line}", evidence.file),
        };
        let line = format!("  {}  {}", clean::text(&place), clean::text(&evidence.text));
        let limit = width.unwrap_or(160).max(60);
        let shown: String = line.chars().take(limit).collect();
        put(text, &format!("{}\n", paint.apply("2", &shown)));
    }
    if verdict.label == "healthy" {
        let confidence = verdict.confidence.word();
        put(
            text,
            &format!(
                "  {confidence} confidence\n  refuted by: {}\n",
                verdict.refuted_by
            ),
        );
    } else {
        put(
            text,
            &format!(
                "  {} confidence; account: {}; {}\n  refuted by: {}\n  next: {}\n",
                verdict.confidence.word(),
                account_word(verdict.account),
                verdict.retry.words(),
                verdict.refuted_by,
                verdict.next
            ),
        );
    }
    text.push('\n');
}

fn colour(verdict: &Verdict) -> &'static str {
    match verdict.label.as_str() {
        "healthy" => "1;32",
        "socket_fallback" | "inconclusive" => "1;33",
        _ => "1;31",
    }
}

/// ` [ranks 3 on node-2]`.
fn place(verdict: &Verdict) -> String {
    let ranks: BTreeSet<u32> = verdict.ranks.iter().copied().collect();
    let mut place = match ranks.len() {
        0 => String::new(),
        1 => format!("rank {}", table::runs(&ranks)),
        _ => format!("ranks {}", table::runs(&ranks)),
    };
    let nodes: Vec<&str> = verdict.nodes.iter().take(4).map(String::as_str).collect();
    if !nodes.is_empty() {
        let more = verdict.nodes.len().saturating_sub(nodes.len());
        let more = if more > 0 {
            format!(" +{more}")
        } else {
            String::new()
        };
        let on = if place.is_empty() { "on " } else { " on " };
        place = format!("{place}{on}{}{more}", nodes.join(", "));
    }
    if place.is_empty() {
        return place;
    }
    format!(" [{}]", clean::text(&place))
}

/// First sightings along the time that passed between the first and the last of them.
fn timeline(text: &mut String, moments: &[Moment]) {
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
        return;
    };
    let span = last.millis.saturating_sub(first.millis);
    if moments.len() < 2 || span <= 0 {
        return;
    }
    put(text, "\ntimeline of first occurrences:\n");
    for moment in moments.iter().take(MAX_MOMENTS) {
        let after = moment.millis.saturating_sub(first.millis);
        let column = usize::try_from(i128::from(after) * (LINE as i128 - 1) / i128::from(span))
            .unwrap_or(0)
            .min(LINE - 1);
        let bar: String = (0..LINE)
            .map(|at| if at == column { '*' } else { '-' })
            .collect();
        let after = std::time::Duration::from_millis(u64::try_from(after).unwrap_or(0));
        let rank = moment
            .rank
            .map_or_else(String::new, |rank| format!(" rank {rank}"));
        let when = words::duration(after);
        put(
            text,
            &format!("  {bar}  +{when:<7} {}{rank}\n", moment.label),
        );
    }
    if let Some(more) = moments.len().checked_sub(MAX_MOMENTS + 1) {
        put(text, &format!("  … and {} more\n", more + 1));
    }
}

fn put(text: &mut String, part: &str) {
    write!(text, "{part}").expect("a string takes whatever is written");
}
