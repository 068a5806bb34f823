//! Replies that are written while they are read.
//!
//! Invariants:
//! - A stream holds at most `parts` parts of `part_bytes` bytes each, and these are charged to its connection when it begins.
//! - Its writer never waits for its reader: a part that has no room is refused, and the writer decides what the reader misses.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::room::{Phase, Place};

/// A stream of at most so many parts at once, each of at most so many bytes.
pub fn channel(parts: usize, part_bytes: usize) -> (Sender, Stream) {
    let parts = parts.max(1);
    let (sender, receiver) = mpsc::channel(parts);
    let sender = Sender {
        queue: sender,
        part_bytes,
    };
    let stream = Stream {
        queue: receiver,
        most_bytes: parts.saturating_mul(part_bytes),
    };
    (sender, stream)
}

/// The writer's end of a stream; the stream ends when all of them are dropped and what was sent has been read.
#[derive(Clone, Debug)]
pub struct Sender {
    queue: mpsc::Sender<Bytes>,
    part_bytes: usize,
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
    /// The part is larger than the stream takes.
    #[error("a part of the stream has more than {0} bytes, the maximum")]
    TooLarge(usize),
}

impl Sender {
    /// Sends a part, where there is room for it.
    pub fn try_send(&self, part: Bytes) -> Result<(), SendError> {
        if part.len() > self.part_bytes {
            return Err(SendError::TooLarge(self.part_bytes));
        }
        self.queue.try_send(part).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
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
    most_bytes: usize,
}

impl Stream {
    /// The bytes that it holds at most.
    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// The next part, as a connection would send it; nothing at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.queue.recv().await
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
    queue: mpsc::Receiver<Bytes>,
    place: Arc<Place>,
}

impl Flow {
    pub(crate) fn new(stream: Stream, place: Arc<Place>) -> Self {
        Self {
            queue: stream.queue,
            place,
        }
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
                .queue
                .poll_recv(cx)
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
