//! What happened in a run: always counted, traced only on request.
//!
//! A hunt writes no trace; a replay of the same seed writes every event in one line. The digest
//! covers these lines and every decision in full, so two runs with the same digest are the same
//! byte by byte.

use std::fmt::{self, Write as _};

use trainyard_core::job::{Action, JobStatus};

/// How much a run remembers of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceLevel {
    /// Nothing: the fastest.
    #[default]
    Off,
    /// The digest of every line.
    Digest,
    /// Every line, and their digest.
    Lines,
}

/// The trace of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    level: TraceLevel,
    lines: Vec<String>,
    digest: u64,
    buffer: String,
}

impl Trace {
    pub(crate) fn new(level: TraceLevel) -> Self {
        Self {
            level,
            lines: Vec::new(),
            digest: FNV_OFFSET,
            buffer: String::new(),
        }
    }

    /// Adds one line; it is only formatted if the trace is on.
    pub(crate) fn note(&mut self, now: i64, words: fmt::Arguments<'_>) {
        if self.level == TraceLevel::Off {
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
        self.update_digest();
        if self.level == TraceLevel::Lines {
            self.lines.push(self.buffer.clone());
        }
    }

    /// Adds what is too long for a line to the digest only.
    pub(crate) fn digest(&mut self, words: fmt::Arguments<'_>) {
        if self.level != TraceLevel::Off {
            self.buffer.clear();
            self.buffer
                .write_fmt(words)
                .expect("writing to a string cannot fail");
            self.update_digest();
        }
    }

    fn update_digest(&mut self) {
        for byte in self.buffer.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }

    /// The lines and their digest.
    pub(crate) fn finish(self) -> (Vec<String>, u64) {
        (self.lines, self.digest)
    }
}

/// Actions in one line.
pub(crate) struct Actions<'a>(pub(crate) &'a [Action]);

impl fmt::Display for Actions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, "; {} actions", self.0.len())
    }
}

/// A status in one line.
pub(crate) struct Brief<'a>(pub(crate) &'a JobStatus);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.0.conditions {
            write!(f, "{}={:?} ", condition.kind.name(), condition.status)?;
        }
        for (role, counts) in &self.0.replica_statuses {
            write!(
                f,
                "{role} {}/{}/{} ",
                counts.active, counts.succeeded, counts.failed
            )?;
        }
        let record = &self.0.trainyard;
        write!(f, "attempt {} spent {:?}", record.attempt, record.spent)?;
        if let Some(waiting) = &record.waiting {
            write!(f, " waiting {:?}: {}", waiting.code, waiting.message)?;
        }
        Ok(())
    }
}

// FNV-1a: not against attackers, only against a run that differs from its repetition.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
