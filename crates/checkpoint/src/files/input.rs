//! A file that is read past the page cache where its bytes are not in it.
//!
//! A cold file comes faster from the disk itself, without a copy through memory that training needs; a warm one comes faster from
//! memory. Which it is shows a read that must not wait.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSliceMut},
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    sync::OnceLock,
};

use rustix::{
    fs::OFlags,
    io::{ReadWriteFlags, preadv2},
};

use crate::{
    buffer::{BLOCK, is_aligned},
    storage::Input,
};

/// Shorter reads go through the page cache: manifests and headers.
const SHORTEST: usize = 1 << 20;

/// A file, and the same one past the page cache once a long read needs it.
#[derive(Debug)]
pub(super) struct DirectInput {
    plain: File,
    direct: OnceLock<Option<File>>,
}

impl DirectInput {
    pub(super) fn new(plain: File) -> Self {
        Self {
            plain,
            direct: OnceLock::new(),
        }
    }

    /// The descriptor past the page cache, for a read that can use it.
    fn direct(&self, offset: u64, buffer: &mut [u8]) -> Option<&File> {
        let fits = buffer.len() >= SHORTEST
            && offset.is_multiple_of(BLOCK as u64)
            && is_aligned(buffer)
            && !self.is_warm(offset, buffer);
        if !fits {
            return None;
        }
        self.direct
            .get_or_init(|| {
                // Through the open descriptor and not by its name: the same file, whatever the name means by now.
                OpenOptions::new()
                    .read(true)
                    .custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0))
                    .open(format!("/proc/self/fd/{}", self.plain.as_raw_fd()))
                    .ok()
            })
            .as_ref()
    }

    /// Whether the first block can be read without waiting for the disk.
    fn is_warm(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let mut first = [IoSliceMut::new(&mut buffer[..BLOCK])];
        preadv2(&self.plain, &mut first, offset, ReadWriteFlags::NOWAIT).is_ok_and(|read| read > 0)
    }
}

impl Input for DirectInput {
    fn size(&self) -> io::Result<u64> {
        Ok(self.plain.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(direct) = self.direct(offset, buffer) else {
            return self.plain.read_exact_at(buffer, offset);
        };
        let (blocks, rest) = buffer.split_at_mut(buffer.len() / BLOCK * BLOCK);
        match direct.read_exact_at(blocks, offset) {
            // Not every file system that opens a file this way reads it this way.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.plain.read_exact_at(blocks, offset)?;
            }
            other => other?,
        }
        self.plain.read_exact_at(rest, offset + blocks.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::buffer::Aligned;

    #[test]
    fn cold_and_warm_reads_give_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..5_000_001_usize)
            .map(|at| u8::try_from(at % 253).unwrap())
            .collect();
        std::fs::write(&path, &bytes).unwrap();
        let plain = File::open(&path).unwrap();
        plain.sync_all().unwrap();
        let input = DirectInput::new(plain);
        assert_eq!(input.size().unwrap(), 5_000_001);
        for offset in [0, 4_096, 5_000_001 - (2 << 20), 3_000_000] {
            fadvise(&input.plain, 0, None, Advice::DontNeed).unwrap();
            for _ in ["cold", "warm"] {
                let left = 5_000_001 - offset;
                let mut buffer = Aligned::new(left.min(3 << 20));
                input.read_at(offset as u64, &mut buffer).unwrap();
                assert!(
                    buffer[..] == bytes[offset..offset + buffer.len()],
                    "{offset}"
                );
            }
        }
        let mut buffer = Aligned::new(2 << 20);
        let past = input.read_at(4_096 * 1_000, &mut buffer).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    }
}
