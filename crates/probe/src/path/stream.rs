//! One pair: small messages there and back, then one stream in each direction.
//!
//! The receiver counts, after a warm-up and for a fixed time, and then closes; the sender sends until
//! it is closed on. So a slow link ends its measurement as soon as a fast one, with whatever is still
//! on the way left alone.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::poll::PollFlags;

use super::{
    error::PathError,
    frame,
    limit::{Limit, is_timeout},
    message::{LARGEST_HELLO, Opening, Purpose, Side, same_token},
    socket::{Binding, accept, wait},
};

/// Bytes of one write: large enough that calls cost nothing beside the copying, small enough to stay
/// in a processor's cache.
const BLOCK: usize = 128 << 10;
/// How long one call waits at most.
const SLICE: Duration = Duration::from_millis(20);
/// Small messages there and back; the median of so many is steady.
const ROUND_TRIPS: usize = 21;
/// Bytes of a small message: fits any MTU.
const SMALL: usize = 64;
/// Fewer bytes than this in a whole measurement are none: what a connection may slip through before
/// the first full segment.
const NOTHING: u64 = 4096;

/// What arrived of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes after the warm-up.
    pub bytes: u64,
    /// The time that they took.
    pub time: Duration,
}

impl Received {
    /// Bits in a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
    pub fn rate(&self) -> f64 {
        if self.time.is_zero() {
            return 0.0;
        }
        self.bytes as f64 * 8.0 / self.time.as_secs_f64()
    }
}

/// Counts what arrives for `measure` after a warm-up of a quarter of it. Ends then, or when the other
/// side does.
pub fn receive(mut stream: &TcpStream, measure: Duration) -> io::Result<Received> {
    let mut block = vec![0; BLOCK];
    // Set once: a call for each read would cost a part of what is measured.
    stream.set_read_timeout(Some(SLICE.min(measure)))?;
    let start = Instant::now();
    let warm = start + measure / 4;
    let end = warm + measure;
    let (mut counted, mut total) = (0_u64, 0_u64);
    let (mut from, mut until) = (None, warm);
    loop {
        if Instant::now() >= end {
            break;
        }
        let count = match stream.read(&mut block) {
            Ok(0) => break,
            Ok(count) => count as u64,
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {
                continue;
            }
            Err(error) if total > 0 && is_gone(&error) => break,
            Err(error) => return Err(error),
        };
        total += count;
        until = Instant::now();
        if from.is_some() {
            counted += count;
        } else if until >= warm {
            // Counted from the end of a read, so that bytes and time begin together.
            from = Some(until);
        }
    }
    // Silence at the end belongs to the time: a stream that stops is slow, not short.
    let silent = end.saturating_duration_since(until) > measure / 4;
    let until = if silent { end } else { until };
    Ok(Received {
        bytes: if total < NOTHING { 0 } else { counted },
        time: from.map_or(measure, |from| until.saturating_duration_since(from)),
    })
}

