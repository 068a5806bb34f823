//! Data files, chunk by chunk: only bytes whose checksum is right are handed on.
//!
//! Several threads read, check and hand on, each a chunk of its own. So the disk is busy while another chunk is checked or copied.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use trainyard_core::checkpoint::{Crc32c, PieceFile};

use crate::{
    buffer::{Aligned, BLOCK},
    storage::{Input, Storage},
};

/// Why a file is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFile {
    /// It cannot be read.
    #[error("`{name}`: {why}")]
    Unreadable {
        /// Its name.
        name: String,
        /// The answer of the storage.
        why: String,
    },
    /// It has another size.
    #[error("`{name}` has {found} bytes, {wanted} were written")]
    Size {
        /// Its name.
        name: String,
        /// Its size.
        found: u64,
        /// The size that was written.
        wanted: u64,
    },
    /// Bytes of a chunk changed.
    #[error("`{name}` is damaged in chunk {chunk} (bytes {start} to {end})")]
    Chunk {
        /// Its name.
        name: String,
        /// Which chunk, from 0.
        chunk: u64,
        /// Its first byte.
        start: u64,
        /// Its last byte.
        end: u64,
    },
}

/// Why a file was not read to its end.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The file.
    Bad(BadFile),
    /// The taker of the bytes.
    Put(io::Error),
}

/// Takes the bytes at an offset of the file. Chunks come in any order and from several threads.
pub(crate) type Put<'a> = dyn Fn(u64, &[u8]) -> io::Result<()> + Sync + 'a;

/// Reads a whole file.
pub(crate) fn read_file(
    storage: &dyn Storage,
    name: &str,
    written: &PieceFile,
    chunk_bytes: u64,
    put: &Put<'_>,
) -> Result<(), ReadError> {
    let all: Vec<u64> = (0..written.chunks.len() as u64).collect();
    read_chunks(storage, name, written, chunk_bytes, &all, put)
}

/// Reads some chunks of a file, by their numbers.
pub(crate) fn read_chunks(
    storage: &dyn Storage,
    name: &str,
    written: &PieceFile,
    chunk_bytes: u64,
    chunks: &[u64],
    put: &Put<'_>,
) -> Result<(), ReadError> {
    let unreadable = |error: io::Error| {
        ReadError::Bad(BadFile::Unreadable {
            name: name.to_owned(),
            why: error.to_string(),
        })
    };
    let file = storage.open(name).map_err(unreadable)?;
    let found = file.size().map_err(unreadable)?;
    if found != written.bytes {
        return Err(ReadError::Bad(BadFile::Size {
            name: name.to_owned(),
            found,
            wanted: written.bytes,
        }));
    }
    let work = Work {
        name,
        file: &*file,
        written,
        chunk_bytes,
        chunks,
        next: AtomicUsize::new(0),
        put,
    };
    work.run_all(storage.readers().min(chunks.len()))
}

/// How many bytes of a file were read, and whether they are those that were written.
pub(crate) fn check_file(
    storage: &dyn Storage,
    name: &str,
    written: &PieceFile,
    chunk_bytes: u64,
) -> (u64, Result<(), BadFile>) {
    let bytes = AtomicU64::new(0);
    let read = read_file(storage, name, written, chunk_bytes, &|_, part| {
        bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        Ok(())
    });
    let mut bytes = bytes.into_inner();
    match read {
        Err(ReadError::Bad(bad)) => {
            if let BadFile::Chunk { start, end, .. } = &bad {
                bytes += end.saturating_add(1).saturating_sub(*start);
            }
            (bytes, Err(bad))
        }
        // Nobody refuses bytes here.
        Err(ReadError::Put(_)) | Ok(()) => (bytes, Ok(())),
    }
}

/// What the threads of one file share.
struct Work<'a> {
    name: &'a str,
    file: &'a dyn Input,
    written: &'a PieceFile,
    chunk_bytes: u64,
    chunks: &'a [u64],
    /// The next place in `chunks`.
    next: AtomicUsize,
    put: &'a Put<'a>,
}

