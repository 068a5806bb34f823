//! The keeper: the parent of every pod's first process.
//!
//! Invariant: it never waits for a pod, nor for the engine. A pod is said to be gone when the
//! kernel has ended its last process.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, dup2_stdin},
};

use super::{
    first_process,
    isolate::{self, Refused, Side},
};
use crate::{
    channel,
    wire::{Charge, Gone, Order, Report},
};

/// How long the end of pods is waited for that the kernel cannot end at once, because a disk does
/// not answer. Their end is certain.
const LAST: Duration = Duration::from_secs(2);

/// Keeps pods until the engine is gone. Also runs the pod, in each child.
pub(super) fn keep() -> io::Result<()> {
    prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    detach_stdin()?;
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children.thread_block()?;
    let ended = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut keeper = Keeper {
        socket,
        ended,
        pods: BTreeMap::new(),
        unreported: VecDeque::new(),
    };
    loop {
        match keeper.turn()? {
            Turn::Again => {}
            Turn::Alone => return keeper.end_everything(),
            Turn::Pod { control, isolated } => {
                // What is the keeper's own must not outlive it in a pod.
                drop(keeper);
                return first_process(&control, isolated);
            }
        }
    }
}

/// The socket must not be the standard input of anything that is started later.
fn detach_stdin() -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    dup2_stdin(&null)?;
    Ok(())
}

/// What a turn of the loop came to.
enum Turn {
    Again,
    /// The engine is gone.
    Alone,
    /// This process is the first of a pod.
    Pod {
        control: OwnedFd,
        isolated: Result<(), Refused>,
    },
}

struct Keeper {
    socket: OwnedFd,
    ended: SignalFd,
    /// The first process of each pod.
    pods: BTreeMap<u64, Pid>,
    /// Pods that are gone, not reported to the engine yet.
    unreported: VecDeque<u64>,
}

impl Keeper {
    fn turn(&mut self) -> io::Result<Turn> {
        let mut wanted = PollFlags::POLLIN;
        wanted.set(PollFlags::POLLOUT, !self.unreported.is_empty());
        let (child_ended, charge_came) = {
            let mut watched = [
                PollFd::new(self.ended.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.socket.as_fd(), wanted),
            ];
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let [child, charge] = watched;
            let came = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
            (
                child.any() == Some(true),
                charge
                    .revents()
                    .is_some_and(|events| events.intersects(came)),
            )
        };
        if child_ended {
            self.reap()?;
        }
        self.report_gone()?;
        if !charge_came {
            return Ok(Turn::Again);
        }
        let Some((charge, descriptors)) = channel::receive(&self.socket)? else {
            return Ok(Turn::Alone);
        };
        match (charge, descriptors.into_iter().next()) {
            (Charge::Start { pod }, Some(control)) => Ok(self.start(pod, control)),
            (Charge::End { pod }, _) => {
                if let Some(pid) = self.pods.get(&pod) {
                    kill(*pid, Signal::SIGKILL).ok();
                }
                Ok(Turn::Again)
            }
            (Charge::Start { .. }, None) => {
                Err(io::Error::other("a pod was sent without its socket"))
            }
        }
    }

    fn start(&mut self, pod: u64, control: OwnedFd) -> Turn {
        match isolate::fork() {
            Ok(Side::Parent(child)) => {
                self.pods.insert(pod, child);
                Turn::Again
            }
            Ok(Side::Child(isolated)) => Turn::Pod { control, isolated },
            Err(refused) => {
                let report = if refused.is_shortage() {
                    let message = format!("cannot fork a process for it: {}", refused.reason());
                    Report::Broken { message }
                } else {
                    refused.report()
                };
                // An end that is closed with something unread resets the other, which then receives
                // nothing. The engine cannot but end the run now; it may have done so already.
                drop(channel::receive_now::<Order>(&control));
                drop(channel::send(&control, &report, &[]));
                Turn::Again
            }
        }
    }

    /// Takes note of every pod whose last process is gone.
    fn reap(&mut self) -> io::Result<()> {
        while self.ended.read_signal()?.is_some() {}
        loop {
            let pid = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => pid,
                Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return Ok(()),
                Ok(_) | Err(nix::Error::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let gone = self.pods.extract_if(.., |_, first| *first == pid);
            self.unreported.extend(gone.map(|(pod, _)| pod));
        }
    }

    /// Reports gone pods to the engine, as far as the socket has room.
    fn report_gone(&mut self) -> io::Result<()> {
        while let Some(pod) = self.unreported.front() {
            match channel::send_now(&self.socket, &Gone { pod: *pod }) {
                Ok(()) => self.unreported.pop_front(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Ends every pod and waits until the kernel has.
    fn end_everything(mut self) -> io::Result<()> {
        for pid in self.pods.values() {
            kill(*pid, Signal::SIGKILL).ok();
        }
        let until = Instant::now() + LAST;
        loop {
            self.reap()?;
            let left = until.saturating_duration_since(Instant::now());
            if self.pods.is_empty() || left.is_zero() {
                return Ok(());
            }
            let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
            let mut watched = [PollFd::new(self.ended.as_fd(), PollFlags::POLLIN)];
            match poll(&mut watched, PollTimeout::from(millis)) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
