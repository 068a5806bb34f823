//! How a file gets its final name: written under another name, made durable, then published exclusively.
//!
//! A storage may answer an error for a publish that it carried out. So an error is followed by a look at the final name, and
//! the contents decide: the same bytes are a success, whoever wrote them.

#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use trainyard_core::checkpoint::{Crc32c, StepFile};

use crate::{
    buffer::{Aligned, BLOCK},
    clock::Clock,
    storage::{Input, Output, Storage, folder_of, read_small},
};

/// The part of a name that says that a file is not finished.
const UNFINISHED: &str = ".tmp-";

/// How often a name is looked up that is taken and not found, and the first pause between two lookups; about 5 s in all.
const LOOKUPS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The final name of a file that was never finished, so that nothing refers to it. Whether that name is ours is for the caller to check:
/// any other file with `.tmp-` in its name is foreign.
pub(crate) fn unfinished_base(name: &str) -> Option<&str> {
    let (base, token) = name.rsplit_once(UNFINISHED)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (token.len() == 16 && token.bytes().all(is_digit)).then_some(base)
}

/// Whether a file of a step folder, by its name relative to that folder, was never finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    unfinished_base(name).is_some_and(|base| base.parse::<StepFile>().is_ok())
}

/// A name for the time until the file is published.
pub(crate) fn unfinished(name: &str, token: u64) -> String {
    format!("{name}{UNFINISHED}{token:016x}")
}

/// What became of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// The name has these bytes.
    Done,
    /// Somebody published other bytes under this name before.
    Other(Vec<u8>),
}

/// Publishes a small file, durably.
pub(crate) fn publish(
    storage: &dyn Storage,
    clock: &dyn Clock,
    name: &str,
    bytes: &[u8],
    token: u64,
) -> io::Result<Published> {
    let temporary = unfinished(name, token);
    if let Err(error) = write_small(storage, &temporary, bytes) {
        drop(storage.remove(&temporary));
        return Err(error);
    }
    let published = match storage.publish(&temporary, name) {
        Ok(()) => Published::Done,
        Err(error) => {
            // Whatever the final name has: of a thousand ranks that publish the same bytes, all but one come here.
            drop(storage.remove(&temporary));
            read_back(storage, clock, name, bytes, error)?
        }
    };
    if published == Published::Done {
        storage.sync_folder(folder_of(name))?;
    }
    Ok(published)
}

fn write_small(storage: &dyn Storage, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = storage.create(name)?;
    file.write_at(0, bytes)?;
    file.sync()
}

/// What the final name has after a publish answered an error.
///
/// A name that exists may not be found for a while: network file systems cache that it was missing. And a storage that cannot
/// publish at once shows the first bytes before the others. So a name that is taken is looked up again, with pauses, at most
/// [`LOOKUPS`] times.
fn read_back(
    storage: &dyn Storage,
    clock: &dyn Clock,
    name: &str,
    bytes: &[u8],
    error: io::Error,
) -> io::Result<Published> {
    let limit = (bytes.len() as u64).saturating_mul(4).max(1 << 20);
    let mut pause = FIRST_PAUSE;
    for _ in 0..LOOKUPS {
        match read_small(storage, name, limit) {
            Ok(found) if found == bytes => return Ok(Published::Done),
            Ok(found) if !bytes.starts_with(&found) => return Ok(Published::Other(found)),
            _ if error.kind() == io::ErrorKind::AlreadyExists => {
                clock.wait(pause);
                pause *= 2;
            }
            _ => break,
        }
    }
    Err(error)
}

/// Writes a large file chunk by chunk, computes the checksum of each chunk on the way, and makes it durable.
///
/// `may_continue` is asked before every chunk; a save whose deadline has passed ends there.
pub(crate) fn write_chunks(
    storage: &dyn Storage,
    name: &str,
    source: &dyn Input,
    chunk_bytes: usize,
    may_continue: &(dyn Fn() -> io::Result<()> + Sync),
) -> io::Result<Vec<Crc32c>> {
    let size = source.size()?;
    let file = storage.create(name)?;
    file.reserve(size)?;
    let chunks = size.div_ceil(chunk_bytes as u64);
    let work = Work {
        file: &*file,
        source,
        size,
        chunk_bytes,
        next: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
        chunks,
        may_continue,
    };
    let threads = storage
        .writers()
        .min(usize::try_from(chunks).unwrap_or(usize::MAX));
    let mut sums = if threads < 2 {
        work.run()?
    } else {
        let gathered = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        let part = work.run()?;
                        let mut all = gathered.lock().unwrap_or_else(PoisonError::into_inner);
                        all.extend(part);
                        Ok(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| {
                let ended: io::Result<()> = worker
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a writing thread panicked")));
                ended
            })
        })?;
        gathered
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    };
    file.sync()?;
    sums.sort_unstable_by_key(|(chunk, _)| *chunk);
    Ok(sums.into_iter().map(|(_, sum)| sum).collect())
}

/// What the threads of one file share.
struct Work<'a> {
    file: &'a dyn Output,
    source: &'a dyn Input,
    size: u64,
    chunk_bytes: usize,
    next: AtomicU64,
    /// A thread failed: the others need not finish a file that is removed.
    has_failed: AtomicBool,
    chunks: u64,
    may_continue: &'a (dyn Fn() -> io::Result<()> + Sync),
}

impl Work<'_> {
    /// Takes chunk after chunk until none is left or a thread has failed.
    fn run(&self) -> io::Result<Vec<(u64, Crc32c)>> {
        let ended = self.write();
        if ended.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        ended
    }

    fn write(&self) -> io::Result<Vec<(u64, Crc32c)>> {
        let largest = self.size.min(self.chunk_bytes as u64);
        let largest = usize::try_from(largest).unwrap_or(self.chunk_bytes);
        let mut buffer = Aligned::new(largest.next_multiple_of(BLOCK));
        let mut sums = Vec::new();
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks || self.has_failed.load(Ordering::Relaxed) {
                return Ok(sums);
            }
            (self.may_continue)()?;
            let offset = chunk * self.chunk_bytes as u64;
            let length = (self.size - offset).min(self.chunk_bytes as u64);
            let part = &mut buffer[..usize::try_from(length).unwrap_or(0)];
            self.source.read_at(offset, part)?;
            sums.push((chunk, Crc32c::of(part)));
            self.file.write_at(offset, part)?;
        }
    }
}
