//! Wakes the thread of the supervisor from another thread: the one that waits in `poll` has a descriptor that turns readable.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

/// The side that is waited for.
#[derive(Debug)]
pub(crate) struct Woken(UnixStream);

/// The side that wakes.
#[derive(Debug)]
pub(crate) struct Waker(UnixStream);

/// Both sides.
pub(crate) fn pair() -> io::Result<(Woken, Waker)> {
    let (woken, waker) = UnixStream::pair()?;
    woken.set_nonblocking(true)?;
    waker.set_nonblocking(true)?;
    Ok((Woken(woken), Waker(waker)))
}

impl Woken {
    /// It is readable again only after the next [`Waker::wake`].
    pub(crate) fn clear(&self) {
        let mut scratch = [0; 16];
        while (&self.0).read(&mut scratch).is_ok_and(|count| count > 0) {}
    }
}

impl Waker {
    pub(crate) fn wake(&self) {
        // A full socket wakes as well.
        (&self.0).write_all(&[0]).ok();
    }
}

impl AsFd for Woken {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
