//! A finding as people read it: what, where, the source line underlined, what to do.
//!
//! Invariant: the work for one finding does not grow with the file. Only the line that is shown is
//! given to the renderer, and a very long line (JSON is often one) only in part.
//!
//! Invariant: nothing in the file, its name or the finding makes a terminal do anything, in a pipe either: findings are
//! for people, and logs of CI are read on terminals.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use trainyard_core::finding::{Finding, Severity};

use crate::{clean, paint::Paint};

/// Most characters before what is underlined; beyond this the beginning of the line is left out.
const LINE_MAX: usize = 200;
/// Characters that are then shown before it, and always at most from it on.
const AROUND: usize = 80;

/// The finding as a block of text that ends with an empty line.
pub(crate) fn render(finding: &Finding, file: &str, text: &str, paint: Paint) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let (path, file) = (clean::replaced(&finding.path), clean::replaced(file));
    let message = sentence(&finding.message);
    // The renderer cleans neither labels and paths nor hints.
    let hint = finding.hint.as_deref().map(sentence);
    let hint = hint.map(|hint| clean::printable(&hint, Paint::Plain).into_owned());
    let title = level.primary_title(message.as_str()).id(finding.code);
    let origin = || {
        let origin = Origin::path(file.as_ref());
        match finding.span.line {
            0 => origin,
            line => origin.line(line).char_column(finding.span.column),
        }
    };
    let mut group = Group::with_title(title);
    if let Some(window) = Window::around(finding, text) {
        let mut annotation = AnnotationKind::Primary.span(window.start..window.end);
        if !path.is_empty() {
            annotation = annotation.label(path.as_ref());
        }
        let snippet = Snippet::source(window.text)
            .line_start(finding.span.line)
            .annotation(annotation);
        // The renderer counts the column in what it is given, so where the beginning of the line
        // is left out the place is stated apart.
        group = if window.cut {
            group.element(origin()).element(snippet)
        } else {
            group.element(snippet.path(file.as_ref()))
        };
    } else {
        group = group.element(origin());
        if !path.is_empty() {
            group = group.element(Level::NOTE.with_name("at").message(path.as_ref()));
        }
    }
    if let Some(hint) = &hint {
        group = group.element(Level::HELP.with_name("hint").message(hint.as_str()));
    }
    let renderer = match paint {
        Paint::Plain => Renderer::plain(),
        Paint::Styled => Renderer::styled(),
    };
    format!("{}\n\n", renderer.render(&[group]))
}

/// A sentence of a finding, in which text of the file may stand. The renderer shows the control
/// characters of seven bits as signs, and breaks lines.
fn sentence(text: &str) -> String {
    text.chars().map(harmless).collect()
}

/// The character, or what stands in for one that the renderer would pass on and a terminal obey.
fn harmless(character: char) -> char {
    let eight_bits = character.is_control() && !character.is_ascii();
    if eight_bits || clean::turns_text(character) {
        char::REPLACEMENT_CHARACTER
    } else {
        character
    }
}

/// The part of one source line that is shown, and what is underlined in it.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    text: String,
    start: usize,
    end: usize,
    /// Whether the beginning of the line is left out.
    cut: bool,
}

impl Window {
    /// `None` where the finding has no place in `text`.
    fn around(finding: &Finding, text: &str) -> Option<Self> {
        let span = finding.span;
        if span.line == 0 {
            return None;
        }
        let before = text.get(..span.start)?;
        let after = text.get(span.start..)?;
        let mut kept: Vec<char> = before
            .chars()
            .rev()
            .take_while(|found| *found != '\n')
            .take(LINE_MAX + 1)
            .collect();
        let mut shown = String::new();
        let cut = kept.len() > LINE_MAX;
        if cut {
            kept.truncate(AROUND);
            shown.push('…');
        }
        shown.extend(kept.into_iter().rev().map(harmless));

        let start = shown.len();
        let mut end = start;
        let mut rest = after
            .char_indices()
            .take_while(|(_, found)| !matches!(found, '\n' | '\r'));
        for (at, found) in rest.by_ref().take(AROUND) {
            shown.push(harmless(found));
            if span.start + at < span.end {
                end = shown.len();
            }
        }
        if rest.next().is_some() {
            shown.push('…');
        }
        Some(Self {
            text: shown,
            start,
            end,
            cut,
        })
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::finding::Span;

    use super::*;

    fn finding(start: usize, end: usize, line: usize, column: usize) -> Finding {
        Finding {
            code: "TY000",
            severity: Severity::Error,
            path: "a.b".to_owned(),
            span: Span {
                start,
                end,
                line,
                column,
            },
            message: "found `x`, needed `y`".to_owned(),
            hint: Some("write `y`".to_owned()),
            fix: None,
        }
    }

    #[test]
    fn a_window_is_one_line_at_most() {
        let long = format!("{}mark{}", "a".repeat(5_000), "b".repeat(5_000));
        let shown_long = format!("…{}mark{}…", "a".repeat(80), "b".repeat(76));
        let cases = [
            (
                "within a line",
                "a: b\nc: x\n",
                (8, 9),
                Some(("c: x", 3, 4, false)),
            ),
            (
                "over the end of a line",
                "a: b\nc: x\n",
                (3, 9),
                Some(("a: b", 3, 4, false)),
            ),
            (
                "at the end of the text",
                "a: b",
                (4, 4),
                Some(("a: b", 4, 4, false)),
            ),
            ("an empty text", "", (0, 0), Some(("", 0, 0, false))),
            (
                "carriage returns",
                "a: b\r\nc",
                (3, 4),
                Some(("a: b", 3, 4, false)),
            ),
            (
                "a long line",
                &long,
                (5_000, 5_004),
                Some((&shown_long, 83, 87, true)),
            ),
            ("outside of the text", "a: b", (9, 10), None),
            ("within a character", "é", (1, 2), None),
        ];
        for (name, text, (start, end), want) in cases {
            let got = Window::around(&finding(start, end, 1, 1), text);
            let want = want.map(|(text, start, end, cut): (&str, _, _, _)| Window {
                text: text.to_owned(),
                start,
                end,
                cut,
            });
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn nothing_in_a_file_makes_a_terminal_obey() {
        let hostile = "x\u{9b}2J\u{1b}]0;t\u{7}\u{202e}\u{2066}\u{7f}";
        let text = format!("{hostile}: 1 # {hostile}\n");
        let mut found = finding(0, hostile.len(), 1, 1);
        found.message = format!("unknown field `{hostile}`");
        found.hint = Some(format!("remove `{hostile}`"));
        found.path = hostile.to_owned();
        for place in [1, 0] {
            found.span.line = place;
            let shown = render(&found, hostile, &text, Paint::Plain);
            let obeyed = |found: char| found != '\n' && clean::is_obeyed(found);
            assert!(!shown.contains(obeyed), "{shown:?}");
            assert!(shown.contains("unknown field `x\u{fffd}2J"), "{shown:?}");
        }
    }

    #[test]
    fn finding_without_position_names_file_and_field() {
        let text = render(&finding(0, 0, 0, 0), "job.yaml", "", Paint::Plain);
        for part in [
            "error[TY000]: found `x`",
            "job.yaml",
            "at: a.b",
            "hint: write `y`",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn column_of_cut_line_is_file_column() {
        let text = format!("{}mark", "a".repeat(5_000));
        let shown = render(
            &finding(5_000, 5_004, 1, 5_001),
            "job.json",
            &text,
            Paint::Plain,
        );
        assert!(shown.contains("--> job.json:1:5001\n"), "{shown}");
    }
}
