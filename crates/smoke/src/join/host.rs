//! Joining as rank 0: listen, admit the other ranks, send them each other's addresses.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, ErrorKind, Read},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use super::{
    GLANCE, HELLO_LIMIT, JoinError, Joining, Notice, Reminder, left, neighbour_listener, ranks,
    read_answer,
};
use crate::{
    patience::{Interruption, Patience, Pending, Wait, is_pause, pending, prepare},
    ring::Ring,
    wire::{Answer, HELLO_BYTES, Hello, Stranger},
};

/// Connections without a complete hello, at most; more wait in the listen backlog.
const NEWCOMERS_MAX: usize = 256;
/// Refusals that are reported, at most.
const REFUSALS_REPORTED: usize = 10;
/// How often a port in use is tried again.
const PORT_PAUSE: Duration = Duration::from_millis(100);
/// How long to try to send a refusal.
const FAREWELL_LIMIT: Duration = Duration::from_millis(200);

pub(super) fn join(joining: Joining<'_>, notice: &mut Notice<'_>) -> Result<Ring, JoinError> {
    let mut wait = joining.patience(joining.join_limit).begin();
    let listener = listen(&joining, &mut wait, notice)?;
    let mut gathering = Gathering {
        joining,
        guests: BTreeMap::new(),
        newcomers: Vec::new(),
        refusals: 0,
    };
    let joined = gathering
        .gather(&listener, &mut wait, notice)
        .and_then(|()| gathering.connect_ring());
    if let Err(error) = &joined {
        let answer = match error {
            JoinError::Asked => Answer::Leave,
            _ => Answer::Refused(error.to_string()),
        };
        for guest in gathering.guests.values() {
            refuse(&joining, &guest.stream, &answer);
        }
    }
    joined
}

/// Listens at the master address where that is this host's, else at every address: behind a
/// Service with a cluster IP the name resolves to an address that is not this host's.
fn listen(
    joining: &Joining<'_>,
    wait: &mut Wait<'_>,
    notice: &mut Notice<'_>,
) -> Result<TcpListener, JoinError> {
    let (host, port) = (&joining.member.master_host, joining.member.master_port);
    let mut reported = false;
    loop {
        let source = match try_listen(host, port) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        let in_use = source.kind() == ErrorKind::AddrInUse;
        if in_use && !reported {
            let sentence = format!("port {port} is in use: waiting until it is free");
            notice(&sentence).map_err(JoinError::Output)?;
            reported = true;
        }
        // The port may still be held by the rank 0 of an attempt that is ending.
        match wait.pause(PORT_PAUSE) {
            Ok(()) if in_use => {}
            Err(Interruption::Asked) => return Err(JoinError::Asked),
            _ => {
                return Err(JoinError::Bind {
                    host: host.clone(),
                    port,
                    source,
                });
            }
        }
    }
}

fn try_listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let named = (host, port).to_socket_addrs();
    for address in named.into_iter().flatten() {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {}
            bound => return bound,
        }
    }
    // The unspecified address of IPv6 accepts IPv4 as well, where the host has IPv6.
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        bound => bound,
    }
}

struct Gathering<'a> {
    joining: Joining<'a>,
    guests: BTreeMap<usize, Guest>,
    newcomers: Vec<Newcomer>,
    refusals: usize,
}

/// A rank that has joined.
struct Guest {
    stream: TcpStream,
    /// Where its neighbour can reach it.
    address: SocketAddr,
}

/// A connection that has not sent its hello yet.
struct Newcomer {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
    said: [u8; HELLO_BYTES],
    length: usize,
}

