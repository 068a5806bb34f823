//! One connection: frames over TLS over a socket that never blocks.
//!
//! Invariant: what is sent is bounded by the caller, who sends only while [`Link::is_flushed`].

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
};

use nix::{
    poll::PollFlags,
    sys::socket::{setsockopt, sockopt},
};
use rustls::Connection;

use crate::frame::Frame;

/// A peer whose machine is gone is noticed after this many seconds of silence, and three questions.
const SILENCE_SECONDS: u32 = 15;
const QUESTION_SECONDS: u32 = 5;
const QUESTIONS: u32 = 3;

pub(crate) struct Link {
    tls: Connection,
    socket: TcpStream,
    inbound: Vec<u8>,
}

/// What was received.
#[derive(Debug)]
pub(crate) struct Received<F = Frame> {
    pub(crate) frames: Vec<F>,
    /// The other side has closed the stream.
    pub(crate) ended: bool,
}

impl<F> Default for Received<F> {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            ended: false,
        }
    }
}

impl Link {
    pub(crate) fn new(tls: impl Into<Connection>, socket: TcpStream) -> io::Result<Self> {
        let mut tls = tls.into();
        tls.set_buffer_limit(None);
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        setsockopt(&socket, sockopt::KeepAlive, &true)?;
        setsockopt(&socket, sockopt::TcpKeepIdle, &SILENCE_SECONDS)?;
        setsockopt(&socket, sockopt::TcpKeepInterval, &QUESTION_SECONDS)?;
        setsockopt(&socket, sockopt::TcpKeepCount, &QUESTIONS)?;
        // Keep-alive does not watch over bytes that are not acknowledged.
        let patience = (SILENCE_SECONDS + QUESTION_SECONDS * QUESTIONS) * 1000;
        setsockopt(&socket, sockopt::TcpUserTimeout, &patience)?;
        Ok(Self {
            tls,
            socket,
            inbound: Vec::new(),
        })
    }

    /// What to wait for on the socket.
    pub(crate) fn wanted(&self) -> PollFlags {
        if self.tls.wants_write() {
            PollFlags::POLLIN | PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        }
    }

    pub(crate) fn is_flushed(&self) -> bool {
        !self.tls.wants_write()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Sends `frame`, as far as the socket takes it; [`Link::flush`] sends the rest.
    pub(crate) fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.send_bytes(&frame.encode())
    }

    /// The same for a frame of another protocol, which is encoded already.
    pub(crate) fn send_bytes(&mut self, frame: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(frame)?;
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if passes(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the end of the stream.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        self.flush()
    }

    /// Takes what still arrives and drops it; whether more may come.
    pub(crate) fn drop_arrived(&mut self) -> bool {
        let mut scratch = [0; 4096];
        match self.socket.read(&mut scratch) {
            Ok(count) => count > 0,
            Err(error) => passes(&error),
        }
    }

    /// Reads what has arrived.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        self.receive_with(Frame::take)
    }

    /// The same for frames of another protocol, which `take` takes off the bytes that have arrived.
    pub(crate) fn receive_with<F>(
        &mut self,
        take: impl Fn(&mut Vec<u8>) -> Result<Option<F>, String>,
    ) -> io::Result<Received<F>> {
        let mut received = Received::default();
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => received.ended = true,
            Ok(_) => {}
            Err(error) if passes(&error) => return Ok(received),
            Err(error) => return Err(error),
        }
        let state = match self.tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // Sends the TLS alert, if the other side still reads.
                drop(self.flush());
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        };
        let waiting = state.plaintext_bytes_to_read();
        let before = self.inbound.len();
        self.inbound.resize(before + waiting, 0);
        let (_, fresh) = self.inbound.split_at_mut(before);
        self.tls.reader().read_exact(fresh)?;
        received.ended |= state.peer_has_closed();
        loop {
            let frame = take(&mut self.inbound)
                .map_err(|message| io::Error::new(io::ErrorKind::InvalidData, message))?;
            match frame {
                Some(frame) => received.frames.push(frame),
                None => break,
            }
        }
        self.flush()?;
        Ok(received)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether an operation only has to be tried again later.
pub(crate) fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
