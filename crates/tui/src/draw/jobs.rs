//! The list of jobs.

use ratatui_core::style::Style;

use super::{Part, strip, words};
use crate::{
    canvas::Canvas,
    document::{Jobs, Row},
    look::{bold, reversed},
    state::{COLUMNS, State},
    text,
};

/// What a column needs, beside those of [`COLUMNS`].
const DAY: usize = COLUMNS.len();
const WHY: usize = DAY + 1;

/// Columns in the order in which they are kept where there is little room, with their width.
const KEPT: [(usize, u16); 11] = [
    (0, 10),
    (1, 12),
    (8, 5),
    (7, 7),
    (6, 11),
    (5, 3),
    (DAY, 12),
    (4, 5),
    (3, 10),
    (2, 12),
    (WHY, 24),
];
/// What the name of a job takes at most where there is more room.
const NAME_MOST: u16 = 32;
const DAY_MOST: u16 = 24;
/// The order of states in the first line.
const STATES: [&str; 9] = [
    "running",
    "stalled",
    "restarting",
    "waiting",
    "suspended",
    "failed",
    "stopped",
    "unknown",
    "succeeded",
];

pub(super) fn draw(canvas: &mut Canvas<'_>, state: &State, part: Part) {
    let Some(jobs) = &state.known.jobs.value else {
        return;
    };
    // Two lines for why the selected job does not train, where there is room.
    let below = if part.height >= 8 { 2 } else { 0 };
    let (part, detail) = part.split(part.height - below);
    list(canvas, state, part, true);
    let selected = jobs.rows.get(state.jobs.selected);
    let Some(row) = selected else { return };
    let Some(line) = &row.line else { return };
    let width = detail.width.saturating_sub(2);
    let said = text::wrapped(&format!("{}: {line}", row.job), width, 2);
    for (y, line) in (detail.y..detail.y + detail.height).zip(said) {
        let style = canvas.look.of_state(words::colour_of(&row.state));
        canvas.put(detail.x + 1, y, width, &line, style);
    }
}

/// The first line, the names of the columns, and the rows.
pub(super) fn list(canvas: &mut Canvas<'_>, state: &State, part: Part, shows_selected: bool) {
    let Some(jobs) = &state.known.jobs.value else {
        return;
    };
    let (first, part) = part.split(1);
    if first.height > 0 {
        let summary = summary(state, jobs);
        canvas.put(
            first.x + 1,
            first.y,
            first.width.saturating_sub(1),
            &summary,
            Style::new(),
        );
    }
    let (heads, part) = part.split(1);
    let columns = columns(part.width);
    if heads.height > 0 {
        head(canvas, state, &columns, heads);
    }
    // What cannot be read is said below the rows, at most three of them.
    let unread = u16::try_from(jobs.unreadable.len().min(3)).unwrap_or(0);
    let (rows, unreadable) = part.split(part.height.saturating_sub(unread));
    if jobs.rows.is_empty() && rows.height > 0 {
        let text = if state.jobs.filter.is_empty() {
            state.source.no_jobs.clone()
        } else {
            format!("no job matches `{}`; Esc shows all", state.jobs.filter)
        };
        canvas.put(
            rows.x + 1,
            rows.y,
            rows.width.saturating_sub(1),
            &text,
            Style::new(),
        );
    }
    let room = usize::from(rows.height);
    let selected = state.jobs.selected;
    let first = selected
        .saturating_sub(room / 2)
        .min(jobs.rows.len().saturating_sub(room));
    let shown = jobs.rows.iter().enumerate().skip(first);
    for (y, (at, row)) in (rows.y..rows.y + rows.height).zip(shown) {
        let line = Part {
            y,
            height: 1,
            ..rows
        };
        row_line(canvas, state, &columns, row, line);
        if shows_selected && at == selected {
            canvas.put(line.x, y, 1, ">", bold());
            canvas.restyle(line.x, y, line.width, reversed());
        }
    }
    let lines = unreadable.y..unreadable.y + unreadable.height;
    for (y, it) in lines.zip(&jobs.unreadable) {
        let text = format!("{}: {}", it.run, it.why);
        canvas.put(
            unreadable.x + 1,
            y,
            unreadable.width.saturating_sub(1),
            &text,
            bold(),
        );
    }
}

