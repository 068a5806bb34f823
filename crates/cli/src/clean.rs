//! What ranks, files and other programs write, made harmless for a terminal.
//!
//! Invariant: the result holds no control character but tabs and, where colour is wanted, the
//! sequences that set colours; no character that turns the direction of text around. A line is at
//! most [`LINE_MAX`] characters long, whatever came in.

use std::{borrow::Cow, fmt::Write as _};

use crate::paint::Paint;

/// Most characters of a line that are shown. The log has the whole line.
pub(crate) const LINE_MAX: usize = 2_000;
/// Bytes that are examined: no character and no escape sequence that is worth keeping makes a line
/// of `LINE_MAX` characters longer than this.
const BYTES_MAX: usize = LINE_MAX * 8;
/// Longest colour sequence that is kept.
const COLOUR_MAX: usize = 32;
/// What stands in for a character that would change how others are shown.
const REPLACED: char = '\u{fffd}';
/// Suffix of a line that is cut while the log is written.
pub(crate) const IN_THE_LOG: &str = " … (cut; the log has the whole line)";
const RESET: &str = "\u{1b}[0m";

/// What another program said, as one line that may be shown.
pub(crate) fn text(text: &str) -> String {
    let one_line = text.split('\n').collect::<Vec<_>>().join(" ");
    line(one_line.as_bytes(), false, "", Paint::Plain)
}

/// Text that is ready to be printed, with all that a terminal would obey shown as `\u009b` and the
/// like. Line breaks, tabs and, where colour is wanted, sequences that set colours stay.
///
/// That is also how JSON and YAML write such a character in a string, so a document stays the same document.
pub(crate) fn printable(text: &str, paint: Paint) -> Cow<'_, str> {
    let stays = |found: char| matches!(found, '\n' | '\t') || !is_obeyed(found);
    let plain = |byte: u8| matches!(byte, b'\n' | b'\t' | b' '..=b'~');
    if text.bytes().all(plain) || text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut coloured = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if stays(character) {
            shown.push(character);
            continue;
        }
        let mut ahead = characters.clone();
        let colour = (character == '\u{1b}' && paint == Paint::Styled)
            .then(|| escape(&mut ahead))
            .flatten();
        if let Some(colour) = colour {
            characters = ahead;
            coloured = !matches!(colour.as_str(), "" | "0");
            write!(shown, "\u{1b}[{colour}m").expect("a string takes whatever is written");
        } else {
            write!(shown, "\\u{:04x}", u32::from(character))
                .expect("a string takes whatever is written");
        }
    }
    if coloured {
        shown.push_str(RESET);
    }
    Cow::Owned(shown)
}

