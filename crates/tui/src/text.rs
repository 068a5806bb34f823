//! Text of documents, made harmless and cut to columns.

use unicode_width::UnicodeWidthChar as _;

/// Marks above or below a character that are kept; more would be drawn over the lines around it.
const MARKS_MAX: usize = 2;

/// A piece of text that takes its own columns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// One character with its marks.
    pub(crate) text: String,
    /// How many columns.
    pub(crate) width: u16,
}

/// Whether a terminal would do something else than show the character.
fn is_obeyed(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || turns
}

/// Characters without a shape of their own: joiners, selectors and tags, of which each terminal makes something else.
fn is_shapeless(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// `text` piece by piece, with all that a terminal would obey shown as `\u009b` and the like. Lazy: of a long text only what is taken costs.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece> {
    let mut characters = text.chars().peekable();
    let mut escaped: std::vec::IntoIter<char> = Vec::new().into_iter();
    std::iter::from_fn(move || {
        if let Some(next) = escaped.next() {
            return Some(Piece {
                text: next.to_string(),
                width: 1,
            });
        }
        loop {
            let character = characters.next()?;
            if character == '\t' {
                return Some(Piece {
                    text: " ".to_owned(),
                    width: 1,
                });
            }
            if is_obeyed(character) {
                let shown: Vec<char> = format!("u{:04x}", u32::from(character)).chars().collect();
                escaped = shown.into_iter();
                return Some(Piece {
                    text: "\\".to_owned(),
                    width: 1,
                });
            }
            let width = character.width().unwrap_or(0);
            // A mark without a character below it.
            if width == 0 || is_shapeless(character) {
                continue;
            }
            let mut text = character.to_string();
            let mut marks = 0;
            while let Some(mark) = characters.next_if(|next| {
                !is_obeyed(*next) && !is_shapeless(*next) && next.width() == Some(0)
            }) {
                if marks < MARKS_MAX {
                    text.push(mark);
                }
                marks += 1;
            }
            return Some(Piece {
                text,
                width: u16::try_from(width).unwrap_or(1),
            });
        }
    })
}

/// Lines of at most `columns`, broken at spaces where there are any; at most `lines` of them.
pub(crate) fn wrapped(text: &str, columns: u16, lines: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut done: Vec<String> = Vec::new();
    let (mut line, mut taken) = (String::new(), 0_u16);
    let (mut word, mut of_word) = (String::new(), 0_u16);
    for piece in pieces(text) {
        if done.len() >= lines {
            return done;
        }
        if piece.text == " " {
            line.push_str(&std::mem::take(&mut word));
            taken += std::mem::take(&mut of_word);
            if taken < columns {
                line.push(' ');
                taken += 1;
            }
            continue;
        }
        if taken + of_word + piece.width > columns {
            if taken == 0 {
                // A word that is longer than the line.
                done.push(std::mem::take(&mut word));
                of_word = 0;
            } else {
                done.push(std::mem::take(&mut line).trim_end().to_owned());
                taken = 0;
            }
        }
        word.push_str(&piece.text);
        of_word += piece.width;
    }
    line.push_str(&word);
    if !line.trim_end().is_empty() && done.len() < lines {
        done.push(line.trim_end().to_owned());
    }
    done
}

/// The columns that `text` takes when it is shown, at most `most`.
pub(crate) fn width(text: &str, most: u16) -> u16 {
    let mut sum = 0_u16;
    for piece in pieces(text) {
        sum = sum.saturating_add(piece.width);
        if sum >= most {
            return most;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        pieces(text).map(|piece| piece.text).collect()
    }

    #[test]
    fn what_terminals_obey_is_escaped() {
        let cases = [
            ("a b", "a b"),
            ("損失 größer", "損失 größer"),
            ("\u{1b}[2Jx", "\\u001b[2Jx"),
            ("\u{9b}2J", "\\u009b2J"),
            ("\u{1b}]8;;http://x\u{7}y", "\\u001b]8;;http://x\\u0007y"),
            ("a\u{202e}b\u{2066}", "a\\u202eb\\u2066"),
            ("a\nb\tc", "a\\u000ab c"),
            ("e\u{301}\u{301}\u{301}\u{301}x", "e\u{301}\u{301}x"),
            ("a\u{200d}b\u{feff}", "ab"),
        ];
        for (text, want) in cases {
            assert_eq!(shown(text), want, "{text:?}");
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let cases = [("ab", 2), ("損失", 4), ("e\u{301}", 1), ("\u{1b}", 6)];
        for (text, want) in cases {
            assert_eq!(width(text, 99), want, "{text:?}");
        }
        assert_eq!(width(&"x".repeat(1 << 20), 10), 10);
    }

    #[test]
    fn lines_are_broken_at_words() {
        let cases: [(&str, u16, &[&str]); 5] = [
            ("one two three", 7, &["one two", "three"]),
            ("longerthanthat x", 5, &["longe", "rthan", "that", "x"]),
            ("損失損失", 3, &["損", "失", "損", "失"]),
            ("", 5, &[]),
            ("a b c d e", 2, &["a", "b", "c"]),
        ];
        for (text, columns, want) in cases {
            let got = wrapped(text, columns, if want.len() == 3 { 3 } else { 9 });
            assert_eq!(got, want, "{text:?}");
            assert!(got.iter().all(|line| width(line, 99) <= columns));
        }
    }
}
