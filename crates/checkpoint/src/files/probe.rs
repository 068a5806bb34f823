//! What a volume can do, tried out when a root is opened.
//!
//! A volume that cannot keep checkpoints is refused here, in one sentence with the user and the mode of the folder, and not at
//! the first save hours later.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, RenameFlags};

use super::{has_no_sync, output::open_direct};
use crate::{
    buffer::{Aligned, BLOCK},
    storage::is_full,
};

/// How a finished file gets its final name, which must not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    /// `link`: atomic on every POSIX file system and on NFS servers.
    Link,
    /// `renameat2` with `RENAME_NOREPLACE`.
    RenameNoReplace,
    /// The final name is created with `O_EXCL` and filled; contents count only with their checksum.
    Exclusive,
}

/// What a volume can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// How files are published.
    pub publish: Publish,
    /// Whether files can be written past the page cache.
    pub direct: bool,
}

impl Profile {
    /// Every POSIX file system can do this much.
    pub const PLAIN: Self = Self {
        publish: Publish::Link,
        direct: false,
    };

    /// The name of the profile: `posix` or `posix-no-link`.
    pub fn name(self) -> &'static str {
        match self.publish {
            Publish::Link => "posix",
            Publish::RenameNoReplace | Publish::Exclusive => "posix-no-link",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a volume cannot keep checkpoints.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} in `{}`: {source}; {owner}", folder.display())]
pub struct Refused {
    /// What was tried.
    step: &'static str,
    folder: PathBuf,
    /// Who owns the folder, and who this process is.
    owner: String,
    source: io::Error,
}

impl Refused {
    /// The error of the system.
    pub fn cause(&self) -> &io::Error {
        &self.source
    }
}

/// The names a probe uses; removed at its end.
#[derive(Debug)]
struct Trial {
    root: PathBuf,
    token: String,
}

impl Trial {
    fn path(&self, part: &str) -> PathBuf {
        self.root.join(format!(".probe-{}-{part}", self.token))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        for part in PARTS {
            drop(fs::remove_file(self.path(part)));
        }
    }
}

const PARTS: [&str; 4] = ["a", "b", "c", "d"];
const BODY: &[u8] = b"trainyard probe\n";

/// Tries out a volume; creates the folder where it is missing.
pub fn probe(root: &Path) -> Result<Profile, Refused> {
    let refuse = |step| {
        move |source| Refused {
            step,
            folder: root.to_owned(),
            owner: owner(root),
            source,
        }
    };
    create_root(root).map_err(refuse("create the folder"))?;
    let trial = Trial {
        root: root.to_owned(),
        token: crate::token::random().map_err(refuse("read random bytes"))?,
    };

    let first = trial.path("a");
    match create(&first) {
        Err(error) if is_full(&error) => return Ok(on_full_disk(&trial)),
        other => other.map_err(refuse("create a file"))?,
    }
    match File::create_new(&first) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refuse("create a file exclusively")(error)),
        Ok(_) => {
            return Err(refuse("create a file exclusively")(io::Error::other(
                "the same name was created twice with O_EXCL",
            )));
        }
    }
    let publish = publish(&trial).map_err(refuse("give a file its final name"))?;
    fs::rename(trial.path("b"), trial.path("c")).map_err(refuse("rename a file"))?;
    let read = fs::read(trial.path("c")).map_err(refuse("read a file back"))?;
    if read != BODY {
        return Err(refuse("read a file back")(io::Error::other(format!(
            "{} bytes were written, {} others were read",
            BODY.len(),
            read.len()
        ))));
    }
    Ok(Profile {
        publish,
        direct: is_direct(&trial.path("d")),
    })
}

/// Creates the folder where it is missing, and makes its name durable: a checkpoint in a folder that a power loss takes is lost.
fn create_root(root: &Path) -> io::Result<()> {
    let known = root.ancestors().skip(1).find(|path| path.is_dir());
    let known = known.map(Path::to_owned);
    fs::create_dir_all(root)?;
    for parent in root.ancestors().skip(1) {
        // One that may not be opened for reading cannot be synced by this user.
        if let Ok(folder) = File::open(if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        }) {
            match folder.sync_all() {
                Err(error) if !has_no_sync(&error) => return Err(error),
                _ => {}
            }
        }
        if Some(parent) == known.as_deref() {
            break;
        }
    }
    Ok(())
}

/// What a volume without room can do, as far as that shows without a byte: a save must open it to be able to remove old steps.
fn on_full_disk(trial: &Trial) -> Profile {
    Profile {
        publish: publish(trial).unwrap_or(Publish::Link),
        direct: false,
    }
}

fn create(path: &Path) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(BODY)?;
    file.sync_data()
}

/// Gives `a` the name `b`, by the best way that works.
fn publish(trial: &Trial) -> io::Result<Publish> {
    let (from, to) = (trial.path("a"), trial.path("b"));
    if fs::hard_link(&from, &to).is_ok() {
        // A second link must be refused, or two writers would both believe that they published.
        return match fs::hard_link(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Publish::Link),
            Err(error) => Err(error),
            Ok(()) => Err(io::Error::other("a name that exists was linked over")),
        };
    }
    if rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE).is_ok() {
        return Ok(Publish::RenameNoReplace);
    }
    create(&to)?;
    Ok(Publish::Exclusive)
}

/// Whether whole blocks can be written past the page cache and read back.
fn is_direct(path: &Path) -> bool {
    let attempt = || -> io::Result<bool> {
        File::create_new(path)?;
        let mut block = Aligned::new(BLOCK);
        block.fill(0x5a);
        open_direct(path)?.write_all_at(&block, 0)?;
        Ok(fs::read(path)? == *block)
    };
    attempt().unwrap_or(false)
}

/// Who owns the folder, and who this process is.
fn owner(root: &Path) -> String {
    let process = format!(
        "this process has uid {}, gid {}",
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    // The folder may be missing because its parent refuses it: then the parent is what has to change.
    let nearest = root.ancestors().find_map(|path| {
        let found = fs::metadata(path).ok()?;
        Some((path, found))
    });
    match nearest {
        Some((path, found)) => format!(
            "`{}` has uid {}, gid {}, mode {:04o}; {process}",
            path.display(),
            found.uid(),
            found.gid(),
            found.mode() & 0o7777
        ),
        None => process,
    }
}
