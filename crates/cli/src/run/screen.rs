//! Lines and the live line, as bytes for the two streams.
//!
//! Pure: the owner of the streams writes the result, each part in one piece. On a terminal the
//! live line is drawn below the lines and over its own last state, without a moment in which
//! nothing is there.
//!
//! Invariant: the only control sequences that move the cursor are those made here; texts are cleaned.
//!
//! Invariant: between two frames the cursor is at the end of the live line or at the beginning of
//! an empty one, so that the next print can continue after [`Screen::erase`].

use std::time::Duration;

use super::view::Said;
use crate::{clean, paint::Paint};

/// The live line is redrawn at most this often.
const REDRAW: Duration = Duration::from_millis(100);
const TO_START: &str = "\r";
const ERASE_LINE: &str = "\u{1b}[K";
const ERASE_BELOW: &str = "\u{1b}[J";

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Ranks to stdout, trainyard to stderr.
    Apart,
    /// All to stderr: stdout is for the report, or both are the same terminal.
    Stderr,
}

/// Bytes for the two streams.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// To be written first where the lines of ranks are apart: makes room for them.
    pub(crate) before: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// What is on the terminal now.
#[derive(Debug)]
pub(crate) struct Screen {
    target: Target,
    /// Whether ranks' lines are shown at all.
    ranks: bool,
    live: Option<LiveLine>,
}

#[derive(Debug, Default)]
struct LiveLine {
    text: String,
    drawn: bool,
    due: Duration,
}

impl Screen {
    /// `live`: stderr is a terminal that can hold a live line.
    pub(crate) fn new(target: Target, ranks: bool, live: bool) -> Self {
        Self {
            target,
            ranks,
            live: live.then(LiveLine::default),
        }
    }

    /// When the live line should be drawn again even if no line comes.
    pub(crate) fn redraw_at(&self) -> Option<Duration> {
        self.live.as_ref().map(|live| live.due)
    }

    /// The frame that shows `lines` on a terminal of `width` columns, where that is known;
    /// `live_line` is asked for the live line where it is needed.
    pub(crate) fn frame(
        &mut self,
        lines: &[Said],
        now: Duration,
        width: Option<usize>,
        live_line: impl FnOnce() -> String,
    ) -> Frame {
        let mut frame = Frame::default();
        for line in lines {
            let (text, stream) = match (line, self.target) {
                (Said::Rank(_), _) if !self.ranks => continue,
                (Said::Rank(text), Target::Apart) => (text, &mut frame.stdout),
                (Said::Rank(text) | Said::Own(text), _) => (text, &mut frame.stderr),
            };
            // Colours are in it only where they are wanted.
            stream.push_str(&clean::printable(text, Paint::Styled));
            stream.push('\n');
        }
        let Some(live) = &mut self.live else {
            return frame;
        };
        let rows = live.rows_above(width);
        // A text that was made for a wider terminal would be broken again.
        let stale = now >= live.due || rows > 0;
        let erase = live.erase(width);
        if stale {
            live.due = now + REDRAW;
            live.text = clean::printable(&live_line(), Paint::Styled).into_owned();
        }
        let printed = !frame.stdout.is_empty() || !frame.stderr.is_empty();
        if !printed && !stale {
            return frame;
        }
        if (printed || rows > 0) && live.drawn {
            // A line that fills the terminal to its edge would lose its last character to an erase
            // that comes after it, so the erase comes first.
            if frame.stdout.is_empty() {
                frame.stderr.insert_str(0, &erase);
            } else {
                frame.before = erase;
            }
        } else if live.drawn {
            frame.stderr.push_str(TO_START);
        }
        frame.stderr.push_str(&live.text);
        frame.stderr.push_str(ERASE_LINE);
        live.drawn = true;
        frame
    }

    /// What erases the live line.
    pub(crate) fn erase(&mut self, width: Option<usize>) -> String {
        match &mut self.live {
            Some(live) if live.drawn => {
                let erase = live.erase(width);
                live.drawn = false;
                erase
            }
            _ => String::new(),
        }
    }
}

impl LiveLine {
    /// How many rows above the cursor the line takes: a terminal that became narrower has broken it.
    fn rows_above(&self, width: Option<usize>) -> usize {
        let columns = columns(&self.text);
        match width.filter(|width| *width > 0 && self.drawn) {
            Some(width) => columns.saturating_sub(1) / width,
            None => 0,
        }
    }

    fn erase(&self, width: Option<usize>) -> String {
        match self.rows_above(width) {
            0 => format!("{TO_START}{ERASE_LINE}"),
            rows => format!("{TO_START}\u{1b}[{rows}A{ERASE_BELOW}"),
        }
    }
}

