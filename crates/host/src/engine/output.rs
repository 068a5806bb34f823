//! What containers write: read in large pieces, cut at line ends, logged, passed on.
//!
//! Invariant: no work is done for each byte, and at most [`LINE_BYTES`] of a line wait for its end.
//!
//! Progress is read before lines are cut: a bar goes back with `\r` and ends its line only when it is complete.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use trainyard_core::progress::{Reader, Reading};

use super::{pace::Pace, show::Show};
use crate::request::Stream;

/// Longer lines are passed on in pieces.
pub(super) const LINE_BYTES: usize = 64 << 10;
/// Read at once; also what the pipe of a busy stream is given.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Taken out of the pipe by one call. A call keeps the writer out for as long as it copies: with 1 MiB at once, a rank that
/// writes blocks spent 4 % of its processor time waiting for that.
const CALL_BYTES: usize = 64 << 10;
/// Between two readings of the progress of a stream that floods. Steps need not be read as fast as a rank can print them, and the
/// rank would have to wait for it.
const FLOOD_READ_EVERY: Duration = Duration::from_millis(20);

/// One stream of one container.
#[derive(Debug)]
pub(super) struct Output {
    /// `None` once it is closed.
    pipe: Option<File>,
    /// The container's place in the pod, for its log.
    pub(super) container: usize,
    pub(super) name: Arc<str>,
    pub(super) stream: Stream,
    /// A line that has no end yet.
    begun: Vec<u8>,
    reader: Reader,
    /// The end of what a flood wrote, until it is read for progress.
    held: Vec<u8>,
    /// When a flood is read for progress again.
    read_flood_at: Instant,
    /// Readings of its lines that were not taken yet.
    readings: Vec<Reading>,
    pub(super) pace: Pace,
    pub(super) show: Show,
}

/// What one read came to.
pub(super) enum Piece<'a> {
    /// Whole lines, or a piece of a long one.
    Bytes(&'a [u8]),
    /// Nothing to pass on yet.
    Nothing,
    /// Nothing is in the pipe.
    Empty,
    /// The stream is closed; what was left of its last line.
    Closed(&'a [u8]),
}

/// What one read of a stream returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// There may be more.
    Open,
    /// There is nothing more at the moment.
    Empty,
    /// There is nothing more, and never will be.
    Closed,
}

/// Where output is read to: room for a line that was begun, then for what is read.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    pub(super) fn new() -> Self {
        Self(vec![0; LINE_BYTES + READ_BYTES])
    }
}

impl Output {
    pub(super) fn new(
        pipe: OwnedFd,
        container: usize,
        name: Arc<str>,
        stream: Stream,
        reader: Reader,
    ) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let now = Instant::now();
        Ok(Self {
            pipe: Some(File::from(pipe)),
            container,
            name,
            stream,
            begun: Vec::new(),
            reader,
            held: Vec::new(),
            read_flood_at: now,
            readings: Vec::new(),
            pace: Pace::new(now),
            show: Show::new(now),
        })
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads no further: the next read returns the rest of the last line.
    pub(super) fn close(&mut self) {
        self.pipe = None;
    }

    /// When what is held back should be read for progress, where anything is.
    pub(super) fn held_until(&self) -> Option<Instant> {
        (!self.held.is_empty()).then_some(self.read_flood_at)
    }

    /// What was reported since the last call.
    pub(super) fn take_readings(&mut self) -> Vec<Reading> {
        std::mem::take(&mut self.readings)
    }

