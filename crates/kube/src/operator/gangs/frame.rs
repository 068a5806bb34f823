//! Reads and writes the frames between the operator and the leader of a gang. Their form and what a content means are
//! `trainyard_core::barrier`'s.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use trainyard_core::barrier::MAX_MESSAGE;
pub(super) use trainyard_core::barrier::frame::{MAX_TOKEN, ORDER, SUMMARY, TOKEN};

use crate::serve::Place;

/// Bytes of the content of any other frame, at most.
pub(super) const MESSAGE_BYTES: usize = MAX_MESSAGE;

/// Bytes that are read at once. What is announced and not sent takes no memory.
const PART: usize = 16 * 1024;

/// Why a frame was not read or written; the connection is closed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    /// The other side has closed the connection, or it broke.
    Ended,
    /// The frame is larger than allowed, or empty.
    Length,
    /// Its kind is not the one that is due.
    Kind,
    /// Frames of all connections hold as many bytes as they may.
    NoRoom,
}

impl FrameError {
    /// Under what it is counted; nothing where the other side ended it.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Ended => None,
            Self::Length => Some("too_large"),
            Self::Kind => Some("broken"),
            Self::NoRoom => Some("no_room"),
        }
    }
}

/// Reads one frame of `kind` with at most `most` bytes of content. Bytes are charged to `place` as they arrive.
pub(super) async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    place: &Place,
    kind: u8,
    most: usize,
) -> Result<Vec<u8>, FrameError> {
    let length = reader.read_u32().await.map_err(|_| FrameError::Ended)?;
    let left = usize::try_from(length).unwrap_or(usize::MAX);
    let mut left = left.checked_sub(1).ok_or(FrameError::Length)?;
    if left > most {
        return Err(FrameError::Length);
    }
    let found = reader.read_u8().await.map_err(|_| FrameError::Ended)?;
    if found != kind {
        return Err(FrameError::Kind);
    }
    let mut content = Vec::with_capacity(left.min(PART));
    while left > 0 {
        let part = u64::try_from(left.min(PART)).unwrap_or(0);
        let mut limited = (&mut *reader).take(part);
        let read = limited.read_buf(&mut content).await;
        let read = read.map_err(|_| FrameError::Ended)?;
        if read == 0 {
            return Err(FrameError::Ended);
        }
        left -= read;
        place.hold(read).map_err(|_| FrameError::NoRoom)?;
        place.pace(read, Duration::ZERO).await;
    }
    Ok(content)
}

/// Writes one frame.
pub(super) async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    content: &[u8],
) -> Result<(), FrameError> {
    let length = u32::try_from(content.len().saturating_add(1)).map_err(|_| FrameError::Length)?;
    let mut head = length.to_be_bytes().to_vec();
    head.push(kind);
    let ended = |_| FrameError::Ended;
    writer.write_all(&head).await.map_err(ended)?;
    writer.write_all(content).await.map_err(ended)?;
    writer.flush().await.map_err(ended)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::serve::{Room, Size, Traffic};

    /// What it is, bytes of the room, what arrives, what is read of it.
    type Case = (
        &'static str,
        usize,
        &'static [u8],
        Result<&'static [u8], FrameError>,
    );

    async fn place(bytes: usize) -> Place {
        let size = Size {
            connections: 1,
            bytes,
            free_bytes: 1,
            bytes_a_second: 1_000_000,
        };
        let room = Room::new(size, "test", Traffic::default());
        room.enter(Ipv4Addr::LOCALHOST.into()).await
    }

    #[tokio::test]
    async fn frames_are_bounded() {
        let cases: [Case; 8] = [
            ("whole", 9, b"\0\0\0\x03Sab", Ok(b"ab")),
            ("no content", 9, b"\0\0\0\x01S", Ok(b"")),
            ("no kind", 9, b"\0\0\0\0", Err(FrameError::Length)),
            ("too large", 9, b"\0\0\0\x06Sabcde", Err(FrameError::Length)),
            (
                "the largest",
                9,
                b"\xff\xff\xff\xffS",
                Err(FrameError::Length),
            ),
            ("another kind", 9, b"\0\0\0\x03Oab", Err(FrameError::Kind)),
            ("cut", 9, b"\0\0\0\x03Sa", Err(FrameError::Ended)),
            ("no room", 0, b"\0\0\0\x03Sab", Err(FrameError::NoRoom)),
        ];
        for (name, room, mut bytes, want) in cases {
            let read = read(&mut bytes, &place(room).await, SUMMARY, 4).await;
            assert_eq!(read, want.map(<[u8]>::to_vec), "{name}");
        }
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let content = vec![7; 3 * PART + 1];
        let mut bytes = Vec::new();
        write(&mut bytes, ORDER, &content).await.unwrap();
        let place = place(content.len()).await;
        let read = read(&mut bytes.as_slice(), &place, ORDER, MESSAGE_BYTES).await;
        assert_eq!(read, Ok(content));
    }
}
