//! Keys from the bytes that a terminal sends.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Cursor up; and so on.
    Up,
    /// Cursor down.
    Down,
    /// Cursor left.
    Left,
    /// Cursor right.
    Right,
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-U: the line that is typed is emptied.
    Clear,
}

/// Longest sequence that is waited for.
const SEQUENCE_MAX: usize = 32;

/// Takes bytes, and gives keys. Sequences that it does not know give none.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
}

/// What the beginning of the bytes is.
enum Taken {
    /// So many bytes are this key.
    Key(usize, Option<Key>),
    /// More bytes may follow.
    Unfinished,
}

impl Keys {
    /// The keys in `bytes`, and in what was unfinished before.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        self.take(false)
    }

    /// The keys in what is unfinished: nothing followed it, so an escape is the key.
    pub fn flush(&mut self) -> Vec<Key> {
        self.take(true)
    }

    /// Whether something is unfinished.
    pub fn is_unfinished(&self) -> bool {
        !self.pending.is_empty()
    }

    fn take(&mut self, is_all: bool) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut at = 0;
        while let Some(rest) = self.pending.get(at..).filter(|rest| !rest.is_empty()) {
            match first(rest) {
                Taken::Key(count, key) => {
                    at += count;
                    keys.extend(key);
                }
                Taken::Unfinished if is_all || rest.len() > SEQUENCE_MAX => {
                    if rest.first() == Some(&0x1b) {
                        keys.push(Key::Esc);
                    }
                    at += if is_all && rest.len() > 1 {
                        rest.len()
                    } else {
                        1
                    };
                }
                Taken::Unfinished => break,
            }
        }
        self.pending.drain(..at.min(self.pending.len()));
        keys
    }
}

fn first(bytes: &[u8]) -> Taken {
    let one = |key| Taken::Key(1, Some(key));
    match bytes {
        [b'\r' | b'\n', ..] => one(Key::Enter),
        [b'\t', ..] => one(Key::Tab),
        [0x7f | 0x08, ..] => one(Key::Backspace),
        [0x03, ..] => one(Key::Interrupt),
        [0x15, ..] => one(Key::Clear),
        [0x1b] | [0x1b, b'O'] => Taken::Unfinished,
        [0x1b, b'[', rest @ ..] => sequence(rest),
        [0x1b, b'O', last, ..] => Taken::Key(3, named(*last)),
        // Two escapes are two keys; with any other key it is Alt, which nothing uses.
        [0x1b, 0x1b, ..] => one(Key::Esc),
        [0x1b, _, ..] => Taken::Key(2, None),
        [0..=0x1f, ..] => Taken::Key(1, None),
        _ => character(bytes),
    }
}

/// What follows `ESC [`.
fn sequence(rest: &[u8]) -> Taken {
    let Some(end) = rest.iter().position(|byte| matches!(byte, b'@'..=b'~')) else {
        return Taken::Unfinished;
    };
    let last = rest.get(end).copied().unwrap_or_default();
    let number = rest.get(..end).unwrap_or_default();
    let key = match (last, number) {
        (b'~', b"1" | b"7") => Some(Key::Home),
        (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        (b'Z', _) => Some(Key::BackTab),
        (last, _) => named(last),
    };
    Taken::Key(end + 3, key)
}

fn named(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        _ => return None,
    })
}

fn character(bytes: &[u8]) -> Taken {
    let length = match bytes.first() {
        Some(0..=0x7f) => 1,
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => return Taken::Key(1, None),
    };
    let Some(of_one) = bytes.get(..length) else {
        return Taken::Unfinished;
    };
    let found = std::str::from_utf8(of_one).ok();
    match found.and_then(|text| text.chars().next()) {
        Some(found) => Taken::Key(length, Some(Key::Char(found))),
        None => Taken::Key(1, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_keys() {
        use Key::{Char, Down, End, Enter, Esc, Home, Interrupt, PageDown, Up};
        let cases: [(&[u8], &[Key]); 12] = [
            (b"jq", &[Char('j'), Char('q')]),
            (b"\x1b[A\x1b[B", &[Up, Down]),
            (b"\x1bOA", &[Up]),
            (b"\x1b[1;5B", &[Down]),
            (b"\x1b[6~\x1b[1~\x1b[F", &[PageDown, Home, End]),
            ("損ü".as_bytes(), &[Char('損'), Char('ü')]),
            (b"\r\x03", &[Enter, Interrupt]),
            (b"\x1b", &[Esc]),
            (b"\x1b\x1b", &[Esc, Esc]),
            (b"\x1bx", &[]),
            (b"\xff\xc3\x28a", &[Char('('), Char('a')]),
            (b"\x1b[200~", &[]),
        ];
        for (bytes, want) in cases {
            let mut keys = Keys::default();
            let mut got = keys.push(bytes);
            got.extend(keys.flush());
            assert_eq!(got, want, "{bytes:?}");
            assert!(!keys.is_unfinished(), "{bytes:?}");
        }
    }

    #[test]
    fn a_sequence_may_come_in_parts() {
        let mut keys = Keys::default();
        assert_eq!(keys.push(b"\x1b"), []);
        assert_eq!(keys.push(b"["), []);
        assert_eq!(keys.push(b"A"), [Key::Up]);
        // One that never ends is given up.
        keys.push(&[b"\x1b[".as_slice(), &[b'9'; 100]].concat());
        assert!(keys.pending.len() <= SEQUENCE_MAX);
        assert_eq!(keys.push(b"q").last(), Some(&Key::Char('q')));
    }

    proptest! {
        #[test]
        fn any_bytes_are_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let mut keys = Keys::default();
            let (one, other) = bytes.split_at(cut.min(bytes.len()));
            let count = keys.push(one).len() + keys.push(other).len();
            prop_assert!(keys.pending.len() <= SEQUENCE_MAX);
            prop_assert!(count + keys.flush().len() <= bytes.len());
            prop_assert!(!keys.is_unfinished());
        }
    }
}
