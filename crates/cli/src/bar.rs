//! Where the seconds went: a line of blocks in order of time, where attempts begin, and a legend.
//!
//! Invariant: the bar is exactly as wide as asked; where there are few spans, every one has at least one block; each
//! phase has its own sign, so that it reads without colour. The legend holds exact sums, also of what is too short to be
//! drawn.

use std::{fmt::Write as _, time::Duration};

use trainyard_core::ledger::{Phase, PhaseMillis, Span, coarsen};

use crate::{paint::Paint, words};

/// Width where there is no terminal.
const WIDTH: usize = 80;
/// So many spans are drawn however short they are, in a bar of this width for each.
const FEW: usize = 12;
const WIDTH_OF_FEW: usize = 5;

/// The bar and its legend, without the last newline.
///
/// `spans` are the same time as `millis`, in order; nothing is drawn without them, because sums by phase would look like
/// an order of time. `width` is the room for a line; legends take as many lines as they need. Empty where no time has
/// passed.
pub(crate) fn render(
    millis: &PhaseMillis,
    spans: &[Span],
    width: Option<usize>,
    paint: Paint,
) -> Vec<String> {
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
    let mut lines = in_order(spans, width.clamp(10, 60), paint);
    lines.extend(legend(&spent, total, width, paint));
    // Time of an earlier version, which kept no order: its sums are in the legend.
    if let Some(first) = spans.first()
        && first.phase == Phase::Other
        && !millis.contains_key(&Phase::Other)
    {
        let look = Look::of(Phase::Other);
        let time = words::duration(Duration::from_millis(first.millis));
        lines.push(format!("{} {time} whose order was not recorded", look.sign));
    }
    lines
}

/// The blocks in order of time, and below them where attempts begin, where there are several.
fn in_order(spans: &[Span], width: usize, paint: Paint) -> Vec<String> {
    let mut spans: Vec<Span> = spans.iter().copied().filter(|it| it.millis > 0).collect();
    let total: u64 = spans.iter().map(|span| span.millis).sum();
    let few = (width / WIDTH_OF_FEW).min(FEW);
    // Less than half a block.
    coarsen(&mut spans, width, few, total / (2 * width as u64));
    if spans.is_empty() {
        return Vec::new();
    }
    let spent: Vec<(Phase, u64)> = spans.iter().map(|span| (span.phase, span.millis)).collect();
    let cells = cells(&spent, width);
    let (mut bar, mut marks) = (String::new(), String::new());
    let (mut at, mut attempt, mut begun) = (0, 0, 0);
    for (span, cells) in spans.iter().zip(cells) {
        if span.attempt > attempt {
            attempt = span.attempt;
            begun += 1;
            let used = marks.chars().count();
            // One that has no room beside the last is left out.
            if used == 0 || used < at {
                marks.extend(std::iter::repeat_n(' ', at - used));
                write!(marks, "#{attempt}").expect("a string takes whatever is written");
            }
        }
        let look = Look::of(span.phase);
        let blocks: String = std::iter::repeat_n(look.sign, cells).collect();
        bar.push_str(&paint.apply(look.colour, &blocks));
        at += cells;
    }
    let mut lines = vec![bar];
    if begun > 1 {
        lines.push(marks);
    }
    lines
}

