//! The page of failures.

use ratatui_core::style::Style;

use super::{Part, words};
use crate::{
    canvas::Canvas,
    document::Cause,
    look::{bold, reversed},
    state::State,
    text,
};

pub(super) fn draw(canvas: &mut Canvas<'_>, state: &State, part: Part) {
    let Some(failures) = &state.known.failures.value else {
        return;
    };
    let (heads, part) = part.split(1);
    if heads.height == 0 {
        return;
    }
    if failures.rows.is_empty() {
        let text = "no attempt of the last 30 days has a verdict";
        canvas.put(heads.x + 1, heads.y, heads.width, text, Style::new());
        return;
    }
    let below = if part.height >= 8 { 3 } else { 0 };
    let (rows, detail) = part.split(part.height - below);
    let wide = part.width >= 100;
    let name = part.width.saturating_sub(if wide { 64 } else { 24 });
    line(
        canvas,
        heads,
        name,
        wide,
        ["CAUSE", "TIMES", "JOBS", "LAST", "BUDGET", "NODES"],
        bold(),
    );
    let room = usize::from(rows.height);
    let first = state.failure.saturating_sub(room / 2);
    let first = first.min(failures.rows.len().saturating_sub(room));
    let shown = failures.rows.iter().enumerate().skip(first);
    for (y, (at, row)) in (rows.y..rows.y + rows.height).zip(shown) {
        let place = Part {
            y,
            height: 1,
            ..rows
        };
        let last = state.now.saturating_sub(row.last_at.as_millisecond());
        let cells = [
            &cause(row),
            &row.times.to_string(),
            &row.jobs.to_string(),
            &words::age(last),
            &row.account,
            &nodes(row),
        ];
        line(
            canvas,
            place,
            name,
            wide,
            cells.map(String::as_str),
            Style::new(),
        );
        if at == state.failure {
            canvas.put(place.x, y, 1, ">", bold());
            canvas.restyle(place.x, y, place.width, reversed());
        }
    }
    let Some(row) = failures.rows.get(state.failure) else {
        return;
    };
    let newest = &row.newest;
    let since = words::moment(row.first_at.as_millisecond(), state.now);
    let said = format!(
        "{}/{} attempt {}: {} (first {since})",
        newest.namespace, newest.job, newest.attempt, newest.sentence
    );
    let width = detail.width.saturating_sub(2);
    let said = text::wrapped(&said, width, 3);
    for (y, text) in (detail.y..detail.y + detail.height).zip(said) {
        canvas.put(detail.x + 1, y, width, &text, Style::new());
    }
}

fn line(
    canvas: &mut Canvas<'_>,
    part: Part,
    name: u16,
    wide: bool,
    cells: [&str; 6],
    style: Style,
) {
    let [cause, times, jobs, last, account, nodes] = cells;
    let mut x = part.x + 1;
    canvas.put(x, part.y, name, cause, style);
    x += name;
    for (width, text) in [(7, times), (6, jobs), (7, last)] {
        x += width;
        canvas.put_right(x, part.y, width - 1, text, style);
    }
    if wide {
        canvas.put(x + 2, part.y, 15, account, style);
        canvas.put(x + 18, part.y, 24, nodes, style);
    }
}

fn cause(row: &Cause) -> String {
    match &row.place {
        Some(place) => format!("{}: {place}", row.label),
        None => row.label.clone(),
    }
}

fn nodes(row: &Cause) -> String {
    let all: Vec<String> = row
        .nodes
        .iter()
        .take(4)
        .map(|it| format!("{} ×{}", it.node, it.times))
        .collect();
    if all.is_empty() {
        "–".to_owned()
    } else {
        all.join(", ")
    }
}
