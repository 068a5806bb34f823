//! Asking the engine of a run for something, from a pod or from another terminal.
//!
//! The engine listens on a socket in the run's folder. A command that is to run in a pod is passed
//! with the three streams of the one who asks, so nothing lies between the two.
//!
//! Invariant: a request runs commands as the owner of the run, so only that user and root get an answer other than a
//! refusal. Three things hold independently: the folder is 0700, the socket is 0600 before anybody can connect, and the
//! kernel's word on who the peer is.

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::fs::PermissionsExt as _,
    },
    path::Path,
    process,
    time::Duration,
};

use nix::{
    sys::{
        socket::{
            AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect,
            getsockopt, listen, setsockopt, socket, sockopt,
        },
        time::{TimeVal, TimeValLike as _},
    },
    unistd::{Uid, geteuid},
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
    /// Run a command in the pod of `rank`, which must run. Carries three streams.
    Exec {
        rank: u32,
        container: Option<String>,
        command: Vec<String>,
    },
    /// Stop the run; `now` without its grace period.
    Stop { now: bool },
    /// Let the job have no pods, or have them again.
    Suspend { suspend: bool },
    /// Begin one new attempt, under a name.
    Restart { name: String },
    /// Read what these ranks do, or all; with `native` also threads without a Python stack.
    Stacks { ranks: Vec<u32>, native: bool },
    /// Record traces of ranks.
    Profile(crate::profile::Recording),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The command ended.
    Ended { code: i32 },
    /// It cannot be run.
    Refused { message: String },
    /// Taken note of.
    Done,
    /// Carries [`crate::stacks::RunStacks`] as a memory file.
    Stacks,
    /// Carries [`crate::profile::Recorded`] as a memory file.
    Profile,
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
/// An address holds at most 107 bytes, which a run's folder easily exceeds, so it goes through the
/// open folder.
fn at<T>(folder: &Path, with: impl FnOnce(&UnixAddr, &str) -> io::Result<T>) -> io::Result<T> {
    let open = File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd());
    let address = UnixAddr::new(path.as_str())?;
    with(&address, &path)
}

/// Listens in `folder`.
pub(crate) fn serve(folder: &Path) -> io::Result<OwnedFd> {
    let listener = new_socket()?;
    at(folder, |address, path| {
        bind(listener.as_raw_fd(), address)?;
        // Nobody can connect before `listen`.
        fs::set_permissions(path, Permissions::from_mode(0o600))
    })?;
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

/// Who is at the other end of a connection, as the kernel noted it when the connection was made.
pub(crate) fn peer(socket: &OwnedFd) -> io::Result<Uid> {
    let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
    Ok(Uid::from_raw(credentials.uid()))
}

/// Why a request of the user `asking` is refused by a run of the user `owner`, where it is.
pub(crate) fn refusal(asking: Uid, owner: Uid) -> Option<String> {
    let admitted = asking == owner || asking.is_root();
    (!admitted).then(|| {
        format!("this run belongs to user {owner}, but the request came from user {asking}")
    })
}

/// Why the engine of the user `serving` is not asked by the user `asking`. Streams that are passed give the other end
/// our terminal, so not even root passes them to another user.
fn distrust(serving: Uid, asking: Uid, streams: &[i32]) -> Option<String> {
    let trusted =
        serving == asking || serving.is_root() || (asking.is_root() && streams.is_empty());
    (!trusted).then(|| {
        format!("the socket is served by user {serving}, but this program runs as user {asking}")
    })
}

/// Asks the engine that listens in `folder`.
pub(crate) fn ask(folder: &Path, request: &Request, streams: &[i32]) -> io::Result<Answer> {
    let (answer, _) = ask_within(folder, request, streams, None)?;
    Ok(answer)
}

/// The same with what the answer carries, and at most so long.
pub(crate) fn ask_within(
    folder: &Path,
    request: &Request,
    streams: &[i32],
    limit: Option<Duration>,
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    let socket = new_socket()?;
    at(folder, |address, _| {
        Ok(connect(socket.as_raw_fd(), address)?)
    })?;
    if let Some(reason) = distrust(peer(&socket)?, geteuid(), streams) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    if let Some(limit) = limit {
        let limit = TimeVal::milliseconds(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
    }
    channel::send(&socket, request, streams)?;
    let answer = channel::receive(&socket).map_err(|error| match (error.kind(), limit) {
        (io::ErrorKind::WouldBlock, Some(limit)) => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it did not answer within {limit:?}"),
        ),
        _ => error,
    });
    match answer? {
        Some(answer) => Ok(answer),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the run has ended",
        )),
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
        complain(&format!("`{manner} {}` is not supported", rest.join(" ")));
        end(CANNOT)
    };
    match ask(Path::new(&folder), &request, &[0, 1, 2]) {
        Ok(Answer::Ended { code }) => end(code),
        Ok(Answer::Refused { message }) => complain(&message),
        Ok(Answer::Done | Answer::Stacks | Answer::Profile) => end(0),
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
    // What was asked for is repeated in it, and may hold whatever a terminal obeys.
    let message = message.replace(|found: char| found.is_control(), "\u{fffd}");
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn only_the_owner_and_root_are_admitted() {
        let user = Uid::from_raw;
        let refused = "this run belongs to user 1001, but the request came from user 1002";
        let cases = [
            (1001, 1001, None),
            (0, 1001, None),
            (1002, 1001, Some(refused.to_owned())),
        ];
        for (asking, owner, want) in cases {
            assert_eq!(refusal(user(asking), user(owner)), want);
        }
        // Streams go to nobody but ourselves and root.
        for (serving, asking, streams, trusted) in [
            (1001, 1001, &[0, 1, 2][..], true),
            (0, 1001, &[0, 1, 2], true),
            (1002, 1001, &[], false),
            (1002, 0, &[], true),
            (1002, 0, &[0, 1, 2], false),
        ] {
            let reason = distrust(user(serving), user(asking), streams);
            assert_eq!(reason.is_none(), trusted, "{serving} {asking} {streams:?}");
        }
    }

    #[test]
    fn the_kernel_says_who_asks_and_the_socket_is_private() {
        let folder = tempfile::tempdir().unwrap();
        // Under any umask: it is set on the socket itself.
        let listener = serve(folder.path()).unwrap();
        let found = fs::metadata(folder.path().join(SOCKET)).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        let client = new_socket().unwrap();
        at(folder.path(), |address, _| {
            Ok(connect(client.as_raw_fd(), address)?)
        })
        .unwrap();
        let accepted = accept(&listener).unwrap();
        assert_eq!(peer(&accepted).unwrap(), geteuid());
        assert_eq!(peer(&client).unwrap(), geteuid());
    }
}
