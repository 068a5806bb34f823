//! The engine's side of the keeper, the process that starts pods.

use std::{
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::table::Key;
use crate::{
    HostError, channel, namespaces,
    wire::{Charge, Gone, Order, Report},
};

/// The hidden command that runs the keeper.
const POD_INIT: &str = "pod-init";
/// The key of the pod that only tries whether pods can be: no other has it.
const PROBE: Key = Key::MAX;

/// The keeper of a run. Every pod ends with it, and it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    program: PathBuf,
    process: Child,
    /// `None` once the keeper is gone or asked to exit.
    socket: Option<OwnedFd>,
}

impl Keeper {
    /// Starts the keeper.
    pub(super) fn start(program: &Path) -> Result<Self, HostError> {
        let (ours, theirs) = channel::pair().map_err(HostError::system("create a socket"))?;
        // A process group of its own is out of reach of the terminal's Ctrl-C.
        let process = Command::new(program)
            .arg(POD_INIT)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Ok(Self {
            program: program.to_owned(),
            process: process.map_err(HostError::system(tried(program)))?,
            socket: Some(ours),
        })
    }

    /// Asks once whether pods can be kept apart on this machine.
    pub(super) fn probe(&self) -> Result<(), HostError> {
        let failed = |source| HostError::system(tried(&self.program))(source);
        let (control, theirs) = channel::pair().map_err(HostError::system("create a socket"))?;
        channel::send(&control, &Order::Probe, &[]).map_err(failed)?;
        self.begin(PROBE, &theirs).map_err(failed)?;
        // While this end is open, one that never comes to a pod would be waited for.
        drop(theirs);
        match channel::receive::<Report>(&control).map_err(failed)? {
            Some((Report::Isolated, _)) => Ok(()),
            Some((Report::NotIsolated { step, reason }, _)) => Err(HostError::NoNamespaces {
                step,
                reason,
                cures: namespaces::cures(),
            }),
            Some((Report::Broken { message }, _)) => Err(failed(io::Error::other(message))),
            _ => Err(failed(io::Error::other(
                "this program has no command `pod-init`",
            ))),
        }
    }

    /// Starts a pod init that gets its orders from `control`.
    pub(super) fn begin(&self, pod: Key, control: &OwnedFd) -> io::Result<()> {
        self.charge(&Charge::Start { pod }, &[control.as_raw_fd()])
    }

    /// Ends a pod at once. Does nothing if it has ended already, as all have once the keeper is gone.
    pub(super) fn end(&self, pod: Key) {
        drop(self.charge(&Charge::End { pod }, &[]));
    }

    fn charge(&self, charge: &Charge, descriptors: &[RawFd]) -> io::Result<()> {
        let socket = self.socket.as_ref();
        let socket = socket.ok_or(io::ErrorKind::BrokenPipe)?;
        channel::send(socket, charge, descriptors)
    }

    /// The next pod of which no process is left; `None` where the keeper itself is gone, and the
    /// error is `WouldBlock` where no message waits.
    pub(super) fn next_gone(&mut self) -> io::Result<Option<Key>> {
        let Some(socket) = &self.socket else {
            return Ok(None);
        };
        match channel::receive_now::<Gone>(socket) {
            Ok(Some((gone, _))) => Ok(Some(gone.pod)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // An end that was reset is as gone as one that was closed.
            Ok(None) | Err(_) => {
                self.end_everything();
                Ok(None)
            }
        }
    }

    /// What is watched for its words; `None` once it is gone.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(OwnedFd::as_fd)
    }

    /// The program that it is.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Starts another one in the place of one that is gone.
    pub(super) fn restart(&mut self) -> Result<(), HostError> {
        *self = Self::start(&self.program)?;
        Ok(())
    }

    /// Ends every pod at once and waits until the kernel has.
    pub(super) fn end_everything(&mut self) {
        self.socket = None;
        drop(self.process.wait());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end_everything();
    }
}

fn tried(program: &Path) -> String {
    format!("start `{}`", program.display())
}
