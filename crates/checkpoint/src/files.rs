//! A folder of a mounted file system.
//!
//! Large files are written past the page cache (`O_DIRECT`) where the file system allows it, and in windows that are synced one
//! by one where it does not, so that dirty pages never pile up beside a training program. Which of the two, and how a file gets
//! its final name, is probed once when the root is opened ([`probe`]).

mod input;
mod output;
pub mod probe;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, OFlags, RenameFlags};

use self::{
    input::DirectInput,
    output::DirectOutput,
    probe::{Profile, Publish, Refused},
};
use crate::storage::{Entry, Input, Kind, MAX_ENTRIES, Output, Stat, Storage};

/// How often a handle that the server no longer knows (`ESTALE`) is looked up again.
const STALE_RETRIES: usize = 3;

/// Threads that write one file. Two keep one disk busy; the others copy and check the next chunks meanwhile.
const WRITERS: usize = 4;

/// Threads that read one file, and check and hand on what they read.
const READERS: usize = 2;

/// A folder of a mounted file system.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    profile: Profile,
}

impl Files {
    /// Opens a folder for saving: creates it where it is missing, and probes what its volume can do.
    pub fn open(root: &Path) -> Result<Self, Refused> {
        let profile = probe::probe(root)?;
        Ok(Self::with_profile(root, profile))
    }

    /// Opens a folder whose volume is known.
    pub fn with_profile(root: &Path, profile: Profile) -> Self {
        Self {
            root: root.to_owned(),
            profile,
        }
    }

    /// Opens a folder for reading and removing; nothing is created or probed.
    pub fn existing(root: &Path) -> io::Result<Self> {
        if !fs::metadata(root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self::with_profile(root, Profile::PLAIN))
    }

    /// What the volume can do.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// The path of a name. A name that leaves the root is refused, wherever it comes from.
    fn path(&self, name: &str) -> io::Result<PathBuf> {
        let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if name.is_empty() {
            Ok(self.root.clone())
        } else if name.split('/').all(is_plain) {
            Ok(self.root.join(name))
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("`{}` is not a name below the root", name.escape_debug()),
            ))
        }
    }
}

impl Storage for Files {
    fn make_folder(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => real_folder(&path, name),
            other => other,
        }
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        let path = self.path(name)?;
        Ok(Box::new(DirectOutput::create(&path, self.profile.direct)?))
    }

    fn publish(&self, temporary: &str, name: &str) -> io::Result<()> {
        let (from, to) = (self.path(temporary)?, self.path(name)?);
        match self.profile.publish {
            Publish::Link => {
                fs::hard_link(&from, &to)?;
                // The second name is garbage from here on; whoever removes the step removes it, too.
                drop(fs::remove_file(&from));
                Ok(())
            }
            Publish::RenameNoReplace => Ok(rustix::fs::renameat_with(
                CWD,
                &from,
                CWD,
                &to,
                RenameFlags::NOREPLACE,
            )?),
            Publish::Exclusive => {
                // The name is taken first; a kill before the copy ends leaves a file that no checksum accepts.
                let target = File::create_new(&to)?;
                if let Err(error) = copy(&from, &target) {
                    // A part of a file under its final name would block this name for good.
                    drop(fs::remove_file(&to));
                    return Err(error);
                }
                drop(fs::remove_file(&from));
                Ok(())
            }
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from)?, self.path(to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name)?)
    }

    fn remove_folder(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.path(name)?)
    }

    fn sync_folder(&self, name: &str) -> io::Result<()> {
        match File::open(self.path(name)?)?.sync_all() {
            Err(error) if has_no_sync(&error) => Ok(()),
            other => other,
        }
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Input>> {
        let path = self.path(name)?;
        let mut tries = 0;
        loop {
            // A pipe or a device under one of our names must not block a reader, and a link must not lead elsewhere.
            let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
                .open(&path);
            match opened {
                Err(error)
                    if error.kind() == io::ErrorKind::StaleNetworkFileHandle
                        && tries < STALE_RETRIES =>
                {
                    tries += 1;
                }
                Err(error) => return Err(error),
                Ok(file) if file.metadata()?.is_file() => {
                    return Ok(Box::new(DirectInput::new(file)));
                }
                Ok(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("`{name}` is not a regular file"),
                    ));
                }
            }
        }
    }

    fn list(&self, name: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let path = self.path(name)?;
        if !name.is_empty() {
            real_folder(&path, name)?;
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entries.len() == MAX_ENTRIES {
                return Err(io::Error::other(format!(
                    "`{name}` has more than {MAX_ENTRIES} entries"
                )));
            }
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_file() => Kind::File,
                Ok(kind) if kind.is_dir() => Kind::Folder,
                _ => Kind::Other,
            };
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                kind,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn stat(&self, name: &str) -> io::Result<Stat> {
        let found = fs::symlink_metadata(self.path(name)?)?;
        let kind = if found.is_file() {
            Kind::File
        } else if found.is_dir() {
            Kind::Folder
        } else {
            Kind::Other
        };
        Ok(Stat {
            kind,
            bytes: found.len(),
        })
    }

    fn free(&self) -> io::Result<u64> {
        let volume = rustix::fs::statvfs(&self.root)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }

    fn writers(&self) -> usize {
        WRITERS
    }

    fn readers(&self) -> usize {
        READERS
    }
}

/// Some FUSE file systems have no fsync of folders; their entries are durable when the call that made them returns.
fn has_no_sync(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

/// Fails for a link to a folder: what is listed, and then removed, must be below the root. The root itself may be a link.
fn real_folder(path: &Path, name: &str) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::NotADirectory,
        format!("`{name}` is not a folder"),
    ))
}

fn copy(from: &Path, mut target: &File) -> io::Result<()> {
    io::copy(&mut File::open(from)?, &mut target)?;
    target.sync_data()
}
