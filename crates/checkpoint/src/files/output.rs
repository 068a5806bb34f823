//! A file that is written past the page cache where that is possible.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use rustix::{
    fs::{FallocateFlags, OFlags},
    io::Errno,
};

use crate::{
    buffer::{BLOCK, is_aligned},
    storage::Output,
};

/// Bytes that are written through the page cache between two syncs.
const WINDOW: u64 = 64 << 20;

/// Two descriptors of one file: whole blocks go past the page cache, the last partial block goes through it.
#[derive(Debug)]
pub(super) struct DirectOutput {
    plain: File,
    direct: Option<File>,
    /// The file system refused a direct write after all.
    refused: AtomicBool,
    /// Bytes written through the page cache since the last sync.
    dirty: AtomicU64,
}

impl DirectOutput {
    /// Creates a file that must not exist.
    pub(super) fn create(path: &Path, direct: bool) -> io::Result<Self> {
        let plain = File::create_new(path)?;
        let direct = if direct { open_direct(path).ok() } else { None };
        Ok(Self {
            plain,
            direct,
            refused: AtomicBool::new(false),
            dirty: AtomicU64::new(0),
        })
    }

    fn write_plain(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.plain.write_all_at(bytes, offset)?;
        let length = bytes.len() as u64;
        if self.dirty.fetch_add(length, Ordering::Relaxed) + length >= WINDOW {
            self.dirty.store(0, Ordering::Relaxed);
            self.plain.sync_data()?;
        }
        Ok(())
    }
}

/// Opens a file a second time, past the page cache.
pub(super) fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0))
        .open(path)
}

impl Output for DirectOutput {
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.plain, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // Not every file system can reserve; then a full disk shows at the write.
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => self.plain.set_len(bytes),
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let direct = self
            .direct
            .as_ref()
            .filter(|_| !self.refused.load(Ordering::Relaxed))
            .filter(|_| offset.is_multiple_of(BLOCK as u64) && is_aligned(bytes));
        let Some(direct) = direct else {
            return self.write_plain(offset, bytes);
        };
        let (blocks, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        match direct.write_all_at(blocks, offset) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.refused.store(true, Ordering::Relaxed);
                return self.write_plain(offset, bytes);
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        if rest.is_empty() {
            Ok(())
        } else {
            self.write_plain(offset + blocks.len() as u64, rest)
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync_data()
    }
}
