//! What happened in a run: counted always, told only on request.
//!
//! A hunt runs without words; a replay of the same seed tells every event in one line. The digest
//! covers the told lines, so two runs with the same digest told the same story byte by byte.

use std::fmt::{self, Write as _};

/// How much a run remembers of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Telling {
    /// Nothing: the fastest.
    #[default]
    Off,
    /// The digest of every line.
    Digest,
    /// Every line, and their digest.
    Lines,
}

/// The story of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    telling: Telling,
    lines: Vec<String>,
    digest: u64,
    buffer: String,
}

impl Trace {
    pub(crate) fn new(telling: Telling) -> Self {
        Self {
            telling,
            lines: Vec::new(),
            digest: FNV_OFFSET,
            buffer: String::new(),
        }
    }

    /// Adds one line; the words are only put together if anyone listens.
    pub(crate) fn note(&mut self, now: i64, words: fmt::Arguments<'_>) {
        if self.telling == Telling::Off {
            return;
        }
        self.buffer.clear();
        write!(
            self.buffer,
            "{:>7}.{:03} s  {words}",
            now / 1000,
            now % 1000
        )
        .expect("writing to a string cannot fail");
        for byte in self.buffer.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        if self.telling == Telling::Lines {
            self.lines.push(self.buffer.clone());
        }
    }

    /// The lines told and their digest.
    pub(crate) fn finish(self) -> (Vec<String>, u64) {
        (self.lines, self.digest)
    }
}

// FNV-1a: not against attackers, only against a run that differs from its repetition.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
