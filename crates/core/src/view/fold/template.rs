//! A line without what differs between ranks and moments.

/// Bytes of a template.
const BYTES_MAX: usize = 512;

/// The template of the last line, kept to reuse its memory.
#[derive(Debug, Default)]
pub(super) struct Template {
    bytes: Vec<u8>,
}

impl Template {
    /// Takes a line; returns the 64-bit FNV-1a hash of its template.
    pub(super) fn set(&mut self, line: &[u8]) -> u64 {
        self.bytes.clear();
        let mut rest = line.trim_ascii();
        while let Some(first) = rest.first().copied() {
            if self.bytes.len() >= BYTES_MAX {
                break;
            }
            if first.is_ascii_alphanumeric() {
                let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric());
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                rest = after;
                self.word(word);
            } else {
                rest = rest.get(1..).unwrap_or_default();
                let joins = self.bytes.last() == Some(&b'#') && matches!(first, b'-' | b'.' | b':');
                if let Some(after) = part_of_number(rest).filter(|_| joins) {
                    // An identifier, an address or a fraction is one number.
                    rest = after;
                    continue;
                }
                let space = first.is_ascii_whitespace();
                if !space || self.bytes.last() != Some(&b' ') {
                    self.bytes.push(if space { b' ' } else { first });
                }
            }
        }
        self.bytes.truncate(BYTES_MAX);
        self.bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            })
    }

    /// The template.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn word(&mut self, word: &[u8]) {
        if is_number(word) {
            if self.bytes.last() != Some(&b'#') {
                self.bytes.push(b'#');
            }
            return;
        }
        for byte in word {
            match byte {
                b'0'..=b'9' if self.bytes.last() == Some(&b'#') => {}
                b'0'..=b'9' => self.bytes.push(b'#'),
                _ => self.bytes.push(*byte),
            }
        }
    }
}

/// Decimal, hexadecimal with `0x`, or an identifier of hexadecimal digits.
fn is_number(word: &[u8]) -> bool {
    let hex = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    if let Some(rest) = word.strip_prefix(b"0x") {
        return hex(rest);
    }
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    digits == word.len() || (digits > 0 && word.len() >= 4 && hex(word))
}

/// What follows the word in front, where that can be a part of a number: `a1` in the address of a device, `4b2c` in an identifier.
fn part_of_number(rest: &[u8]) -> Option<&[u8]> {
    let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric());
    let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
    let hex = word.iter().all(u8::is_ascii_hexdigit);
    let digit = word.iter().any(u8::is_ascii_digit);
    (hex && (digit || matches!(word.len(), 2 | 4))).then_some(after)
}
