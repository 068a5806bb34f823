//! How ranks find each other: all meet at rank 0, then each connects to the next.
//!
//! Flow:
//! 1. every other rank connects to rank 0 at `MASTER_ADDR:MASTER_PORT`, retrying until the limit,
//!    and says who it is and where it listens for its neighbour: at the local address of that very
//!    connection, which rank 0's host can evidently reach;
//! 2. once all have joined, rank 0 sends the addresses and the number of this session;
//! 3. each rank connects to the next and accepts the previous, says so, and rank 0 gives the go.
//!
//! Guarantees: a connection that is not of this trainer, of other settings, or of another session
//! is refused, not joined. A rank that dies meanwhile ends the others at once; one that never
//! joins is named when the limit has passed.

mod guest;
mod host;

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use thiserror::Error;

use crate::{
    interface,
    patience::{Interruption, Patience, Wait, is_pause, prepare},
    ring::{Loss, Place, Ring},
    stop::Stop,
    wire::{ANSWER_HEADER_BYTES, ANSWER_MAX, Answer, HELLO_BYTES, Hello},
    world::Member,
};

/// How often a listener and its connections are polled.
const GLANCE: Duration = Duration::from_millis(2);
/// How long a connection may take to say who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// How long a single connection attempt may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Who joins, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining<'a> {
    pub(crate) member: &'a Member,
    /// Checksum of all settings that ranks must share.
    pub(crate) token: u64,
    pub(crate) join_limit: Duration,
    pub(crate) peer_limit: Duration,
    pub(crate) stop: &'a Stop,
}

/// Prints a message about the progress of joining.
pub(crate) type Notice<'a> = dyn FnMut(&str) -> io::Result<()> + 'a;

/// Why a rank could not join the others.
#[derive(Debug, Error)]
pub enum JoinError {
    /// Rank 0 cannot listen.
    #[error("rank 0 cannot listen at `{host}:{port}`")]
    Bind {
        /// `MASTER_ADDR`.
        host: String,
        /// `MASTER_PORT`.
        port: u16,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Some ranks did not connect to rank 0.
    #[error("waited {} s for {size} ranks: {} did not join", waited.as_secs(), ranks(missing))]
    Missing {
        /// How long rank 0 waited.
        waited: Duration,
        /// Ranks that did not join.
        missing: Vec<usize>,
        /// How many there should be.
        size: usize,
    },
    /// Rank 0 is not reachable.
    #[error("rank {rank} could not reach rank 0 at `{host}:{port}` within {} s", waited.as_secs())]
    Unreachable {
        /// This rank.
        rank: usize,
        /// `MASTER_ADDR`.
        host: String,
        /// `MASTER_PORT`.
        port: u16,
        /// How long it was tried.
        waited: Duration,
        /// What the last try met.
        #[source]
        source: io::Error,
    },
    /// Rank 0 is reachable, but other ranks did not join.
    #[error(
        "rank {rank} reached rank 0, but not all {size} ranks joined within {} s",
        waited.as_secs()
    )]
    NotStarted {
        /// This rank.
        rank: usize,
        /// How many there should be.
        size: usize,
        /// How long it waited.
        waited: Duration,
    },
    /// Rank 0 refused this rank.
    #[error("rank 0 refused rank {rank}: {why}")]
    Refused {
        /// This rank.
        rank: usize,
        /// The message of rank 0.
        why: String,
    },
    /// A rank ended after it had joined.
    #[error("lost rank {rank} while the ranks were connecting: {how}")]
    Left {
        /// The rank.
        rank: usize,
        /// What was seen of it.
        how: &'static str,
    },
    /// The neighbour's address is unreachable.
    #[error("cannot connect to rank {rank} at `{address}`")]
    Neighbour {
        /// The neighbour.
        rank: usize,
        /// What it said its address is.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The named interface does not exist or has no address. Gloo's own message comes first, so that
    /// it can be searched for.
    #[error(
        "Unable to find address for: {name} (`{}` names it, this host has {})",
        interface::VARIABLE,
        there.join(", ")
    )]
    NoInterface {
        /// The interface.
        name: String,
        /// The interfaces of this host.
        there: Vec<String>,
    },
    /// This process has no sockets to offer.
    #[error("cannot open a listener for the previous rank")]
    Listen(#[source] io::Error),
    /// The output is closed.
    #[error("cannot write output")]
    Output(#[source] io::Error),
    /// This process was asked to stop.
    #[error("asked to stop before all ranks had joined")]
    Asked,
}

/// Joins the other ranks.
pub(crate) fn join(joining: Joining<'_>, notice: &mut Notice<'_>) -> Result<Ring, JoinError> {
    if let Some(name) = &joining.member.interface {
        // Before any rank waits for another.
        own_address(name)?;
    }
    if joining.member.rank == 0 {
        host::join(joining, notice)
    } else {
        guest::join(joining, notice)
    }
}

impl<'a> Joining<'a> {
    fn place(&self) -> Place {
        Place {
            rank: self.member.rank,
            size: self.member.size,
        }
    }

    /// A process that is asked to stop has nothing to save yet, so it does not wait.
    fn patience(&self, limit: Duration) -> Patience<'a> {
        Patience {
            limit,
            limit_when_leaving: Duration::ZERO,
            stop: self.stop,
        }
    }

    fn hello(&self, session: u64, address: SocketAddr) -> Hello {
        Hello {
            token: self.token,
            session,
            rank: self.member.rank,
            size: self.member.size,
            address,
        }
    }

    /// Connects to the next rank and accepts the previous one; meanwhile it calls `watch`,
    /// which fails once joining is pointless.
    fn close_ring(
        &self,
        listener: &TcpListener,
        session: u64,
        addresses: &[SocketAddr],
        mut watch: impl FnMut() -> Result<(), JoinError>,
    ) -> Result<Ring, JoinError> {
        let place = self.place();
        let patience = self.patience(self.peer_limit);
        let neighbour = |source| JoinError::Neighbour {
            rank: place.next(),
            address: addresses[place.next()],
            source,
        };
        let limit = self.peer_limit.min(CONNECT_LIMIT);
        let next =
            TcpStream::connect_timeout(&addresses[place.next()], limit).map_err(neighbour)?;
        prepare(&next).map_err(neighbour)?;
        let hello = self.hello(session, addresses[place.rank]).encode();
        patience
            .write(&next, &hello)
            .map_err(|interruption| left(place.next(), &interruption))?;

        let mut wait = patience.begin();
        listener.set_nonblocking(true).map_err(JoinError::Listen)?;
        let previous = loop {
            watch()?;
            match listener.accept() {
                Ok((stream, _)) if self.is_previous(&stream, session) => break stream,
                Ok(_) => {}
                Err(error) if is_pause(&error) => wait
                    .pause(GLANCE)
                    .map_err(|interruption| left(place.previous(), &interruption))?,
                Err(error) => return Err(JoinError::Listen(error)),
            }
        };
        Ok(Ring::between(
            place,
            previous,
            next,
            self.peer_limit,
            self.stop,
        ))
    }

    /// Whether a connection is the previous rank, of this session.
    fn is_previous(&self, stream: &TcpStream, session: u64) -> bool {
        let mut bytes = [0; HELLO_BYTES];
        let said =
            prepare(stream).is_ok() && self.patience(HELLO_LIMIT).read(stream, &mut bytes).is_ok();
        said && Hello::decode(&bytes).is_ok_and(|hello| {
            hello.token == self.token
                && hello.session == session
                && hello.rank == self.place().previous()
        })
    }
}

