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
    let request = if manner == mpi::KUBECTL {
        read_kubectl(&rest)
    } else {
        read_ssh(&rest)
    };
    let Some(request) = request else {
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

/// `exec POD [--container NAME] [-i] [-t] -- COMMAND…`.
fn read_kubectl(arguments: &[String]) -> Option<Request> {
    let mut arguments = arguments.iter();
    if arguments.next()? != "exec" {
        return None;
    }
    let (mut host, mut container) = (None, None);
    for argument in arguments.by_ref() {
        match argument.as_str() {
            "--" => break,
            "--container" | "-c" => container = Some(None),
            "-i" | "-t" | "-it" | "--stdin" | "--tty" => {}
            word if container == Some(None) => container = Some(Some(word.to_owned())),
            word => host = host.or_else(|| Some(word.to_owned())),
        }
    }
    let command: Vec<String> = arguments.cloned().collect();
    Some(Request::Run {
        host: host?,
        container: container.flatten(),
        command,
    })
    .filter(|request| matches!(request, Request::Run { command, .. } if !command.is_empty()))
}

/// `[-OPTION [VALUE]]… HOST COMMAND…`; the words of the command are a line for the shell, as ssh
/// has it.
fn read_ssh(arguments: &[String]) -> Option<Request> {
    /// Options of ssh that take a value.
    const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSWw";
    let mut arguments = arguments.iter();
    let mut host = None;
    while let Some(argument) = arguments.next() {
        let Some(option) = argument.strip_prefix('-') else {
            host = Some(argument);
            break;
        };
        let takes_value =
            option.chars().count() == 1 && option.chars().all(|c| WITH_VALUE.contains(c));
        if takes_value {
            arguments.next()?;
        }
    }
    let host = host?;
    // `user@host` names the same pod: there is one user here.
    let host = host
        .rsplit_once('@')
        .map_or(host.as_str(), |(_, host)| host);
    let line: Vec<&str> = arguments.map(String::as_str).collect();
    if line.is_empty() {
        return None;
    }
    Some(Request::Run {
        host: host.to_owned(),
        container: None,
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), line.join(" ")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: fn(&[String]) -> Option<Request>, line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match reader(&words)? {
            Request::Run {
                host,
                container,
                command,
            } => Some(format!("{host} {container:?} {command:?}")),
            Request::Stop { .. } | Request::Suspend { .. } | Request::Restart { .. } => None,
        }
    }

    #[test]
    fn arguments_of_ssh() {
        let cases = [
            (
                "-x w-0 orted -mca a b",
                Some(r#"w-0 None ["/bin/sh", "-c", "orted -mca a b"]"#),
            ),
            (
                "-o ConnectionAttempts=10 w-0 ls -l",
                Some(r#"w-0 None ["/bin/sh", "-c", "ls -l"]"#),
            ),
            (
                "-q -l me me@w-0.j.n.svc true",
                Some(r#"w-0.j.n.svc None ["/bin/sh", "-c", "true"]"#),
            ),
            ("w-0", None),
            ("-o", None),
            ("", None),
        ];
        for (line, want) in cases {
            assert_eq!(read(read_ssh, line).as_deref(), want, "{line:?}");
        }
    }

    #[test]
    fn arguments_of_kubectl() {
        let cases = [
            (
                "exec w-0 -- /bin/sh -c x",
                Some(r#"w-0 None ["/bin/sh", "-c", "x"]"#),
            ),
            (
                "exec w-0 --container main -- x",
                Some(r#"w-0 Some("main") ["x"]"#),
            ),
            ("exec -it w-0 -- x", Some(r#"w-0 None ["x"]"#)),
            ("exec w-0 --", None),
            ("get pods", None),
        ];
        for (line, want) in cases {
            assert_eq!(read(read_kubectl, line).as_deref(), want, "{line:?}");
        }
    }
}
