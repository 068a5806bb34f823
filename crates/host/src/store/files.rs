//! Opening and replacing the files of a store: never through a link, never more than they may hold.
//!
//! Invariant: what is written atomically is the old file or the new one for every reader; what is written
//! [`Durably::Yes`] is so after a power loss, too.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, libc};

use super::trust::{self, Purpose};

/// The largest JSON file that is read: the status of the largest job takes a thousandth of it.
pub(super) const MAX_JSON: u64 = 32 << 20;
/// Files are for their owner; the folder of a run is so, too.
const MODE: u32 = 0o600;
/// A pipe in the place of a file must not keep anybody waiting.
const FLAGS: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Whether a power loss may take back what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durably {
    /// File and folder are on the disk before the call returns.
    Yes,
    /// The kernel writes them when it likes. A file that is replaced every second is written like this.
    No,
}

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(FLAGS)
        .open(path)
        .map_err(no_link)?;
    trust::check_file(&file.metadata()?, Purpose::Read)?;
    Ok(file)
}

/// The whole of a file that holds at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        let reason = format!("it has {length} bytes; the limit is {most}");
        return Err(io::Error::other(reason));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file for writing and keeps what it holds; makes it where there is none.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .custom_flags(FLAGS)
        .open(path)
        .map_err(no_link)?;
    trust::check_file(&file.metadata()?, Purpose::Write)?;
    Ok(file)
}

/// Opens a file for writing from its beginning.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Replaces the file at `path` as a whole, or leaves the old one.
pub(super) fn write_atomically(path: &Path, bytes: &[u8], durably: Durably) -> io::Result<()> {
    let next = beside(path);
    // One that is left from a writer that was killed, or a link that somebody laid there.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&next)?;
        file.write_all(bytes)?;
        if durably == Durably::Yes {
            // The name must not be on the disk before what it stands for.
            file.sync_all()?;
        }
        fs::rename(&next, path)
    };
    write().inspect_err(|_| {
        // Half a file is worth nothing, and on a full disk it only takes space.
        drop(fs::remove_file(&next));
    })?;
    if durably == Durably::Yes
        && let Some(folder) = path.parent()
    {
        sync_folder(folder)?;
    }
    Ok(())
}

/// Waits until the names in a folder are on the disk.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some network file systems cannot; their server keeps names anyway.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// The kernel's words for a link are about loops.
fn no_link(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::ELOOP as i32) {
        io::Error::other("it is a symbolic link; nothing was read or written through it")
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "precious").unwrap();
        for name in ["run.lock", "report.json", "report.json.next"] {
            symlink(at("victim"), at(name)).unwrap();
        }
        for attempt in [
            open(&at("run.lock")).map(drop),
            open_or_create(&at("run.lock")).map(drop),
            create(&at("run.lock")).map(drop),
            read(&at("run.lock"), 100).map(drop),
        ] {
            let error = attempt.unwrap_err().to_string();
            assert!(error.starts_with("it is a symbolic link"), "{error}");
        }
        for durably in [Durably::Yes, Durably::No] {
            write_atomically(&at("report.json"), b"{}", durably).unwrap();
            assert_eq!(read(&at("report.json"), 2).unwrap(), b"{}");
        }
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "precious");
        assert!(!at("report.json.next").exists());
        let mode = fs::metadata(at("report.json")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn special_or_large_file_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read(&at("pipe"), 100).unwrap_err().to_string();
        assert_eq!(error, "it is not a regular file");
        assert!(open_or_create(&at("pipe")).is_err());
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        let error = read(&at("huge"), 100).unwrap_err().to_string();
        assert_eq!(error, "it has 1099511627776 bytes; the limit is 100");
        // A writer that was killed has left half a file.
        fs::write(at("a.next"), "half").unwrap();
        write_atomically(&at("a"), b"whole", Durably::No).unwrap();
        assert_eq!(read(&at("a"), 5).unwrap(), b"whole");
    }
}
