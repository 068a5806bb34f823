//! One connection to a worker: one command, from its request to its end.
//!
//! One thread moves bytes between the link and the command's pipes. It reads from the command only
//! while the link takes more, and the other side sends no more input than the command's window has
//! room for, so nothing piles up.

use std::{
    io::{self, Read, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    path::Path,
    process::{self, ChildStderr, ChildStdin, ChildStdout, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::PollFlags,
};
use rustls::{ServerConfig, ServerConnection};

use crate::{
    children::{Children, Started},
    frame::{CHUNK, Command, Frame, Refusal, Request, WINDOW},
    guests::Place,
    link::{Link, passes},
    log_message,
    wait::wait,
    words,
};

/// From the connection to the request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How long a command's streams may be silent after its end, until they count as held by what it left
/// in the background.
const SILENCE: Duration = Duration::from_millis(250);
/// How long sending the last frames may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);
/// Commands at once. One daemon for each launch is usual; a tree of them has few more.
const MAX_COMMANDS: usize = 256;
const SHELL: &str = "/bin/sh";
/// The exit code of shells for a program that does not exist.
const NOT_FOUND: i32 = 127;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) attempt: u32,
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) children: Arc<Children>,
}

/// Serves `socket`, which has a place among those that are not authenticated until it is.
pub(crate) fn run(worker: &Worker, socket: TcpStream, from: SocketAddr, place: Place) {
    let accepted = read_request(worker, socket);
    drop(place);
    let (mut link, request) = match accepted {
        Ok(Some(accepted)) => accepted,
        // A port check that sent nothing.
        Ok(None) => return,
        Err(error) => return log_message(&format!("refused a connection from `{from}`: {error}")),
    };
    if let Err(refusal) = admit(worker, &request) {
        log_message(&format!(
            "a command from `{from}` was refused: {}",
            refusal.message
        ));
        drop(
            link.send(Frame::Refused(refusal))
                .and_then(|()| close_gracefully(&mut link)),
        );
        return;
    }
    let started = prepare(&request.command).and_then(|mut command| {
        worker
            .children
            .spawn(&mut command)
            .map_err(|error| format!("cannot start the command: {error}"))
    });
    let ended = match started {
        Ok(started) => serve_command(worker, &mut link, started),
        Err(message) => fail(&mut link, &message),
    };
    // A client that is gone needs no last messages.
    drop(ended.and_then(|()| close_gracefully(&mut link)));
}

/// Authenticates the other side and reads its request; nothing where it closed before.
fn read_request(worker: &Worker, socket: TcpStream) -> io::Result<Option<(Link, Request)>> {
    let tls = ServerConnection::new(Arc::clone(&worker.config)).map_err(io::Error::other)?;
    let mut link = Link::new(tls, socket)?;
    let end = Instant::now() + REQUEST_WITHIN;
    let mut said_something = false;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other("no command was received in time"));
        }
        wait([Some((link.as_fd(), link.wanted()))], Some(left))?;
        link.flush()?;
        let received = match link.receive() {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !said_something => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if let Some(frame) = received.frames.into_iter().next() {
            return match frame {
                Frame::Run(request) => Ok(Some((link, request))),
                _ => Err(io::Error::other("the first message is not a command")),
            };
        }
        if received.ended {
            return if said_something {
                Err(io::Error::other(
                    "it closed the connection before a command was received",
                ))
            } else {
                Ok(None)
            };
        }
        said_something = true;
    }
}

/// Whether `request` may run here.
fn admit(worker: &Worker, request: &Request) -> Result<(), Refusal> {
    let (ours, theirs) = (worker.attempt, request.attempt);
    if ours != theirs {
        return Err(Refusal {
            message: format!(
                "this worker is part of attempt {ours}, the command comes from attempt {theirs}"
            ),
            // The pod of the newer attempt takes this one's name.
            passing: ours < theirs,
        });
    }
    if worker.children.running() >= MAX_COMMANDS {
        return Err(Refusal {
            message: format!("this worker runs {MAX_COMMANDS} commands already"),
            passing: true,
        });
    }
    Ok(())
}

fn prepare(command: &Command) -> Result<process::Command, String> {
    let words = match command {
        Command::Line(line) if Path::new(SHELL).exists() => {
            vec![SHELL.to_owned(), "-c".to_owned(), line.clone()]
        }
        Command::Line(line) => words::split(line)?,
        Command::Program(words) => words.clone(),
    };
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| "the command is empty".to_owned())?;
    let mut command = process::Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// A command that did not start ends as a shell would end it.
fn fail(link: &mut Link, message: &str) -> io::Result<()> {
    link.send(Frame::Started)?;
    link.send(Frame::Error(format!("trainyard: {message}\n").into_bytes()))?;
    link.send(Frame::Ended(NOT_FOUND))
}

