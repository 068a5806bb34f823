//! The two connections of a rank, and frames on them.

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{Loss, PeerLost, Place, RingError};
use crate::{
    patience::{Interruption, Patience, Pending, is_pause, pending},
    stop::Stop,
    wire::{FRAME_MAX, HEADER_BYTES, Header, Kind},
};

/// How long a step may still take once this process was asked to stop. Well within the 30 s that a
/// pod usually has before it is killed.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait for the report of another rank before the next one is blamed.
const BLAME_LIMIT: Duration = Duration::from_millis(500);
/// How long to try to notify the neighbours before exit.
const NOTIFY_LIMIT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Links {
    place: Place,
    previous: TcpStream,
    next: TcpStream,
    frames_written: u32,
    frames_read: u32,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    peer_limit: Duration,
    stop: Stop,
}

impl Links {
    pub(super) fn new(
        place: Place,
        previous: TcpStream,
        next: TcpStream,
        peer_limit: Duration,
        stop: &Stop,
    ) -> Self {
        Self {
            place,
            previous,
            next,
            frames_written: 0,
            frames_read: 0,
            outgoing: Vec::with_capacity(HEADER_BYTES + FRAME_MAX),
            incoming: Vec::with_capacity(FRAME_MAX),
            peer_limit,
            stop: stop.clone(),
        }
    }

    pub(super) fn previous(&self) -> &TcpStream {
        &self.previous
    }

    /// The previous rank is lost.
    pub(super) fn lost(&self, loss: Loss) -> RingError {
        RingError::Lost(PeerLost {
            rank: self.place.previous(),
            loss,
            reported_by: None,
        })
    }

    pub(super) fn write(&mut self, payload: &[u8]) -> Result<(), RingError> {
        self.write_frame(payload.len(), payload.iter().copied())
    }

