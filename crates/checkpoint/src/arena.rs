//! The memory that a rank's state is copied into before it is written.
//!
//! An arena is a `memfd`: the engine creates and sizes it, the framework maps it and copies tensors into it, and the engine reads
//! it back by descriptor. No pointer crosses, so neither side needs `unsafe`. Its size is fixed and sealed: nobody can
//! truncate it under a mapping. It counts against the memory limit of the pod and never against `/dev/shm`.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt as _,
    },
};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use crate::storage::Input;

/// Memory of a fixed size behind a descriptor.
#[derive(Debug)]
pub struct Arena {
    file: File,
    size: u64,
}

impl Arena {
    /// Reserves memory; fails at once where there is not enough, and not at the first save.
    pub fn create(size: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("trainyard-checkpoint", flags)?;
        rustix::fs::ftruncate(&memory, size)?;
        if size > 0 {
            rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, size)?;
        }
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        Ok(Self {
            file: File::from(memory),
            size,
        })
    }

    /// Its size in bytes.
    pub fn capacity(&self) -> u64 {
        self.size
    }

    /// Copies bytes into it, for state that does not come through a mapping.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{} bytes at {offset} do not fit into an arena of {} bytes",
                    bytes.len(),
                    self.size
                ),
            ));
        }
        self.file.write_all_at(bytes, offset)
    }

    /// The first `size` bytes as the source of a save; shares the memory.
    pub fn image(&self, size: u64) -> io::Result<ArenaImage> {
        if size > self.size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "an image of {size} bytes does not fit into an arena of {} bytes",
                    self.size
                ),
            ));
        }
        Ok(ArenaImage {
            file: self.file.try_clone()?,
            size,
        })
    }
}

impl AsFd for Arena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The file image at the start of an arena.
#[derive(Debug)]
pub struct ArenaImage {
    file: File,
    size: u64,
}

impl Input for ArenaImage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arena_is_read_by_descriptor() {
        let arena = Arena::create(10_000).unwrap();
        arena.write_at(0, b"head").unwrap();
        arena.write_at(9_996, b"tail").unwrap();
        let image = arena.image(10_000).unwrap();
        let mut read = [0; 4];
        image.read_at(9_996, &mut read).unwrap();
        assert_eq!(&read, b"tail");
        assert_eq!(image.size().unwrap(), 10_000);
        assert!(image.read_at(9_997, &mut read).is_err());
    }

    #[test]
    fn arena_keeps_its_size() {
        let arena = Arena::create(4096).unwrap();
        assert!(rustix::fs::ftruncate(arena.as_fd(), 0).is_err());
        assert!(arena.write_at(4095, b"xy").is_err());
        assert!(arena.write_at(u64::MAX, b"xy").is_err());
        assert!(arena.image(4097).is_err());
    }
}
