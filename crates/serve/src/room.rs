//! The connections of one server and the bytes that they hold: who is let in, and who is closed for it.
//!
//! # Rules
//! - A new connection is always let in. At the limit another one is closed for it: the one that has been in its phase for the
//!   longest time. A connection whose request is being worked on, or whose stream is being read, is never closed: whoever
//!   streams must limit its streams to fewer than the connections.
//! - Where one address has more than a quarter of all connections, one of its own is closed. No address is limited otherwise: the
//!   API server may be behind one address with everybody else.
//! - Bodies that arrive and answers that are sent share one budget of bytes, and the same two rules. The first bytes of each
//!   connection are not charged, so that a request of usual size never waits for, or pays for, the large ones of others.
//! - Charged bodies are read at a bounded rate and for a quarter of the time, all of them together and in turns, so that the others
//!   get on however slow the machine is.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::traffic::Traffic;

#[cfg(test)]
mod tests;

/// One of so many parts of the room is what an address may have before its own connections are closed first.
const SHARES: usize = 4;

/// How much room there is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Connections at once.
    pub connections: usize,
    /// Bytes that bodies and answers hold at once, beyond the free ones of each connection.
    pub bytes: usize,
    /// Bytes of each connection that are not charged.
    pub free_bytes: usize,
    /// Charged bytes that are read in a second.
    pub bytes_a_second: u32,
}

/// On a slow machine large bodies are read for one of so many parts of the time.
const REST: u32 = 4;
/// A wait that is shorter is not worth a timer.
const SHORT: Duration = Duration::from_millis(1);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has sent no whole request yet.
    New,
    /// It has had an answer and sent no other request yet.
    Idle,
    /// The body of a request arrives, or waits for its turn.
    Asking,
    /// A request is worked on.
    Working,
    /// An answer is being sent.
    Answering,
    /// A stream is open, and its reader has taken everything so far.
    Streaming,
    /// A stream is open, and its reader does not take what is to be sent.
    Stalled,
}

/// No bytes are left, and nobody else can be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The connections of one server.
#[derive(Debug)]
pub struct Room {
    size: Size,
    server: &'static str,
    traffic: Traffic,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Charged bytes of all connections.
    charged: usize,
    /// When the next charged bytes are to be read.
    read_next: Option<Instant>,
    open: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    phase: Phase,
    since: Instant,
    charged: usize,
    bytes: usize,
    wake: Arc<Notify>,
}

impl Room {
    /// An empty room; its events are counted under the name of `server`.
    pub fn new(size: Size, server: &'static str, traffic: Traffic) -> Arc<Self> {
        Arc::new(Self {
            size,
            server,
            traffic,
            state: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Lets a connection in. Waits only while the requests of all others are worked on.
    pub async fn enter(self: &Arc<Self>, address: IpAddr) -> Place {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_enter(address) {
                return place;
            }
            freed.await;
        }
    }

    /// Lets a connection in, unless the requests of all others are worked on.
    pub fn try_enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut state = self.state();
        if state.open.len() >= self.size.connections {
            let largest = state.address_with_most_connections(self.size.connections);
            let victim = state
                .longest(|_, connection| {
                    largest.is_none_or(|largest| largest == connection.address)
                })
                .or_else(|| state.longest(|_, _| true))?;
            self.close(&mut state, victim);
        }
        let id = state.next;
        state.next += 1;
        let wake = Arc::new(Notify::new());
        let connection = Connection {
            address,
            phase: Phase::New,
            since: Instant::now(),
            charged: 0,
            bytes: 0,
            wake: Arc::clone(&wake),
        };
        state.open.insert(id, connection);
        self.traffic.connections(self.server, state.open.len());
        drop(state);
        Some(Place {
            room: Arc::clone(self),
            id,
            wake,
        })
    }

    fn close(&self, state: &mut State, id: u64) {
        if let Some(closed) = state.remove(id) {
            closed.wake.notify_one();
            self.traffic.closed(self.server, "room");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, id: u64) -> Option<Connection> {
        let gone = self.open.remove(&id)?;
        self.charged -= gone.charged;
        Some(gone)
    }

    /// The address that has most of the connections, where that is more than its share.
    fn address_with_most_connections(&self, limit: usize) -> Option<IpAddr> {
        self.most(limit / SHARES, |_| 1)
    }

    /// The address that has most of the charged bytes, where that is more than its share.
    fn address_with_most_bytes(&self, limit: usize) -> Option<IpAddr> {
        self.most(limit / SHARES, |connection| connection.charged)
    }

    fn most(&self, share: usize, of: impl Fn(&Connection) -> usize) -> Option<IpAddr> {
        let mut sums: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for connection in self.open.values() {
            *sums.entry(connection.address).or_default() += of(connection);
        }
        let (address, sum) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
        (sum > share).then_some(address)
    }

    /// Who has been in its phase for the longest time, of those that may be closed.
    fn longest(&self, which: impl Fn(u64, &Connection) -> bool) -> Option<u64> {
        let all = self.open.iter().filter(|(id, connection)| {
            let kept = matches!(connection.phase, Phase::Working | Phase::Streaming);
            !kept && which(**id, connection)
        });
        all.min_by_key(|(id, connection)| (connection.since, **id))
            .map(|(id, _)| *id)
    }
}

/// The place of one connection; dropping it makes room.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    id: u64,
    wake: Arc<Notify>,
}

impl Place {
    /// Sets what the connection does now. An idle connection releases what it held.
    pub fn set(&self, phase: Phase) {
        let mut state = self.room.state();
        let Some(connection) = state.open.get_mut(&self.id) else {
            return;
        };
        connection.phase = phase;
        connection.since = Instant::now();
        if phase == Phase::Idle {
            let charged = std::mem::take(&mut connection.charged);
            connection.bytes = 0;
            state.charged -= charged;
        }
        drop(state);
        self.wake.notify_one();
    }

