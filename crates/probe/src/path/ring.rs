//! One part of an all-reduce around a ring, over TCP, with every sum checked.
//!
//! What each rank holds and what the sums must be is `core::probe::ring`.

use std::{
    io,
    net::TcpStream,
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant},
};

use trainyard_core::probe::ring;

use super::{
    error::PathError,
    frame,
    limit::Limit,
    message::{Part, Purpose, RingPart, Ringed},
    stream::Session,
};

/// Bytes that are read before they are added.
const BLOCK: usize = 64 << 10;

/// Takes part in a ring.
pub(super) fn take_part(session: &Session<'_>, part: &Part, own: &RingPart) -> Ringed {
    match reduce(session, part, own) {
        Ok((time, right)) => Ringed {
            micros: u64::try_from(time.as_micros()).ok(),
            right,
            trouble: None,
        },
        Err(error) => Ringed {
            trouble: Some(error.sentence()),
            ..Ringed::default()
        },
    }
}

fn reduce(
    session: &Session<'_>,
    part: &Part,
    own: &RingPart,
) -> Result<(Duration, bool), PathError> {
    let limit = Limit::after(part.limit);
    // A side that connects waits until the other accepts, so each does both at once.
    let (next, previous) = thread::scope(|scope| {
        let next = scope.spawn(|| session.open(own.next, part.id, Purpose::Ring));
        let previous = session.accept(part.id, Purpose::Ring, session.patience);
        let next = next
            .join()
            .unwrap_or_else(|_| Err(PathError::ConnectPanicked));
        (next, previous)
    });
    let (next, previous) = (next?, previous?);
    let mut best = Duration::MAX;
    let mut right = true;
    for _ in 0..own.repeats.max(1) {
        let mut words = ring::contribution(own.rank, own.bytes / 8);
        let start = Instant::now();
        once(&next, &previous, own, &mut words, limit).map_err(PathError::Ring)?;
        best = best.min(start.elapsed());
        right &= ring::is_sum(&words, own.size);
    }
    Ok((best, right))
}

/// Reduces and gathers: in each step one chunk goes to the next and another comes from the previous.
fn once(
    next: &TcpStream,
    previous: &TcpStream,
    part: &RingPart,
    words: &mut [u64],
    limit: Limit,
) -> io::Result<()> {
    thread::scope(|scope| {
        let (outgoing, chunks) = sync_channel::<Vec<u8>>(1);
        let sender = scope.spawn(move || -> io::Result<()> {
            for chunk in chunks {
                frame::write_all(next, &chunk, limit)?;
            }
            Ok(())
        });
        let mut outcome = Ok(());
        for step in ring::steps(part.rank, part.size) {
            let range = ring::chunk(step.sends, part.size, words.len());
            let bytes = words.get(range).unwrap_or_default().iter();
            let bytes: Vec<u8> = bytes.flat_map(|word| word.to_le_bytes()).collect();
            if outgoing.send(bytes).is_err() {
                break;
            }
            let range = ring::chunk(step.receives, part.size, words.len());
            let target = words.get_mut(range).unwrap_or_default();
            outcome = take_chunk(previous, target, step.adds, limit);
            if outcome.is_err() {
                break;
            }
        }
        drop(outgoing);
        let sent = sender
            .join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        outcome.and(sent)
    })
}

fn take_chunk(
    previous: &TcpStream,
    target: &mut [u64],
    adds: bool,
    limit: Limit,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    for words in target.chunks_mut(BLOCK / 8) {
        let bytes = block.get_mut(..words.len() * 8).unwrap_or_default();
        frame::read_exact(previous, bytes, limit)?;
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            let came = u64::from_le_bytes(*bytes);
            *word = if adds { word.wrapping_add(came) } else { came };
        }
    }
    Ok(())
}
