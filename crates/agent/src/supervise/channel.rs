//! One connection of a supervisor: frames over TLS, bounded both ways.
//!
//! Invariants: of each kind one frame waits to be sent, the newest, since a message is a whole state. One that only adds to those before is
//! made once none [waits](Channel::is_waiting). A peer that sends more frames than [`Budget`] grants is closed.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use nix::poll::PollFlags;
use rustls::Connection;

use super::frame::{Frame, Kind};
use crate::{link::Link, log_message};

/// Frames that a peer may send at once, and in a second.
const BURST: u32 = 128;
const PER_SECOND: u32 = 64;

/// How many frames a peer may still send.
#[derive(Debug)]
struct Budget {
    left: u32,
    filled_at: Duration,
}

impl Budget {
    fn take(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.filled_at);
        let filled = u32::try_from(since.as_millis() * u128::from(PER_SECOND) / 1000);
        let filled = filled.unwrap_or(u32::MAX);
        if filled > 0 {
            self.left = self.left.saturating_add(filled).min(BURST);
            self.filled_at = now;
        }
        let granted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        granted
    }
}

/// What arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) frames: Vec<Frame>,
    /// Why the connection is over, where it is.
    pub(crate) over: Option<String>,
}

/// A connection.
pub(crate) struct Channel {
    link: Link,
    waiting: Vec<Frame>,
    budget: Budget,
    /// A frame was too large, which is logged once.
    dropped: bool,
}

impl Channel {
    pub(crate) fn new(
        tls: impl Into<Connection>,
        socket: TcpStream,
        now: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            link: Link::new(tls, socket)?,
            waiting: Vec::new(),
            budget: Budget {
                left: BURST,
                filled_at: now,
            },
            dropped: false,
        })
    }

    /// What to wait for.
    pub(crate) fn wanted(&self) -> PollFlags {
        self.link.wanted()
    }

    /// Whether both sides have authenticated.
    pub(crate) fn is_open(&self) -> bool {
        !self.link.is_handshaking()
    }

    /// Sends a frame now or when the socket takes it, unless a newer one of its kind comes before.
    pub(crate) fn send(&mut self, kind: Kind, content: Vec<u8>) {
        if content.len() > kind.bound() {
            // The other side would close the connection for it.
            if !std::mem::replace(&mut self.dropped, true) {
                log_message(&format!(
                    "dropped a frame ({kind:?}) of {} bytes, at most {} are allowed",
                    content.len(),
                    kind.bound()
                ));
            }
            return;
        }
        let frame = Frame::new(kind, content);
        match self.waiting.iter_mut().find(|one| one.kind == kind) {
            Some(older) => *older = frame,
            None => self.waiting.push(frame),
        }
        // A connection that broke is noticed when it is read.
        self.flush().ok();
    }

    /// Whether a frame of this kind has not been sent yet, so that the next one would replace it.
    pub(crate) fn is_waiting(&self, kind: Kind) -> bool {
        self.waiting(kind).is_some()
    }

    /// The content of the frame of this kind that has not been sent yet.
    pub(crate) fn waiting(&self, kind: Kind) -> Option<&[u8]> {
        let frame = self.waiting.iter().find(|frame| frame.kind == kind);
        frame.map(|frame| frame.content.as_slice())
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.link.flush()?;
        while self.is_open() && self.link.is_flushed() && !self.waiting.is_empty() {
            let frame = self.waiting.remove(0);
            self.link.send_bytes(&frame.encode())?;
        }
        Ok(())
    }

    /// Sends what waits and reads what has arrived.
    pub(crate) fn exchange(&mut self, now: Duration) -> Arrived {
        let mut arrived = Arrived::default();
        let received = self
            .flush()
            .and_then(|()| self.link.receive_with(Frame::take));
        match received {
            Ok(received) => {
                for frame in received.frames {
                    if !self.budget.take(now) {
                        let bound = format!("it sent more than {PER_SECOND} frames a second");
                        arrived.over = Some(bound);
                        return arrived;
                    }
                    arrived.frames.push(frame);
                }
                if received.ended {
                    arrived.over = Some("it closed the connection".to_owned());
                }
            }
            Err(error) => arrived.over = Some(error.to_string()),
        }
        if arrived.over.is_none()
            && let Err(error) = self.flush()
        {
            arrived.over = Some(error.to_string());
        }
        arrived
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_refills_and_has_a_ceiling() {
        let mut budget = Budget {
            left: BURST,
            filled_at: Duration::ZERO,
        };
        let mut take = |at: Duration| (0..1000).filter(|_| budget.take(at)).count();
        assert_eq!(take(Duration::ZERO), 128);
        assert_eq!(take(Duration::from_millis(500)), 32);
        assert_eq!(take(Duration::from_millis(501)), 0);
        assert_eq!(take(Duration::from_mins(10)), 128);
    }
}