/// A listener for the previous rank, at the address of the interface that is named, else at one that this
/// host is reached by.
fn neighbour_listener(
    member: &Member,
    here: SocketAddr,
) -> Result<(TcpListener, SocketAddr), JoinError> {
    let ip = match &member.interface {
        Some(name) => own_address(name)?,
        None => here.ip().to_canonical(),
    };
    let listener = TcpListener::bind((ip, 0)).map_err(JoinError::Listen)?;
    let address = listener.local_addr().map_err(JoinError::Listen)?;
    Ok((listener, address))
}

fn own_address(name: &str) -> Result<IpAddr, JoinError> {
    interface::address(name).map_err(|there| JoinError::NoInterface {
        name: name.to_owned(),
        there,
    })
}

fn left(rank: usize, interruption: &Interruption) -> JoinError {
    match interruption {
        Interruption::Asked => JoinError::Asked,
        _ => JoinError::Left {
            rank,
            how: Loss::from(interruption).sentence(),
        },
    }
}

/// Reads an answer; `Closed` also stands for one that cannot be read.
fn read_answer(patience: Patience<'_>, stream: &TcpStream) -> Result<Answer, Interruption> {
    let mut header = [0; ANSWER_HEADER_BYTES];
    patience.read(stream, &mut header)?;
    let (kind, length) = Answer::decode_header(header);
    if length > ANSWER_MAX {
        return Err(Interruption::Closed);
    }
    let mut payload = vec![0; length];
    patience.read(stream, &mut payload)?;
    Answer::decode(kind, &payload).ok_or(Interruption::Closed)
}

/// When to print that this rank still waits: after 5 s, then every 30 s.
#[derive(Debug, Default)]
struct Reminder {
    given: u32,
}

impl Reminder {
    fn is_due(&mut self, wait: &Wait<'_>) -> bool {
        let due = wait.elapsed() >= Duration::from_secs(5 + 30 * u64::from(self.given));
        self.given += u32::from(due);
        due
    }
}

/// "rank 3" or "ranks 1, 3 and 4"; many are cut short.
fn ranks(ranks: &[usize]) -> String {
    const NAMED: usize = 8;
    let names: Vec<String> = ranks.iter().take(NAMED).map(usize::to_string).collect();
    match (names.as_slice(), ranks.len().checked_sub(NAMED)) {
        ([one], _) => format!("rank {one}"),
        (_, Some(more @ 1..)) => format!("ranks {} and {more} more", names.join(", ")),
        ([first @ .., last], _) => format!("ranks {} and {last}", first.join(", ")),
        ([], _) => "no rank".to_owned(),
    }
}

#[cfg(test)]
mod tests;
