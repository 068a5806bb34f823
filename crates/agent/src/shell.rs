//! The remote shell: what `mpirun` calls in place of ssh.
//!
//! It waits until the worker answers, so that nothing else has to wait for names or ports.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs as _},
    os::fd::AsFd as _,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nix::{errno::Errno, poll::PollFlags, unistd};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use trainyard_core::{
    launch::agent::SERVER_NAME,
    remote_shell::{RemoteCommand, read_ssh},
};

use crate::{
    Settings, chain,
    frame::{CHUNK, Frame, Request, WINDOW},
    identity::Identity,
    link::{Link, Received},
    log_message,
    wait::wait,
};

/// The exit code of ssh for a connection that failed.
const CANNOT: i32 = 255;
/// Between two tries, at first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// For a connection, and for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Another pod may have the address that a name had a moment ago; not for longer than this.
const STRANGERS: Duration = Duration::from_secs(30);
/// After this time a message says what is waited for.
const EXPLAIN: Duration = Duration::from_secs(10);

/// Why one try did not start the command.
enum Setback {
    /// No answer: the worker does not run yet.
    Absent(String),
    /// The answer is not from a pod of this job.
    Stranger(String),
    /// The worker will never run it.
    Refused(String),
}

/// Runs the command that `arguments` name, as ssh understands them, in another pod of the job. Returns
/// the code to end with.
pub fn remote_shell(settings: &Settings, arguments: &[String]) -> i32 {
    let Some(command) = read_ssh(arguments) else {
        log_message(&format!(
            "needs a host and a command, found `{}`",
            arguments.join(" ")
        ));
        return CANNOT;
    };
    let host = command.host.clone();
    let connected = Identity::read(&settings.identity)
        .and_then(|identity| identity.client())
        .map_err(|error| chain(&error))
        .and_then(|config| connect(settings, command, &config));
    match connected {
        Ok((link, received)) => forward_streams(link, received).unwrap_or_else(|error| {
            log_message(&format!("lost the command on `{host}`: {error}"));
            CANNOT
        }),
        Err(message) => {
            log_message(&format!("cannot run a command on `{host}`: {message}"));
            CANNOT
        }
    }
}

/// Retries until the command runs, is refused, or the time is over.
fn connect(
    settings: &Settings,
    command: RemoteCommand,
    config: &Arc<ClientConfig>,
) -> Result<(Link, Received), String> {
    let begin = Instant::now();
    let name = settings.full_name(&command.host);
    let request = Request {
        attempt: settings.attempt,
        command: command.command.into(),
    };
    let mut pause = PAUSE;
    let mut explained = false;
    loop {
        let setback = match attempt(&name, settings.listen.port(), config, &request) {
            Ok(running) => return Ok(running),
            Err(setback) => setback,
        };
        let waited = begin.elapsed();
        let (message, limit) = match setback {
            Setback::Absent(message) => (message, settings.wait),
            Setback::Stranger(message) => (message, settings.wait.min(STRANGERS)),
            Setback::Refused(message) => return Err(message),
        };
        if waited >= limit {
            return Err(format!("{message}; tried for {} s", waited.as_secs()));
        }
        if waited >= EXPLAIN && !explained {
            log_message(&format!("waiting for `{}`: {message}", command.host));
            explained = true;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tries once.
fn attempt(
    name: &str,
    port: u16,
    config: &Arc<ClientConfig>,
    request: &Request,
) -> Result<(Link, Received), Setback> {
    let socket = reach(name, port)
        .map_err(|error| Setback::Absent(format!("cannot connect to `{name}`: {error}")))?;
    request_command(socket, config, request)
}

fn reach(name: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (name, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Authenticates the worker and asks it to run the command. Returns what it sent besides, too.
fn request_command(
    socket: TcpStream,
    config: &Arc<ClientConfig>,
    request: &Request,
) -> Result<(Link, Received), Setback> {
    let stranger = |error: io::Error| {
        Setback::Stranger(format!("the other side is not a pod of this job: {error}"))
    };
    let server =
        ServerName::try_from(SERVER_NAME).map_err(|error| Setback::Refused(error.to_string()))?;
    let tls = ClientConnection::new(Arc::clone(config), server)
        .map_err(|error| Setback::Refused(error.to_string()))?;
    let mut link = Link::new(tls, socket).map_err(stranger)?;
    let end = Instant::now() + ANSWER;
    let mut asked = false;
    loop {
        if !link.is_handshaking() && !asked {
            link.send(Frame::Run(request.clone())).map_err(stranger)?;
            asked = true;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Setback::Absent("the worker does not respond".to_owned()));
        }
        wait([Some((link.as_fd(), link.wanted()))], Some(left)).map_err(stranger)?;
        link.flush().map_err(stranger)?;
        let mut received = link.receive().map_err(stranger)?;
        let first = (!received.frames.is_empty()).then(|| received.frames.remove(0));
        match first {
            Some(Frame::Started) => return Ok((link, received)),
            Some(Frame::Refused(refusal)) if refusal.passing => {
                return Err(Setback::Absent(refusal.message));
            }
            Some(Frame::Refused(refusal)) => return Err(Setback::Refused(refusal.message)),
            Some(_) => return Err(stranger(io::Error::other("unexpected answer"))),
            None if received.ended => {
                return Err(Setback::Absent(
                    "the worker closed the connection".to_owned(),
                ));
            }
            None => {}
        }
    }
}

/// Moves bytes until the command has ended; returns its code.
fn forward_streams(mut link: Link, mut received: Received) -> io::Result<i32> {
    let stdin = io::stdin();
    let mut room = WINDOW;
    let mut input_ended = false;
    loop {
        for frame in received.frames {
            match frame {
                Frame::Output(bytes) => put(io::stdout().lock(), &bytes)?,
                Frame::Error(bytes) => put(io::stderr().lock(), &bytes)?,
                Frame::Taken(count) => room = (room + count as usize).min(WINDOW),
                Frame::Ended(code) => return Ok(code),
                _ => return Err(io::Error::other("unexpected message for a remote shell")),
            }
        }
        if received.ended {
            return Err(io::Error::other("the worker closed the connection"));
        }
        let may_read = !input_ended && room > 0 && link.is_flushed();
        let [link_ready, input_ready] = wait(
            [
                Some((link.as_fd(), link.wanted())),
                may_read.then(|| (stdin.as_fd(), PollFlags::POLLIN)),
            ],
            None,
        )?;
        if input_ready {
            let mut bytes = vec![0; CHUNK.min(room)];
            match unistd::read(&stdin, &mut bytes) {
                Ok(count @ 1..) => {
                    bytes.truncate(count);
                    room -= count;
                    link.send(Frame::Input(bytes))?;
                }
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // A stdin that cannot be read is one that has ended.
                Ok(0) | Err(_) => {
                    input_ended = true;
                    link.send(Frame::InputEnd)?;
                }
            }
        }
        received = if link_ready {
            link.flush()?;
            link.receive()?
        } else {
            Received::default()
        };
    }
}

fn put(mut to: impl io::Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
