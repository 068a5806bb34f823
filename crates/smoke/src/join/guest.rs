//! Joining as any rank but 0: connect to rank 0, send the hello, wait for the others.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use super::{
    CONNECT_LIMIT, JoinError, Joining, Notice, Reminder, left, neighbour_listener, read_answer,
};
use crate::{
    patience::{Interruption, Pending, Wait, pending, prepare},
    ring::Ring,
    wire::Answer,
};

/// Pause after the first failed try; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

pub(super) fn join(joining: Joining<'_>, notice: &mut Notice<'_>) -> Result<Ring, JoinError> {
    let rank = joining.member.rank;
    let patience = joining.patience(joining.join_limit);
    let mut wait = patience.begin();
    loop {
        let stream = connect(&joining, &mut wait, notice)?;
        let here = stream.local_addr().map_err(JoinError::Listen)?;
        let (listener, address) = neighbour_listener(joining.member, here)?;
        let patience = joining.patience(wait.left());
        let answer = patience
            .write(&stream, &joining.hello(0, address).encode())
            .and_then(|()| read_answer(patience, &stream));
        let (session, addresses) = match answer {
            Ok(Answer::Welcome { session, addresses })
                if addresses.len() == joining.member.size =>
            {
                (session, addresses)
            }
            Ok(Answer::Refused(why)) => return Err(JoinError::Refused { rank, why }),
            Ok(Answer::Leave) | Err(Interruption::Asked) => return Err(JoinError::Asked),
            Err(Interruption::Silent) => {
                return Err(JoinError::NotStarted {
                    rank,
                    size: joining.member.size,
                    waited: joining.join_limit,
                });
            }
            // Rank 0 ended before it began; the next attempt's may come up in its place.
            Ok(_) | Err(Interruption::Closed | Interruption::Broken) => {
                pause(
                    &joining,
                    &mut wait,
                    BACKOFF_MAX,
                    io::ErrorKind::ConnectionReset.into(),
                )?;
                continue;
            }
        };
        let ring =
            joining.close_ring(&listener, session, &addresses, || watch(&joining, &stream))?;
        let patience = joining.patience(joining.peer_limit);
        let go = patience
            .write(&stream, &Answer::Ready.encode())
            .and_then(|()| read_answer(patience, &stream));
        return match go {
            Ok(Answer::Go) => Ok(ring),
            other => Err(refused(rank, other)),
        };
    }
}

/// Checks that rank 0 is still connected and has not refused this rank.
fn watch(joining: &Joining<'_>, stream: &TcpStream) -> Result<(), JoinError> {
    let answer = match pending(stream) {
        Pending::Nothing => return Ok(()),
        Pending::Closed => Err(Interruption::Closed),
        Pending::Byte(_) => read_answer(joining.patience(joining.peer_limit), stream),
    };
    Err(refused(joining.member.rank, answer))
}

/// The error for an answer of rank 0 other than the start signal.
fn refused(rank: usize, answer: Result<Answer, Interruption>) -> JoinError {
    match answer {
        Ok(Answer::Refused(why)) => JoinError::Refused { rank, why },
        Ok(Answer::Leave) => JoinError::Asked,
        Ok(_) => left(0, &Interruption::Closed),
        Err(interruption) => left(0, &interruption),
    }
}

/// A connection to rank 0, however late it comes up within the limit.
fn connect(
    joining: &Joining<'_>,
    wait: &mut Wait<'_>,
    notice: &mut Notice<'_>,
) -> Result<TcpStream, JoinError> {
    let member = joining.member;
    let mut backoff = BACKOFF_FIRST;
    let mut reminder = Reminder::default();
    loop {
        let error = match try_connect(&member.master_host, member.master_port, wait) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if reminder.is_due(wait) {
            let sentence = format!(
                "rank {} is waiting for rank 0 at `{}:{}`: {error}",
                member.rank, member.master_host, member.master_port
            );
            notice(&sentence).map_err(JoinError::Output)?;
        }
        pause(joining, wait, backoff, error)?;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Pauses after a try that met `error`, or gives up.
fn pause(
    joining: &Joining<'_>,
    wait: &mut Wait<'_>,
    pause: Duration,
    error: io::Error,
) -> Result<(), JoinError> {
    match wait.pause(pause) {
        Ok(()) => Ok(()),
        Err(Interruption::Asked) => Err(JoinError::Asked),
        Err(_) => Err(JoinError::Unreachable {
            rank: joining.member.rank,
            host: joining.member.master_host.clone(),
            port: joining.member.master_port,
            waited: joining.join_limit,
            source: error,
        }),
    }
}

fn try_connect(host: &str, port: u16, wait: &Wait<'_>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        // A limit of zero is refused by the system.
        let limit = wait.left().clamp(Duration::from_millis(1), CONNECT_LIMIT);
        match TcpStream::connect_timeout(&address, limit) {
            // A port of the range for outgoing connections that nobody listens on yet may be
            // connected to itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => {
                prepare(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
