//! Which part of a stream is passed on to be shown: as much as a screen can take, and the count of
//! the rest.
//!
//! Invariant: however fast a rank writes, what is copied for the screen is bounded, and every line
//! that is not passed on is counted once.

use std::time::{Duration, Instant};

use crate::request::count_lines;

/// Of one read, at most this much is passed on.
const PIECE_BYTES: usize = 64 << 10;
/// Passed on in a second, and at once after a pause. Screens show 2,000 lines in that time, cut to
/// 2,000 bytes each.
const BYTES_PER_SECOND: usize = 4 << 20;

/// What of one stream may still be shown.
#[derive(Debug)]
pub(super) struct Show {
    /// Bytes that may be passed on, as of `since`.
    left: usize,
    since: Instant,
    /// Lines that were not passed on and not reported yet.
    left_out: u64,
    /// Whether the last piece was not a whole line: what follows belongs to it.
    within: bool,
}

impl Show {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: BYTES_PER_SECOND,
            since: now,
            left_out: 0,
            within: false,
        }
    }

    /// The first part of `bytes` that is passed on, in whole lines, and how many lines are not;
    /// `None` if nothing is passed on yet.
    pub(super) fn choose<'a>(&mut self, bytes: &'a [u8], now: Instant) -> Option<(&'a [u8], u64)> {
        let passed = now.saturating_duration_since(self.since);
        self.since = now;
        self.left = (self.left + earned(passed)).min(BYTES_PER_SECOND);
        let ends_within = bytes.last().is_some_and(|last| *last != b'\n');
        let within = std::mem::replace(&mut self.within, ends_within);
        // Pass on all pieces of a long line, or its parts would join with other lines.
        if !within && !ends_within && self.left < bytes.len().min(PIECE_BYTES) {
            self.left_out += count_lines(bytes);
            return None;
        }
        let (shown, rest) = cut(bytes);
        self.left = self.left.saturating_sub(shown.len());
        Some((
            shown,
            std::mem::take(&mut self.left_out) + count_lines(rest),
        ))
    }

    /// Lines that were left out and not reported before the end.
    pub(super) fn rest(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

fn earned(passed: Duration) -> usize {
    let micros = usize::try_from(passed.min(Duration::from_secs(1)).as_micros());
    micros.unwrap_or(0) * BYTES_PER_SECOND / 1_000_000
}

fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some(first) = bytes.get(..PIECE_BYTES) else {
        return (bytes, &[]);
    };
    match first.iter().rposition(|byte| *byte == b'\n') {
        Some(newline) => bytes.split_at(newline + 1),
        None => (bytes, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of `pieces`, each `gap` after the one before, is shown and counted.
    fn shown(pieces: &[&[u8]], gap: Duration) -> (Vec<usize>, u64) {
        let mut now = Instant::now();
        let mut show = Show::new(now);
        let (mut lengths, mut left_out) = (Vec::new(), 0);
        for piece in pieces {
            now += gap;
            if let Some((shown, lines)) = show.choose(piece, now) {
                lengths.push(shown.len());
                left_out += lines;
            }
        }
        (lengths, left_out + show.rest())
    }

    #[test]
    fn excess_output_is_counted() {
        // Pieces, the milliseconds between two, how many are shown, and how much of each.
        type Case<'a> = (&'a str, Vec<&'a [u8]>, u64, usize, usize);
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let block = line.repeat(700);
        let whole = PIECE_BYTES / 100 * 100;
        let long = b"x".repeat(100_000);
        let cases: [Case<'_>; 5] = [
            ("a line now and then", vec![&line; 3], 10, 3, 100),
            ("one block", vec![&block], 10, 1, whole),
            ("a piece of a long line", vec![&long], 10, 1, 100_000),
            // 4 MiB at once hold 64 pieces; what a second brings holds as many.
            ("a flood for a second", vec![&block; 200], 5, 128, whole),
            ("a slow flood", vec![&block; 100], 20, 100, whole),
        ];
        let long_lines = vec![long.as_slice(); 100];
        let (lengths, left_out) = shown(&long_lines, Duration::from_millis(1));
        assert_eq!((lengths.len(), left_out), (100, 0), "a long line in pieces");
        for (name, pieces, gap, count, length) in cases {
            let (lengths, left_out) = shown(&pieces, Duration::from_millis(gap));
            assert!(
                lengths.len().abs_diff(count) <= 1,
                "{name}: {}",
                lengths.len()
            );
            assert!(lengths.iter().all(|found| *found == length), "{name}");
            let lines: u64 = pieces.iter().map(|piece| count_lines(piece)).sum();
            let per_piece = if length == long.len() {
                1
            } else {
                length / 100
            };
            assert_eq!(
                left_out + (lengths.len() * per_piece) as u64,
                lines,
                "{name}"
            );
        }
    }
}
