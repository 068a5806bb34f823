//! The timeline of one run: a row for each day, a colour for each phase.

use std::collections::BTreeMap;

use trainyard_core::{ledger::Phase, outlook::Run};

use crate::drawing::Drawing;

const DAY: f64 = 86_400.0;
/// Rows drawn at most; a longer run has more days in a row.
const ROWS: f64 = 60.0;
/// Spans narrower than this share of a row are drawn with their neighbours.
const NARROW: f64 = 1.0 / 1_400.0;

/// The picture.
pub(super) fn draw(run: &Run, title: &str) -> String {
    let total = run.total().max(1.0);
    let per_row = (total / DAY / ROWS).ceil().max(1.0) * DAY;
    // A rounding error beyond the last day is not a day.
    let rows = (total / per_row - 1e-6).ceil();
    let (left, width, high) = (70.0, 700.0, 12.0);
    let mut drawing = Drawing::new(
        800.0,
        130.0 + rows * (high + 3.0),
        &format!(
            "{title}: {:.1} % of wall time spent training",
            100.0 * run.ettr()
        ),
    );
    for row in 0..count(rows) {
        let day = f64::from(row) * per_row / DAY + 1.0;
        let y = 54.0 + f64::from(row) * (high + 3.0);
        drawing.text_end((left - 8.0, y + high - 2.0), &format!("day {day:.0}"), 10.0);
    }
    let mut used: BTreeMap<Phase, f64> = BTreeMap::new();
    for span in &run.spans {
        *used.entry(span.phase).or_default() += span.to - span.from;
        let mut from = span.from;
        while from < span.to {
            let row = (from / per_row).floor();
            let to = span.to.min((row + 1.0) * per_row);
            let wide = (to - from) / per_row;
            // Checkpoints of a second are thousands of hairlines; what is trained around them is drawn.
            if wide > NARROW || span.phase != Phase::Saving {
                let x = left + width * (from / per_row - row);
                let y = 54.0 + row * (high + 3.0);
                let name = format!("{:?}, {:.0} s", span.phase, span.to - span.from);
                drawing.bar(
                    (x, y),
                    ((width * wide).max(0.4), high),
                    part(span.phase),
                    &name,
                );
            }
            if to <= from {
                break;
            }
            from = to;
        }
    }
    let y = 80.0 + rows * (high + 3.0);
    for (at, (phase, seconds)) in used.iter().enumerate() {
        let column = f64::from(u32::try_from(at % 4).unwrap_or(0));
        let row = f64::from(u32::try_from(at / 4).unwrap_or(0));
        let (x, y) = (left + 175.0 * column, y + 20.0 * row);
        let word = format!("{phase:?}").to_lowercase();
        drawing.bar((x, y - 10.0), (11.0, 11.0), part(*phase), &word);
        let percent = 100.0 * seconds / total;
        drawing.text((x + 16.0, y), &format!("{word} {percent:.2} %"), 11.0);
    }
    drawing.finish()
}

/// The colour of a phase.
fn part(phase: Phase) -> usize {
    match phase {
        Phase::Training => 0,
        Phase::Saving => 1,
        Phase::Starting => 2,
        Phase::Redoing => 3,
        Phase::Creating | Phase::Pulling => 4,
        Phase::Restarting => 5,
        Phase::Queued => 6,
        Phase::Placing => 7,
        Phase::Suspended => 8,
        Phase::Stalled | Phase::Other => 9,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most sixty rows"
)]
fn count(rows: f64) -> u32 {
    rows as u32
}
