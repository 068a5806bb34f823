//! Asking a run to stop: once for an orderly stop, twice for one at once.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use signal_hook::{consts, low_level::pipe};

/// The way to stop a run from outside. Clones are the same handle.
///
/// The first request lets every pod end in its grace period, so that it can save; the second ends
/// them at once.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    /// One byte for each request.
    requests: UnixStream,
    asks: UnixStream,
}

impl StopHandle {
    /// A handle without a request.
    pub fn new() -> io::Result<Self> {
        let (requests, asks) = UnixStream::pair()?;
        requests.set_nonblocking(true)?;
        // A request that nobody reads must not block the one who asks.
        asks.set_nonblocking(true)?;
        Ok(Self(Arc::new(Ends { requests, asks })))
    }

    /// Makes the signals with which people and machines end programs (`SIGINT`, `SIGTERM`,
    /// `SIGHUP`) requests to stop.
    pub fn listen_to_signals(&self) -> io::Result<()> {
        for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
            pipe::register(signal, self.0.asks.try_clone()?)?;
        }
        Ok(())
    }

    /// Asks once.
    pub fn request(&self) {
        use io::Write as _;
        // A full pipe holds more requests than anyone needs.
        drop((&self.0.asks).write(&[1]));
    }

    /// How many requests came since the last call.
    pub(crate) fn take(&self) -> usize {
        use io::Read as _;
        (&self.0.requests).read(&mut [0; 16]).unwrap_or(0)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.requests.as_fd()
    }
}
