//! Replies that are written while they are read.
//!
//! Invariants:
//! - A stream holds at most so many parts and so many bytes, and these are charged to its connection when it begins.
//! - Its writer never waits for its reader: a part that has no room is refused, and the writer decides what the reader misses.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::room::{Phase, Place};

/// A stream that holds at most so many parts, and so many bytes in all of them.
pub fn channel(parts: usize, bytes: usize) -> (Sender, Stream) {
    let (sender, receiver) = mpsc::channel(parts.max(1));
    let held = Arc::new(AtomicUsize::new(0));
    let stream = Stream {
        queue: receiver,
        held: Arc::clone(&held),
        most_bytes: bytes,
    };
    let sender = Sender {
        queue: sender,
        held,
        most_bytes: bytes,
    };
    (sender, stream)
}

/// The writer's end of a stream; the stream ends when it is dropped and what was sent has been read.
#[derive(Debug)]
pub struct Sender {
    queue: mpsc::Sender<Bytes>,
    /// Bytes of all parts in the queue.
    held: Arc<AtomicUsize>,
    most_bytes: usize,
}

/// Why a part was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The reader has not taken what was sent before.
    #[error("the queue of the stream is full")]
    Full,
    /// The reader has left.
    #[error("the reader of the stream has left")]
    Closed,
    /// The part is larger than all that the stream holds.
    #[error("a part of the stream has more than {0} bytes, the maximum")]
    TooLarge(usize),
}

impl Sender {
    /// Sends a part, where there is room for it.
    pub fn try_send(&mut self, part: Bytes) -> Result<(), SendError> {
        let size = part.len();
        if size > self.most_bytes {
            return Err(SendError::TooLarge(self.most_bytes));
        }
        let permit = self.queue.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => SendError::Full,
            mpsc::error::TrySendError::Closed(()) => SendError::Closed,
        })?;
        if self.held.load(Ordering::Acquire) + size > self.most_bytes {
            return Err(SendError::Full);
        }
        self.held.fetch_add(size, Ordering::AcqRel);
        permit.send(part);
        Ok(())
    }

    /// How many parts have room.
    pub fn free_parts(&self) -> usize {
        self.queue.capacity()
    }

    /// Whether the reader has left.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

/// The reader's end of a stream, as a reply takes it.
#[derive(Debug)]
pub struct Stream {
    queue: mpsc::Receiver<Bytes>,
    held: Arc<AtomicUsize>,
    most_bytes: usize,
}

impl Stream {
    /// The bytes that it holds at most.
    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// The next part, as a connection would send it; nothing at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let part = ready!(self.queue.poll_recv(cx));
        let size = part.as_ref().map_or(0, Bytes::len);
        self.held.fetch_sub(size, Ordering::AcqRel);
        Poll::Ready(part)
    }
}

/// What a connection sends.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Full<Bytes>),
    Stream(Flow),
}

/// A stream on its connection.
#[derive(Debug)]
pub(crate) struct Flow {
    stream: Stream,
    place: Arc<Place>,
}

impl Flow {
    pub(crate) fn new(stream: Stream, place: Arc<Place>) -> Self {
        Self { stream, place }
    }
}

impl Drop for Flow {
    /// The rest of the answer is on its way: the time in which it must be read begins.
    fn drop(&mut self) {
        let phase = self.place.phase().map(|(phase, _)| phase);
        if matches!(phase, Some(Phase::Streaming | Phase::Stalled)) {
            self.place.set(Phase::Answering);
        }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Self::Stream(flow) => flow
                .stream
                .poll_next(cx)
                .map(|part| part.map(|part| Ok(Frame::data(part)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
