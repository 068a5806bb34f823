//! Ranks over time, as cells of a terminal.

use ratatui_core::style::{Color, Style};
use trainyard_core::view::State as Phase;

use super::{Part, words};
use crate::{
    canvas::Canvas,
    document::{Label, Mark, Strip},
    look::reversed,
};

/// States that are shown wherever they are, the worst first.
const WORST: [Phase; 3] = [Phase::Failed, Phase::Lost, Phase::Stalled];

/// Draws pieces of the last day, as long as they took, in `width` columns.
pub(super) fn day(canvas: &mut Canvas<'_>, day: &[(u8, u64)], x: u16, y: u16, width: u16) {
    let mut pairs = Vec::with_capacity(day.len() * 2);
    for (state, millis) in day {
        pairs.extend([*millis, u64::from(*state)]);
    }
    let span = day.iter().fold(0_u64, |sum, it| sum.saturating_add(it.1));
    let cells = by_time(&pairs, span, width);
    line(canvas, &cells, x, y);
}

/// The cells of a row of a strip.
pub(super) fn cells(strip: &Strip, pairs: &[u64], columns: u16) -> Vec<Phase> {
    if strip.exact {
        let span = u64::try_from(strip.to.saturating_sub(strip.from)).unwrap_or(0);
        return by_time(pairs, span, columns);
    }
    let mut cells = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let [count, state] = pair else { continue };
        let left = usize::from(columns).saturating_sub(cells.len());
        let count = usize::try_from(*count).unwrap_or(left).min(left);
        cells.extend(std::iter::repeat_n(words::state_of(*state), count));
    }
    cells
}

/// Cells of equal time from pairs of milliseconds and state: the worst state in a cell, else the one that took most of it.
fn by_time(pairs: &[u64], span: u64, columns: u16) -> Vec<Phase> {
    let count = u64::from(columns);
    if span == 0 || count == 0 {
        return Vec::new();
    }
    let end_of = |cell: u64| {
        let end = u128::from(span) * u128::from(cell + 1) / u128::from(count);
        u64::try_from(end).unwrap_or(u64::MAX)
    };
    let mut runs = pairs.chunks_exact(2);
    let (mut cells, mut at, mut left, mut state) = (Vec::new(), 0_u64, 0_u64, Phase::Nothing);
    for cell in 0..count {
        let end = end_of(cell);
        let mut most = (Phase::Nothing, 0);
        let mut worst: Option<Phase> = None;
        while at < end || (left == 0 && at == end) {
            if left == 0 {
                let Some([millis, number]) = runs.next() else {
                    break;
                };
                (left, state) = (*millis, words::state_of(*number));
                continue;
            }
            if at >= end {
                break;
            }
            let part = left.min(end - at);
            (at, left) = (at + part, left - part);
            worst = worse(worst, state);
            if part > most.1 {
                most = (state, part);
            }
        }
        cells.push(worst.unwrap_or(most.0));
    }
    cells
}

fn worse(known: Option<Phase>, state: Phase) -> Option<Phase> {
    let rank = |state: Phase| WORST.iter().position(|it| *it == state);
    match (known.and_then(rank), rank(state)) {
        (Some(one), Some(other)) if other < one => Some(state),
        (None, Some(_)) => Some(state),
        _ => known,
    }
}

/// One row on a line of its own: signs, in colour where there is any.
pub(super) fn line(canvas: &mut Canvas<'_>, cells: &[Phase], x: u16, y: u16) {
    for (x, state) in (x..u16::MAX).zip(cells) {
        let style = canvas.look.of_state(*state);
        canvas.put(x, y, 1, state.sign().encode_utf8(&mut [0; 4]), style);
    }
}