/// Sends until the other side closes, or for `measure` and its warm-up and then `patience`.
///
/// Looks for the close itself whenever there is no room for long: where no large packet gets through, no
/// write would ever fail.
pub fn send(mut stream: &TcpStream, measure: Duration, patience: Duration) -> io::Result<()> {
    let block = vec![0x5a; BLOCK];
    let limit = Limit::after(measure + measure / 4 + patience);
    stream.set_write_timeout(Some(SLICE))?;
    while !limit.is_over() {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {
                // The receiver sends nothing, so that all that can be read is its close.
                if wait(
                    stream.as_fd(),
                    PollFlags::POLLIN,
                    Limit::after(Duration::from_millis(1)),
                )
                .is_ok()
                {
                    break;
                }
            }
            Err(error) if is_gone(&error) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What both sides of a measurement know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session<'a> {
    pub(super) binding: &'a Binding,
    pub(super) listener: &'a TcpListener,
    pub(super) token: &'a str,
    pub(super) measure: Duration,
    pub(super) patience: Duration,
}

impl Session<'_> {
    /// One side of a pair: the one that connects `to` the other, or the one that is connected to.
    pub(super) fn pair(&self, to: Option<SocketAddr>, id: u64) -> Side {
        let mut side = Side::default();
        let done = match to {
            Some(address) => self.connect_side(address, id, &mut side),
            None => self.accept_side(id, &mut side),
        };
        side.trouble = done.err().map(|error| error.sentence());
        side
    }

    fn connect_side(&self, address: SocketAddr, id: u64, side: &mut Side) -> Result<(), PathError> {
        let stream = self.open(address, id, Purpose::Forward)?;
        side.round_trip_micros = Some(self.round_trips(&stream)?);
        self.send(&stream, side)?;
        drop(stream);
        let stream = self.open(address, id, Purpose::Backward)?;
        self.count(&stream, side)
    }

    fn accept_side(&self, id: u64, side: &mut Side) -> Result<(), PathError> {
        let stream = self.accept(id, Purpose::Forward, self.patience)?;
        self.echo(&stream)?;
        self.count(&stream, side)?;
        drop(stream);
        let wait = self.measure + self.patience;
        let stream = self.accept(id, Purpose::Backward, wait)?;
        self.send(&stream, side)
    }

    fn send(&self, stream: &TcpStream, side: &mut Side) -> Result<(), PathError> {
        let before = segments();
        send(stream, self.measure, self.patience).map_err(PathError::Send)?;
        side.sent_again = sent_again(before, segments());
        Ok(())
    }

    fn count(&self, stream: &TcpStream, side: &mut Side) -> Result<(), PathError> {
        let received = receive(stream, self.measure).map_err(PathError::Receive)?;
        side.rate = Some(received.rate());
        side.stalled = received.bytes == 0;
        Ok(())
    }

    /// A connection to `address` that the other side has taken.
    pub(super) fn open(
        &self,
        address: SocketAddr,
        id: u64,
        purpose: Purpose,
    ) -> Result<TcpStream, PathError> {
        let limit = Limit::after(self.patience);
        let stream = self
            .binding
            .connect(address, limit)
            .map_err(PathError::Connect)?;
        let opening = Opening {
            token: self.token.to_owned(),
            id,
            purpose,
        };
        frame::write(&stream, &opening, limit).map_err(PathError::Connect)?;
        let mut taken = [0];
        // The other side may still be busy with the stream before this one.
        let limit = Limit::after(self.measure + self.patience);
        frame::read_exact(&stream, &mut taken, limit).map_err(PathError::FirstByte)?;
        Ok(stream)
    }

    /// The connection that belongs to this measurement. Others, such as late ones of an earlier
    /// measurement, are closed.
    pub(super) fn accept(
        &self,
        id: u64,
        purpose: Purpose,
        wait: Duration,
    ) -> Result<TcpStream, PathError> {
        let limit = Limit::after(wait);
        loop {
            let (stream, _) = accept(self.listener, limit).map_err(PathError::Accept)?;
            let opening = frame::read(&stream, LARGEST_HELLO, limit.within(self.patience));
            let Ok(Opening {
                token,
                id: other,
                purpose: wanted,
            }) = opening
            else {
                continue;
            };
            if same_token(self.token, &token) && (other, wanted) == (id, purpose) {
                frame::write_all(&stream, &[1], limit).map_err(PathError::Accept)?;
                return Ok(stream);
            }
        }
    }

    fn round_trips(&self, stream: &TcpStream) -> Result<u64, PathError> {
        let limit = Limit::after(self.patience);
        let mut message = [0x5a; SMALL];
        let mut times = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let start = Instant::now();
            frame::write_all(stream, &message, limit).map_err(PathError::SendSmall)?;
            frame::read_exact(stream, &mut message, limit).map_err(PathError::SendSmall)?;
            times.push(start.elapsed());
        }
        times.sort();
        let median = times.get(ROUND_TRIPS / 2).copied().unwrap_or_default();
        Ok(u64::try_from(median.as_micros()).unwrap_or(u64::MAX))
    }

    fn echo(&self, stream: &TcpStream) -> Result<(), PathError> {
        let limit = Limit::after(self.patience);
        let mut message = [0; SMALL];
        for _ in 0..ROUND_TRIPS {
            frame::read_exact(stream, &mut message, limit).map_err(PathError::AnswerSmall)?;
            frame::write_all(stream, &message, limit).map_err(PathError::AnswerSmall)?;
        }
        Ok(())
    }
}

/// Segments sent and sent again in this network namespace. Ours are nearly all of them in a pod; on a
/// host's network others only make the part smaller.
fn segments() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/net/snmp").ok()?;
    counters(&text)
}

fn counters(text: &str) -> Option<(u64, u64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| {
        let mut columns = names.split(' ').zip(values.split(' '));
        columns.find(|(name, _)| *name == wanted)?.1.parse().ok()
    };
    Some((value("OutSegs")?, value("RetransSegs")?))
}

/// The part that was sent again; none of so few segments that one would be many.
#[expect(clippy::cast_precision_loss, reason = "a part, not a count")]
fn sent_again(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Option<f64> {
    let ((sent, again), (sent_after, again_after)) = (before?, after?);
    let again = again_after.checked_sub(again)?;
    // Segments that are sent again are counted apart from those sent.
    let all = sent_after.checked_sub(sent)? + again;
    (all >= 50).then(|| again as f64 / all as f64)
}

/// Whether the other side has closed, by any of the kernel's error codes for it.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: 200 1000 7 0\nUdp: x\n";
        assert_eq!(counters(text), Some((1000, 7)));
        assert_eq!(counters("Tcp: OutSegs\n"), None);
        assert_eq!(sent_again(Some((0, 0)), Some((900, 100))), Some(0.1));
        assert_eq!(sent_again(Some((0, 0)), Some((10, 10))), None);
        assert_eq!(sent_again(Some((10, 0)), Some((0, 0))), None);
    }
}
