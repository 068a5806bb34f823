//! The end of a long log: a file of fixed size that is written round and round.
//!
//! Writing over pages that the kernel already holds costs a tenth of writing new ones, and a rank
//! that floods its log wears out no disk. Once the container has ended the ring is laid out as a
//! plain file; one whose writer was killed is read as it is.
//!
//! Invariant: whatever moment the writer is killed at, the last [`KEPT_BYTES`] that the header
//! describes are in the ring.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::files;

/// How much of the end is always kept.
pub(crate) const KEPT_BYTES: u64 = RING_BYTES - MARGIN_BYTES;

const RING_BYTES: u64 = 16 << 20;
/// Written between two headers at most: this much of the oldest may be overwritten already.
const MARGIN_BYTES: u64 = 1 << 20;
/// A page, so that the data is aligned.
const HEADER_BYTES: u64 = 4 << 10;
const MAGIC: &[u8; 8] = b"TYRING1\n";

/// Writes the ring.
#[derive(Debug)]
pub(super) struct RingWriter {
    file: File,
    /// Where in the whole output the ring begins.
    begin: u64,
    /// Where in the whole output it ends.
    end: u64,
}

impl RingWriter {
    pub(super) fn create(path: &Path, begin: u64) -> io::Result<Self> {
        Ok(Self {
            file: files::create(path)?,
            begin,
            end: begin,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let margin = usize::try_from(MARGIN_BYTES).unwrap_or(usize::MAX);
        for piece in bytes.chunks(margin) {
            let place = self.end % RING_BYTES;
            let room = usize::try_from(RING_BYTES - place).unwrap_or(usize::MAX);
            let (now, around) = piece.split_at(piece.len().min(room));
            self.file.write_all_at(now, HEADER_BYTES + place)?;
            self.file.write_all_at(around, HEADER_BYTES)?;
            self.end += piece.len() as u64;
            self.file.write_all_at(&self.header(), 0)?;
        }
        Ok(())
    }

    /// What is kept, and where in the whole output it begins.
    pub(super) fn kept(&self) -> io::Result<Kept> {
        kept(&self.file)
    }

    fn header(&self) -> [u8; 24] {
        let mut header = [0; 24];
        for (place, part) in
            header
                .chunks_mut(8)
                .zip([*MAGIC, self.begin.to_le_bytes(), self.end.to_le_bytes()])
        {
            place.copy_from_slice(&part);
        }
        header
    }
}

/// What a ring holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// Reads the ring at `path`, which may be written at the same time.
pub(super) fn read(path: &Path) -> io::Result<Kept> {
    kept(&files::open(path)?)
}

fn kept(file: &File) -> io::Result<Kept> {
    let Some((begin, end)) = range(file)? else {
        return Ok(Kept::default());
    };
    let from = begin.max(end.saturating_sub(KEPT_BYTES));
    let length = usize::try_from(end - from).unwrap_or(usize::MAX);
    let place = from % RING_BYTES;
    let room = usize::try_from(RING_BYTES - place).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    let (first, around) = bytes.split_at_mut(length.min(room));
    file.read_exact_at(first, HEADER_BYTES + place)?;
    file.read_exact_at(around, HEADER_BYTES)?;
    // What the writer has overwritten meanwhile is not what it was.
    let end = range(file)?.map_or(end, |(_, end)| end);
    let offset = from.max(end.saturating_sub(KEPT_BYTES));
    let stale = usize::try_from(offset - from).unwrap_or(usize::MAX);
    bytes.drain(..stale.min(length));
    Ok(Kept { offset, bytes })
}

/// What of the whole output an open ring keeps; `None` before anything was written to it.
pub(super) fn kept_range(file: &File) -> io::Result<Option<(u64, u64)>> {
    let range = range(file)?;
    Ok(range.map(|(begin, end)| (begin.max(end.saturating_sub(KEPT_BYTES)), end)))
}

/// Reads what lies at `offset` of the whole output; 0 where the writer has overwritten it, or not written it yet.
pub(super) fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let place = offset % RING_BYTES;
    let room = usize::try_from(RING_BYTES - place).unwrap_or(usize::MAX);
    let most = buffer.len().min(room);
    let count = match buffer.get_mut(..most) {
        Some(buffer) => file.read_at(buffer, HEADER_BYTES + place)?,
        None => 0,
    };
    let kept = kept_range(file)?;
    let is_kept = kept.is_some_and(|(from, end)| from <= offset && offset < end);
    Ok(if is_kept { count } else { 0 })
}

/// The range in the header; `None` before the first was written.
fn range(file: &File) -> io::Result<Option<(u64, u64)>> {
    let mut header = [0; 24];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let part = |at: usize| {
        header
            .as_chunks::<8>()
            .0
            .get(at)
            .copied()
            .unwrap_or_default()
    };
    let (magic, begin, end) = (
        part(0),
        u64::from_le_bytes(part(1)),
        u64::from_le_bytes(part(2)),
    );
    if magic == *MAGIC && begin <= end {
        Ok(Some((begin, end)))
    } else if header == [0; 24] {
        Ok(None)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not a log ring file",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_however_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        for (block, count) in [(1_000_003, 40), (4_096, 9), (3 << 20, 11), (100, 3)] {
            let mut ring = RingWriter::create(&path, 77).unwrap();
            let mut all = Vec::new();
            for number in 0..count {
                let bytes: Vec<u8> = (0..block)
                    .map(|at| u8::try_from((at * 7 + number) % 251).unwrap())
                    .collect();
                ring.write(&bytes).unwrap();
                all.extend(bytes);
            }
            let kept = read(&path).unwrap();
            assert_eq!(kept, ring.kept().unwrap());
            let expected = all.len().min(usize::try_from(KEPT_BYTES).unwrap());
            assert_eq!(kept.bytes, all[all.len() - expected..], "{block}");
            assert_eq!(kept.offset, 77 + (all.len() - expected) as u64);
        }
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        for (content, want) in [
            (b"".to_vec(), Ok(Kept::default())),
            (vec![0; 4_096], Ok(Kept::default())),
            (vec![b'x'; 4_096], Err(io::ErrorKind::InvalidData)),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read(&path).map_err(|error| error.kind()), want);
        }
        // A header with a larger range than the ring.
        let mut ring = RingWriter::create(&path, 0).unwrap();
        ring.write(b"hello").unwrap();
        ring.end = 5_000;
        ring.file.write_all_at(&ring.header(), 0).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
