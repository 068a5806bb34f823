//! The leader's connections from members.
//!
//! Everyone who reaches the port can open a connection, so those that have not authenticated and reported have a bound of their own
//! (see [`crate::guests`]).
//!
//! Invariants: a connection belongs to the pod of its first report; at most [`MAX_MEMBERS`] of them.

use std::{
    collections::BTreeMap,
    io,
    net::TcpListener,
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use nix::poll::PollFlags;
use rustls::{ServerConfig, ServerConnection};
use trainyard_core::{
    barrier::{ConnectionId, Envelope, Hello, LeaderMessage, MAX_MEMBERS, OperatorMessage},
    spec::Slot,
};

use super::{
    channel::Channel,
    frame::{Frame, Kind},
    seldom::Seldom,
    signs::{Question, Report},
};
use crate::{
    guests::{Guests, Place},
    link::passes,
};

/// From the connection to the first report.
const REPORT_WITHIN: Duration = Duration::from_secs(10);
/// Without free descriptors, an immediate retry fails too.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Connections that are accepted in one round, so that the others are read in between.
const ACCEPT_MOST: usize = 64;
/// What log lines about refused connections begin with.
const REFUSED: &str = "closed the connection of a member";

/// What a member sent.
#[derive(Debug)]
pub(crate) enum News {
    /// A report.
    Hello {
        connection: ConnectionId,
        envelope: Envelope<Hello>,
    },
    /// Signs of its ranks.
    Signs {
        connection: ConnectionId,
        slot: Slot,
        report: Report,
    },
    /// The connection is over.
    Gone { connection: ConnectionId },
}

struct Guest {
    channel: Channel,
    /// Until its first report.
    place: Option<Place>,
    until: Duration,
    /// The pod of its first report.
    pod: Option<(String, Slot)>,
}

/// All connections, and the socket that accepts them.
pub(crate) struct Members {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    guests: Arc<Guests>,
    all: BTreeMap<ConnectionId, Guest>,
    next: ConnectionId,
    accept_at: Option<Duration>,
    seldom: Seldom,
    most: usize,
}

impl Members {
    /// Connections are numbered from 1: 0 is the leader's own supervisor.
    pub(crate) fn new(listener: TcpListener, config: Arc<ServerConfig>) -> Self {
        Self {
            listener,
            config,
            guests: Arc::default(),
            all: BTreeMap::new(),
            next: 1,
            accept_at: None,
            seldom: Seldom::default(),
            most: MAX_MEMBERS as usize,
        }
    }

    /// Sends a frame to a member, where it is connected.
    pub(crate) fn send(&mut self, connection: ConnectionId, kind: Kind, content: Vec<u8>) {
        if let Some(guest) = self.all.get_mut(&connection) {
            guest.channel.send(kind, content);
        }
    }

    /// Sends a question to all members that have reported. Where one still waits for its socket, its successor also asks for what it asked for.
    pub(crate) fn ask(&mut self, question: Question) {
        for guest in self.all.values_mut().filter(|guest| guest.pod.is_some()) {
            let mut question = question;
            let before = guest.channel.waiting(Kind::Question);
            if let Some(Ok(before)) = before.map(Question::decode) {
                question.add_unasked(before);
            }
            guest.channel.send(Kind::Question, question.encode());
        }
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Those that have reported.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        let reported = self.all.iter().filter(|(_, guest)| guest.pod.is_some());
        reported.map(|(number, _)| *number)
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        self.all.remove(&connection);
    }

    /// The socket that accepts, where it is to be waited for.
    pub(crate) fn accepting(&self) -> Option<BorrowedFd<'_>> {
        self.accept_at.is_none().then(|| self.listener.as_fd())
    }

    /// What to wait for.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (ConnectionId, BorrowedFd<'_>, PollFlags)> {
        self.all
            .iter()
            .map(|(number, guest)| (*number, guest.channel.as_fd(), guest.channel.wanted()))
    }

    /// When [`Members::tick`] has something to do, at the latest.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let late = self.all.values().filter(|guest| guest.place.is_some());
        late.map(|guest| guest.until).chain(self.accept_at).min()
    }

    /// Closes connections that have not reported in time.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.accept_at.take_if(|at| now >= *at);
        let seldom = &mut self.seldom;
        self.all.retain(|_, guest| {
            let late = guest.place.is_some() && now >= guest.until;
            if late {
                seldom.log(REFUSED, "it reported nothing in time");
            }
            !late
        });
    }

    /// Accepts what connects.
    pub(crate) fn accept(&mut self, now: Duration) {
        for _ in 0..ACCEPT_MOST {
            match self.listener.accept() {
                Ok((socket, from)) => {
                    if self.all.len() >= self.most {
                        let most = self.most;
                        let why = format!("{most} members are connected, the maximum");
                        self.seldom.log(REFUSED, &why);
                        continue;
                    }
                    let guest = self.guests.admit(&socket, from.ip()).and_then(|place| {
                        let tls = ServerConnection::new(Arc::clone(&self.config))
                            .map_err(io::Error::other)?;
                        Ok(Guest {
                            channel: Channel::new(tls, socket, now)?,
                            place: Some(place),
                            until: now + REPORT_WITHIN,
                            pod: None,
                        })
                    });
                    match guest {
                        Ok(guest) => {
                            self.all.insert(self.next, guest);
                            self.next += 1;
                        }
                        Err(error) => self.seldom.log(REFUSED, &error.to_string()),
                    }
                }
                Err(error) if passes(&error) => return,
                Err(error) => {
                    self.seldom
                        .log("cannot accept a connection", &error.to_string());
                    self.accept_at = Some(now + ACCEPT_AGAIN);
                    return;
                }
            }
        }
    }

    /// Reads what has arrived on a connection.
    pub(crate) fn read(&mut self, connection: ConnectionId, now: Duration) -> Vec<News> {
        let Some(guest) = self.all.get_mut(&connection) else {
            return Vec::new();
        };
        let arrived = guest.channel.exchange(now);
        let mut over = arrived.over;
        let mut news = Vec::new();
        for frame in arrived.frames {
            match guest.take(connection, &frame) {
                Ok(one) => news.push(one),
                Err(why) => {
                    over = Some(why);
                    break;
                }
            }
        }
        if let Some(why) = over {
            if guest.pod.is_none() {
                self.seldom.log(REFUSED, &why);
            }
            self.all.remove(&connection);
            news.push(News::Gone { connection });
        }
        news
    }
}

