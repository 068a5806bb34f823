//! The signals that a supervisor receives.
//!
//! Each sets a flag and then wakes the loop through a socket, so that none is lost and handlers do nothing else.

use std::{
    io::{self, Read as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::signal::Signal;
use signal_hook::{flag, low_level::pipe};

/// What is passed on to the program.
const FORWARDED: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGQUIT,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// The handlers, and the socket that wakes the loop.
#[derive(Debug)]
pub(crate) struct Signals {
    woken: UnixStream,
    flags: Vec<(Signal, Arc<AtomicBool>)>,
}

impl Signals {
    /// Registers the handlers, also the one that wakes the loop when a process ends.
    pub(crate) fn register() -> io::Result<Self> {
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let mut flags = Vec::new();
        for signal in FORWARDED.into_iter().chain([Signal::SIGCHLD]) {
            let seen = Arc::new(AtomicBool::new(false));
            flag::register(signal as i32, Arc::clone(&seen))?;
            pipe::register(signal as i32, waker.try_clone()?)?;
            if signal != Signal::SIGCHLD {
                flags.push((signal, seen));
            }
        }
        Ok(Self { woken, flags })
    }

    /// Those that came since the last call and are for the program, in a fixed order.
    pub(crate) fn take(&mut self) -> Vec<Signal> {
        let mut scratch = [0; 64];
        while self.woken.read(&mut scratch).is_ok_and(|count| count > 0) {}
        let seen = self.flags.iter();
        seen.filter(|(_, flag)| flag.swap(false, Ordering::SeqCst))
            .map(|(signal, _)| *signal)
            .collect()
    }
}

impl AsFd for Signals {
    /// Readable when a signal came or a process ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}
