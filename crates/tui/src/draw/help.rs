//! All keys.

use ratatui_core::style::Style;

use super::Part;
use crate::{canvas::Canvas, look::bold, state::Scroll};

/// Keys with what they do; a line without a key is a heading.
const LINES: [(&str, &str); 34] = [
    ("", "everywhere"),
    ("j k ↓ ↑", "move; PgDn, PgUp, Home, End or g, G for more"),
    ("Enter", "open the selected row"),
    ("Esc", "back; on the list of jobs, remove the filter"),
    ("1 2 3 4", "jobs, failures, nodes, queue"),
    (
        ":",
        "go to `jobs`, `failures`, `nodes`, `queue`, or a job by its name",
    ),
    ("/", "filter jobs by name, namespace or line"),
    ("?", "these keys"),
    ("q Ctrl-C", "quit"),
    ("", ""),
    ("", "list of jobs"),
    ("< >", "sort by the previous or next column"),
    ("R", "reverse the order"),
    ("", ""),
    ("", "job"),
    ("l", "logs, equal lines together, the first failure on top"),
    ("d", "verdicts with their evidence, and notes"),
    ("e", "events, newest first"),
    ("t", "where the time went, and what would help"),
    ("Tab ← →", "next or previous of these"),
    ("n p", "next or previous mark on the strip"),
    ("[ ]", "logs of the previous or next attempt"),
    ("", ""),
    ("", "signs"),
    (
        "█ ▒ ░ ▓",
        "training; creating, pulling, starting or restarting; waiting; saving",
    ),
    (
        "▚ ! ╳ ?",
        "repeats steps; no step is reported; failed; node lost or other",
    ),
    ("· = ‖", "suspended; pod succeeded; not observed"),
    ("▀ ▄", "two rows on one line, each in its colour"),
    (
        "│ ╳ ⇄ ◆",
        "marks: attempt, failure, pod on another node, checkpoint",
    ),
    (
        "x ! w ^",
        "log lines: cause, other error, warning, launcher",
    ),
    ("", ""),
    (
        "",
        "Times are UTC. A cell shows its worst state, else the one",
    ),
    (
        "",
        "that took most of it. Without colour each row has its own line.",
    ),
    ("", "Nothing here changes a job."),
];

/// How many lines there are, and how many of them a terminal of this size shows.
pub(crate) fn size((_, rows): (u16, u16)) -> (usize, usize) {
    (LINES.len(), rows.saturating_sub(2).into())
}

pub(super) fn draw(canvas: &mut Canvas<'_>, scroll: Scroll, part: Part) {
    let first = scroll.first(LINES.len(), part.height.into());
    let keys = if part.width >= 60 { 12 } else { 9 };
    for (y, (key, what)) in (part.y..part.y + part.height).zip(LINES.iter().skip(first)) {
        let width = part.width.saturating_sub(1);
        if key.is_empty() {
            canvas.put(part.x + 1, y, width, what, bold());
        } else {
            canvas.put(part.x + 2, y, keys, key, bold());
            let width = width.saturating_sub(keys + 2);
            canvas.put(part.x + keys + 2, y, width, what, Style::new());
        }
    }
}
