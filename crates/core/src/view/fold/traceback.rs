//! Which lines are those of a Python traceback, for each rank by itself.

use super::Ranks;

/// The line above the frames.
const HEAD: &[u8] = b"Traceback (most recent call last)";

/// What a line is in a traceback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The line above the frames.
    Head,
    /// A frame, its source, or the marks below it.
    Frame,
    /// The line below the frames, which names the exception.
    Exception,
    /// It is in none.
    None,
}

/// The ranks whose last line was in a traceback.
#[derive(Debug, Default)]
pub(super) struct Tracebacks {
    ranks: Ranks,
    /// The same for lines whose rank is unknown.
    unknown: bool,
}

impl Tracebacks {
    /// What a line without its prefixes is, after those of the same rank before it.
    pub(super) fn part(&mut self, rank: Option<u32>, text: &[u8]) -> Part {
        if text.trim_ascii_start().starts_with(HEAD) {
            self.set(rank, true);
            return Part::Head;
        }
        if !self.is_open(rank) {
            return Part::None;
        }
        if text.first().is_some_and(u8::is_ascii_whitespace) {
            return Part::Frame;
        }
        self.set(rank, false);
        // Another process that writes into the same log ends it without an exception.
        if is_exception(text) {
            Part::Exception
        } else {
            Part::None
        }
    }

    fn is_open(&self, rank: Option<u32>) -> bool {
        rank.map_or(self.unknown, |rank| self.ranks.contains(rank))
    }

    fn set(&mut self, rank: Option<u32>, open: bool) {
        match rank {
            None => self.unknown = open,
            Some(rank) if open => self.ranks.insert(rank),
            Some(rank) => self.ranks.remove(rank),
        }
    }
}

/// `torch.OutOfMemoryError: CUDA out of memory`, `KeyboardInterrupt`: a dotted name, alone or before a colon.
fn is_exception(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    let end = text.iter().position(|byte| *byte == b':');
    let name = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
    let of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    name.first().is_some_and(u8::is_ascii_alphabetic) && name.iter().all(of_name)
}
