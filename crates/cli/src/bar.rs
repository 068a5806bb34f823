//! Where the seconds went, as one line of blocks with a legend.
//!
//! Invariant: the bar is exactly as wide as asked; every phase that took time has at least one
//! block while there is room for all of them; each phase has its own sign, so that it reads
//! without colour.

use std::{fmt::Write as _, time::Duration};

use trainyard_core::ledger::{Phase, PhaseMillis};

use crate::{printer::Paint, words};

/// Width where there is no terminal.
const WIDTH: usize = 80;

/// The bar and its legend: two lines or more, without the last newline.
///
/// `width` is the room for a line; legends go on to as many lines as they need. Empty where no
/// time has passed.
pub(crate) fn render(millis: &PhaseMillis, width: Option<usize>, paint: Paint) -> Vec<String> {
    let width = width.unwrap_or(WIDTH);
    let spent: Vec<(Phase, u64)> = Phase::ALL
        .into_iter()
        .chain([Phase::Other])
        .filter_map(|phase| Some((phase, *millis.get(&phase)?)))
        .filter(|(_, millis)| *millis > 0)
        .collect();
    let total: u64 = spent.iter().map(|(_, millis)| millis).sum();
    if total == 0 {
        return Vec::new();
    }
    let mut bar = String::new();
    for ((phase, _), cells) in spent.iter().zip(cells(&spent, width.clamp(10, 60))) {
        let look = Look::of(*phase);
        let blocks: String = std::iter::repeat_n(look.sign, cells).collect();
        bar.push_str(&paint.apply(look.colour, &blocks));
    }
    let mut lines = vec![bar];
    let (mut line, mut used) = (String::new(), 0);
    for (phase, millis) in &spent {
        let look = Look::of(*phase);
        let words = format!(
            " {} {} ({})",
            look.word,
            words::duration(Duration::from_millis(*millis)),
            percent(*millis, total)
        );
        let length = 1 + words.chars().count();
        if used > 0 && used + 2 + length > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push_str("  ");
            used += 2;
        }
        let sign = paint.apply(look.colour, look.sign.encode_utf8(&mut [0; 4]));
        write!(line, "{sign}{words}").expect("a string takes whatever is written");
        used += length;
    }
    lines.push(line);
    lines
}

/// The sentence about the share of the time that trained.
pub(crate) fn trained(ratio: f64) -> String {
    const WHOLE: u64 = 1_000_000;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a million is a small number"
    )]
    let part = (ratio.clamp(0.0, 1.0) * WHOLE as f64) as u64;
    format!("{} of the time trained (ETTR)", percent(part, WHOLE))
}

/// A share as a whole percentage that is 0 or 100 only where it is exactly that.
fn percent(part: u64, whole: u64) -> String {
    let rounded = (u128::from(part) * 100 + u128::from(whole) / 2) / u128::from(whole.max(1));
    match rounded {
        0 if part > 0 => "<1 %".to_owned(),
        100 if part < whole => ">99 %".to_owned(),
        rounded => format!("{rounded} %"),
    }
}

/// How many blocks each gets: its share, at least one, and all of them together `width`.
fn cells(spent: &[(Phase, u64)], width: usize) -> Vec<usize> {
    let total: u128 = spent.iter().map(|(_, millis)| u128::from(*millis)).sum();
    let mut cells: Vec<usize> = spent
        .iter()
        .map(|(_, millis)| {
            let share = u128::from(*millis) * width as u128 / total.max(1);
            usize::try_from(share).unwrap_or(width).max(1)
        })
        .collect();
    // What rounding left over or took too much is settled with the longest, where it shows least.
    loop {
        let sum: usize = cells.iter().sum();
        let Some(longest) = cells.iter_mut().max() else {
            return cells;
        };
        match sum.cmp(&width) {
            std::cmp::Ordering::Less => *longest += width - sum,
            std::cmp::Ordering::Greater if *longest > 1 => *longest -= 1,
            _ => return cells,
        }
    }
}

struct Look {
    word: &'static str,
    sign: char,
    colour: &'static str,
}

impl Look {
    fn of(phase: Phase) -> Self {
        let (word, sign, colour) = match phase {
            Phase::Queued => ("queued", '·', "38;5;102"),
            Phase::Placing => ("placing", ':', "38;5;102"),
            Phase::Creating => ("creating", '-', "38;5;67"),
            Phase::Pulling => ("pulling images", '=', "38;5;67"),
            Phase::Starting => ("starting", '░', "38;5;32"),
            Phase::Training => ("training", '█', "38;5;28"),
            Phase::Saving => ("saving", '▓', "38;5;30"),
            Phase::Hanging => ("without progress", '!', "38;5;160"),
            Phase::Restarting => ("restarting", '▒', "38;5;166"),
            Phase::Redoing => ("redoing lost steps", '▄', "38;5;136"),
            Phase::Suspended => ("suspended", '_', "38;5;102"),
            Phase::Other => ("other", '?', "38;5;102"),
        };
        Self { word, sign, colour }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn spent(parts: &[(Phase, u64)]) -> PhaseMillis {
        parts.iter().copied().collect()
    }

    #[test]
    fn the_bar_is_as_wide_as_asked_and_shows_every_phase() {
        use Phase::{Creating, Restarting, Starting, Training};
        let cases: [(&[(Phase, u64)], &str); 4] = [
            (&[(Training, 1)], "████████████████████"),
            (
                &[(Creating, 1), (Training, 1_000_000)],
                "-███████████████████",
            ),
            (&[(Starting, 250), (Training, 750)], "░░░░░███████████████"),
            (
                &[
                    (Creating, 1),
                    (Starting, 1),
                    (Training, 96),
                    (Restarting, 1),
                ],
                "-░█████████████████▒",
            ),
        ];
        for (parts, want) in cases {
            let lines = render(&spent(parts), Some(20), Paint::Plain);
            assert_eq!(lines[0], want);
        }
        assert!(render(&spent(&[(Training, 0)]), Some(20), Paint::Plain).is_empty());
        let all: Vec<(Phase, u64)> = Phase::ALL.into_iter().map(|phase| (phase, 7)).collect();
        for width in [10, 11, 12, 40, 60] {
            let bar = &render(&spent(&all), Some(width), Paint::Plain)[0];
            assert_eq!(bar.chars().count(), width.max(all.len()));
        }
    }

    #[test]
    fn legends_wrap_and_percentages_do_not_lie() {
        let lines = render(
            &spent(&[
                (Phase::Creating, 40),
                (Phase::Starting, 12_000),
                (Phase::Training, 187_000),
            ]),
            Some(44),
            Paint::Plain,
        );
        assert_eq!(
            lines[1..],
            [
                "- creating 0.0s (<1 %)  ░ starting 12s (6 %)",
                "█ training 3m07s (94 %)"
            ]
        );
        assert_eq!(trained(0.9999), ">99 % of the time trained (ETTR)");
        assert_eq!(percent(9_999, 10_000), ">99 %");
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(10, 10), "100 %");
    }

    #[test]
    fn every_phase_reads_without_colour() {
        let all = || Phase::ALL.into_iter().chain([Phase::Other]);
        let signs: BTreeSet<char> = all().map(|phase| Look::of(phase).sign).collect();
        assert_eq!(signs.len(), all().count());
    }
}