/// Columns that `text` takes; its escape sequences take none.
fn columns(text: &str) -> usize {
    let mut columns = 0;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\u{1b}' => escaped = true,
            _ if escaped => escaped = !c.is_ascii_alphabetic(),
            _ => columns += 1,
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Said> {
        vec![
            Said::Rank("r1".to_owned()),
            Said::Own("o".to_owned()),
            Said::Rank("r2".to_owned()),
        ]
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn without_a_terminal_lines_go_their_ways() {
        let cases = [
            (Target::Apart, true, "r1\nr2\n", "o\n"),
            (Target::Stderr, true, "", "r1\no\nr2\n"),
            (Target::Stderr, false, "", "o\n"),
        ];
        for (target, ranks, stdout, stderr) in cases {
            let mut screen = Screen::new(target, ranks, false);
            let frame = screen.frame(&lines(), at(0), None, || "live".to_owned());
            let want = Frame {
                before: String::new(),
                stdout: stdout.to_owned(),
                stderr: stderr.to_owned(),
            };
            assert_eq!(frame, want);
            assert_eq!(screen.erase(None), "");
        }
    }

    #[test]
    fn live_line_redrawn_and_erased_at_end() {
        let mut screen = Screen::new(Target::Stderr, true, true);
        let frame = |screen: &mut Screen, lines: &[Said], millis, live: &str| {
            screen
                .frame(lines, at(millis), None, || live.to_owned())
                .stderr
        };
        assert_eq!(frame(&mut screen, &[], 0, "one"), "one\u{1b}[K");
        assert_eq!(frame(&mut screen, &[], 50, "two"), "", "too early");
        assert_eq!(frame(&mut screen, &[], 100, "three"), "\rthree\u{1b}[K");
        let line = [Said::Rank("r".to_owned())];
        assert_eq!(
            frame(&mut screen, &line, 150, "four"),
            "\r\u{1b}[Kr\nthree\u{1b}[K",
            "a line between two redraws keeps the text"
        );
        assert_eq!(screen.erase(None), "\r\u{1b}[K");
        assert_eq!(screen.erase(None), "");
        assert_eq!(frame(&mut screen, &line, 200, "five"), "r\nfive\u{1b}[K");
    }

    #[test]
    fn only_the_screen_itself_moves_the_cursor() {
        let mut screen = Screen::new(Target::Stderr, true, true);
        let lines = [
            Said::Own("cannot write `a\u{1b}[2J`".to_owned()),
            Said::Rank("\u{1b}[1mr\u{1b}[0m".to_owned()),
        ];
        let frame = screen.frame(&lines, at(0), None, || "live\u{9b}A".to_owned());
        assert_eq!(
            frame.stderr,
            "cannot write `a\\u001b[2J`\n\u{1b}[1mr\u{1b}[0m\nlive\\u009bA\u{1b}[K"
        );
    }

    #[test]
    fn lines_of_another_stream_get_room_first() {
        let mut screen = Screen::new(Target::Apart, true, true);
        screen.frame(&[], at(0), None, || "live".to_owned());
        let frame = screen.frame(&lines(), at(10), None, || "live".to_owned());
        let want = Frame {
            before: "\r\u{1b}[K".to_owned(),
            stdout: "r1\nr2\n".to_owned(),
            stderr: "o\nlive\u{1b}[K".to_owned(),
        };
        assert_eq!(frame, want);
    }

    #[test]
    fn narrower_terminal_erases_live_line() {
        let mut screen = Screen::new(Target::Stderr, true, true);
        let mut frame = |lines: &[Said], millis, width, live: &str| {
            let frame = screen.frame(lines, at(millis), Some(width), || live.to_owned());
            frame.stderr
        };
        let wide = format!("\u{1b}[1m{}\u{1b}[0m", "w".repeat(79));
        assert_eq!(frame(&[], 0, 80, &wide), format!("{wide}\u{1b}[K"));
        assert_eq!(
            frame(&[], 10, 30, "narrow"),
            "\r\u{1b}[2A\u{1b}[Jnarrow\u{1b}[K",
            "broken into three rows, and drawn at once"
        );
        assert_eq!(frame(&[], 110, 30, "next"), "\rnext\u{1b}[K");
        assert_eq!(frame(&[], 220, 80, &wide), format!("\r{wide}\u{1b}[K"));
        let line = [Said::Rank("r".to_owned())];
        assert_eq!(
            frame(&line, 230, 40, "narrow"),
            "\r\u{1b}[1A\u{1b}[Jr\nnarrow\u{1b}[K"
        );
        assert_eq!(screen.erase(Some(3)), "\r\u{1b}[1A\u{1b}[J");
    }
}
