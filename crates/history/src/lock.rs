//! Who writes: one process at a time. And what the file lies on, which decides how its journal works.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno};

use crate::HistoryError;

/// More than any holder writes.
const HOLDER_MAX: u64 = 512;

/// The right to write, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it for `holder`, such as "`trainyard history sync` (process 12)".
    pub(crate) fn take(store: &Path, holder: &str) -> Result<Self, HistoryError> {
        let unusable = |source| HistoryError::Unusable {
            path: store.to_owned(),
            source,
        };
        let path = beside(store, "lock");
        let mut file = open_beside(&path).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let read = file.take(HOLDER_MAX).read_to_string(&mut holder);
                let holder = match read {
                    Ok(_) if !holder.trim().is_empty() => holder.trim().to_owned(),
                    // Between the lock and the name, or a file of ours that something else filled.
                    _ => "another process".to_owned(),
                };
                return Err(HistoryError::Held {
                    path: store.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        // The name is for people: a disk without room for it must not end the command.
        let named = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder.as_bytes()));
        drop(named);
        Ok(Self { _file: file })
    }
}

/// Opens a file of ours beside the store, and makes it where there is none. The store may lie in a folder that others write to: a link that somebody
/// laid there leads nowhere, and a pipe keeps nobody waiting.
pub(crate) fn open_beside(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| refusal(path, error))?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let reason = format!("`{}` is not a regular file", path.display());
    Err(io::Error::other(reason))
}

/// The kernel's words for a link are about loops.
fn refusal(path: &Path, error: io::Error) -> io::Error {
    if Errno::from_io_error(&error) != Some(Errno::LOOP) {
        return error;
    }
    let path = path.display();
    io::Error::other(format!(
        "`{path}` is a symbolic link; nothing was written through it"
    ))
}

/// The file with another ending beside the store.
pub(crate) fn beside(store: &Path, ending: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Makes the folder of a store, for its owner alone.
pub(crate) fn make_folder(store: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match store.parent().filter(|it| !it.as_os_str().is_empty()) {
        Some(folder) => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder),
        None => Ok(()),
    }
}

/// Whether a file system with that number is one on which the shared memory of a write-ahead log does not work: its pages are another machine's.
pub(crate) fn is_network(kind: i64) -> bool {
    const NFS: i64 = 0x6969;
    const SMB: i64 = 0x517B;
    const SMB2: i64 = 0xFE53_4D42;
    const CIFS: i64 = 0xFF53_4D42;
    const CEPH: i64 = 0x00C3_6400;
    const LUSTRE: i64 = 0x0BD0_0BD0;
    const FUSE: i64 = 0x6573_5546;
    const GPFS: i64 = 0x4750_4653;
    const NINE_P: i64 = 0x0102_1997;
    const AFS: i64 = 0x5346_414F;
    const BEEGFS: i64 = 0x1983_0326;
    // The kernel gives some of them with the sign of 32 bits.
    let kind = kind & 0xFFFF_FFFF;
    matches!(
        kind,
        NFS | SMB | SMB2 | CIFS | CEPH | LUSTRE | FUSE | GPFS | NINE_P | AFS | BEEGFS
    )
}

/// Whether `path` lies on such a file system.
pub(crate) fn lies_on_network(path: &Path) -> io::Result<bool> {
    let found = rustix::fs::statfs(path)?;
    Ok(is_network(found.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems() {
        let cases = [
            ("ext4", 0xEF53, false),
            ("tmpfs", 0x0102_1994, false),
            ("overlay", 0x794C_7630, false),
            ("xfs", 0x5846_5342, false),
            ("nfs", 0x6969, true),
            ("cifs", 0xFF53_4D42, true),
            ("cifs with a sign", -11_317_950, true),
            ("ceph", 0x00C3_6400, true),
            ("lustre", 0x0BD0_0BD0, true),
            ("fuse", 0x6573_5546, true),
        ];
        for (name, kind, want) in cases {
            assert_eq!(is_network(kind), want, "{name}");
        }
    }
}
