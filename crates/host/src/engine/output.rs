//! What containers write: read in large pieces, cut at line ends, logged, passed on.
//!
//! Invariant: no work is done for each byte, and at most [`LINE_BYTES`] of a line wait for its end.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::{pace::Pace, show::Show};
use crate::request::Stream;

/// Longer lines are passed on in pieces.
pub(super) const LINE_BYTES: usize = 64 << 10;
/// Read at once; also what the pipe of a busy stream is given.
pub(super) const READ_BYTES: usize = 1 << 20;

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

/// What a stream has for whoever reads on.
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
    ) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let now = Instant::now();
        Ok(Self {
            pipe: Some(File::from(pipe)),
            container,
            name,
            stream,
            begun: Vec::new(),
            pace: Pace::new(now),
            show: Show::new(now),
        })
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads no further: the next read tells of what was left of the last line.
    pub(super) fn close(&mut self) {
        self.pipe = None;
    }

    /// Reads once.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut Buffer) -> Piece<'a> {
        let count = match &mut self.pipe {
            None => Ok(0),
            Some(pipe) => match buffer.0.get_mut(LINE_BYTES..) {
                Some(room) => pipe.read(room),
                None => Ok(0),
            },
        };
        let count = match count {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Piece::Nothing,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.pace.read(0);
                return Piece::Empty;
            }
            Ok(0) | Err(_) => {
                self.pipe = None;
                return Piece::Closed(self.take_begun(buffer, 0));
            }
            Ok(count) => count,
        };
        self.pace.read(count);
        if self.pace.is_busy()
            && let Some(pipe) = &self.pipe
        {
            self.pace.widen(pipe);
        }
        self.cut(buffer, count)
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
