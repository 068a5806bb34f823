//! Writes the same part of the format: values are appended in the order in which Python would make them.

use std::collections::BTreeMap;

/// A pickle that is being written. Protocol 4 without frames; protocol 2 where torch demands it.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Texts and classes that were written, with their places in the memo.
    known: BTreeMap<String, u32>,
}

impl Writer {
    /// A pickle of a protocol.
    pub fn new(protocol: u8) -> Self {
        Self {
            bytes: vec![0x80, protocol],
            known: BTreeMap::new(),
        }
    }

    /// The finished pickle.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written but the protocol.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() <= 2
    }

    /// An instruction without arguments.
    pub fn code(&mut self, code: u8) -> &mut Self {
        self.bytes.push(code);
        self
    }

    /// Repeats what the memo has, or remembers what is written next.
    fn recall(&mut self, key: &str) -> bool {
        let Some(place) = self.known.get(key).copied() else {
            return false;
        };
        if let Ok(place) = u8::try_from(place) {
            self.bytes.extend([b'h', place]);
        } else {
            self.bytes.push(b'j');
            self.bytes.extend(place.to_le_bytes());
        }
        true
    }

    fn remember(&mut self, key: String) {
        let place = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        self.known.insert(key, place);
        if let Ok(place) = u8::try_from(place) {
            self.bytes.extend([b'q', place]);
        } else {
            self.bytes.push(b'r');
            self.bytes.extend(place.to_le_bytes());
        }
    }

    /// A text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        let key = format!("t{text}");
        if !self.recall(&key) {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            self.bytes.push(b'X');
            self.bytes.extend(length.to_le_bytes());
            self.bytes.extend(text.as_bytes());
            self.remember(key);
        }
        self
    }

    /// A class or function.
    pub fn class(&mut self, module: &str, name: &str) -> &mut Self {
        let key = format!("c{module}\n{name}\n");
        if !self.recall(&key) {
            self.bytes.extend(key.as_bytes());
            self.remember(key);
        }
        self
    }

    /// A whole number.
    pub fn int(&mut self, number: i128) -> &mut Self {
        if let Ok(small) = u8::try_from(number) {
            self.bytes.extend([b'K', small]);
        } else if let Ok(middle) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend(middle.to_le_bytes());
        } else {
            let whole = number.to_le_bytes();
            let mut length = whole.len();
            let sign = if number < 0 { 0xff } else { 0 };
            // Shortest form that keeps the sign.
            while length > 1
                && whole[length - 1] == sign
                && (whole[length - 2] & 0x80 != 0) == (number < 0)
            {
                length -= 1;
            }
            self.bytes
                .extend([0x8a, u8::try_from(length).unwrap_or(16)]);
            self.bytes.extend(&whole[..length]);
        }
        self
    }

    /// A number that is not negative.
    pub fn count(&mut self, number: u64) -> &mut Self {
        self.int(number.into())
    }

    /// A float.
    pub fn float(&mut self, number: f64) -> &mut Self {
        self.bytes.push(b'G');
        self.bytes.extend(number.to_be_bytes());
        self
    }

    /// Bytes, in the form of protocol 2 too: a text of their values, encoded as Latin-1.
    pub fn binary(&mut self, bytes: &[u8]) -> &mut Self {
        self.class("_codecs", "encode");
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        self.text(&text).text("latin1").code(0x86).code(b'R')
    }

    /// `True` or `False`.
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.code(if value { 0x88 } else { 0x89 })
    }

    /// A tuple of numbers.
    pub fn counts(&mut self, numbers: &[u64]) -> &mut Self {
        self.code(b'(');
        for number in numbers {
            self.count(*number);
        }
        self.code(b't')
    }

    /// A `torch.Size`.
    pub fn size(&mut self, numbers: &[u64]) -> &mut Self {
        self.class("torch", "Size")
            .counts(numbers)
            .code(0x85)
            .code(b'R')
    }
}