/// Each phase with its sum.
fn legend(spent: &[(Phase, u64)], total: u64, width: usize, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    for (phase, millis) in spent {
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

/// The sentence about the share of the wall time spent training; without a ratio no step was reported.
pub(crate) fn trained(ratio: Option<f64>) -> String {
    const WHOLE: u64 = 1_000_000;
    let Some(ratio) = ratio else {
        return "wall time spent training (ETTR) is unknown: no step was reported".to_owned();
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a million is a small number"
    )]
    let part = (ratio.clamp(0.0, 1.0) * WHOLE as f64) as u64;
    format!(
        "{} of wall time spent training (ETTR)",
        percent(part, WHOLE)
    )
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

/// How a phase is shown.
pub(crate) struct Look {
    pub(crate) word: &'static str,
    pub(crate) sign: char,
    pub(crate) colour: &'static str,
}

impl Look {
    pub(crate) fn of(phase: Phase) -> Self {
        let (word, sign, colour) = match phase {
            Phase::Queued => ("queued", '·', "38;5;102"),
            Phase::Placing => ("placing", ':', "38;5;102"),
            Phase::Creating => ("creating", '-', "38;5;67"),
            Phase::Pulling => ("pulling images", '=', "38;5;67"),
            Phase::Starting => ("starting", '░', "38;5;32"),
            Phase::Training => ("training", '█', "38;5;28"),
            Phase::Saving => ("saving", '▓', "38;5;30"),
            Phase::Stalled => ("stalled", '!', "38;5;160"),
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
        let mut sums = PhaseMillis::new();
        for (phase, millis) in parts {
            *sums.entry(*phase).or_default() += millis;
        }
        sums
    }

    fn spans(parts: &[(u32, Phase, u64)]) -> Vec<Span> {
        parts.iter().copied().map(Span::from).collect()
    }

    /// The lines of one attempt.
    fn lines(parts: &[(Phase, u64)], width: usize) -> Vec<String> {
        let all: Vec<(u32, Phase, u64)> = parts
            .iter()
            .map(|(phase, millis)| (1, *phase, *millis))
            .collect();
        render(&spent(parts), &spans(&all), Some(width), Paint::Plain)
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
            assert_eq!(lines(parts, 20)[0], want);
        }
        assert!(lines(&[(Training, 0)], 20).is_empty());
        let all: Vec<(Phase, u64)> = Phase::ALL.into_iter().map(|phase| (phase, 7)).collect();
        for width in [10, 11, 12, 40, 60] {
            assert_eq!(lines(&all, width)[0].chars().count(), width);
        }
    }

    #[test]
    fn legends_wrap_and_percentages_do_not_lie() {
        let lines = lines(
            &[
                (Phase::Creating, 40),
                (Phase::Starting, 12_000),
                (Phase::Training, 187_000),
            ],
            44,
        );
        assert_eq!(
            lines[1..],
            [
                "- creating 0.0s (<1 %)  ░ starting 12s (6 %)",
                "█ training 3m07s (94 %)"
            ]
        );
        assert_eq!(
            trained(Some(0.9999)),
            ">99 % of wall time spent training (ETTR)"
        );
        assert_eq!(
            trained(None),
            "wall time spent training (ETTR) is unknown: no step was reported"
        );
        assert_eq!(percent(9_999, 10_000), ">99 %");
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(10, 10), "100 %");
    }

    #[test]
    fn time_is_drawn_in_order_with_attempts() {
        use Phase::{Other, Redoing, Restarting, Stalled, Starting, Training};
        let all = [
            (1, Starting, 2_000),
            (1, Training, 6_000),
            (2, Restarting, 1_000),
            (2, Starting, 1_000),
            (2, Redoing, 2_000),
            (2, Training, 4_000),
            (2, Stalled, 4_000),
        ];
        let parts: Vec<(Phase, u64)> = all
            .iter()
            .map(|(_, phase, millis)| (*phase, *millis))
            .collect();
        let lines = render(&spent(&parts), &spans(&all), Some(20), Paint::Plain);
        assert_eq!(lines[0], "░░██████▒░▄▄████!!!!");
        assert_eq!(lines[1], "#1      #2");
        assert!(
            lines.contains(&"█ training 10s (50 %)".to_owned()),
            "{lines:?}"
        );
        // Marks without room are left out.
        let quick: Vec<(u32, Phase, u64)> =
            (1..=20).map(|attempt| (attempt, Training, 1_000)).collect();
        let sums = spent(&[(Training, 20_000)]);
        let lines = render(&sums, &spans(&quick), Some(20), Paint::Plain);
        assert_eq!(lines[1], "#1 #4 #7 #10 #14 #18");
        // A thousand short spans leave room for what is long.
        let mut many = spans(&[(1, Training, 1_000_000)]);
        many.extend(spans(&[(2, Restarting, 10), (2, Training, 20)]).repeat(30));
        let lines = render(&sums, &many, Some(20), Paint::Plain);
        assert!(lines[0].starts_with("████████"), "{lines:?}");
        assert_eq!(lines[0].chars().count(), 20);
        // Sums alone have no order in time.
        let lines = render(&sums, &[], Some(40), Paint::Plain);
        assert_eq!(lines, ["█ training 20s (100 %)"]);
        let lines = render(&sums, &spans(&[(0, Other, 20_000)]), Some(40), Paint::Plain);
        assert_eq!(lines[2], "? 20s whose order was not recorded");
    }

    #[test]
    fn every_phase_reads_without_colour() {
        let all = || Phase::ALL.into_iter().chain([Phase::Other]);
        let signs: BTreeSet<char> = all().map(|phase| Look::of(phase).sign).collect();
        assert_eq!(signs.len(), all().count());
    }
}
