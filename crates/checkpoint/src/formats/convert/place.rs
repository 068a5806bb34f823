//! Where the result goes: a name beside it until everything is written and verified.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use super::super::{FormatError, open::format};
use crate::{Files, Storage as _, token};

/// A destination and the name that it has until it is finished.
#[derive(Debug)]
pub(super) struct Place {
    destination: PathBuf,
    folder: PathBuf,
    temporary: PathBuf,
    /// What a replaced checkpoint is called for a moment.
    old: PathBuf,
}

impl Place {
    /// Checks that the destination may be written. With `force` a checkpoint of any known format, or an empty folder, is replaced.
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
        if fs::symlink_metadata(&destination).is_ok() {
            if !force {
                return Err(bad("it exists already; `--force` replaces it"));
            }
            let (from, to) = (real(source)?, real(&destination)?);
            if from.starts_with(&to) || to.starts_with(&from) {
                return Err(bad("it is the source, or one of them is inside the other"));
            }
            let is_empty = fs::read_dir(&destination).is_ok_and(|mut list| list.next().is_none());
            let is_checkpoint = match format(&destination) {
                // Any file would count as one.
                Ok(super::super::Format::Safetensors) => {
                    super::super::safetensors::open(&destination).is_ok()
                }
                found => found.is_ok(),
            };
            if !is_empty && !is_checkpoint {
                return Err(bad(
                    "it is not a checkpoint of a known format, so it is not replaced",
                ));
            }
        }
        let token = token::random().map_err(|error| FormatError::io(&destination, &error))?;
        Ok(Self {
            temporary: folder.join(format!(".{name}.tmp-{token}")),
            old: folder.join(format!(".{name}.old-{token}")),
            destination,
            folder,
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

    /// Gives the result its name.
    pub(super) fn publish(&self) -> Result<(), FormatError> {
        let cannot = |error: std::io::Error| FormatError::io(&self.destination, &error);
        let had_one = fs::symlink_metadata(&self.destination).is_ok();
        if had_one {
            fs::rename(&self.destination, &self.old).map_err(cannot)?;
        }
        if let Err(error) = fs::rename(&self.temporary, &self.destination) {
            if had_one {
                drop(fs::rename(&self.old, &self.destination));
            }
            self.remove();
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

/// Makes a file or the entries of a folder durable.
pub(super) fn sync(path: &Path) -> Result<(), FormatError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    match synced {
        // Some file systems have no sync of folders.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
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