impl Guest {
    fn take(&mut self, connection: ConnectionId, frame: &Frame) -> Result<News, String> {
        match (frame.kind, &self.pod) {
            (Kind::Hello, _) => {}
            (Kind::Signs | Kind::Evidence, Some((_, slot))) => {
                return Ok(News::Signs {
                    connection,
                    slot: *slot,
                    report: Report::decode(&frame.content)?,
                });
            }
            _ => return Err("it sent a frame that is not for a leader".to_owned()),
        }
        let envelope =
            Envelope::<Hello>::decode(&frame.content).map_err(|error| error.to_string())?;
        let Hello { uid, slot, .. } = &envelope.message;
        let (known, of) = self.pod.get_or_insert_with(|| (uid.clone(), *slot));
        if (&*known, &*of) != (uid, slot) {
            return Err("it reported for two pods".to_owned());
        }
        self.place = None;
        Ok(News::Hello {
            connection,
            envelope,
        })
    }
}

/// What any side reads of a frame; whether it is a message of one of them.
pub(crate) fn feed(frame: &Frame) -> bool {
    let content = &frame.content;
    let report = Report::decode(content).map(|report| report.signals().for_each(drop));
    [
        Envelope::<Hello>::decode(content).is_ok(),
        Envelope::<LeaderMessage>::decode(content).is_ok(),
        Envelope::<OperatorMessage>::decode(content).is_ok(),
        Question::decode(content).is_ok(),
        report.is_ok(),
    ]
    .contains(&true)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpStream},
        thread,
        time::Instant,
    };

    use rustls::{crypto::ring, server::ResolvesServerCertUsingSni};
    use trainyard_core::spec::Role;

    use super::*;

    /// Members with `count` connections that have sent nothing, and their other ends.
    fn connected(count: usize, most: usize) -> (Members, Vec<TcpStream>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let mut members = Members::new(listener, Arc::new(config));
        members.most = most;
        let sockets: Vec<TcpStream> = (0..count)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        // A connection may be made before it can be accepted.
        let until = Instant::now() + Duration::from_secs(20);
        while members.len() < most.min(count) {
            assert!(Instant::now() < until, "{} are accepted", members.len());
            members.accept(Duration::ZERO);
            thread::yield_now();
        }
        (members, sockets)
    }

    #[test]
    fn so_many_connections_and_no_more() {
        let (mut members, sockets) = connected(3, 2);
        members.accept(Duration::ZERO);
        assert_eq!(members.len(), 2);
        drop(sockets);
    }

    #[test]
    fn a_question_that_waits_loses_nothing_to_the_next() {
        let (mut members, sockets) = connected(1, 1);
        let guest = members.all.values_mut().next().unwrap();
        guest.pod = Some(("a-worker-0".to_owned(), Slot::new(Role::Worker, 0)));
        for (number, once) in [(1, true), (2, false)] {
            members.ask(Question {
                number,
                attempt: 1,
                stacks: false,
                collectives: once,
                dumps: once,
            });
        }
        let guest = members.all.values().next().unwrap();
        let waits = guest.channel.waiting(Kind::Question).unwrap();
        let waits = Question::decode(waits).unwrap();
        assert_eq!(
            (waits.number, waits.dumps, waits.collectives),
            (2, true, true)
        );
        drop(sockets);
    }
}
