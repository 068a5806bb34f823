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

use trainyard_core::checkpoint::{Layout, header};

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

    /// Writes the header of a file of a rank to the start of the arena; where each tensor goes follows from it.
    ///
    /// Fails where the layout is not one of that rank, or where the file does not fit.
    pub fn lay_out(&self, layout: &Layout, at: &[u32], file: u32) -> io::Result<Place> {
        let refuse = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let header = header(layout, at, file).map_err(refuse)?;
        let data = header.len() as u64;
        let own = layout
            .tensors
            .iter()
            .filter(|entry| entry.shared.is_none() && entry.file == file);
        let ends = own.map(|entry| {
            entry
                .start
                .saturating_add(entry.bytes().unwrap_or(u64::MAX))
        });
        let size = data.saturating_add(ends.max().unwrap_or(0));
        if size > self.size {
            return Err(refuse(format!(
                "the file needs {size} bytes, and the arena has {}",
                self.size
            )));
        }
        self.write_at(0, &header)?;
        Ok(Place { data, size })
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

/// Where a file image is in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where tensors begin: each goes to this plus the `start` of its entry.
    pub data: u64,
    /// The size of the image.
    pub size: u64,
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
    use trainyard_core::checkpoint::{Dtype, Entry};

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
    fn file_image_in_an_arena() {
        let layout = Layout {
            version: 1,
            mesh: Vec::new(),
            tensors: vec![
                Entry::whole("w", Dtype::F32, vec![4], 0),
                Entry::whole("b", Dtype::F32, vec![2], 16),
            ],
            other: serde_json::Map::new(),
        };
        let arena = Arena::create(5000).unwrap();
        let place = arena.lay_out(&layout, &[], 0).unwrap();
        assert_eq!((place.data, place.size), (4096, 4096 + 24));
        arena.write_at(place.data + 16, &[7; 8]).unwrap();
        let image = arena.image(place.size).unwrap();
        let mut bytes = vec![0; 4120];
        image.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes[..8], 4088_u64.to_le_bytes());
        assert_eq!(bytes[4112..], [7; 8]);
        let small = Arena::create(4100).unwrap();
        let refused = small.lay_out(&layout, &[], 0).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the file needs 4120 bytes, and the arena has 4100"
        );
        assert!(arena.lay_out(&layout, &[1], 0).is_err());
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
