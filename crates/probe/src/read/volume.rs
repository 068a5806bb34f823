//! A volume, tried by writing to it.
//!
//! Flow: a file of [`MOST`] bytes is written and flushed to the device, dropped from memory, read back
//! and compared, and put in the place of another one.
//!
//! Guarantees: no more than [`MOST`] bytes and a quarter of what is free are written, writing and reading
//! stop after [`PHASE`] each, and both files are removed however it ends.
//!
//! Caveats: a process that is killed, or a volume that hangs, leaves `.trainyard-preflight-*` behind.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use trainyard_core::probe::{Probed, VolumeTrial};

use super::space;
use crate::files::{Root, refused};

/// Bytes that are written at most.
const MOST: u64 = 64 << 20;
/// Bytes of one write.
const BLOCK: usize = 1 << 20;
/// Bytes that a volume stores as one, at least.
const PAGE: usize = 4096;
/// How long writing may take, and reading.
const PHASE: Duration = Duration::from_secs(4);

/// Tries the volume at `path`.
pub(super) fn try_out(root: &Root, path: &str) -> Probed<VolumeTrial> {
    try_within(root, path, PHASE)
}

fn try_within(root: &Root, path: &str, phase: Duration) -> Probed<VolumeTrial> {
    let folder = root.join(path.trim_start_matches('/'));
    if !folder.is_dir() {
        return Probed::Absent;
    }
    let space = match space::of(root, path).or_missing() {
        Ok(space) => space,
        Err(missing) => return missing,
    };
    let free = space.free.value().copied().unwrap_or(MOST * 4);
    let files = Files::new(&folder);
    let written = match write(&files.new, MOST.min(free / 4), phase) {
        Ok(written) => written,
        Err(error) => return no_trial(&error),
    };
    Probed::Read(VolumeTrial {
        space,
        bytes: written.bytes,
        write_micros: Probed::Read(written.micros),
        read_micros: probed(read_back(&files.new, written.bytes, phase)),
        rename: probed(rename(&files)),
    })
}

/// A volume that cannot be written is a result, and not one that is missing.
fn no_trial<T>(error: &io::Error) -> Probed<T> {
    match refused(error) {
        Probed::Absent => Probed::Unreadable(error.to_string()),
        other => other,
    }
}

fn probed<T>(value: io::Result<T>) -> Probed<T> {
    value.map_or_else(|error| no_trial(&error), Probed::Read)
}

/// Both files of a trial, which are gone when it is.
struct Files {
    new: PathBuf,
    old: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Pods of one gang may try the same volume, and have the same process numbers.
        let name = nix::unistd::gethostname().unwrap_or_default();
        let name = format!("{}-{}-{count}", name.to_string_lossy(), process::id());
        Self {
            new: folder.join(format!(".trainyard-preflight-{name}-new")),
            old: folder.join(format!(".trainyard-preflight-{name}-old")),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for file in [&self.new, &self.old] {
            // One that was never made, or was renamed, is not there.
            drop(fs::remove_file(file));
        }
    }
}

struct Written {
    bytes: u64,
    micros: u64,
}

fn write(path: &Path, most: u64, phase: Duration) -> io::Result<Written> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut block = noise();
    let begun = Instant::now();
    let mut bytes = 0;
    while bytes < most.max(1) && begun.elapsed() < phase {
        stamp(&mut block, bytes);
        file.write_all(&block)?;
        bytes += BLOCK as u64;
    }
    file.sync_all()?;
    let micros = micros(begun);
    // Reading from the page cache would not test the volume. A file system that knows no advice is
    // read as it is.
    let forget = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    posix_fadvise(&file, 0, 0, forget).unwrap_or_default();
    Ok(Written { bytes, micros })
}

fn read_back(path: &Path, bytes: u64, phase: Duration) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut expected = noise();
    let mut block = vec![0; BLOCK];
    let begun = Instant::now();
    let mut done = 0;
    while done < bytes {
        if begun.elapsed() > phase {
            let left = bytes - done;
            return Err(io::Error::other(format!(
                "{left} bytes were still to be read after {} s",
                phase.as_secs()
            )));
        }
        file.read_exact(&mut block)?;
        stamp(&mut expected, done);
        if block != expected {
            return Err(io::Error::other("what was read is not what was written"));
        }
        done += BLOCK as u64;
    }
    Ok(micros(begun))
}

/// Content that no volume can compress.
fn noise() -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for word in block.chunks_exact_mut(8) {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    block
}

/// Makes the block that begins at byte `at` differ from all others, page by page. Making new content for
/// each would take longer than a fast volume needs to store it.
fn stamp(block: &mut [u8], at: u64) {
    for (page, place) in block.chunks_exact_mut(PAGE).zip((at..).step_by(PAGE)) {
        let (start, _) = page.split_at_mut(8);
        start.copy_from_slice(&place.to_le_bytes());
    }
}

/// Whether the new file takes the place of an old one.
fn rename(files: &Files) -> io::Result<bool> {
    fs::write(&files.old, b"old")?;
    fs::rename(&files.new, &files.old)?;
    let mut start = [0; 3];
    File::open(&files.old)?.read_exact(&mut start)?;
    Ok(start != *b"old" && !files.new.exists())
}

fn micros(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_tried_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("ckpt")).unwrap();
        let root = Root::new(folder.path());
        let trial = try_within(&root, "/ckpt", Duration::MAX);
        let trial = trial.value().unwrap();
        assert!(trial.bytes > 0 && trial.bytes <= MOST, "{trial:?}");
        assert!(trial.write_micros.value().is_some(), "{trial:?}");
        assert!(trial.read_micros.value().is_some(), "{trial:?}");
        assert_eq!(trial.rename, Probed::Read(true));
        let left = fs::read_dir(folder.path().join("ckpt")).unwrap();
        assert_eq!(left.count(), 0);
        assert_eq!(try_out(&root, "/other"), Probed::Absent);
    }

    #[test]
    fn content_that_was_changed_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let written = write(&path, 2 * BLOCK as u64, Duration::MAX).unwrap();
        assert_eq!(written.bytes, 2 * BLOCK as u64);
        read_back(&path, written.bytes, Duration::MAX).unwrap();
        let mut content = fs::read(&path).unwrap();
        assert_ne!(content[..PAGE], content[BLOCK..BLOCK + PAGE]);
        content[BLOCK + 5000] ^= 1;
        fs::write(&path, &content).unwrap();
        let error = read_back(&path, written.bytes, Duration::MAX).unwrap_err();
        assert!(
            error.to_string().contains("not what was written"),
            "{error}"
        );
        content.truncate(BLOCK);
        fs::write(&path, &content).unwrap();
        assert!(read_back(&path, written.bytes, Duration::MAX).is_err());
    }
}
