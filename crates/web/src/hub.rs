//! The stream of changes: whoever sees a change publishes it, and every page that is open on its topic gets it.
//!
//! What is sent when is decided in [`ring`]; here are the readers. No reader is waited for: one whose queue is full misses events
//! and gets `{"stale":true}` as soon as there is room, so that it asks for everything again.

mod limited;
mod ring;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tracing::debug;
use trainyard_serve::{SendError, Sender, Stream, channel};

use self::{
    limited::Limited,
    ring::{Ring, STALE, Sent, frame},
};

/// Streams at once.
pub(crate) const STREAMS: usize = 64;
/// Streams of one identity at once.
pub(crate) const STREAMS_EACH: usize = 8;
/// Events that wait for one reader.
const QUEUE: usize = 256;
/// Bytes that wait for one reader.
const QUEUE_BYTES: usize = 512 * 1024;
/// Bytes of missed events that a reader gets when it comes back; the rest is for `hello` and for what happens meanwhile.
const MISSED_BYTES: usize = QUEUE_BYTES / 4 * 3;
/// A comment is sent this often: proxies close connections that are silent for minutes.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Numbers of events for each millisecond since 1970, so that a hub that is started later has larger ones.
const NUMBERS_A_MILLISECOND: u64 = 1000;

/// What changes are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Rows of jobs.
    Jobs,
    /// Nodes and what they hold.
    Nodes,
    /// Gangs that wait.
    Queue,
    /// One run, by its id.
    Run(String),
}

impl Topic {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "jobs" => Some(Self::Jobs),
            "nodes" => Some(Self::Nodes),
            "queue" => Some(Self::Queue),
            _ => None,
        }
    }

    /// The usual event of the topic.
    fn event(&self) -> &'static str {
        match self {
            Self::Jobs => "job",
            Self::Nodes => "nodes",
            Self::Queue => "queue",
            Self::Run(_) => "run",
        }
    }
}

/// What a page subscribes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamAsk {
    pub(crate) topics: BTreeSet<Topic>,
    /// The number of the last event that it got.
    pub(crate) since: Option<u64>,
}

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoStream {
    /// This identity, or all together, have as many as they may.
    TooMany(usize),
    /// The server ends.
    Closed,
}

/// The stream of changes. Any thread may publish.
#[derive(Debug)]
pub struct Hub {
    began: Instant,
    state: Mutex<State>,
    /// Something is held until later.
    held: Notify,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    readers: Vec<Reader>,
    limited: Vec<Limited>,
    closed: bool,
}

#[derive(Debug)]
struct Reader {
    identity: Arc<str>,
    topics: BTreeSet<Topic>,
    sender: Sender,
    /// It has missed an event.
    stale: bool,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl Hub {
    /// A hub without readers.
    pub fn new() -> Self {
        let first = unix_millis().saturating_mul(NUMBERS_A_MILLISECOND);
        Self {
            began: Instant::now(),
            state: Mutex::new(State {
                ring: Ring::new(first),
                readers: Vec::new(),
                limited: Vec::new(),
                closed: false,
            }),
            held: Notify::new(),
        }
    }

    /// Publishes a change: `data` is one JSON object of at most 64 KiB. Where a topic changes more than four times a second, a
    /// later event of that name replaces an earlier one; see [`Hub::publish_keyed`] for events that must not.
    pub fn publish(&self, topic: &Topic, event: &'static str, data: Vec<u8>) {
        self.publish_keyed(topic, event, "", data);
    }

    /// As [`Hub::publish`], but only an earlier event of the same name and key is replaced: the id of the job where a topic has
    /// changes of many jobs, or a number where none may be lost.
    pub fn publish_keyed(&self, topic: &Topic, event: &'static str, key: &str, data: Vec<u8>) {
        let now = self.now();
        let mut state = self.state();
        match state.ring.publish(now, topic, event, key, data.into()) {
            Some(sent) => state.dispatch(&sent),
            None => self.held.notify_one(),
        }
    }

    /// How many pages read the stream.
    pub fn readers(&self) -> usize {
        let mut state = self.state();
        state.forget_gone();
        state.open()
    }

    /// Ends all streams with `bye`, and refuses new ones.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let bye = frame(state.ring.last(), "bye", b"{}");
        for mut reader in std::mem::take(&mut state.readers) {
            if reader.sender.try_send(bye.clone()).is_err() {
                debug!("A reader of changes was too slow for `bye`, and sees only the end");
            }
        }
        state.end_limited();
    }