/// Two rows on one line. Equal cells show their sign, and so does what is wrong; else the halves have colours.
fn halves(canvas: &mut Canvas<'_>, upper: &[Phase], lower: &[Phase], x: u16, y: u16) {
    for (x, (upper, lower)) in (x..u16::MAX).zip(upper.iter().zip(lower)) {
        let bad = worse(worse(None, *upper), *lower);
        let only = bad.or((upper == lower).then_some(*upper));
        if let Some(only) = only {
            line(canvas, &[only], x, y);
            continue;
        }
        let of = |state: Phase| match state {
            Phase::Nothing => Color::Reset,
            state => canvas.look.colour(state).unwrap_or(Color::Reset),
        };
        let (sign, style) = match (*upper, *lower) {
            (Phase::Nothing, lower) => ("▄", Style::new().fg(of(lower))),
            (upper, lower) => ("▀", Style::new().fg(of(upper)).bg(of(lower))),
        };
        canvas.put(x, y, 1, sign, style);
    }
}

/// The rows of all ranks in the lines of `part`, with their labels in front.
pub(super) fn ranks(canvas: &mut Canvas<'_>, strip: &Strip, part: Part, label: u16) {
    let columns = part.width.saturating_sub(label + 1);
    let row = |at: usize| -> Option<Vec<Phase>> {
        let which = *strip.of.get(at)?;
        Some(cells(strip, strip.rows.get(which)?, columns))
    };
    let x = part.x + label;
    let lines = usize::from(part.height);
    let shares = strip.of.len() > lines && canvas.look.has_colour();
    let each = if shares { 2 } else { 1 };
    for (y, at) in (part.y..part.y + part.height).zip((0..strip.of.len()).step_by(each)) {
        let first = strip.labels.get(at);
        let second = strip.labels.get(at + 1).filter(|_| shares);
        let dim = canvas.look.dim();
        canvas.put(
            part.x,
            y,
            label.saturating_sub(1),
            &named(first, second),
            dim,
        );
        let Some(upper) = row(at) else { continue };
        match row(at + 1).filter(|_| shares) {
            Some(lower) => halves(canvas, &upper, &lower, x, y),
            None => line(canvas, &upper, x, y),
        }
    }
    if strip.of.len() > lines * each && part.height > 0 {
        let hidden = strip.of.len() - lines * each;
        let text = format!("{hidden} more rows");
        let y = part.y + part.height - 1;
        canvas.put_right(part.x + part.width, y, part.width, &text, reversed());
    }
}

/// What a line shows: ranks where they are known, else pods.
fn named(first: Option<&Label>, second: Option<&Label>) -> String {
    let Some(first) = first else {
        return String::new();
    };
    let last = second.unwrap_or(first);
    let node = first.node.as_ref().filter(|node| {
        let of_last = last.node.as_ref();
        of_last == Some(*node)
    });
    let node = node.map_or_else(String::new, |node| format!(" {node}"));
    let ranks = match (first.from, last.to.or(last.from)) {
        (Some(from), Some(to)) if from == to => format!("{from:>3}"),
        (Some(from), Some(to)) => format!("{from:>3}-{to}"),
        _ if first.pods > 1 => format!("{} +{}", first.pod, first.pods - 1),
        _ => first.pod.clone(),
    };
    format!("{ranks}{node}")
}

/// The sign of a mark.
fn sign(mark: &Mark) -> &'static str {
    match mark.kind.as_str() {
        "failed" => "╳",
        "swapped" => "⇄",
        "attempt" => "│",
        "saved" => "◆",
        _ => "·",
    }
}

/// The column of a moment.
fn column(strip: &Strip, at: i64, columns: u16) -> Option<u16> {
    let span = i128::from(strip.to) - i128::from(strip.from);
    let place = i128::from(at) - i128::from(strip.from);
    if span <= 0 || place < 0 || place > span || columns == 0 {
        return None;
    }
    let column = u16::try_from(place * i128::from(columns) / span).ok()?;
    Some(column.min(columns - 1))
}

