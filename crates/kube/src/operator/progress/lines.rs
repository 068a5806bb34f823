//! From the end of a log, as the API server gives it, to what a training program reported when.
//!
//! Every line begins with the time at which the node got it, so a step that is read a minute later has its own time. A line that
//! the runtime split is one line with a time in front of every part.

use jiff::Timestamp;
use trainyard_core::{
    job::PodUid,
    progress::{Reader, Reading, StepReporters, Track, rota::Found},
    spec::Slot,
};

/// Shorter lines are never split by a container runtime.
const WHOLE_LINE: usize = 4 << 10;
/// The length of a time stamp in front of a part, from `2026-01-02T03:04:05.000000000Z` to one with an offset.
const STAMP: std::ops::RangeInclusive<usize> = 30..=35;

/// The progress that the logs of one attempt show.
#[derive(Clone, Debug, Default)]
pub(super) struct AttemptProgress {
    track: Track,
    reporters: StepReporters<Slot>,
    /// The pod that was read last, and what its lines said so far.
    reader: Option<(PodUid, Reader)>,
}

/// The end of one log.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) pod: PodUid,
    pub(super) slot: Slot,
    /// How many lines were asked for.
    pub(super) lines: u32,
    /// Lines up to this time were read before.
    pub(super) after: Option<Timestamp>,
    /// What is new came after this, by the operator's clock; a node may have another.
    pub(super) earliest: Option<Timestamp>,
    /// It came before this.
    pub(super) latest: Timestamp,
}

/// What a search found.
#[derive(Debug)]
pub(super) struct Searched {
    pub(super) attempt_progress: AttemptProgress,
    pub(super) found: Found,
    /// The time of the last line.
    pub(super) last_line: Option<Timestamp>,
}

impl AttemptProgress {
    pub(super) fn track(&self) -> &Track {
        &self.track
    }

    /// Whether the pod of that slot is the one that reports.
    pub(super) fn speaks(&self, slot: Slot) -> bool {
        self.reporters.reporter() == Some(&slot)
    }

    /// Applies the lines of `bytes` that were not read before.
    pub(super) fn search(mut self, piece: &Piece, bytes: &[u8]) -> Searched {
        let mut reader = match self.reader.take() {
            Some((pod, reader)) if pod == piece.pod => reader,
            _ => Reader::new(),
        };
        let cut = bytes.len() >= trainyard_core::progress::rota::BYTES;
        let mut found = Found {
            cut,
            ..Found::default()
        };
        let (mut lines, mut new) = (0_u32, 0_u32);
        let had_no_step = self.track.step.is_none();
        let mut last_line = None;
        for line in bytes.split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            lines += 1;
            let mut is_new = false;
            for (stamp, part) in parts(line) {
                if piece.after.is_some_and(|after| stamp <= after) {
                    continue;
                }
                is_new = true;
                last_line = last_line.max(Some(stamp));
                let at = piece.earliest.map_or(stamp, |earliest| stamp.max(earliest));
                let at = at.min(piece.latest);
                reader.bytes(part, |reading| {
                    found.step |= self.take(piece.slot, &reading, at);
                });
            }
            if is_new {
                new += 1;
                let at = last_line.unwrap_or(piece.latest).min(piece.latest);
                let at = piece.earliest.map_or(at, |earliest| at.max(earliest));
                let at = at.min(piece.latest);
                reader.bytes(b"\n", |reading| {
                    found.step |= self.take(piece.slot, &reading, at);
                });
            }
        }
        found.full = new == lines && lines >= piece.lines;
        if had_no_step && (found.full || cut) {
            // There are earlier lines, which were not read.
            self.track.miss_beginning();
        }
        self.reader = Some((piece.pod.clone(), reader));
        Searched {
            attempt_progress: self,
            found,
            last_line,
        }
    }

    /// Takes one report that was sent; whether it is a new step. Programs send one now and then, so the first is not that of the first step.
    pub(super) fn take_sent(&mut self, slot: Slot, reading: &Reading, at: Timestamp) -> bool {
        self.track.miss_beginning();
        self.take(slot, reading, at)
    }

    /// Takes one report; whether it is a new step.
    pub(super) fn take(&mut self, slot: Slot, reading: &Reading, at: Timestamp) -> bool {
        if reading.step.is_some() {
            let step = self.reporters.take(slot, reading).is_some();
            if step || self.speaks(slot) && reading.step == self.track.step {
                self.track.take(reading, at);
            }
            return step;
        }
        // A loss or a save without a step counts if it is of the pod that reports steps.
        if self
            .reporters
            .reporter()
            .is_none_or(|reporter| *reporter == slot)
        {
            self.track.take(reading, at);
        }
        false
    }
}

