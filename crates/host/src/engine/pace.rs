//! How often a stream is read: each time it has something, or, where it writes often, once in a
//! while.
//!
//! A reader that waits is woken by the first byte of a write, so a rank that writes line by line, or
//! block after block, would pay for waking it each time; where the reader's core sleeps, that takes
//! longer than the write itself. A reader that rests lets the pipe fill.
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
/// The longest pause between reads of a stream that writes often.
const REST_MAX: Duration = Duration::from_millis(4);
/// Timers of the kernel are late by a quarter of this.
const REST_MIN: Duration = Duration::from_micros(200);
/// This many reads within two of the longest rests are many.
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
    /// The pause until the next read, if the stream rests.
    rest: Option<Duration>,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            capacity: PIPE_BYTES,
            reads: 0,
            bytes: 0,
            since: now,
            last: 0,
            rest: None,
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
        self.rest.is_some()
    }

    pub(super) fn widen(&mut self, pipe: &File) {
        // A user may hold only so much pipe memory; without more it only goes slower.
        let size = i32::try_from(READ_BYTES).unwrap_or(i32::MAX);
        if let Ok(size) = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(size)) {
            self.capacity = usize::try_from(size).unwrap_or(PIPE_BYTES);
        }
    }

    /// The pause until the next read, instead of waiting for the next byte.
    pub(super) fn rest(&mut self, now: Instant) -> Option<Duration> {
        if let Some(rest) = self.rest {
            let worth_it = self.last >= WORTH_RESTING;
            self.rest = worth_it.then(|| self.fitting(rest, self.last)).flatten();
        } else if self.reads >= OFTEN {
            let taken = now.saturating_duration_since(self.since);
            let often = self.capacity >= READ_BYTES && taken < 2 * REST_MAX;
            self.rest = often.then(|| self.fitting(taken, self.bytes)).flatten();
        } else {
            return None;
        }
        (self.reads, self.bytes, self.since) = (0, 0, now);
        self.rest
    }

    /// The time in which a third of the pipe is filled by a stream that wrote `bytes` in `taken`:
    /// a writer that finds the pipe full must wait. `None` where that is too short to rest.
    fn fitting(&self, taken: Duration, bytes: usize) -> Option<Duration> {
        let third = u128::try_from(self.capacity / 3).ok()?;
        let nanos = taken.as_nanos() * third / u128::try_from(bytes.max(1)).ok()?;
        let rest = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        (rest >= REST_MIN).then_some(rest.min(REST_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_rests_when_it_writes_often() {
        let micros = Duration::from_micros;
        let cases = [
            ("line by line", READ_BYTES, 1_000, 20, Some(4_000)),
            ("in blocks", READ_BYTES, 64 << 10, 80, Some(426)),
            ("as fast as memory", READ_BYTES, 64 << 10, 10, None),
            ("now and then", READ_BYTES, 100, 1_000, None),
            ("through a small pipe", PIPE_BYTES, 1_000, 20, None),
        ];
        for (name, capacity, bytes, gap, want) in cases {
            let mut now = Instant::now();
            let mut pace = Pace::new(now);
            pace.capacity = capacity;
            for read in 1..=OFTEN {
                now += micros(gap);
                pace.read(bytes);
                let rest = pace.rest(now);
                let want = want.filter(|_| read == OFTEN).map(micros);
                let found = rest.map(|rest| micros(u64::try_from(rest.as_micros()).unwrap()));
                assert_eq!(found, want, "{name}, read {read}");
            }
        }
    }

    #[test]
    fn pace_rests_but_never_fills_pipe() {
        let now = Instant::now();
        let millis = Duration::from_millis;
        let cases = [
            ("nothing more comes", 0, None),
            ("a third of the pipe", READ_BYTES / 3, Some(millis(3))),
            ("the pipe was full", READ_BYTES, Some(millis(1))),
            ("little came", WORTH_RESTING, Some(REST_MAX)),
        ];
        for (name, bytes, want) in cases {
            let mut pace = Pace::new(now);
            (pace.capacity, pace.rest) = (READ_BYTES, Some(millis(3)));
            pace.read(bytes);
            let rest = pace.rest(now);
            let rounded = rest.map(|rest| (rest + Duration::from_micros(1)).as_millis());
            assert_eq!(rounded, want.map(|rest| rest.as_millis()), "{name}");
            assert_eq!(pace.is_resting(), want.is_some(), "{name}");
        }
    }
}