impl Work<'_> {
    fn run_all(&self, threads: usize) -> Result<(), ReadError> {
        if threads < 2 {
            return self.run();
        }
        let failure = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    if let Err(error) = self.run() {
                        // The others end with the chunk that they have.
                        self.next.store(self.chunks.len(), Ordering::Relaxed);
                        let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert(error);
                    }
                });
            }
        });
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), Err)
    }

    /// Takes chunk after chunk until none is left.
    fn run(&self) -> Result<(), ReadError> {
        let largest = self.written.bytes.min(self.chunk_bytes);
        let largest = usize::try_from(largest).unwrap_or(0);
        let mut buffer = Aligned::new(largest.next_multiple_of(BLOCK));
        loop {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = self.chunks.get(place).copied() else {
                return Ok(());
            };
            let start = chunk.saturating_mul(self.chunk_bytes);
            let length = self.written.bytes.saturating_sub(start);
            let length = length.min(self.chunk_bytes);
            let part = &mut buffer[..usize::try_from(length).unwrap_or(0)];
            self.check(chunk, start, part).map_err(ReadError::Bad)?;
            (self.put)(start, part).map_err(ReadError::Put)?;
        }
    }

    /// Reads a chunk and compares its checksum.
    fn check(&self, chunk: u64, start: u64, part: &mut [u8]) -> Result<(), BadFile> {
        self.file
            .read_at(start, part)
            .map_err(|error| BadFile::Unreadable {
                name: self.name.to_owned(),
                why: error.to_string(),
            })?;
        let place = usize::try_from(chunk).unwrap_or(usize::MAX);
        if self.written.chunks.get(place) == Some(&Crc32c::of(part)) {
            return Ok(());
        }
        Err(BadFile::Chunk {
            name: self.name.to_owned(),
            chunk,
            start,
            end: start.saturating_add((part.len() as u64).saturating_sub(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use super::*;
    use crate::Files;

    const CHUNK: u64 = 8_192;

    fn written(bytes: &[u8]) -> PieceFile {
        PieceFile {
            bytes: bytes.len() as u64,
            data: 8,
            chunks: bytes
                .chunks(usize::try_from(CHUNK).unwrap())
                .map(Crc32c::of)
                .collect(),
        }
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| u8::try_from(at * 7 % 251).unwrap())
            .collect()
    }

    fn read(
        root: &Path,
        file: &PieceFile,
        chunks: &[u64],
    ) -> Result<BTreeMap<u64, Vec<u8>>, ReadError> {
        let files = Files::existing(root).unwrap();
        assert!(files.readers() > 1);
        let parts = Mutex::new(BTreeMap::new());
        read_chunks(&files, "file", file, CHUNK, chunks, &|offset, bytes| {
            let before = parts.lock().unwrap().insert(offset, bytes.to_vec());
            assert_eq!(before, None, "a chunk is read once");
            Ok(())
        })?;
        Ok(parts.into_inner().unwrap())
    }

    #[test]
    fn threads_read_every_chunk_once() {
        let folder = tempfile::tempdir().unwrap();
        for length in [1, 4_096, 8_192, 8_193, 100_000, 300_001] {
            let bytes = content(length);
            fs::write(folder.path().join("file"), &bytes).unwrap();
            let file = written(&bytes);
            let all: Vec<u64> = (0..file.chunks.len() as u64).collect();
            let parts = read(folder.path(), &file, &all).unwrap();
            let joined: Vec<u8> = parts.into_values().flatten().collect();
            assert!(joined == bytes, "{length}");
        }
    }

    #[test]
    fn some_chunks_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = content(100_000);
        fs::write(folder.path().join("file"), &bytes).unwrap();
        let parts = read(folder.path(), &written(&bytes), &[1, 12]).unwrap();
        assert_eq!(parts.keys().copied().collect::<Vec<_>>(), [8_192, 98_304]);
        assert_eq!(parts[&98_304], bytes[98_304..]);
    }

    #[test]
    fn damage_ends_all_threads() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = content(300_000);
        let file = written(&bytes);
        bytes[20_000] ^= 1;
        fs::write(folder.path().join("file"), &bytes).unwrap();
        let all: Vec<u64> = (0..file.chunks.len() as u64).collect();
        let Err(ReadError::Bad(bad)) = read(folder.path(), &file, &all) else {
            panic!("the damage was not found");
        };
        assert_eq!(
            bad.to_string(),
            "`file` is damaged in chunk 2 (bytes 16384 to 24575)"
        );
        // A chunk that the file does not have, and a taker that fails.
        assert!(read(folder.path(), &file, &[0, 1, 99]).is_err());
        let files = Files::existing(folder.path()).unwrap();
        let refused = read_file(&files, "file", &file, CHUNK, &|_, _| {
            Err(io::Error::other("no room"))
        });
        assert!(matches!(refused, Err(ReadError::Put(_))), "{refused:?}");
    }
}
