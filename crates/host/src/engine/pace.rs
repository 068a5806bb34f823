//! How often a stream is read: each time it has something, or, where it writes little but often,
//! once in a while.
//!
//! A reader that waits is woken by the first byte of a write, so a rank that writes line by line
//! would pay for waking it at every line. One that rests lets the pipe fill.
//!
//! Invariant: a stream rests only where its pipe holds what it is expected to write meanwhile.

use std::{
    fs::File,
    time::{Duration, Instant},
};

use nix::fcntl::{FcntlArg, fcntl};

use super::output::READ_BYTES;

/// What a pipe holds at first.
const PIPE_BYTES: usize = 64 << 10;
/// A pipe that held this much when it was read belongs to a busy stream.
const BUSY_BYTES: usize = 60 << 10;
/// How long a stream that writes little but often is not looked at.
pub(super) const REST: Duration = Duration::from_millis(4);
/// This many reads within two rests are many.
const OFTEN: u32 = 16;
/// A rest that brings less than this was not worth it.
const WORTH_RESTING: usize = 8 << 10;

/// The pace of one stream.
#[derive(Debug)]
pub(super) struct Pace {
    /// What the pipe holds.
    capacity: usize,
    /// Reads since `since`, and what they brought.
    reads: u32,
    bytes: usize,
    since: Instant,
    /// What the last read brought.
    last: usize,
    resting: bool,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            capacity: PIPE_BYTES,
            reads: 0,
            bytes: 0,
            since: now,
            last: 0,
            resting: false,
        }
    }

    pub(super) fn read(&mut self, count: usize) {
        self.last = count;
        self.bytes += count;
        self.reads += 1;
    }

    pub(super) fn is_busy(&self) -> bool {
        self.capacity < READ_BYTES && (self.last >= BUSY_BYTES || self.reads >= OFTEN)
    }

    pub(super) fn is_resting(&self) -> bool {
        self.resting
    }

    pub(super) fn widen(&mut self, pipe: &File) {
        // A user may hold only so much pipe memory; without more it only goes slower.
        let size = i32::try_from(READ_BYTES).unwrap_or(i32::MAX);
        if let Ok(size) = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(size)) {
            self.capacity = usize::try_from(size).unwrap_or(PIPE_BYTES);
        }
    }

    /// Whether the stream is next looked at after [`REST`] instead of at its next byte.
    pub(super) fn rests(&mut self, now: Instant) -> bool {
        // Never so long that the pipe is full meanwhile, or its writer would wait.
        let most = self.capacity / 2;
        if self.resting {
            self.resting = (WORTH_RESTING..=most).contains(&self.last);
        } else if self.reads >= OFTEN {
            let taken = now.saturating_duration_since(self.since).as_nanos().max(1);
            let rest = REST.as_nanos();
            let expected = self.bytes as u128 * rest / taken;
            self.resting =
                self.capacity >= READ_BYTES && taken < 2 * rest && expected <= most as u128;
        } else {
            return false;
        }
        (self.reads, self.bytes, self.since) = (0, 0, now);
        self.resting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of `bytes` each, `gap` apart; whether the stream rests after them.
    fn rests(capacity: usize, bytes: usize, gap: Duration) -> bool {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        pace.capacity = capacity;
        let mut rests = false;
        for _ in 0..OFTEN {
            now += gap;
            pace.read(bytes);
            rests = pace.rests(now);
        }
        rests
    }

    #[test]
    fn a_stream_rests_when_it_writes_little_but_often() {
        let micros = Duration::from_micros;
        let cases = [
            ("line by line", READ_BYTES, 2_000, micros(20), true),
            ("now and then", READ_BYTES, 100, micros(1_000), false),
            ("in large blocks", READ_BYTES, 64 << 10, micros(50), false),
            ("through a small pipe", PIPE_BYTES, 2_000, micros(20), false),
        ];
        for (name, capacity, bytes, gap, want) in cases {
            assert_eq!(rests(capacity, bytes, gap), want, "{name}");
        }
    }

    #[test]
    fn it_rests_on_while_that_is_worth_it_and_the_pipe_has_room() {
        let now = Instant::now();
        for (bytes, want) in [(0, false), (200_000, true), (READ_BYTES, false)] {
            let mut pace = Pace::new(now);
            (pace.capacity, pace.resting) = (READ_BYTES, true);
            pace.read(bytes);
            assert_eq!(pace.rests(now), want, "{bytes}");
        }
    }
}
