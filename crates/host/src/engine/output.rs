//! What containers write: read in large pieces, cut at line ends, logged, passed on.
//!
//! Invariant: no work is done for each byte, and at most [`LINE_BYTES`] of a line wait for its end.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::request::Stream;

/// Longer lines are passed on in pieces.
pub(super) const LINE_BYTES: usize = 64 << 10;
/// Read at once; also the size that the pipe of a busy stream is given.
pub(super) const READ_BYTES: usize = 1 << 20;
/// A pipe that held this much when it was read belongs to a busy stream.
const BUSY_BYTES: usize = 60 << 10;

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
    widened: bool,
}

/// What one read came to.
pub(super) enum Piece {
    /// Whole lines, or a piece of a long one.
    Bytes(Vec<u8>),
    /// Nothing to pass on yet.
    Nothing,
    /// The stream is closed; what was left of its last line.
    Closed(Vec<u8>),
}

impl Output {
    pub(super) fn new(
        pipe: OwnedFd,
        container: usize,
        name: Arc<str>,
        stream: Stream,
    ) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            pipe: Some(File::from(pipe)),
            container,
            name,
            stream,
            begun: Vec::new(),
            widened: false,
        })
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads once.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Piece {
        let Some(pipe) = &mut self.pipe else {
            return Piece::Closed(Vec::new());
        };
        let count = match pipe.read(buffer) {
            Ok(0) => {
                self.pipe = None;
                return Piece::Closed(std::mem::take(&mut self.begun));
            }
            Ok(count) => count,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Piece::Nothing;
            }
            Err(_) => {
                self.pipe = None;
                return Piece::Closed(std::mem::take(&mut self.begun));
            }
        };
        if count >= BUSY_BYTES && !self.widened {
            self.widened = true;
            // A user may hold only so much pipe memory; without more it only goes slower.
            let size = i32::try_from(READ_BYTES).unwrap_or(i32::MAX);
            fcntl(&*pipe, FcntlArg::F_SETPIPE_SZ(size)).ok();
        }
        self.cut(buffer.get(..count).unwrap_or_default())
    }

    /// Keeps the begun line back, unless it is too long already.
    fn cut(&mut self, bytes: &[u8]) -> Piece {
        let newline = bytes.iter().rposition(|byte| *byte == b'\n');
        let (whole, rest) = bytes.split_at(newline.map_or(0, |at| at + 1));
        if whole.is_empty() && self.begun.len() + rest.len() <= LINE_BYTES {
            self.begun.extend_from_slice(rest);
            return Piece::Nothing;
        }
        let mut piece = std::mem::take(&mut self.begun);
        piece.extend_from_slice(whole);
        if rest.len() > LINE_BYTES || whole.is_empty() {
            piece.extend_from_slice(rest);
        } else {
            self.begun.extend_from_slice(rest);
        }
        Piece::Bytes(piece)
    }
}