/// Serves the command until it has ended, or its remote shell is gone.
fn serve_command(worker: &Worker, link: &mut Link, mut started: Started) -> io::Result<()> {
    let streams = Streams {
        input: started.child.stdin.take(),
        waiting: Vec::new(),
        output: started.child.stdout.take(),
        error: started.child.stderr.take(),
    };
    let moved = move_bytes(link, &started, streams);
    match moved {
        Ok(code) => link.send(Frame::Ended(code)),
        Err(error) => {
            worker.children.abort(&started);
            Err(error)
        }
    }
}

/// The command's ends of what is moved.
struct Streams {
    input: Option<ChildStdin>,
    /// Input that the command has not taken.
    waiting: Vec<u8>,
    output: Option<ChildStdout>,
    error: Option<ChildStderr>,
}

/// Moves bytes until the command has ended; returns its code. An error means that its remote shell is gone.
fn move_bytes(link: &mut Link, started: &Started, mut streams: Streams) -> io::Result<i32> {
    if let Some(input) = &streams.input {
        fcntl(input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    link.send(Frame::Started)?;
    let mut code = None;
    let mut input_ended = false;
    loop {
        code = code.or_else(|| started.code());
        let silent = streams.output.is_none() && streams.error.is_none();
        if let Some(code) = code
            && silent
        {
            return Ok(code);
        }
        if streams.waiting.is_empty() && input_ended {
            streams.input = None;
        }
        let may_write = link.is_flushed();
        let readable = |descriptor| Some((descriptor, PollFlags::POLLIN));
        let input = streams
            .input
            .as_ref()
            .filter(|_| !streams.waiting.is_empty());
        let output = streams.output.as_ref().filter(|_| may_write);
        let error = streams.error.as_ref().filter(|_| may_write);
        let ready = wait(
            [
                Some((link.as_fd(), link.wanted())),
                input.map(|input| (input.as_fd(), PollFlags::POLLOUT)),
                output.and_then(|output| readable(output.as_fd())),
                error.and_then(|error| readable(error.as_fd())),
                readable(started.wake.as_fd()).filter(|_| code.is_none()),
            ],
            code.is_some().then_some(SILENCE),
        )?;
        if code.is_some() && may_write && ready == [false; 5] {
            streams.output = None;
            streams.error = None;
            continue;
        }
        let [link_ready, _, output_ready, error_ready, _] = ready;
        if link_ready {
            link.flush()?;
            let received = link.receive()?;
            for frame in received.frames {
                match frame {
                    Frame::Input(bytes) => streams.waiting.extend(bytes),
                    Frame::InputEnd => input_ended = true,
                    _ => return Err(io::Error::other("unexpected message for a worker")),
                }
            }
            if streams.waiting.len() > WINDOW {
                return Err(io::Error::other("more stdin data than the window allows"));
            }
            if received.ended {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        if !streams.waiting.is_empty() {
            let taken = write_stdin(&mut streams);
            if taken > 0 {
                link.send(Frame::Taken(u32::try_from(taken).unwrap_or(u32::MAX)))?;
            }
        }
        if output_ready {
            forward_output(&mut streams.output, link, Frame::Output)?;
        }
        if error_ready {
            forward_output(&mut streams.error, link, Frame::Error)?;
        }
    }
}

/// Writes pending input to the command; returns how many bytes it took.
fn write_stdin(streams: &mut Streams) -> usize {
    let waiting = streams.waiting.len();
    let Some(input) = &mut streams.input else {
        streams.waiting.clear();
        return waiting;
    };
    match input.write(&streams.waiting) {
        Ok(taken) => {
            streams.waiting.drain(..taken);
            taken
        }
        Err(error) if passes(&error) => 0,
        // It reads no more: what is sent is dropped, as a shell's pipe would.
        Err(_) => {
            streams.input = None;
            streams.waiting.clear();
            waiting
        }
    }
}

/// Passes on what the command wrote to one of its streams.
fn forward_output<S: Read>(
    stream: &mut Option<S>,
    link: &mut Link,
    frame: fn(Vec<u8>) -> Frame,
) -> io::Result<()> {
    let Some(open) = stream else {
        return Ok(());
    };
    let mut bytes = vec![0; CHUNK];
    match open.read(&mut bytes) {
        Ok(0) => *stream = None,
        Ok(count) => {
            bytes.truncate(count);
            link.send(frame(bytes))?;
        }
        Err(error) if passes(&error) => {}
        Err(_) => *stream = None,
    }
    Ok(())
}

/// Makes sure that the last frames arrive. Input may still be on its way to a command that has ended, and a socket
/// that is closed with unread input discards what was sent over it: so the other side closes first.
fn close_gracefully(link: &mut Link) -> io::Result<()> {
    let end = Instant::now() + CLOSE_WITHIN;
    link.close()?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let wanted = link.wanted();
        wait([Some((link.as_fd(), wanted))], Some(left))?;
        link.flush()?;
        if !link.drop_arrived() {
            return Ok(());
        }
    }
}
