//! Where the result goes: a name beside it until everything is written and verified.

mod replaced;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, RenameFlags},
    io::Errno,
};

use super::super::FormatError;
use crate::{Files, Storage as _, token};

/// A destination and the name that it has until it is finished.
#[derive(Debug)]
pub(super) struct Place {
    destination: PathBuf,
    folder: PathBuf,
    temporary: PathBuf,
    /// What a replaced checkpoint is called for a moment.
    old: PathBuf,
    /// Whether there was a checkpoint that may be replaced. One that appears later is never replaced.
    replaces: bool,
}

impl Place {
    /// Checks that the destination may be written. With `force` a checkpoint of any known format and nothing else, or an empty folder,
    /// is replaced.
    pub(super) fn new(source: &Path, destination: &Path, force: bool) -> Result<Self, FormatError> {
        let shown = destination.display().to_string();
        let bad = |why: &str| FormatError::new(shown.clone(), why);
        let name = destination
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| bad("it has no name to write to"))?;
        let folder = destination
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let real =
            |path: &Path| fs::canonicalize(path).map_err(|error| FormatError::io(path, &error));
        let folder = real(folder)?;
        let destination = folder.join(name);
        let replaces = fs::symlink_metadata(&destination).is_ok();
        if replaces {
            if !force {
                return Err(bad("it exists already; `--force` replaces it"));
            }
            let (from, to) = (real(source)?, real(&destination)?);
            if from.starts_with(&to) || to.starts_with(&from) {
                return Err(bad("it is the source, or one of them is inside the other"));
            }
            replaced::check(&destination).map_err(|why| bad(&why))?;
        }
        let token = token::random().map_err(|error| FormatError::io(&destination, &error))?;
        Ok(Self {
            temporary: folder.join(format!(".{name}.tmp-{token}")),
            old: folder.join(format!(".{name}.old-{token}")),
            destination,
            folder,
            replaces,
        })
    }

    /// Where to write.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Fails where the volume has less room than is needed.
    pub(super) fn check_room(&self, needed: u64) -> Result<(), FormatError> {
        let free = Files::existing(&self.folder).and_then(|files| files.free());
        match free {
            Ok(free) if free < needed => Err(FormatError::new(
                self.folder.display().to_string(),
                format!("{needed} bytes are needed, and {free} are free"),
            )),
            // A volume that does not say how much room it has shows at the write.
            _ => Ok(()),
        }
    }

    /// Gives the result its name. What has this name is replaced only if it was there at the beginning, and is still a checkpoint.
    pub(super) fn publish(&self) -> Result<(), FormatError> {
        let cannot = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => FormatError::new(
                self.destination.display().to_string(),
                "it was created during the conversion, so it is not replaced",
            ),
            _ => FormatError::io(&self.destination, &error),
        };
        let had_one = self.replaces && fs::symlink_metadata(&self.destination).is_ok();
        if had_one {
            replaced::check(&self.destination)
                .map_err(|why| FormatError::new(self.destination.display().to_string(), why))?;
            rename_free(&self.destination, &self.old).map_err(cannot)?;
        }
        if let Err(error) = rename_free(&self.temporary, &self.destination) {
            if had_one {
                drop(rename_free(&self.old, &self.destination));
            }
            return Err(cannot(error));
        }
        sync(&self.folder)?;
        if had_one {
            remove(&self.old);
        }
        Ok(())
    }

    /// Removes what was written of a result that failed.
    pub(super) fn remove(&self) {
        remove(&self.temporary);
    }
}

/// Renames to a name that must be free; `AlreadyExists` where it is not.
fn rename_free(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system without it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rename_checked(from, to, |path| fs::remove_file(path))
        }
        other => Ok(other?),
    }
}

/// The same on a file system that cannot rename exclusively. A file is linked, which is exclusive. A folder cannot be; the
/// kernel refuses to rename it onto a file or onto a folder with entries. A file that cannot be removed by `unlink` keeps its one name.
fn rename_checked(
    from: &Path,
    to: &Path,
    unlink: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if fs::symlink_metadata(from)?.is_file() && fs::hard_link(from, to).is_ok() {
        return unlink(from).inspect_err(|_| drop(fs::remove_file(to)));
    }
    fs::rename(from, to)
}

/// Makes a file or the entries of a folder durable.
pub(super) fn sync(path: &Path) -> Result<(), FormatError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    match synced {
        // Some file systems have no sync of folders.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other.map_err(|error| FormatError::io(path, &error)),
    }
}

fn remove(path: &Path) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    // What stays has a name that says what it is.
    drop(if is_folder {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_cannot_be_removed_keeps_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join(".a.old"));
        fs::write(&from, "a").unwrap();
        let refuse = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
        assert!(rename_checked(&from, &to, refuse).is_err());
        assert!(from.exists() && !to.exists());
        rename_checked(&from, &to, |path| fs::remove_file(path)).unwrap();
        assert!(!from.exists() && to.exists());
    }
}