/// The parts of a line, each with its time; nothing of a line without one.
pub(in crate::operator) fn parts(line: &[u8]) -> Vec<(Timestamp, &[u8])> {
    let Some((mut stamp, mut rest)) = stamped(line) else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    let mut from = WHOLE_LINE;
    while let Some(at) = next_stamp(rest, from) {
        let (part, after) = rest.split_at(at);
        let Some((next, content)) = stamped(after) else {
            from = at + 1;
            continue;
        };
        parts.push((stamp, part));
        (stamp, rest, from) = (next, content, WHOLE_LINE);
    }
    parts.push((stamp, rest));
    parts
}

/// The time in front of `text`, and what is behind it.
fn stamped(text: &[u8]) -> Option<(Timestamp, &[u8])> {
    let most = text.len().min(*STAMP.end() + 1);
    let end = text.get(..most)?.iter().position(|byte| *byte == b' ')?;
    let (stamp, rest) = text.split_at(end);
    let stamp = std::str::from_utf8(stamp).ok()?.parse().ok()?;
    Some((stamp, rest.get(1..)?))
}

/// Where the next thing that may be a time stamp begins, from `from` on.
fn next_stamp(text: &[u8], from: usize) -> Option<usize> {
    let found = text
        .get(from..)?
        .windows(*STAMP.start())
        .position(|window| {
            let is = |at: usize, byte: u8| window.get(at) == Some(&byte);
            is(4, b'-')
                && is(7, b'-')
                && is(10, b'T')
                && is(13, b':')
                && is(16, b':')
                && is(19, b'.')
        });
    found.map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use trainyard_core::spec::Role;

    use super::*;

    const START: &str = "2026-01-02T03:04:00Z";

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = START.parse().unwrap();
        start + jiff::SignedDuration::from_secs(seconds)
    }

    fn stamp(seconds: i64) -> String {
        at(seconds).strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
    }

    fn line(seconds: i64, text: &str) -> String {
        format!("{} {text}\n", stamp(seconds))
    }

    fn piece(pod: &str, index: u32, latest: i64) -> Piece {
        Piece {
            pod: pod.to_owned(),
            slot: Slot::new(Role::Worker, index),
            lines: 64,
            after: None,
            earliest: None,
            latest: at(latest),
        }
    }

    #[test]
    fn steps_have_the_time_of_their_lines() {
        let log = line(10, "step 1 loss 2.5") + &line(20, "noise") + &line(30, "step 2 loss 2.25");
        let searched = AttemptProgress::default().search(&piece("p", 0, 60), log.as_bytes());
        let track = searched.attempt_progress.track();
        assert_eq!(track.step, Some(2));
        assert_eq!(track.first_at, Some(at(10)));
        assert_eq!(track.last_at, Some(at(30)));
        assert_eq!(track.loss.map(|(_, loss)| loss), Some(2.25));
        assert!(searched.found.step && !searched.found.full && !searched.found.cut);
        assert_eq!(searched.last_line, Some(at(30)));
    }

    #[test]
    fn lines_are_read_once() {
        let first = line(10, "step 1 loss 2.5");
        let searched = AttemptProgress::default().search(&piece("p", 0, 15), first.as_bytes());
        let mut again = piece("p", 0, 25);
        again.after = searched.last_line;
        again.earliest = Some(at(15));
        let searched = searched.attempt_progress.search(&again, first.as_bytes());
        assert!(!searched.found.step, "nothing new");
        assert_eq!(searched.attempt_progress.track().last_at, Some(at(10)));

        let more = first + &line(20, "step 2 loss 2.0");
        let searched = searched.attempt_progress.search(&again, more.as_bytes());
        assert!(searched.found.step);
        assert_eq!(searched.attempt_progress.track().last_at, Some(at(20)));
    }

    #[test]
    fn a_node_with_another_clock_moves_no_step_far() {
        for (seconds, want) in [(-3_600, 100), (105, 105), (3_600, 110)] {
            let mut piece = piece("p", 0, 110);
            piece.earliest = Some(at(100));
            let log = line(seconds, "step 7 loss 1.0");
            let searched = AttemptProgress::default().search(&piece, log.as_bytes());
            assert_eq!(searched.attempt_progress.track().last_at, Some(at(want)));
        }
    }

    #[test]
    fn non_log_lines_are_ignored() {
        for text in [
            "",
            "\n\n",
            "unable to retrieve container logs for containerd://step 7 loss 1.0",
            "step 7 loss 1.0\n",
            "2026-01-02T03:04:05.000000000Z\n",
            "\u{0}\u{0}\u{ff}",
        ] {
            let searched = AttemptProgress::default().search(&piece("p", 0, 60), text.as_bytes());
            assert_eq!(searched.attempt_progress.track().step, None, "{text:?}");
        }
    }

    #[test]
    fn a_line_in_parts_is_one_line() {
        let bar = |step: u32| format!("\r 26%|██▌       | {step}/1000 [00:10<01:00, 9.99it/s]");
        let bars: String = (0..300).map(bar).collect();
        // Cut in the middle of a number: its halves are not steps.
        let cut = bars.find("257/1000").unwrap() + 1;
        let (one, two) = bars.split_at(cut);
        let log = format!("{} {one}{} {two}\n", stamp(10), stamp(40));
        let found = AttemptProgress::default().search(&piece("p", 0, 60), log.as_bytes());
        let read = found.attempt_progress.track();
        assert_eq!(read.step, Some(299));
        assert_eq!(read.last_at, Some(at(40)));
    }

    #[test]
    fn a_window_without_steps_is_full_only_of_new_lines() {
        let noise: String = (0..64).map(|second| line(second, "noise")).collect();
        let searched = AttemptProgress::default().search(&piece("p", 0, 90), noise.as_bytes());
        assert!(searched.found.full);
        let mut again = piece("p", 0, 90);
        again.after = Some(at(20));
        let searched = searched.attempt_progress.search(&again, noise.as_bytes());
        assert!(!searched.found.full);
    }

    #[test]
    fn a_pod_that_does_not_report_changes_no_loss() {
        let log = line(10, "step 5 loss 0.5");
        let searched = AttemptProgress::default().search(&piece("p", 0, 60), log.as_bytes());
        let other = line(20, "step 4 loss 9.0") + &line(21, "loss 9.0");
        let searched = searched
            .attempt_progress
            .search(&piece("q", 1, 60), other.as_bytes());
        let track = searched.attempt_progress.track();
        assert_eq!((track.step, track.loss), (Some(5), Some((5, 0.5))));
    }

    #[test]
    fn first_step_is_not_known_of_the_end_of_a_log() {
        let log = |lines: i64| -> String {
            let lines = (0..lines).map(|at| line(at, &format!("step {} loss 0.5", at + 7)));
            lines.collect()
        };
        let first = |lines: i64| {
            let read = piece("a", 0, 200);
            let searched = AttemptProgress::default().search(&read, log(lines).as_bytes());
            let track = searched.attempt_progress.track().clone();
            track.progress(1, at(200)).unwrap().first_step
        };
        assert_eq!(first(5), Some(7));
        assert_eq!(first(64), None, "there may be lines before those");
    }
}
