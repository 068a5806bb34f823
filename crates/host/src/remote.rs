//! Asking the engine of a run for something, from a pod or from another terminal.
//!
//! The engine listens on a socket in the run's folder. A command that is to run in a pod is passed
//! with the three streams of the one who asks, so nothing lies between the two.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::Path,
    process,
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, socket,
};
use serde::{Deserialize, Serialize};
use trainyard_core::remote_shell::{RemoteCommand, Words, read_kubectl, read_ssh};

use crate::{channel, mpi};

pub(crate) const SOCKET: &str = "engine.sock";
/// What shells say of a command that could not be run, and ssh of a connection that failed.
const CANNOT: i32 = 255;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Run a command in the pod called `host`. Carries three streams.
    Run {
        host: String,
        container: Option<String>,
        command: Vec<String>,
    },
    /// Stop the run; `now` without its grace period.
    Stop { now: bool },
    /// Let the job have no pods, or have them again.
    Suspend { suspend: bool },
    /// Begin one new attempt, under a name.
    Restart { name: String },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The command ended.
    Ended { code: i32 },
    /// It cannot be run.
    Refused { message: String },
    /// Taken note of.
    Done,
}

fn new_socket() -> nix::Result<OwnedFd> {
    socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
}

/// Calls `with` with the address of the socket in `folder`.
///
/// An address holds at most 107 bytes, which a run's folder easily exceeds, so it leads through the
/// open folder.
fn at<T>(folder: &Path, with: impl FnOnce(&UnixAddr) -> nix::Result<T>) -> io::Result<T> {
    let open = File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd());
    let address = UnixAddr::new(path.as_str())?;
    Ok(with(&address)?)
}

/// Listens in `folder`.
pub(crate) fn serve(folder: &Path) -> io::Result<OwnedFd> {
    let listener = new_socket()?;
    at(folder, |address| bind(listener.as_raw_fd(), address))?;
    listen(&listener, Backlog::new(128)?)?;
    Ok(listener)
}

/// Takes the next one who asks.
#[expect(unsafe_code, reason = "the socket arrives as a plain number")]
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let number = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Asks the engine that listens in `folder`.
pub(crate) fn ask(folder: &Path, request: &Request, streams: &[i32]) -> io::Result<Answer> {
    let socket = new_socket()?;
    at(folder, |address| connect(socket.as_raw_fd(), address))?;
    channel::send(&socket, request, streams)?;
    match channel::receive(&socket)? {
        Some((answer, _)) => Ok(answer),
        None => Err(io::Error::other("the run has ended")),
    }
}

/// The hidden command `pod-exec FOLDER ssh|kubectl ARGUMENT…`: never returns.
///
/// It takes the arguments that `mpirun` gives to ssh, or those that the launcher of an `MPIJob` v1
/// gives to `kubectl`.
pub fn pod_exec_main(arguments: Vec<OsString>) -> ! {
    let text = arguments.into_iter();
    let mut arguments = text.map(|argument| argument.to_string_lossy().into_owned());
    let folder = arguments.next().unwrap_or_default();
    let manner = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let read = if manner == mpi::KUBECTL {
        read_kubectl(&rest)
    } else {
        read_ssh(&rest)
    };
    let Some(request) = read.map(request) else {
        complain(&format!(
            "`{manner} {}` is not understood here",
            rest.join(" ")
        ));
        end(CANNOT)
    };
    match ask(Path::new(&folder), &request, &[0, 1, 2]) {
        Ok(Answer::Ended { code }) => end(code),
        Ok(Answer::Refused { message }) => complain(&message),
        Ok(Answer::Done) => end(0),
        Err(error) => complain(&format!("cannot reach the run: {error}")),
    }
    end(CANNOT)
}

#[expect(clippy::exit, reason = "a stand-in for ssh is a program of its own")]
fn end(code: i32) -> ! {
    process::exit(code)
}

#[expect(clippy::print_stderr, reason = "a stand-in for ssh speaks as ssh does")]
fn complain(message: &str) {
    eprintln!("trainyard: {message}");
}

/// What the engine is asked for; without a shell of its own, a line goes to the pod's.
fn request(remote: RemoteCommand) -> Request {
    let command = match remote.command {
        Words::Line(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
        Words::Program(words) => words,
    };
    Request::Run {
        host: remote.host,
        container: remote.container,
        command,
    }
}