fn summary(state: &State, jobs: &Jobs) -> String {
    let known = STATES.iter().map(|name| (*name, jobs.counts.get(*name)));
    let mut parts: Vec<String> = known
        .filter_map(|(name, count)| Some((name, count.filter(|count| **count > 0)?)))
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    if parts.is_empty() {
        parts.push("no jobs".to_owned());
    }
    let mut more = vec![parts.join(" · ")];
    let total = jobs.total.words();
    if !state.jobs.cursors.is_empty() || jobs.cursor.is_some() {
        let page = state.jobs.cursors.len() + 1;
        let shown = jobs.rows.len();
        more.push(format!("page {page}: {shown} of {total}"));
    }
    if !state.jobs.filter.is_empty() {
        more.push(format!("filter `{}`", state.jobs.filter));
    }
    if !jobs.unreadable.is_empty() {
        let count = jobs.unreadable.len();
        more.push(format!("{count} not readable"));
    }
    more.join("  ")
}

/// Which columns there are, with their widths.
fn columns(width: u16) -> Vec<(usize, u16)> {
    let mut left = width.saturating_sub(1);
    let mut taken: Vec<(usize, u16)> = Vec::new();
    for (column, width) in KEPT {
        // The first two are always there, cut where they must be.
        if left > width || (taken.len() < 2 && left > 1) {
            let width = width.min(left - 1);
            taken.push((column, width));
            left -= width + 1;
        }
    }
    let mut grow = |column: usize, most: u16| {
        if let Some((_, width)) = taken.iter_mut().find(|(it, _)| *it == column) {
            let more = most.saturating_sub(*width).min(left);
            *width += more;
            left -= more;
        }
    };
    grow(1, NAME_MOST);
    grow(DAY, DAY_MOST);
    grow(WHY, u16::MAX);
    taken.sort_by_key(|(column, _)| *column);
    taken
}

fn head(canvas: &mut Canvas<'_>, state: &State, columns: &[(usize, u16)], part: Part) {
    let mut x = part.x + 1;
    for (column, width) in columns {
        let word = match *column {
            DAY => "LAST DAY",
            WHY => "WHY",
            at => COLUMNS.get(at).map_or("", |(word, _)| *word),
        };
        let arrow = match state.jobs.sort {
            Some(at) if at == *column && state.jobs.is_ascending() => "↑",
            Some(at) if at == *column => "↓",
            _ => "",
        };
        let text = format!("{word}{arrow}");
        if is_number(*column) {
            canvas.put_right(x + width, part.y, *width, &text, bold());
        } else {
            canvas.put(x, part.y, *width, &text, bold());
        }
        x += width + 1;
    }
}

fn is_number(column: usize) -> bool {
    (4..=8).contains(&column)
}

fn row_line(
    canvas: &mut Canvas<'_>,
    state: &State,
    columns: &[(usize, u16)],
    row: &Row,
    part: Part,
) {
    let mut x = part.x + 1;
    let colour = canvas.look.of_state(words::colour_of(&row.state));
    for (column, width) in columns {
        let (text, style) = match *column {
            0 => (row.state.clone(), colour),
            1 => (row.job.clone(), Style::new()),
            2 => (row.namespace.clone(), Style::new()),
            3 => (row.kind.clone(), Style::new()),
            4 => (row.ranks.to_string(), Style::new()),
            5 => (row.attempt.to_string(), Style::new()),
            6 => (words::step(row.step, row.steps), Style::new()),
            7 => {
                let ratio = row.trained_ratio.map(words::percent);
                (ratio.unwrap_or_else(|| "–".to_owned()), Style::new())
            }
            8 => {
                let since = state.now.saturating_sub(row.started_at.as_millisecond());
                (words::age(since), Style::new())
            }
            WHY => (row.line.clone().unwrap_or_default(), colour),
            _ => {
                strip::day(canvas, &row.day, x, part.y, *width);
                (String::new(), Style::new())
            }
        };
        if is_number(*column) {
            canvas.put_right(x + width, part.y, *width, &text, style);
        } else {
            canvas.put(x, part.y, *width, &text, style);
        }
        x += width + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_every_width() {
        for width in 0..400 {
            let columns = columns(width);
            let taken: u16 = columns.iter().map(|(_, width)| width + 1).sum();
            assert!(taken <= width, "{width}: {columns:?}");
            assert!(width < 20 || columns.len() >= 2, "{width}: {columns:?}");
        }
        let of = |width| -> Vec<usize> { columns(width).into_iter().map(|it| it.0).collect() };
        assert_eq!(of(40), [0, 1, 7, 8]);
        assert_eq!(of(80), [0, 1, 4, 5, 6, 7, 8, DAY]);
        assert_eq!(of(200).len(), KEPT.len());
    }
}
