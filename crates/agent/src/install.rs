//! Copies the program to where the containers of a pod find it.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use thiserror::Error;
use trainyard_core::launch::agent::{PROGRAM, REMOTE_SHELLS};

/// Why the program was not installed.
#[derive(Debug, Error)]
#[error("cannot write `{path}`")]
pub struct InstallError {
    /// The file.
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Copies the program at `program` into `folder`, with the names by which `mpirun` calls it.
///
/// It is idempotent: an init container may be run twice.
pub fn install(program: &Path, folder: &Path) -> Result<(), InstallError> {
    let target = folder.join(PROGRAM);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError { path, source }
    };
    let part = folder.join(format!(".{PROGRAM}.part"));
    copy(program, &part)
        .and_then(|()| fs::rename(&part, &target))
        .map_err(failed(&target))?;
    for name in REMOTE_SHELLS {
        let link = folder.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => symlink(PROGRAM, &link),
        }
        .map_err(failed(&link))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    // A part that is left over is read-only, and would not be written over.
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::copy(from, to)?;
    // For any user that the containers run as.
    fs::set_permissions(to, fs::Permissions::from_mode(0o555))
}