    /// What the connection does, and since when; nothing once it was closed to make room.
    pub fn phase(&self) -> Option<(Phase, Instant)> {
        let state = self.room.state();
        let connection = state.open.get(&self.id)?;
        Some((connection.phase, connection.since))
    }

    /// Waits until something about the connection has changed.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Charges the connection with further bytes. Others are closed for it where needed; a connection that has waited longer
    /// than all of them, or whose address has most, is refused.
    pub fn hold(&self, more: usize) -> Result<(), Full> {
        let Size {
            bytes: limit,
            free_bytes,
            ..
        } = self.room.size;
        let mut state = self.room.state();
        let Some(connection) = state.open.get(&self.id) else {
            return Err(Full);
        };
        let bytes = connection.bytes + more;
        let charged = bytes.saturating_sub(free_bytes);
        let (further, own) = (charged - connection.charged, connection.address);
        while state.charged + further > limit {
            let largest = state.address_with_most_bytes(limit);
            let other = |id: u64, of: &Connection| id != self.id && of.charged > 0;
            let victim = state
                .longest(|id, of| other(id, of) && largest.is_none_or(|it| it == of.address))
                // Nobody pays for an address that has most itself.
                .or_else(|| state.longest(|id, of| other(id, of) && largest != Some(own)));
            let Some(victim) = victim else {
                return Err(Full);
            };
            self.room.close(&mut state, victim);
        }
        state.charged += further;
        if let Some(connection) = state.open.get_mut(&self.id) {
            connection.bytes = bytes;
            connection.charged = charged;
        }
        Ok(())
    }

    /// Waits for the turn of `bytes` that were charged and took `spent` to read; whoever is charged nothing has no need to wait.
    pub async fn pace(&self, bytes: usize, spent: Duration) {
        let turn = {
            let mut state = self.room.state();
            let charged = state.open.get(&self.id).is_some_and(|of| of.charged > 0);
            if !charged {
                return;
            }
            let now = Instant::now();
            let turn = state.read_next.map_or(now, |next| next.max(now));
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let lasts = Duration::from_secs(1) * bytes / self.room.size.bytes_a_second.max(1);
            state.read_next = Some(turn + lasts.max(spent * REST));
            if turn - now < SHORT {
                return;
            }
            turn
        };
        tokio::time::sleep_until(turn).await;
    }

    /// Releases what the connection held.
    pub fn release(&self) {
        let mut state = self.room.state();
        if let Some(connection) = state.open.get_mut(&self.id) {
            connection.bytes = 0;
            let charged = std::mem::take(&mut connection.charged);
            state.charged -= charged;
        }
    }

    /// A place in a room of its own, for tests of whoever answers requests.
    pub fn alone() -> Arc<Self> {
        let size = Size {
            connections: 1,
            bytes: 0,
            free_bytes: 0,
            bytes_a_second: 1,
        };
        let room = Room::new(size, "test", Traffic::default());
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        Arc::new(room.try_enter(address).expect("an empty room has a place"))
    }

    /// The bytes that all connections may hold together.
    pub fn limit(&self) -> usize {
        self.room.size.bytes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.remove(self.id);
        self.room
            .traffic
            .connections(self.room.server, state.open.len());
        drop(state);
        self.room.freed.notify_one();
    }
}