/// The marks in the line of `part`; the selected one stands out.
pub(super) fn marks(
    canvas: &mut Canvas<'_>,
    strip: &Strip,
    marks: &[&Mark],
    selected: Option<usize>,
    part: Part,
    label: u16,
) {
    let columns = part.width.saturating_sub(label + 1);
    let x = part.x + label;
    let order = |kind: &str| match kind {
        "failed" => 3,
        "swapped" => 2,
        "attempt" => 1,
        _ => 0,
    };
    // What matters most is put last, and stays.
    let mut sorted: Vec<&&Mark> = marks.iter().collect();
    sorted.sort_by_key(|mark| order(&mark.kind));
    let put = |canvas: &mut Canvas<'_>, mark: &Mark, style: Style| {
        if let Some(column) = column(strip, mark.t, columns) {
            canvas.put(x + column, part.y, 1, sign(mark), style);
        }
    };
    for mark in sorted {
        let style = match mark.kind.as_str() {
            "failed" => canvas.look.of_state(Phase::Failed),
            "saved" => canvas.look.of_state(Phase::Saving),
            _ => Style::new(),
        };
        put(canvas, mark, style);
    }
    if let Some(mark) = selected.and_then(|at| marks.get(at)) {
        put(canvas, mark, reversed());
    }
}

/// A mark in words.
pub(super) fn mark_words(strip: &Strip, mark: &Mark, now: i64) -> String {
    let n = mark.n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let who = match (mark.rank, mark.row.and_then(|row| strip.labels.get(row))) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(label)) => format!("pod {}", label.pod),
        (None, None) => "the job".to_owned(),
    };
    let what = match mark.kind.as_str() {
        "failed" => format!("{who} failed in attempt {n}"),
        "attempt" => format!("attempt {n} began"),
        "swapped" => format!("{who} moved to another node"),
        "saved" => format!("checkpoint of step {n} is complete"),
        other => words::word(other),
    };
    let after = words::millis(mark.t.saturating_sub(strip.from));
    let at = words::moment(mark.t, now);
    format!("{} {what}, {at}, {after} after the start", sign(mark))
}

/// The signs of the states in a strip with their words.
pub(super) fn legend(strip: &Strip) -> Vec<(Phase, String)> {
    let all = strip.rows.iter().chain(std::iter::once(&strip.job));
    let mut present = [false; Phase::ALL.len()];
    for number in all.flat_map(|pairs| pairs.chunks_exact(2)) {
        if let [_, number] = number
            && let Some(known) = present.get_mut(usize::from(words::state_of(*number).number()))
        {
            *known = true;
        }
    }
    Phase::ALL
        .into_iter()
        .zip(present)
        .filter(|(state, is_present)| *is_present && *state != Phase::Nothing)
        .map(|(state, _)| {
            (
                state,
                format!("{} {}", state.sign(), words::word(state.name())),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(cells: &[Phase]) -> String {
        cells.iter().map(|state| state.sign()).collect()
    }

    #[test]
    fn cells_show_the_worst_or_the_most() {
        // 0 is training, 5 starting, 12 failed, 7 stalled, 16 nothing.
        let cases: [(&[u64], u64, u16, &str); 8] = [
            (&[50, 5, 50, 0], 100, 4, "▒▒██"),
            (&[49, 0, 1, 12, 50, 0], 100, 2, "╳█"),
            (&[60, 0, 10, 7, 30, 0], 100, 1, "!"),
            (&[10, 7, 10, 12, 80, 0], 100, 1, "╳"),
            (&[30, 0], 100, 2, "█ "),
            (&[100, 99], 100, 2, "??"),
            (&[], 100, 3, "   "),
            (&[1, 0], 0, 3, ""),
        ];
        for (pairs, span, columns, want) in cases {
            assert_eq!(signs(&by_time(pairs, span, columns)), want, "{pairs:?}");
        }
    }

    #[test]
    fn a_failure_is_seen_at_every_width() {
        let pairs = [4_405, 0, 1, 12, 16_633, 0];
        for columns in 1..300 {
            let cells = by_time(&pairs, 21_039, columns);
            assert_eq!(cells.len(), usize::from(columns));
            assert!(cells.contains(&Phase::Failed), "{columns}");
        }
    }

    #[test]
    fn moments_have_a_column_in_the_window() {
        let strip = Strip {
            from: 100,
            to: 200,
            ..Strip::default()
        };
        let cases = [(100, Some(0)), (150, Some(5)), (200, Some(9)), (99, None)];
        for (at, want) in cases {
            assert_eq!(column(&strip, at, 10), want, "{at}");
        }
        assert_eq!(column(&strip, i64::MIN, 10), None);
        assert_eq!(column(&Strip::default(), 0, 10), None);
    }
}
