//! The descriptors that the engine waits on, and what each belongs to.
//!
//! Invariant: what the kernel reports under a number that was forgotten is dropped.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        time::TimeSpec,
    },
};

use super::table::Key;
use crate::HostError;

/// Events taken from the kernel at once.
const BATCH: usize = 256;

/// What a descriptor that the kernel reports belongs to. What a pod init says comes before any amount of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watch {
    Stop,
    /// A pod init says something.
    Control(Key),
    /// The last process of a pod is gone, or the keeper itself is.
    Keeper,
    /// There is evidence about ranks that are silent.
    Looker,
    /// Programs have written heartbeats.
    Beats,
    /// The store of checkpoints was read.
    Checkpoints,
    /// Someone asks for a command in a pod.
    Listener,
    /// Who asked for a command.
    Client(u64),
    /// A stream of a pod.
    Output(Key, usize),
}

#[derive(Debug)]
pub(super) struct Watches {
    epoll: Epoll,
    by_number: BTreeMap<u64, Watch>,
    next: u64,
    /// When each resting stream is read next.
    resting: BTreeSet<(Instant, u64)>,
}

impl Watches {
    pub(super) fn new() -> Result<Self, HostError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(HostError::system_errno("watch descriptors"))?;
        Ok(Self {
            epoll,
            by_number: BTreeMap::new(),
            next: 0,
            resting: BTreeSet::new(),
        })
    }

    pub(super) fn add(
        &mut self,
        descriptor: BorrowedFd<'_>,
        watch: Watch,
    ) -> Result<(), HostError> {
        let number = self.next;
        self.next += 1;
        self.epoll
            .add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, number))
            .map_err(HostError::system_errno("watch a descriptor"))?;
        self.by_number.insert(number, watch);
        Ok(())
    }

    /// Forgets a descriptor that is closed, or will be.
    pub(super) fn forget(&mut self, number: u64) {
        self.by_number.remove(&number);
    }

    /// Waits at most `limit`; what has happened by then, the most urgent first.
    pub(super) fn wait(&self, limit: Option<Duration>) -> nix::Result<Vec<(Watch, u64)>> {
        // The kernel's own wait knows only milliseconds, in which a stream fills its pipe.
        let mut all = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        let mut events = [EpollEvent::empty(); BATCH];
        let count = ppoll(&mut all, limit.map(TimeSpec::from), None)
            .and_then(|_| self.epoll.wait(&mut events, EpollTimeout::ZERO));
        let count = match count {
            Err(Errno::EINTR) => 0,
            count => count?,
        };
        let events = events.iter().take(count).map(EpollEvent::data);
        let mut seen: Vec<(Watch, u64)> = events
            .filter_map(|number| Some((*self.by_number.get(&number)?, number)))
            .collect();
        seen.sort_unstable();
        Ok(seen)
    }

    /// Whether the kernel reports what is in a stream. One that rests is read by the clock.
    pub(super) fn set_reported(
        &self,
        descriptor: BorrowedFd<'_>,
        number: u64,
        reported: bool,
    ) -> Result<(), HostError> {
        let flags = if reported {
            EpollFlags::EPOLLIN
        } else {
            EpollFlags::empty()
        };
        self.epoll
            .modify(descriptor, &mut EpollEvent::new(flags, number))
            .map_err(HostError::system_errno("watch a descriptor"))
    }

    /// A stream is to be read at `at`, whether or not the kernel reports it.
    pub(super) fn read_at(&mut self, at: Instant, number: u64) {
        self.resting.insert((at, number));
    }

    /// When the next stream has rested.
    pub(super) fn due(&self) -> Option<Instant> {
        self.resting.first().map(|(at, _)| *at)
    }

    /// The next stream that has rested by `now`.
    pub(super) fn next_rested(&mut self, now: Instant) -> Option<(Key, usize, u64)> {
        while self.due().is_some_and(|at| at <= now) {
            let (_, number) = self.resting.pop_first()?;
            if let Some(Watch::Output(key, at)) = self.by_number.get(&number) {
                return Some((*key, *at, number));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::{pipe, write};

    use super::*;

    #[test]
    fn reports_come_before_output() {
        let mut watches = Watches::new().unwrap();
        let pipes: Vec<_> = (0..3).map(|_| pipe().unwrap()).collect();
        let wanted = [Watch::Output(1, 0), Watch::Control(1), Watch::Output(2, 0)];
        for ((reader, writer), watch) in pipes.iter().zip(wanted) {
            watches.add(reader.as_fd(), watch).unwrap();
            write(writer, b"x").unwrap();
        }
        let seen = watches.wait(None).unwrap();
        let order: Vec<Watch> = seen.iter().map(|(watch, _)| *watch).collect();
        assert_eq!(order, [wanted[1], wanted[0], wanted[2]]);
        watches.forget(seen[0].1);
        watches.forget(seen[1].1);
        assert_eq!(watches.wait(None).unwrap(), [(wanted[2], seen[2].1)]);
    }

    #[test]
    fn a_resting_stream_is_due_by_the_clock_alone() {
        let mut watches = Watches::new().unwrap();
        let (reader, writer) = pipe().unwrap();
        watches.add(reader.as_fd(), Watch::Output(7, 1)).unwrap();
        write(&writer, b"x").unwrap();
        watches.set_reported(reader.as_fd(), 0, false).unwrap();
        assert_eq!(watches.wait(Some(Duration::ZERO)).unwrap(), []);
        let now = Instant::now();
        let later = now + Duration::from_millis(5);
        watches.read_at(later, 0);
        assert_eq!(watches.next_rested(now), None);
        assert_eq!(watches.next_rested(later), Some((7, 1, 0)));
        assert_eq!(watches.next_rested(later), None);
        watches.read_at(now, 0);
        watches.forget(0);
        assert_eq!(watches.next_rested(later), None, "it was closed");
        watches.set_reported(reader.as_fd(), 0, true).unwrap();
    }
}
