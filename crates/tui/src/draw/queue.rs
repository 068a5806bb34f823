//! The page of the queue: the jobs that wait, the oldest first, and why.

use ratatui_core::style::Style;

use super::{Part, words};
use crate::{
    canvas::Canvas,
    document::Queued,
    look::{bold, reversed},
    state::State,
    text,
};

/// Width from which the queue of Kueue and the reason stand in the row.
const WIDE: u16 = 100;

pub(super) fn draw(canvas: &mut Canvas<'_>, state: &State, part: Part) {
    let Some(queue) = &state.known.queue.value else {
        return;
    };
    let (heads, part) = part.split(1);
    if heads.height == 0 {
        return;
    }
    let below = if part.height >= 8 { 2 } else { 0 };
    let unread = u16::try_from(queue.unreadable.len().min(3)).unwrap_or(0);
    let (part, unreadable) = part.split(part.height.saturating_sub(unread));
    let (rows, detail) = part.split(part.height.saturating_sub(below));
    for (y, it) in (unreadable.y..unreadable.y + unreadable.height).zip(&queue.unreadable) {
        let text = format!("{}: {}", it.run, it.why);
        let width = unreadable.width.saturating_sub(1);
        canvas.put(unreadable.x + 1, y, width, &text, bold());
    }
    if queue.rows.is_empty() {
        // Where something cannot be read, nobody knows whether a job waits.
        let text = if queue.unreadable.is_empty() {
            "no job waits"
        } else {
            "no job is known to wait"
        };
        let width = heads.width.saturating_sub(1);
        canvas.put(heads.x + 1, heads.y, width, text, Style::new());
        return;
    }
    let wide = part.width >= WIDE;
    let taken = if wide { 76 } else { 34 };
    let name = part.width.saturating_sub(taken).clamp(8, 40);
    let words = ["SINCE", "JOB", "NAMESPACE", "PODS", "GPUS", "QUEUE", "WHY"];
    line(canvas, heads, name, words, bold());
    let room = usize::from(rows.height);
    let first = state.queued.saturating_sub(room / 2);
    let first = first.min(queue.rows.len().saturating_sub(room));
    let shown = queue.rows.iter().enumerate().skip(first);
    for (y, (at, row)) in (rows.y..rows.y + rows.height).zip(shown) {
        let place = Part {
            y,
            height: 1,
            ..rows
        };
        self::row(canvas, state, place, name, row);
        if at == state.queued {
            canvas.put(place.x, y, 1, ">", bold());
            canvas.restyle(place.x, y, place.width, reversed());
        }
    }
    let width = detail.width.saturating_sub(2);
    let mut said = Vec::new();
    if let Some(row) = queue.rows.get(state.queued) {
        said = text::wrapped(&format!("{}: {}", row.job, why(row)), width, 2);
    }
    if queue.rows_left_out > 0 {
        said.truncate(1);
        said.push(format!(
            "{} more wait and are not listed",
            queue.rows_left_out
        ));
    }
    for (y, text) in (detail.y..detail.y + detail.height).zip(said) {
        canvas.put(detail.x + 1, y, width, &text, Style::new());
    }
}

fn row(canvas: &mut Canvas<'_>, state: &State, part: Part, name: u16, row: &Queued) {
    let since = row.created_at.map_or_else(
        || "–".to_owned(),
        |at| words::age(state.now.saturating_sub(at.as_millisecond())),
    );
    let accelerators = row
        .accelerators
        .map_or_else(|| "–".to_owned(), |count| count.to_string());
    let cells = [
        &since,
        &row.job,
        &row.namespace,
        &row.pods.to_string(),
        &accelerators,
        row.queue.as_deref().unwrap_or("–"),
        why(row),
    ];
    line(canvas, part, name, cells, Style::new());
}

fn why(row: &Queued) -> &str {
    row.reason
        .as_deref()
        .unwrap_or("no operator has written a reason")
}

fn line(canvas: &mut Canvas<'_>, part: Part, name: u16, cells: [&str; 7], style: Style) {
    let [since, job, namespace, pods, accelerators, queue, why] = cells;
    let (mut x, end) = (part.x + 1, part.x + part.width);
    canvas.put_right(x + 6, part.y, 6, since, style);
    x += 7;
    canvas.put(x, part.y, name, job, style);
    x += name + 1;
    canvas.put(x, part.y, 12, namespace, style);
    x += 13;
    for count in [pods, accelerators] {
        canvas.put_right(x + 5, part.y, 5, count, style);
        x += 6;
    }
    if part.width >= WIDE {
        canvas.put(x, part.y, 14, queue, style);
        x += 15;
        canvas.put(x, part.y, end.saturating_sub(x), why, style);
    }
}
