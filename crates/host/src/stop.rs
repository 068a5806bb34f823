//! Asking a run to stop: once for an orderly stop, twice for one at once.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, OnceLock},
};

use signal_hook::{consts, low_level::pipe};

/// The signals with which people and machines end this program: `SIGINT`, `SIGTERM`, and `SIGHUP` unless the program was started
/// with `SIGHUP` ignored, as `nohup` does for a run that must outlive its terminal.
///
/// Decided by the first call, which has to come before any of them gets a handler.
pub fn stop_signals() -> &'static [i32] {
    static SIGNALS: OnceLock<Vec<i32>> = OnceLock::new();
    SIGNALS.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut signals = vec![consts::SIGINT, consts::SIGTERM];
        if !is_ignored(&status, consts::SIGHUP) {
            signals.push(consts::SIGHUP);
        }
        signals
    })
}

/// Whether the process of which `status` is `/proc/PID/status` ignores `signal`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

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

    /// Makes each of [`stop_signals`] a request to stop.
    pub fn listen_to_signals(&self) -> io::Result<()> {
        for signal in stop_signals() {
            pipe::register(*signal, self.0.asks.try_clone()?)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        for (signal, want) in [
            (consts::SIGHUP, true),
            (consts::SIGINT, false),
            (consts::SIGPIPE, true),
        ] {
            assert_eq!(is_ignored(status, signal), want, "{signal}");
        }
        assert!(!is_ignored("", consts::SIGHUP));
    }
}
