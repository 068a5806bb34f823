//! Readers who may learn of some changes only.
//!
//! They get notices without content: which document to ask for again, which is then answered as far as they may see it. Notices have no numbers, because
//! a gap in numbers would tell of changes that are not theirs; and nothing is kept for those who come back: they ask again.
//!
//! Invariant: a reader is ended when the review of his token is no longer believed, and sees nothing that his sight does not include.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use trainyard_serve::{SendError, Sender, Stream, channel};

use super::{
    Hub, NoStream, QUEUE, QUEUE_BYTES, STREAMS, STREAMS_EACH, State, StreamAsk, Topic, unix_millis,
};
use crate::access::{Sight, person};

/// One such reader.
#[derive(Debug)]
pub(super) struct Limited {
    pub(super) identity: Arc<str>,
    topics: BTreeSet<Topic>,
    sight: Sight,
    until: Instant,
    pub(super) sender: Sender,
    /// It has missed a notice.
    stale: bool,
}

/// A notice in the form of server-sent events, without a number.
fn notice(event: &str, data: &str) -> Bytes {
    format!("event: {event}\ndata: {data}\n\n").into()
}

impl Limited {
    /// Sends a part, and before it that others were missed; whether the reader is still there.
    fn take(&mut self, part: Bytes) -> bool {
        if self.stale {
            match self.sender.try_send(self.stale_notice()) {
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

    fn stale_notice(&self) -> Bytes {
        let event = self.topics.first().map_or("job", Topic::event);
        notice(event, r#"{"stale":true}"#)
    }
}

impl Hub {
    /// Notifies those readers of a topic that may learn of changes of `subject`: `data` names what to ask for again, and is one short object of JSON.
    pub fn notify(&self, subject: &str, topic: &Topic, data: &str) {
        let part = notice(topic.event(), data);
        self.state().limited.retain_mut(|reader| {
            let wanted = reader.topics.contains(topic) && reader.sight.includes(subject);
            !wanted || reader.take(part.clone())
        });
    }

    /// A stream for somebody who may learn of what `sight` includes, until then.
    pub(crate) fn subscribe_limited(
        &self,
        identity: &Arc<str>,
        ask: StreamAsk,
        sight: Sight,
        until: Instant,
    ) -> Result<Stream, NoStream> {
        let mut state = self.state();
        if state.closed {
            return Err(NoStream::Closed);
        }
        state.forget_gone();
        let own = state.limited.iter();
        let own = own.filter(|it| person(&it.identity) == person(identity));
        if own.count() >= STREAMS_EACH {
            return Err(NoStream::TooMany(STREAMS_EACH));
        }
        if state.open() >= STREAMS {
            return Err(NoStream::TooMany(STREAMS));
        }
        let (mut sender, stream) = channel(QUEUE, QUEUE_BYTES);
        let hello = json!({"resumed": false, "now": unix_millis()}).to_string();
        let sent = sender.try_send(notice("hello", &hello));
        state.limited.push(Limited {
            identity: Arc::clone(identity),
            topics: ask.topics,
            sight,
            until,
            sender,
            stale: sent.is_err(),
        });
        drop(state);
        // Whoever sleeps until the next end may now have to wake earlier.
        self.held.notify_one();
        Ok(stream)
    }

    /// Who reads with a limited sight.
    pub(crate) fn visitors(&self) -> BTreeSet<Arc<str>> {
        let mut state = self.state();
        state.forget_gone();
        state
            .limited
            .iter()
            .map(|it| Arc::clone(&it.identity))
            .collect()
    }

    /// Changes what somebody may learn of. His pages ask for everything again where that is another: what he could not see may be there, and the other way
    /// round.
    pub(crate) fn set_sight(&self, identity: &str, sight: &Sight) {
        self.state().limited.retain_mut(|reader| {
            if *reader.identity != *identity || reader.sight == *sight {
                return true;
            }
            reader.sight = sight.clone();
            let stale = reader.stale_notice();
            reader.take(stale)
        });
    }
}

impl State {
    /// Ends readers whose review is no longer believed; they may come back with their token.
    pub(super) fn end_reviewed(&mut self, now: Instant) {
        for reader in &mut self.limited {
            if now >= reader.until
                && reader
                    .sender
                    .try_send(notice("bye", r#"{"again":true}"#))
                    .is_err()
            {
                tracing::debug!(
                    "A reader of changes was too slow for `bye`, and sees only the end"
                );
            }
        }
        self.limited.retain(|reader| now < reader.until);
    }

    /// When the next one ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.limited.iter().map(|reader| reader.until).min()
    }

    pub(super) fn beat_limited(&mut self) {
        let comment = Bytes::from_static(b":\n\n");
        self.limited
            .retain_mut(|reader| reader.take(comment.clone()));
    }

    pub(super) fn end_limited(&mut self) {
        for mut reader in std::mem::take(&mut self.limited) {
            if reader.sender.try_send(notice("bye", "{}")).is_err() {
                tracing::debug!(
                    "A reader of changes was too slow for `bye`, and sees only the end"
                );
            }
        }
    }
}
