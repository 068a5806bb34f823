//! A stream of bytes that notices what its connection does: an answer that was sent to its end, a reader that takes nothing,
//! and answers that the HTTP library makes by itself.

use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::room::{Phase, Place};

/// The bytes of the whole reply to a request that could not be parsed.
pub(crate) type Malformed = Arc<dyn Fn(StatusCode) -> Vec<u8> + Send + Sync>;

/// After an answer was flushed, its connection is idle and releases what it held.
pub(crate) struct Watched<S> {
    pub(crate) stream: S,
    pub(crate) place: Arc<Place>,
    /// Makes the reply to a request that could not be parsed, where the library's own is not sent.
    pub(crate) malformed: Option<Malformed>,
    /// That reply, and how much of it was sent.
    pub(crate) own: Option<(Vec<u8>, usize)>,
}

impl<S> fmt::Debug for Watched<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Watched");
        debug.field("place", &self.place).finish_non_exhaustive()
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    /// Whether what is written is an answer of the library: no request was handed on, and none is answered.
    fn is_own(&mut self, bytes: &[u8]) -> bool {
        if self.own.is_some() {
            return true;
        }
        let Some(malformed) = &self.malformed else {
            return false;
        };
        if !matches!(self.place.phase(), Some((Phase::New | Phase::Idle, _))) {
            return false;
        }
        let status = bytes
            .get(9..12)
            .and_then(|code| StatusCode::from_bytes(code).ok());
        let status = status.unwrap_or(StatusCode::BAD_REQUEST);
        self.own = Some((malformed(status), 0));
        true
    }

    /// Sends the reply that replaces the library's.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, own, .. } = self;
        let Some((bytes, sent)) = own else {
            return Poll::Ready(Ok(()));
        };
        while let Some(rest) = bytes.get(*sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut *stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                more => *sent += more,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Notes whether the reader of a stream takes what is sent.
    fn note<T>(&self, written: &Poll<T>) {
        let phase = self.place.phase().map(|(phase, _)| phase);
        match (phase, written) {
            (Some(Phase::Streaming), Poll::Pending) => self.place.set(Phase::Stalled),
            (Some(Phase::Stalled), Poll::Ready(_)) => self.place.set(Phase::Streaming),
            _ => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_own(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_own(parts.first().map_or(&[], |part| part)) {
            return Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if matches!(self.place.phase(), Some((Phase::Answering, _))) {
            self.place.set(Phase::Idle);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