    /// A stream for a page.
    pub(crate) fn subscribe(&self, identity: &str, ask: StreamAsk) -> Result<Stream, NoStream> {
        let mut state = self.state();
        if state.closed {
            return Err(NoStream::Closed);
        }
        state.forget_gone();
        let own = state
            .readers
            .iter()
            .filter(|reader| &*reader.identity == identity);
        if own.count() >= STREAMS_EACH {
            return Err(NoStream::TooMany(STREAMS_EACH));
        }
        if state.open() >= STREAMS {
            return Err(NoStream::TooMany(STREAMS));
        }
        let (mut sender, stream) = channel(QUEUE, QUEUE_BYTES);
        let missed = ask.since.and_then(|since| {
            let missed = state.ring.since(since, &ask.topics)?;
            let bytes: usize = missed.iter().map(Bytes::len).sum();
            (bytes <= MISSED_BYTES).then(|| (since, missed.concat()))
        });
        // A reader that leaves before it has what it missed comes back with the number that it came with.
        let number = missed
            .as_ref()
            .map_or(state.ring.last(), |(since, _)| *since);
        let hello = json!({"seq": number, "resumed": missed.is_some(), "now": unix_millis()});
        let hello = frame(number, "hello", hello.to_string().as_bytes());
        let missed = missed.map(|(_, missed)| Bytes::from(missed));
        let parts = [Some(hello), missed].into_iter().flatten();
        let sent = parts
            .filter(|part| !part.is_empty())
            .try_for_each(|part| sender.try_send(part));
        state.readers.push(Reader {
            identity: identity.into(),
            topics: ask.topics,
            sender,
            stale: sent.is_err(),
        });
        Ok(stream)
    }

    /// Sends what is held when its time comes, and heartbeats. Runs until it is dropped.
    pub(crate) async fn run(&self) {
        let mut beat = Instant::now() + HEARTBEAT;
        loop {
            let due = self.state().ring.next_due();
            let due = due.map_or(beat, |due| self.began + Duration::from_millis(due));
            let end = self.state().next_end().unwrap_or(beat);
            tokio::select! {
                () = sleep_until(due.min(beat).min(end)) => {}
                () = self.held.notified() => continue,
            }
            self.send_due();
            self.state().end_reviewed(Instant::now());
            if Instant::now() >= beat {
                beat = Instant::now() + HEARTBEAT;
                self.state().beat();
            }
        }
    }

    fn send_due(&self) {
        let now = self.now();
        let mut state = self.state();
        for sent in state.ring.due(now) {
            state.dispatch(&sent);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_gone(&mut self) {
        self.readers.retain(|reader| !reader.sender.is_closed());
        self.limited.retain(|reader| !reader.sender.is_closed());
    }

    /// Streams that are open.
    fn open(&self) -> usize {
        self.readers.len() + self.limited.len()
    }

    fn dispatch(&mut self, sent: &Sent) {
        let last = self.ring.last();
        self.readers.retain_mut(|reader| {
            let wanted = reader.topics.contains(&sent.topic);
            !wanted || reader.take(last, sent.frame.clone())
        });
    }

    fn beat(&mut self) {
        let last = self.ring.last();
        let comment = Bytes::from_static(b":\n\n");
        self.readers
            .retain_mut(|reader| reader.take(last, comment.clone()));
        self.beat_limited();
    }
}

impl Reader {
    /// Sends a part, and before it that others were missed; whether the reader is still there.
    fn take(&mut self, last: u64, part: Bytes) -> bool {
        if self.stale {
            let event = self.topics.first().map_or("job", Topic::event);
            match self.sender.try_send(frame(last, event, STALE)) {
                Ok(()) => self.stale = false,
                Err(error) => return error != SendError::Closed,
            }
        }
        match self.sender.try_send(part) {
            Ok(()) => true,
            Err(SendError::Closed) => false,
            Err(SendError::Full | SendError::TooLarge(_)) => {
                self.stale = true;
                true
            }
        }
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
