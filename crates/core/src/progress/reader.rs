//! From the bytes of one stream to its lines.

use std::sync::Arc;

use super::{LineReader, Reading, UserRules, bar};

/// How much of a line is read; the rest of it is skipped.
const MAX_LINE: usize = 16 << 10;
/// One character back.
const BACK: u8 = 0x08;

/// Reads the output of one stream of one program.
///
/// # Guarantees
///
/// Any bytes can be read. Where they are cut makes no difference, as long as no piece is longer than [`Reader::WINDOW`].
/// At most 16 KiB of a line are kept.
///
/// # Caveats
///
/// Of a longer piece only the end is read, so that a program that floods its log costs no time. Callers that must not
/// miss a line pass pieces of at most [`Reader::WINDOW`] bytes.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    lines: LineReader,
    rules: Option<Arc<UserRules>>,
    /// A line that has no end yet.
    begun: Vec<u8>,
    /// What follows belongs to a line that was read, or whose beginning was skipped.
    skipping: bool,
}

impl Reader {
    /// How much of the end of one piece is read.
    pub const WINDOW: usize = 8 << 10;

    /// A reader at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, which also knows the rules of a user.
    pub fn with_rules(rules: Arc<UserRules>) -> Self {
        Self {
            rules: Some(rules),
            ..Self::default()
        }
    }

    /// Reads the next bytes of the stream, and calls `each` for each line that reports something.
    pub fn bytes(&mut self, bytes: &[u8], mut each: impl FnMut(Reading)) {
        let from = bytes.len().saturating_sub(Self::WINDOW);
        let (skipped, mut rest) = bytes.split_at(from);
        if let Some(last) = skipped.last() {
            self.begun.clear();
            self.skipping = !ends_line(*last);
        }
        while let Some(end) = memchr::memchr3(b'\n', b'\r', BACK, rest) {
            let (part, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if std::mem::take(&mut self.skipping) {
                self.begun.clear();
            } else if self.begun.is_empty() {
                self.read(part, &mut each);
            } else {
                self.keep(part);
                self.read_begun(&mut each);
            }
        }
        if !self.skipping && !rest.is_empty() {
            self.keep(rest);
            // Bars are written without an end: it comes with the next one, which may be minutes away.
            if rest.contains(&b']') && bar::is_whole(&self.begun) {
                self.read_begun(&mut each);
                self.skipping = true;
            }
        }
    }

    /// The stream has ended: what has no end yet is its last line.
    pub fn end(&mut self, mut each: impl FnMut(Reading)) {
        if !std::mem::take(&mut self.skipping) {
            self.read_begun(&mut each);
        }
    }

    /// Reads one line that the caller has split off.
    pub fn line(&mut self, line: &[u8]) -> Option<Reading> {
        self.lines.read(line, self.rules.as_deref())
    }

    fn keep(&mut self, part: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.begun.len());
        let part = part.get(..part.len().min(room)).unwrap_or_default();
        self.begun.extend_from_slice(part);
    }

    fn read_begun(&mut self, each: &mut impl FnMut(Reading)) {
        let mut line = std::mem::take(&mut self.begun);
        self.read(&line, each);
        line.clear();
        self.begun = line;
    }

    fn read(&mut self, line: &[u8], each: &mut impl FnMut(Reading)) {
        let line = line.get(..line.len().min(MAX_LINE)).unwrap_or_default();
        if let Some(reading) = self.line(line) {
            each(reading);
        }
    }
}

/// Bars go back to the beginning of their line, or by single characters, before they write again.
fn ends_line(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | BACK)
}
