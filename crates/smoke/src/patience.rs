//! Reading and writing with timeouts: every wait has a limit and ends on SIGTERM.
//!
//! Invariant: nothing here waits longer than its limit plus one [`SLICE`].

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::stop::Stop;

/// How long a single system call may wait before limits are checked again.
const SLICE: Duration = Duration::from_millis(50);

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience<'a> {
    /// For the other side.
    pub(crate) limit: Duration,
    /// Once this process was asked to stop.
    pub(crate) limit_when_leaving: Duration,
    pub(crate) stop: &'a Stop,
}

/// Why a wait ended without what was waited for.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The other side closed the connection, or its process ended.
    Closed,
    /// The limit has passed.
    Silent,
    /// This process was asked to stop.
    Asked,
    /// The network failed.
    Broken,
}

impl Interruption {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Broken,
        }
    }
}

/// One wait under way.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    patience: Patience<'a>,
    begun: Instant,
    asked: Option<Instant>,
}

impl<'a> Patience<'a> {
    pub(crate) fn begin(self) -> Wait<'a> {
        Wait {
            patience: self,
            begun: Instant::now(),
            asked: None,
        }
    }

    /// Fills `buffer` from `stream`, which was prepared by [`prepare`].
    pub(crate) fn read(self, stream: &TcpStream, buffer: &mut [u8]) -> Result<(), Interruption> {
        self.transfer(buffer.len(), |at| (&*stream).read(&mut buffer[at..]))
    }

    /// Writes all of `bytes` to `stream`, which was prepared by [`prepare`].
    pub(crate) fn write(self, stream: &TcpStream, bytes: &[u8]) -> Result<(), Interruption> {
        self.transfer(bytes.len(), |at| (&*stream).write(&bytes[at..]))
    }

    fn transfer(
        self,
        length: usize,
        mut move_some: impl FnMut(usize) -> io::Result<usize>,
    ) -> Result<(), Interruption> {
        let mut done = 0;
        let mut wait = None;
        while done < length {
            match move_some(done) {
                Ok(0) => return Err(Interruption::Closed),
                Ok(count) => done += count,
                Err(error) if is_pause(&error) => {
                    wait.get_or_insert_with(|| self.begin()).check()?;
                }
                Err(error) => return Err(Interruption::of(&error)),
            }
        }
        Ok(())
    }
}

impl Wait<'_> {
    /// Ok while the wait may continue.
    pub(crate) fn check(&mut self) -> Result<(), Interruption> {
        if self.patience.stop.requested() {
            let asked = self.asked.get_or_insert_with(Instant::now);
            if asked.elapsed() >= self.patience.limit_when_leaving {
                return Err(Interruption::Asked);
            }
        }
        if self.begun.elapsed() >= self.patience.limit {
            return Err(Interruption::Silent);
        }
        Ok(())
    }

    /// Pauses for `pause`, but not past the limit, then checks.
    pub(crate) fn pause(&mut self, pause: Duration) -> Result<(), Interruption> {
        let end = Instant::now() + pause.min(self.left());
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(SLICE));
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn left(&self) -> Duration {
        self.patience.limit.saturating_sub(self.begun.elapsed())
    }
}

/// Readies a connection for [`Patience`]: short system calls, and small frames that leave at once.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SLICE))?;
    stream.set_write_timeout(Some(SLICE))
}

/// What lies ready on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Nothing,
    /// At least one byte; this is the first.
    Byte(u8),
    Closed,
}

/// Looks at what lies ready, without waiting and without taking it.
pub(crate) fn pending(stream: &TcpStream) -> Pending {
    let mut first = [0];
    let looked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(&mut first));
    let restored = stream.set_nonblocking(false);
    match looked {
        Ok(1..) if restored.is_ok() => Pending::Byte(first[0]),
        Err(error) if is_pause(&error) && restored.is_ok() => Pending::Nothing,
        _ => Pending::Closed,
    }
}

/// Whether an error only says "not yet".
pub(crate) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn pair() -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let here = TcpStream::connect(listener.local_addr()?)?;
        let (there, _) = listener.accept()?;
        prepare(&here)?;
        prepare(&there)?;
        Ok((here, there))
    }

    fn patience(stop: &Stop) -> Patience<'_> {
        Patience {
            limit: Duration::from_millis(120),
            limit_when_leaving: Duration::ZERO,
            stop,
        }
    }

    #[test]
    fn a_silent_peer_ends_the_wait() -> io::Result<()> {
        let (here, _there) = pair()?;
        let stop = Stop::default();
        let found = patience(&stop).read(&here, &mut [0; 4]);
        assert!(matches!(found, Err(Interruption::Silent)), "{found:?}");
        Ok(())
    }

    #[test]
    fn closed_peer_ends_the_wait_after_its_data() -> io::Result<()> {
        let (here, mut there) = pair()?;
        let stop = Stop::default();
        there.write_all(b"last")?;
        drop(there);
        let mut bytes = [0; 4];
        assert!(patience(&stop).read(&here, &mut bytes).is_ok());
        assert_eq!(&bytes, b"last");
        let found = patience(&stop).read(&here, &mut bytes);
        assert!(matches!(found, Err(Interruption::Closed)), "{found:?}");
        Ok(())
    }

    #[test]
    fn stop_request_ends_the_wait() -> io::Result<()> {
        let (here, _there) = pair()?;
        let stop = Stop::default();
        stop.request();
        let patience = Patience {
            limit: Duration::from_mins(10),
            ..patience(&stop)
        };
        let found = patience.read(&here, &mut [0; 4]);
        assert!(matches!(found, Err(Interruption::Asked)), "{found:?}");
        Ok(())
    }

    #[test]
    fn blocked_peer_ends_the_write() -> io::Result<()> {
        let (here, _there) = pair()?;
        let stop = Stop::default();
        let found = patience(&stop).write(&here, &vec![0; 64 << 20]);
        assert!(matches!(found, Err(Interruption::Silent)), "{found:?}");
        Ok(())
    }

    #[test]
    fn pending_byte_is_peeked() -> io::Result<()> {
        let (here, mut there) = pair()?;
        assert_eq!(pending(&here), Pending::Nothing);
        there.write_all(b"x")?;
        let stop = Stop::default();
        let mut wait = patience(&stop).begin();
        while pending(&here) == Pending::Nothing {
            wait.pause(Duration::from_millis(1))
                .expect("a byte comes at once");
        }
        assert_eq!(pending(&here), Pending::Byte(b'x'));
        drop(there);
        let mut byte = [0];
        assert!(patience(&stop).read(&here, &mut byte).is_ok());
        while pending(&here) == Pending::Nothing {
            wait.pause(Duration::from_millis(1))
                .expect("the end comes at once");
        }
        assert_eq!(pending(&here), Pending::Closed);
        Ok(())
    }
}
