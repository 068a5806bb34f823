//! The ranks as a ring: each writes to the next and reads from the previous.
//!
//! Owns the sum over all ranks (reduce-scatter, then all-gather), broadcasting the state of rank 0,
//! and agreeing on a value. Does not own how the ring comes to be; see [`crate::join`].
//!
//! Guarantees: all ranks get the same bits from a sum, in an order that depends on the number of
//! ranks alone. A rank whose neighbour is lost reports it around the ring before it exits, so every
//! rank names the one that is lost, not the one that reported it.
//!
//! Why it cannot deadlock: frames are written and read in turn, so with N ranks at most N frames
//! are under way in all. For every rank to be stuck in a write, each of the N connections would
//! have to be full, and each holds more than one frame ([`FRAME_MAX`]) in the system's buffers.

mod links;
mod loss;

use std::{net::TcpStream, ops::Range, time::Duration};

use self::links::Links;
pub use self::loss::PeerLost;
pub(crate) use self::loss::{Loss, RingError};
use crate::{
    patience::{Pending, pending},
    stop::Stop,
    wire::{FRAME_MAX, Kind},
};

const FRAME_VALUES: usize = FRAME_MAX / size_of::<f32>();
/// A bound on what rank 0 can make the others hold.
const BROADCAST_MAX: usize = 1 << 30;

/// A place in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    /// Ranks of the ring.
    pub(crate) size: usize,
}

impl Place {
    pub(crate) fn next(self) -> usize {
        (self.rank + 1) % self.size
    }

    pub(crate) fn previous(self) -> usize {
        (self.rank + self.size - 1) % self.size
    }
}

/// All ranks, seen from one of them.
#[derive(Debug)]
pub(crate) struct Ring {
    place: Place,
    /// None where there are no others.
    links: Option<Links>,
    stop: Stop,
}

impl Ring {
    /// A rank without others.
    pub(crate) fn alone(stop: &Stop) -> Self {
        Self {
            place: Place { rank: 0, size: 1 },
            links: None,
            stop: stop.clone(),
        }
    }

    /// A rank between two others, on connections that were
    /// [prepared](crate::patience::prepare), which may be silent for `peer_limit`.
    pub(crate) fn between(
        place: Place,
        previous: TcpStream,
        next: TcpStream,
        peer_limit: Duration,
        stop: &Stop,
    ) -> Self {
        Self {
            place,
            links: Some(Links::new(place, previous, next, peer_limit, stop)),
            stop: stop.clone(),
        }
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Replaces `values` by their sum over all ranks.
    pub(crate) fn sum(&mut self, values: &mut [f32]) -> Result<(), RingError> {
        let Some(links) = &mut self.links else {
            return Ok(());
        };
        let Place { rank, size } = self.place;
        // After the first round each rank holds one part complete; the second passes those on.
        for round in 0..size - 1 {
            let (out, into) = (rank + size - round, rank + 2 * size - round - 1);
            let parts = (out % size, into % size);
            exchange(links, size, values, parts, |mine, theirs| *mine += theirs)?;
        }
        for round in 0..size - 1 {
            let (out, into) = (rank + 1 + size - round, rank + size - round);
            let parts = (out % size, into % size);
            exchange(links, size, values, parts, |mine, theirs| *mine = theirs)?;
        }
        Ok(())
    }

    /// Gives every rank the bytes of rank 0.
    pub(crate) fn broadcast(&mut self, bytes: &mut Vec<u8>) -> Result<(), RingError> {
        let Some(links) = &mut self.links else {
            return Ok(());
        };
        if self.place.rank == 0 {
            links.write(&(bytes.len() as u64).to_le_bytes())?;
            return bytes
                .chunks(FRAME_MAX)
                .try_for_each(|part| links.write(part));
        }
        let is_last = self.place.next() == 0;
        let number = links.read_number()?;
        let length = usize::try_from(number)
            .ok()
            .filter(|length| *length <= BROADCAST_MAX);
        let length = length.ok_or_else(|| links.lost(Loss::Nonsense))?;
        if !is_last {
            links.write(&number.to_le_bytes())?;
        }
        bytes.clear();
        while bytes.len() < length {
            let begin = bytes.len();
            bytes.extend_from_slice(links.read(FRAME_MAX.min(length - begin))?);
            if !is_last {
                links.write(&bytes[begin..])?;
            }
        }
        Ok(())
    }

    /// A barrier: waits until all ranks have called it with the same `value`.
    pub(crate) fn agree(&mut self, value: u64) -> Result<(), RingError> {
        let Some(links) = &mut self.links else {
            return Ok(());
        };
        let bytes = value.to_le_bytes();
        // In the first round the value returns to rank 0 only once every rank has passed it on; the
        // second releases them.
        for _ in 0..2 {
            if self.place.rank == 0 {
                links.write(&bytes)?;
            }
            if links.read_number()? != value {
                return Err(links.lost(Loss::Differs));
            }
            if self.place.rank != 0 {
                links.write(&bytes)?;
            }
        }
        Ok(())
    }

    /// Waits for `delay`, but not once the ring breaks or this process is asked to stop.
    pub(crate) fn delay_step(&mut self, delay: Duration) -> Result<(), RingError> {
        const GLANCE: Duration = Duration::from_millis(10);
        let mut left = delay;
        while !left.is_zero() && !self.stop.requested() {
            let pause = left.min(GLANCE);
            std::thread::sleep(pause);
            left -= pause;
            let Some(links) = &mut self.links else {
                continue;
            };
            match pending(links.previous()) {
                Pending::Closed => return Err(links.lost(Loss::Closed)),
                Pending::Byte(kind) if kind == Kind::Abort.encode() => {
                    links.read(0)?;
                }
                Pending::Byte(_) | Pending::Nothing => {}
            }
        }
        Ok(())
    }

    /// Sends the neighbours why this rank exits early: it lost another, or failed itself.
    pub(crate) fn notify_exit(&mut self, lost: Option<&PeerLost>) {
        if let Some(links) = &mut self.links {
            links.notify_exit(lost);
        }
    }
}

/// Sends one part of `values` to the next rank and merges another from the previous one, a frame
/// of each in turn.
fn exchange(
    links: &mut Links,
    size: usize,
    values: &mut [f32],
    (out, into): (usize, usize),
    merge: impl Fn(&mut f32, f32),
) -> Result<(), RingError> {
    let length = values.len();
    // Parts are equally long, so that all ranks exchange equally many frames; the last ones may
    // reach beyond the end and are cut there.
    let part = length.div_ceil(size);
    let frame = |index: usize, offset: usize| -> Range<usize> {
        let begin = index * part + offset;
        let end = begin + FRAME_VALUES.min(part - offset);
        begin.min(length)..end.min(length)
    };
    for offset in (0..part).step_by(FRAME_VALUES) {
        links.write_values(&values[frame(out, offset)])?;
        let mine = &mut values[frame(into, offset)];
        let (theirs, _) = links.read(size_of_val(mine))?.as_chunks();
        for (mine, theirs) in mine.iter_mut().zip(theirs) {
            merge(mine, f32::from_le_bytes(*theirs));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