/// Text without what [`printable`] would escape, one character for each: for what is laid out in columns.
pub(crate) fn replaced(text: &str) -> Cow<'_, str> {
    if text.contains(is_obeyed) {
        Cow::Owned(text.replace(is_obeyed, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Whether a terminal would do something else than show the character.
pub(crate) fn is_obeyed(character: char) -> bool {
    character.is_control() || turns_text(character)
}

/// Characters that change the direction or the lines of the text around them.
pub(crate) fn turns_text(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// One line of a rank, without its newline, as it may be shown.
///
/// `more`: the line continues beyond `bytes`; a line that is cut ends with `note`.
pub(crate) fn line(bytes: &[u8], more: bool, note: &str, paint: Paint) -> String {
    let bytes = last_overwrite(bytes);
    let (window, rest) = bytes.split_at(bytes.len().min(BYTES_MAX));
    let text = String::from_utf8_lossy(window);
    let mut cut = more || !rest.is_empty();
    if is_plain(&text) && text.len() <= LINE_MAX && !cut {
        return text.into_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let mut count = 0;
    let mut coloured = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            let colour = escape(&mut characters);
            if let (Some(colour), Paint::Styled) = (colour, paint) {
                coloured = true;
                shown.push_str("\u{1b}[");
                shown.push_str(&colour);
                shown.push('m');
            }
            continue;
        }
        if count == LINE_MAX {
            cut = true;
            break;
        }
        count += push_harmless(&mut shown, character);
    }
    if coloured {
        shown.push_str(RESET);
    }
    if cut {
        shown.push_str(note);
    }
    shown
}

/// What a terminal would still show of a line that went back to its beginning: progress bars
/// rewrite theirs this way.
fn last_overwrite(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    match bytes.iter().rposition(|byte| *byte == b'\r') {
        Some(at) => bytes.get(at + 1..).unwrap_or_default(),
        None => bytes,
    }
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Adds one character, or what stands in for it, and says how many places it takes.
fn push_harmless(shown: &mut String, character: char) -> usize {
    match character {
        '\t' => shown.push('\t'),
        '\0'..='\u{1f}' | '\u{7f}' => {
            shown.push('^');
            shown.push(char::from_u32(u32::from(character) ^ 0x40).unwrap_or(REPLACED));
            return 2;
        }
        // Control characters of eight bits, and those that turn the direction of the text around.
        other if is_obeyed(other) => shown.push(REPLACED),
        other => shown.push(other),
    }
    1
}

/// Takes the rest of an escape sequence; the numbers of one that sets colours.
fn escape(characters: &mut std::str::Chars<'_>) -> Option<String> {
    let mut ahead = characters.clone();
    match ahead.next() {
        Some('[') => {
            *characters = ahead;
            let mut numbers = String::new();
            for character in characters.by_ref() {
                match character {
                    '0'..='9' | ';' | ':' if numbers.len() < COLOUR_MAX => numbers.push(character),
                    'm' => return (numbers.len() < COLOUR_MAX).then_some(numbers),
                    // The last byte of any other sequence.
                    '@'..='~' => return None,
                    _ => {}
                }
            }
            None
        }
        // Strings for the terminal: title, clipboard, pictures. They end with BEL or ESC \.
        Some(']' | 'P' | '_' | '^' | 'X') => {
            *characters = ahead;
            while let Some(character) = characters.next() {
                match character {
                    '\u{7}' => break,
                    '\u{1b}' => {
                        characters.next();
                        break;
                    }
                    _ => {}
                }
            }
            None
        }
        Some(' '..='/') => {
            ahead.next();
            *characters = ahead;
            None
        }
        Some('0'..='~') => {
            *characters = ahead;
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_write_is_harmless() {
        let cases: &[(&str, &[u8], &str, &str)] = &[
            ("plain", b"loss 2.3", "loss 2.3", "loss 2.3"),
            ("empty", b"", "", ""),
            ("carriage return", b"text\r", "text", "text"),
            ("progress bar", b" 1%\r 2%\r 3%", " 3%", " 3%"),
            (
                "colour",
                b"\x1b[1;31mred\x1b[0m",
                "red",
                "\u{1b}[1;31mred\u{1b}[0m\u{1b}[0m",
            ),
            ("clear the screen", b"a\x1b[2J\x1b[Hb", "ab", "ab"),
            ("private mode", b"\x1b[?1049hx", "x", "x"),
            ("title", b"\x1b]0;owned\x07x", "x", "x"),
            ("clipboard", b"\x1b]52;c;AAAA\x1b\\x", "x", "x"),
            ("charset", b"\x1b(0x", "x", "x"),
            ("reset", b"\x1bcx", "x", "x"),
            ("unfinished escape", b"x\x1b", "x", "x"),
            ("unfinished sequence", b"x\x1b[12", "x", "x"),
            ("unfinished title", b"x\x1b]0;abc", "x", "x"),
            ("bell and null", b"a\x07\x00b", "a^G^@b", "a^G^@b"),
            ("tab", b"a\tb", "a\tb", "a\tb"),
            (
                "eight-bit sequence",
                "a\u{9b}31mb".as_bytes(),
                "a\u{fffd}31mb",
                "a\u{fffd}31mb",
            ),
            (
                "text turned around",
                "a\u{202e}b".as_bytes(),
                "a\u{fffd}b",
                "a\u{fffd}b",
            ),
            (
                "broken UTF-8",
                b"a\xff\xfeb",
                "a\u{fffd}\u{fffd}b",
                "a\u{fffd}\u{fffd}b",
            ),
            (
                "words",
                "größer 損失".as_bytes(),
                "größer 損失",
                "größer 損失",
            ),
        ];
        for (name, bytes, plain, styled) in cases {
            assert_eq!(
                line(bytes, false, IN_THE_LOG, Paint::Plain),
                *plain,
                "{name}"
            );
            assert_eq!(
                line(bytes, false, IN_THE_LOG, Paint::Styled),
                *styled,
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_printed_is_harmless_and_stays_json() {
        let cases = [
            ("plain", "a b\n\tc", "a b\n\tc", "a b\n\tc"),
            (
                "words",
                "größer 損失 ▒▒",
                "größer 損失 ▒▒",
                "größer 損失 ▒▒",
            ),
            (
                "our colour",
                "\u{1b}[1;31merror\u{1b}[0m: x",
                "\\u001b[1;31merror\\u001b[0m: x",
                "\u{1b}[1;31merror\u{1b}[0m: x",
            ),
            (
                "a colour that is left on",
                "\u{1b}[31mred",
                "\\u001b[31mred",
                "\u{1b}[31mred\u{1b}[0m",
            ),
            (
                "clear the screen",
                "\u{1b}[2Jx",
                "\\u001b[2Jx",
                "\\u001b[2Jx",
            ),
            (
                "clipboard",
                "\u{1b}]52;c;AA\u{7}x",
                "\\u001b]52;c;AA\\u0007x",
                "\\u001b]52;c;AA\\u0007x",
            ),
            (
                "eight bits",
                "repl\u{9b}2J",
                "repl\\u009b2J",
                "repl\\u009b2J",
            ),
            (
                "overwritten",
                "a\rb\u{8}",
                "a\\u000db\\u0008",
                "a\\u000db\\u0008",
            ),
            (
                "turned around",
                "a\u{202e}b\u{2066}\u{61c}",
                "a\\u202eb\\u2066\\u061c",
                "a\\u202eb\\u2066\\u061c",
            ),
        ];
        for (name, text, plain, styled) in cases {
            assert_eq!(printable(text, Paint::Plain), plain, "{name}");
            assert_eq!(printable(text, Paint::Styled), styled, "{name}");
            let json = serde_json::to_string(&[text]).expect("text is JSON");
            let shown = printable(&json, Paint::Plain);
            assert!(!shown.contains(is_obeyed), "{name}");
            let read: Vec<String> = serde_json::from_str(&shown).expect("it stays JSON");
            assert_eq!(read, [text], "{name}");
        }
    }

    #[test]
    fn long_lines_are_cut_with_a_note() {
        let exact = "x".repeat(LINE_MAX);
        assert_eq!(
            line(exact.as_bytes(), false, IN_THE_LOG, Paint::Plain),
            exact
        );
        let long = "x".repeat(LINE_MAX + 1);
        assert_eq!(
            line(long.as_bytes(), false, IN_THE_LOG, Paint::Plain),
            format!("{exact}{IN_THE_LOG}")
        );
        assert_eq!(
            line(b"abc", true, IN_THE_LOG, Paint::Plain),
            format!("abc{IN_THE_LOG}")
        );
        let wide = "損".repeat(LINE_MAX);
        assert_eq!(line(wide.as_bytes(), false, IN_THE_LOG, Paint::Plain), wide);

        let huge = vec![b'x'; 100 << 20];
        let shown = line(&huge, false, IN_THE_LOG, Paint::Plain);
        assert!(shown.len() < LINE_MAX + IN_THE_LOG.len() + 1);
        let escapes = b"\x1b[31m".repeat(1 << 20);
        let shown = line(&escapes, false, IN_THE_LOG, Paint::Styled);
        assert!(shown.len() <= BYTES_MAX + IN_THE_LOG.len() + RESET.len());
    }
}