    /// Reads once.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut Buffer) -> Piece<'a> {
        let count = match &mut self.pipe {
            None => Ok(0),
            Some(pipe) => match buffer.0.get_mut(LINE_BYTES..) {
                Some(room) => fill(pipe, room),
                None => Ok(0),
            },
        };
        let count = match count {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Piece::Nothing,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.pace.read(0);
                if Instant::now() >= self.read_flood_at {
                    self.read_held();
                }
                return Piece::Empty;
            }
            Ok(0) | Err(_) => {
                self.pipe = None;
                self.read_held();
                let readings = &mut self.readings;
                self.reader.end(|reading| readings.push(reading));
                return Piece::Closed(self.take_begun(buffer, 0));
            }
            Ok(count) => count,
        };
        let read = buffer.0.get(LINE_BYTES..LINE_BYTES + count);
        self.read_progress(read.unwrap_or_default(), Instant::now());
        self.pace.read(count);
        if self.pace.is_busy()
            && let Some(pipe) = &self.pipe
        {
            self.pace.widen(pipe);
        }
        self.cut(buffer, count)
    }

    /// Reads small pieces whole, and of a flood the end, now and then.
    fn read_progress(&mut self, bytes: &[u8], now: Instant) {
        let is_flood = bytes.len() > Reader::WINDOW;
        if is_flood && now < self.read_flood_at {
            self.held.clear();
            // One byte more than is read says whether a line begins there.
            let from = bytes.len() - Reader::WINDOW - 1;
            self.held
                .extend_from_slice(bytes.get(from..).unwrap_or_default());
            return;
        }
        if is_flood {
            self.read_flood_at = now + FLOOD_READ_EVERY;
            // What is held is older than the end that is read now.
            self.held.clear();
        }
        self.read_held();
        let readings = &mut self.readings;
        self.reader.bytes(bytes, |reading| readings.push(reading));
    }

    fn read_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        let readings = &mut self.readings;
        self.reader.bytes(&held, |reading| readings.push(reading));
        self.held = held;
        self.held.clear();
    }

    /// Keeps the begun line back, unless it is too long already.
    fn cut<'a>(&mut self, buffer: &'a mut Buffer, count: usize) -> Piece<'a> {
        let bytes = buffer.0.get(LINE_BYTES..).unwrap_or_default();
        let bytes = bytes.get(..count).unwrap_or_default();
        let newline = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = newline.map_or(0, |at| at + 1);
        let rest = bytes.get(whole..).unwrap_or_default();
        if whole == 0 && self.begun.len() + rest.len() <= LINE_BYTES {
            self.begun.extend_from_slice(rest);
            return Piece::Nothing;
        }
        if whole == 0 || rest.len() > LINE_BYTES {
            return Piece::Bytes(self.take_begun(buffer, count));
        }
        let next = rest.to_vec();
        let piece = self.take_begun(buffer, whole);
        self.begun = next;
        Piece::Bytes(piece)
    }

    /// The begun line and the first `count` bytes of what was read, in one piece.
    fn take_begun<'a>(&mut self, buffer: &'a mut Buffer, count: usize) -> &'a [u8] {
        let start = LINE_BYTES - self.begun.len();
        if let Some(place) = buffer.0.get_mut(start..LINE_BYTES) {
            place.copy_from_slice(&self.begun);
        }
        self.begun.clear();
        buffer.0.get(start..LINE_BYTES + count).unwrap_or_default()
    }
}

/// Reads what is in the pipe, as far as there is room. Only the first call may fail or find the end: what a later one finds is
/// found again by the next read.
fn fill(pipe: &mut File, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    for place in room.chunks_mut(CALL_BYTES) {
        match pipe.read(place) {
            Ok(count) => {
                filled += count;
                if count < place.len() {
                    break;
                }
            }
            Err(error) if filled == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(from: u64, to: u64) -> Vec<u8> {
        let lines = (from..to).map(|step| format!("step {step} loss 0.5 {}\n", ".".repeat(80)));
        lines.collect::<String>().into_bytes()
    }

    fn last_step(output: &mut Output) -> Option<u64> {
        output.take_readings().last().and_then(|last| last.step)
    }

    #[test]
    fn a_flood_is_read_now_and_then_and_to_its_end() {
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        let mut output = Output::new(pipe, 0, "main".into(), Stream::Out, Reader::new()).unwrap();
        let now = output.read_flood_at;
        let flood = |number: u64| steps(number * 1_000, (number + 1) * 1_000);

        output.read_progress(&flood(0), now);
        assert_eq!(last_step(&mut output), Some(999), "the first at once");
        for number in 1..=3 {
            output.read_progress(&flood(number), now);
            assert_eq!(last_step(&mut output), None, "too soon");
        }
        assert_eq!(output.held_until(), Some(now + FLOOD_READ_EVERY));

        output.read_progress(&steps(4_000, 4_001), now);
        let found: Vec<_> = output.take_readings().iter().map(|it| it.step).collect();
        assert_eq!(
            found.len(),
            82,
            "the end of what was held, then what is new"
        );
        assert_eq!(found[80..], [Some(3_999), Some(4_000)]);
        assert_eq!(output.held_until(), None);

        output.read_progress(&flood(5), now);
        output.read_held();
        assert_eq!(last_step(&mut output), Some(5_999), "it fell silent");

        output.read_progress(&flood(6), now + FLOOD_READ_EVERY);
        assert_eq!(last_step(&mut output), Some(6_999), "it is time again");
    }
}
