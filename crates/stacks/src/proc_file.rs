//! Files of `/proc/PID`, read with a bound.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;

use crate::Error;

/// The path of a file of a process.
pub(crate) fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// The first `most` bytes of a file of a process.
pub(crate) fn read(pid: u32, file: &'static str, most: u64) -> Result<Vec<u8>, Error> {
    read_path(&path(pid, file), most).map_err(|source| Error::from_io(pid, file, source))
}

/// The first `most` bytes of a file.
pub(crate) fn read_path(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a small file in one line, without control characters; `None` where it cannot be read.
pub(crate) fn word(path: &Path) -> Option<String> {
    const MOST: u64 = 256;
    let bytes = read_path(path, MOST).ok()?;
    Some(printable(String::from_utf8_lossy(&bytes).trim_end()))
}

/// `text` with every control character replaced: what a process is named must not steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|char| {
            if char.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                char
            }
        })
        .collect()
}

/// A regular file that a process has mapped.
///
/// The path is the choice of the other process: it may lead to a FIFO, whose open must not block.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// The threads of a process, in ascending order, at most `most`.
pub(crate) fn tasks(pid: u32, most: usize) -> Result<Vec<u32>, Error> {
    let folder =
        fs::read_dir(path(pid, "task")).map_err(|source| Error::from_io(pid, "task", source))?;
    let mut tasks: Vec<u32> = folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .take(most)
        .collect();
    tasks.sort_unstable();
    Ok(tasks)
}