    pub(super) fn write_values(&mut self, values: &[f32]) -> Result<(), RingError> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.write_frame(size_of_val(values), bytes)
    }

    fn write_frame(
        &mut self,
        length: usize,
        payload: impl Iterator<Item = u8>,
    ) -> Result<(), RingError> {
        let header = Header {
            kind: Kind::Data,
            sequence: self.frames_written,
            length,
        };
        self.frames_written = self.frames_written.wrapping_add(1);
        self.outgoing.clear();
        self.outgoing.extend(header.encode());
        self.outgoing.extend(payload);
        patience(self.peer_limit, &self.stop)
            .write(&self.next, &self.outgoing)
            .map_err(|interruption| self.blame_next(&interruption))
    }

    /// The payload of the next frame, which has `length` bytes.
    pub(super) fn read(&mut self, length: usize) -> Result<&[u8], RingError> {
        let begun = Instant::now();
        let mut last_heartbeat = begun;
        let header = loop {
            let waited = self.await_frame(&mut last_heartbeat).and_then(|()| {
                let patience = patience(self.peer_limit, &self.stop);
                read_frame(patience, &self.previous, &mut self.incoming)
            });
            match waited {
                Ok(Some(header)) if header.kind == Kind::Waiting => {
                    // Where all wait for each other, the wait must still end.
                    if begun.elapsed() > self.peer_limit * 2 {
                        return Err(self.lost(Loss::Silent));
                    }
                }
                Ok(Some(header)) => break header,
                Ok(None) => return Err(self.lost(Loss::Nonsense)),
                Err(Interruption::Asked) => return Err(RingError::Asked),
                Err(interruption) => return Err(self.lost(Loss::from(&interruption))),
            }
        };
        if header.kind == Kind::Abort {
            return Err(self.reported_loss(self.place.previous()));
        }
        if header.sequence != self.frames_read || header.length != length {
            return Err(self.lost(Loss::Nonsense));
        }
        self.frames_read = self.frames_read.wrapping_add(1);
        Ok(&self.incoming)
    }

    /// Waits until a frame begins to arrive. Meanwhile it sends the next rank heartbeats: when a rank
    /// hangs all others wait, but only the one right behind it may conclude that it is lost.
    /// `last_heartbeat` outlives a single wait, because a heartbeat of the previous rank, which ends
    /// one, must not delay those of this rank.
    fn await_frame(&self, last_heartbeat: &mut Instant) -> Result<(), Interruption> {
        let mut wait = patience(self.peer_limit, &self.stop).begin();
        loop {
            match self.previous.peek(&mut [0]) {
                Ok(0) => return Err(Interruption::Closed),
                Ok(_) => return Ok(()),
                Err(error) if is_pause(&error) => wait.check()?,
                Err(error) => return Err(Interruption::of(&error)),
            }
            if last_heartbeat.elapsed() >= self.peer_limit / 4 {
                *last_heartbeat = Instant::now();
                let header = Header {
                    kind: Kind::Waiting,
                    sequence: 0,
                    length: 0,
                };
                // If the next rank is gone, its own neighbours detect it.
                let patience = patience(NOTIFY_LIMIT, &self.stop);
                patience.write(&self.next, &header.encode()).ok();
            }
        }
    }

    pub(super) fn read_number(&mut self) -> Result<u64, RingError> {
        let payload = self.read(size_of::<u64>())?;
        let number = payload.first_chunk().expect("the length was asked for");
        Ok(u64::from_le_bytes(*number))
    }

    /// The loss in the abort frame that was just read from the neighbour `by`.
    fn reported_loss(&self, by: usize) -> RingError {
        let ([rank, loss], []) = self.incoming.as_chunks() else {
            return self.lost(Loss::Nonsense);
        };
        let rank = usize::try_from(u64::from_le_bytes(*rank)).ok();
        let loss = Loss::from_number(u64::from_le_bytes(*loss));
        match (rank, loss) {
            (Some(rank), Some(loss)) if rank < self.place.size => RingError::Lost(PeerLost {
                rank,
                loss,
                reported_by: (rank != by).then_some(by),
            }),
            _ => self.lost(Loss::Nonsense),
        }
    }

    /// Why the next rank does not read any more. It may have exited because it lost another; then its
    /// report is under way, from itself or around the ring.
    fn blame_next(&mut self, interruption: &Interruption) -> RingError {
        if matches!(interruption, Interruption::Asked) {
            return RingError::Asked;
        }
        let patience = patience(BLAME_LIMIT, &self.stop);
        if let Pending::Byte(_) = pending(&self.next)
            && let Ok(Some(header)) = read_frame(patience, &self.next, &mut self.incoming)
            && header.kind == Kind::Abort
        {
            return self.reported_loss(self.place.next());
        }
        let mut wait = patience.begin();
        while wait.check().is_ok()
            && let Ok(Some(header)) = read_frame(patience, &self.previous, &mut self.incoming)
        {
            if header.kind == Kind::Abort {
                return self.reported_loss(self.place.previous());
            }
        }
        RingError::Lost(PeerLost {
            rank: self.place.next(),
            loss: Loss::from(interruption),
            reported_by: None,
        })
    }

    /// Notifies both neighbours, as far as they still listen.
    pub(super) fn notify_exit(&mut self, lost: Option<&PeerLost>) {
        let own = (self.place.rank, Loss::GaveUp);
        let (rank, how) = lost.map_or(own, |lost| (lost.rank, lost.loss));
        let payload = [(rank as u64).to_le_bytes(), how.number().to_le_bytes()].concat();
        let header = Header {
            kind: Kind::Abort,
            sequence: self.frames_written,
            length: payload.len(),
        };
        let frame = [header.encode().as_slice(), &payload].concat();
        let patience = patience(NOTIFY_LIMIT, &self.stop);
        for stream in [&self.next, &self.previous] {
            // A neighbour that has exited need not be notified.
            patience.write(stream, &frame).ok();
        }
    }
}

fn patience(limit: Duration, stop: &Stop) -> Patience<'_> {
    Patience {
        limit,
        limit_when_leaving: limit.min(LEAVE_LIMIT),
        stop,
    }
}

/// Reads one frame; its payload replaces what is in `payload`. None if it is not a frame.
fn read_frame(
    patience: Patience<'_>,
    stream: &TcpStream,
    payload: &mut Vec<u8>,
) -> Result<Option<Header>, Interruption> {
    let mut header = [0; HEADER_BYTES];
    patience.read(stream, &mut header)?;
    let Some(header) = Header::decode(&header) else {
        return Ok(None);
    };
    payload.resize(header.length, 0);
    patience.read(stream, payload)?;
    Ok(Some(header))
}