impl Gathering<'_> {
    /// Waits until all ranks have joined.
    fn gather(
        &mut self,
        listener: &TcpListener,
        wait: &mut Wait<'_>,
        notice: &mut Notice<'_>,
    ) -> Result<(), JoinError> {
        let size = self.joining.member.size;
        let mut reminder = Reminder::default();
        listener.set_nonblocking(true).map_err(JoinError::Listen)?;
        loop {
            self.accept(listener)?;
            self.read_newcomers(notice)?;
            // A rank that has ended may join again, as a restarted container does.
            self.guests
                .retain(|_, guest| pending(&guest.stream) == Pending::Nothing);
            if self.guests.len() == size - 1 {
                return Ok(());
            }
            let missing = || (1..size).filter(|rank| !self.guests.contains_key(rank));
            if reminder.is_due(wait) {
                let missing = ranks(&missing().collect::<Vec<_>>());
                let waited = wait.elapsed().as_secs();
                notice(&format!("rank 0 has waited {waited} s for {missing}"))
                    .map_err(JoinError::Output)?;
            }
            wait.pause(GLANCE)
                .map_err(|interruption| match interruption {
                    Interruption::Asked => JoinError::Asked,
                    _ => JoinError::Missing {
                        waited: self.joining.join_limit,
                        missing: missing().collect(),
                        size,
                    },
                })?;
        }
    }

    fn accept(&mut self, listener: &TcpListener) -> Result<(), JoinError> {
        while self.newcomers.len() < NEWCOMERS_MAX {
            match listener.accept() {
                Ok((stream, from)) => {
                    if stream.set_nonblocking(true).is_ok() {
                        self.newcomers.push(Newcomer {
                            stream,
                            from,
                            since: Instant::now(),
                            said: [0; HELLO_BYTES],
                            length: 0,
                        });
                    }
                }
                Err(error) if is_pause(&error) => break,
                // The peer closed the connection before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(JoinError::Listen(error)),
            }
        }
        Ok(())
    }

    /// Reads from new connections; those that have sent a complete hello are admitted or refused.
    fn read_newcomers(&mut self, notice: &mut Notice<'_>) -> Result<(), JoinError> {
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            let said = &mut newcomer.said[newcomer.length..];
            match newcomer.stream.read(said) {
                Ok(0) => continue,
                Ok(count) => newcomer.length += count,
                Err(error) if is_pause(&error) => {}
                Err(_) => continue,
            }
            if newcomer.length == HELLO_BYTES {
                self.admit(newcomer, notice)?;
            } else if newcomer.since.elapsed() < HELLO_LIMIT {
                self.newcomers.push(newcomer);
            }
        }
        Ok(())
    }

    fn admit(&mut self, newcomer: Newcomer, notice: &mut Notice<'_>) -> Result<(), JoinError> {
        let Newcomer {
            stream, from, said, ..
        } = newcomer;
        if prepare(&stream).is_err() {
            return Ok(());
        }
        let why = match Hello::decode(&said).map(|hello| (hello, self.objection(&hello))) {
            Ok((hello, None)) => {
                let guest = Guest {
                    stream,
                    address: hello.address,
                };
                // The newest process of a rank counts: the older one's attempt is ending.
                if let Some(older) = self.guests.insert(hello.rank, guest) {
                    let why = "a newer process of the same rank has connected".to_owned();
                    refuse(&self.joining, &older.stream, &Answer::Refused(why));
                }
                return Ok(());
            }
            Ok((_, Some(why))) => why,
            Err(Stranger::NotATrainer) => "it is not a smoke trainer".to_owned(),
            Err(Stranger::Version(found)) => {
                format!("its protocol version {found} differs from that of rank 0")
            }
        };
        self.refusals += 1;
        if self.refusals <= REFUSALS_REPORTED {
            let sentence = format!("warning: refused a connection from {}: {why}", from.ip());
            notice(&sentence).map_err(JoinError::Output)?;
        }
        refuse(&self.joining, &stream, &Answer::Refused(why));
        Ok(())
    }

    fn objection(&self, hello: &Hello) -> Option<String> {
        let size = self.joining.member.size;
        if hello.size != size {
            Some(format!(
                "its world size is {}, that of rank 0 is {size}",
                hello.size
            ))
        } else if hello.rank == 0 || hello.rank >= size {
            Some(format!(
                "it is rank {}, expected 1 to {}",
                hello.rank,
                size - 1
            ))
        } else if hello.session != 0 {
            Some("it belongs to an older attempt".to_owned())
        } else if hello.token != self.joining.token {
            Some(format!(
                "rank {} has different options than rank 0",
                hello.rank
            ))
        } else {
            None
        }
    }

    /// Sends the addresses to all ranks, closes the ring, and starts them once all are ready.
    fn connect_ring(&self) -> Result<Ring, JoinError> {
        let patience = self.joining.patience(self.joining.peer_limit);
        let last = self.guests.values().next_back();
        let here = last.map_or_else(
            || Err(ErrorKind::NotConnected.into()),
            |guest| guest.stream.local_addr(),
        );
        let (listener, address) =
            neighbour_listener(self.joining.member, here.map_err(JoinError::Listen)?)?;
        let session = RandomState::new().build_hasher().finish();
        let others = self.guests.values().map(|guest| guest.address);
        let addresses: Vec<SocketAddr> = std::iter::once(address).chain(others).collect();

        let say = |answer: &Answer| {
            let bytes = answer.encode();
            self.guests.iter().try_for_each(|(rank, guest)| {
                let said = patience.write(&guest.stream, &bytes);
                said.map_err(|interruption| left(*rank, &interruption))
            })
        };
        say(&Answer::Welcome {
            session,
            addresses: addresses.clone(),
        })?;
        let ring = self
            .joining
            .close_ring(&listener, session, &addresses, || self.watch())?;
        self.await_ready()?;
        say(&Answer::Go)?;
        Ok(ring)
    }

    /// Waits until every rank's connections stand. All are watched, for the one that ended is
    /// rarely the one whose word is due next.
    fn await_ready(&self) -> Result<(), JoinError> {
        let patience = self.joining.patience(self.joining.peer_limit);
        let mut wait = patience.begin();
        let mut awaited: BTreeMap<_, _> = self.guests.iter().collect();
        while let Some((first, _)) = awaited.first_key_value() {
            let first = **first;
            self.watch()?;
            let mut ready = Vec::new();
            for (rank, guest) in &awaited {
                if let Pending::Byte(_) = pending(&guest.stream) {
                    match read_answer(patience, &guest.stream) {
                        Ok(Answer::Ready) => ready.push(**rank),
                        Ok(_) => return Err(left(**rank, &Interruption::Closed)),
                        Err(interruption) => return Err(left(**rank, &interruption)),
                    }
                }
            }
            awaited.retain(|rank, _| !ready.contains(*rank));
            if ready.is_empty() {
                wait.pause(GLANCE)
                    .map_err(|interruption| left(first, &interruption))?;
            }
        }
        Ok(())
    }

    fn watch(&self) -> Result<(), JoinError> {
        let gone = |guest: &Guest| pending(&guest.stream) == Pending::Closed;
        match self.guests.iter().find(|(_, guest)| gone(guest)) {
            Some((rank, _)) => Err(left(*rank, &Interruption::Closed)),
            None => Ok(()),
        }
    }
}

/// Sends a refusal to a connection, if it still listens. Also a process that was asked to stop sends
/// it.
fn refuse(joining: &Joining<'_>, stream: &TcpStream, answer: &Answer) {
    let patience = Patience {
        limit_when_leaving: FAREWELL_LIMIT,
        ..joining.patience(FAREWELL_LIMIT)
    };
    patience.write(stream, &answer.encode()).ok();
}
