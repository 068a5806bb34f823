//! Reads the fields of one JSON object, without recursion and without copies.
//!
//! Traces hold what JSON does not allow (`NaN`, `Infinity`, bytes that are no UTF-8), and one bad field must cost only its event.
//! So values stay bytes until somebody needs them.

use std::borrow::Cow;

/// Bytes of a name that are kept.
const MOST_NAME: usize = 4 << 10;

/// A value, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value<'a>(pub(crate) &'a [u8]);

impl<'a> Value<'a> {
    /// The text of a string, bounded and without control characters.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let plain = inner.len() <= MOST_NAME
            && !inner
                .iter()
                .any(|byte| *byte == b'\\' || byte.is_ascii_control());
        if plain && let Ok(text) = std::str::from_utf8(inner) {
            return Some(Cow::Borrowed(text));
        }
        Some(Cow::Owned(unescape(inner)))
    }

    /// A whole number, written as a number or as a string.
    pub(crate) fn whole(self) -> Option<u64> {
        let digits = self.0.strip_prefix(b"\"").unwrap_or(self.0);
        let digits = digits.strip_suffix(b"\"").unwrap_or(digits);
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Microseconds with decimals, as nanoseconds. Nothing where they are negative, `NaN`, or beyond all time.
    pub(crate) fn nanoseconds(self) -> Option<u64> {
        let digits = self.0.strip_prefix(b"\"").unwrap_or(self.0);
        let digits = digits.strip_suffix(b"\"").unwrap_or(digits);
        let mut parts = digits.splitn(2, |byte| *byte == b'.');
        let whole = parts.next().unwrap_or_default();
        let decimals = parts.next().unwrap_or_default();
        if whole.is_empty() || whole.iter().chain(decimals).any(|it| !it.is_ascii_digit()) {
            return from_float(digits);
        }
        let micros: u64 = std::str::from_utf8(whole).ok()?.parse().ok()?;
        let mut nanos = micros.checked_mul(1000)?;
        for (digit, weight) in decimals.iter().zip([100_u64, 10, 1]) {
            nanos = nanos.checked_add(u64::from(digit - b'0') * weight)?;
        }
        Some(nanos)
    }

    /// The fields of an object.
    pub(crate) fn fields(self) -> Fields<'a> {
        let inner = self.0.trim_ascii();
        let is_object = inner.first() == Some(&b'{');
        Fields {
            rest: if is_object {
                inner.get(1..).unwrap_or_default()
            } else {
                &[]
            },
        }
    }
}

/// Numbers with exponents. A value beyond 2⁶³ is no time.
fn from_float(digits: &[u8]) -> Option<u64> {
    let micros: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let nanos = micros * 1000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked, and a part of a nanosecond is nothing"
    )]
    let whole = (nanos.is_finite() && (0.0..9.2e18).contains(&nanos)).then_some(nanos as u64);
    whole
}

fn unescape(inner: &[u8]) -> String {
    let inner = String::from_utf8_lossy(inner);
    let mut text = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if text.len() >= MOST_NAME {
            text.push('…');
            break;
        }
        let plain = match character {
            '\\' => match characters.next() {
                Some('n' | 't' | 'r' | 'b' | 'f') => ' ',
                Some('u') => {
                    let digits: String = characters.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).ok();
                    code.and_then(char::from_u32)
                        .unwrap_or(char::REPLACEMENT_CHARACTER)
                }
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        text.push(if plain.is_control() { ' ' } else { plain });
    }
    text
}

/// The fields of one object, in order.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.value()?;
        let name = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        self.skip_white();
        self.rest = self.rest.strip_prefix(b":")?;
        let value = self.value()?;
        self.skip_white();
        self.rest = self.rest.strip_prefix(b",").unwrap_or(self.rest);
        Some((name, Value(value)))
    }
}

impl<'a> Fields<'a> {
    fn skip_white(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// The next value, up to its end.
    fn value(&mut self) -> Option<&'a [u8]> {
        self.skip_white();
        let length = match self.rest.first()? {
            b'"' => string_length(self.rest)?,
            b'{' | b'[' => nested_length(self.rest)?,
            b'}' | b']' | b',' | b':' => return None,
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':' | b'"');
                let end = self.rest.iter().position(ends)?;
                let word = self.rest.get(..end)?.trim_ascii_end();
                self.rest = self.rest.get(end..)?;
                return Some(word);
            }
        };
        let (value, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(value)
    }
}

/// Bytes of the string at the beginning of `bytes`, with its quotes.
fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Bytes of the object or array at the beginning of `bytes`, with its brackets.
fn nested_length(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0_usize, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at += string_length(bytes.get(at..)?)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_an_object() {
        let object = br#" { "a" : 1, "b":"x\",y" ,"c":{"d":[1,{"e":"}"}]},"f":NaN , "g":-3.5e2 }"#;
        let found: Vec<(String, String)> = Value(object)
            .fields()
            .map(|(name, value)| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (text(name), text(value.0))
            })
            .collect();
        let want = [
            ("a", "1"),
            ("b", r#""x\",y""#),
            ("c", r#"{"d":[1,{"e":"}"}]}"#),
            ("f", "NaN"),
            ("g", "-3.5e2"),
        ];
        let want = want.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, want);
    }

    #[test]
    fn damaged_objects_end_early() {
        for damaged in [
            "",
            "{",
            "[",
            "{\"",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":\"",
            "{\"a\":{",
            "{:1}",
            "{\"a\\",
            "{1:2}",
            "{\"a\" 1}",
            "{\"a\":]}",
        ] {
            assert_eq!(Value(damaged.as_bytes()).fields().count(), 0, "{damaged}");
        }
    }

    #[test]
    fn times_are_exact() {
        let cases: [(&str, Option<u64>); 13] = [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("1.5", Some(1500)),
            ("0.001", Some(1)),
            ("12.3456", Some(12_345)),
            ("1732000000123456.789", Some(1_732_000_000_123_456_789)),
            ("\"7.25\"", Some(7250)),
            ("1e3", Some(1_000_000)),
            ("-1", None),
            ("NaN", None),
            ("Infinity", None),
            ("99999999999999999999", None),
            (".", None),
        ];
        for (written, want) in cases {
            assert_eq!(Value(written.as_bytes()).nanoseconds(), want, "{written}");
        }
    }

    #[test]
    fn names_are_bounded_and_without_control_characters() {
        let text = |bytes: &[u8]| Value(bytes).text().map(Cow::into_owned);
        assert_eq!(text(br#""a\"b\\c\u0041""#).unwrap(), "a\"b\\cA");
        assert_eq!(text(b"\"\\u001b[31m\\n\x1b\"").unwrap(), " [31m  ");
        assert_eq!(text(b"\"\xff\"").unwrap(), "\u{fffd}");
        assert_eq!(text(b"1"), None);
        let long = format!("\"{}\"", "x".repeat(9000));
        assert_eq!(
            text(long.as_bytes()).unwrap().len(),
            MOST_NAME + '…'.len_utf8()
        );
    }
}
