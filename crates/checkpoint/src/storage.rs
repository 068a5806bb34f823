//! What the engine needs of a place that keeps checkpoints.
//!
//! The trait is the lowest layer of the engine: [`crate::Files`] is a folder of this machine, `object::Objects` (with the feature
//! `object`) a prefix of a bucket, `faulty::Faulty` (in tests, and with the feature `faulty`) is memory that fails on purpose. Faults are injected below the engine's own code, so what is tested is what runs.
//!
//! Names are relative to the root of the storage, with `/` between folders, such as `steps/000000000007-a1-5f3c9e/COMMIT.json`.
//! A name is never used twice for different contents: caches of network file systems cannot serve an old file for a new one.

use std::{fmt, io, sync::Arc};

/// The storage of one root, shared by the threads of a process.
pub type Shared = Arc<dyn Storage>;

/// Most entries of one folder that are listed; a folder with more is refused.
pub const MAX_ENTRIES: usize = 1 << 20;

/// A place that keeps files.
///
/// Every call may fail although it was carried out (a server that repeats a lost request). Callers read back what they published.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Creates a folder; one that exists already is fine.
    fn make_folder(&self, name: &str) -> io::Result<()>;
    /// Creates a file that must not exist.
    fn create(&self, name: &str) -> io::Result<Box<dyn Output>>;
    /// Gives a finished file of the same folder its final name; fails with `AlreadyExists` where that name is taken.
    fn publish(&self, temporary: &str, name: &str) -> io::Result<()>;
    /// Renames a file within its folder and replaces what had that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, name: &str) -> io::Result<()>;
    /// Makes the entries of a folder durable.
    fn sync_folder(&self, name: &str) -> io::Result<()>;
    /// Opens a file for reading.
    fn open(&self, name: &str) -> io::Result<Box<dyn Input>>;
    /// Lists a folder in the order of names. The list may lag behind what others created.
    fn list(&self, name: &str) -> io::Result<Vec<Entry>>;
    /// Size and kind of a file or folder, not following links.
    fn stat(&self, name: &str) -> io::Result<Stat>;
    /// Bytes that can still be written.
    fn free(&self) -> io::Result<u64>;
    /// Ends uploads that were begun and never finished, where the storage has such; `is_left` decides by the final name of the file.
    /// How many were ended.
    fn end_uploads(&self, _is_left: &dyn Fn(&str) -> bool) -> io::Result<u64> {
        // A folder shows its unfinished files, and whoever removes a step removes them.
        Ok(0)
    }
    /// How many threads write one file at best.
    fn writers(&self) -> usize {
        1
    }
    /// How many threads read one file at best.
    fn readers(&self) -> usize {
        1
    }
}

/// A file that is being written.
pub trait Output: fmt::Debug + Send + Sync {
    /// Takes room for the whole file, so that a full disk is known before the first byte.
    fn reserve(&self, bytes: u64) -> io::Result<()>;
    /// Writes all bytes at a place.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the contents durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file, or memory, that is read.
pub trait Input: fmt::Debug + Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Fills the buffer; fails with `UnexpectedEof` where the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Input for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        let part = self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(part);
        Ok(())
    }
}

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else, such as a symbolic link.
    Other,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name within the folder.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// What is known of a name without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    pub bytes: u64,
}

/// Whether there is no room: disk or quota.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The folder of a name; empty for the root.
pub(crate) fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A name within a folder.
pub(crate) fn within(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Reads a small file whole; one over `limit` bytes is refused.
pub(crate) fn read_small(storage: &dyn Storage, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    let file = storage.open(name)?;
    let size = file.size()?;
    if size > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("`{name}` has {size} bytes, the limit is {limit}"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}
