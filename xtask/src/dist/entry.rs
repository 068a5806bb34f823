//! What every archive holds: files by their path, with a mode, and one time for all of them.
//!
//! Invariant: an archive depends on paths, modes, contents and the time that it is given, and on nothing of this machine.

use std::{collections::BTreeMap, io::Write as _};

use flate2::{Compression, GzBuilder};

/// The mode of files.
pub(super) const FILE: u32 = 0o644;
/// The mode of programs and folders.
pub(super) const PROGRAM: u32 = 0o755;

/// Files in the order of their paths, which are relative and separated by `/`.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(BTreeMap<String, Entry>);

/// One file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) mode: u32,
    pub(super) data: Vec<u8>,
}

impl Files {
    /// Adds a file; a path that is there already is a mistake of the caller.
    pub(super) fn add(&mut self, path: impl Into<String>, mode: u32, data: impl Into<Vec<u8>>) {
        let path = path.into();
        let data = data.into();
        let before = self.0.insert(path.clone(), Entry { mode, data });
        assert!(before.is_none(), "`{path}` is packed twice");
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.0.values().map(|entry| entry.data.len() as u64).sum()
    }
}

/// `data` as gzip, without a name and without a time.
pub(super) fn gzip(data: &[u8]) -> Vec<u8> {
    /// "Unknown": the default differs between systems.
    const SYSTEM: u8 = 255;
    let mut writer = GzBuilder::new()
        .mtime(0)
        .operating_system(SYSTEM)
        .write(Vec::new(), Compression::best());
    writer
        .write_all(data)
        .and_then(|()| writer.finish())
        .expect("memory can be written")
}
