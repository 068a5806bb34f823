//! Waiting for several descriptors at once.

use std::{io, os::fd::BorrowedFd, time::Duration};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// A descriptor and what is waited for on it; `None` is not waited for at all. (One that is only not
/// asked anything would still be reported when it breaks, again and again.)
pub(crate) type Wanted<'a> = Option<(BorrowedFd<'a>, PollFlags)>;

/// Waits until one of `wanted` is ready, or the time is over; says which are.
pub(crate) fn wait<const N: usize>(
    wanted: [Wanted<'_>; N],
    limit: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled: Vec<PollFd<'_>> = wanted
        .iter()
        .flatten()
        .map(|(descriptor, flags)| PollFd::new(*descriptor, *flags))
        .collect();
    let limit = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut polled, limit) {
        // A signal is for others; nothing is ready then.
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut results = polled.iter();
    Ok(wanted.map(|one| {
        let result = one.and_then(|_| results.next());
        result.and_then(PollFd::any).unwrap_or(false)
    }))
}
