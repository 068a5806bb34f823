//! Copies the program to where the containers of a pod find it.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use thiserror::Error;
use trainyard_core::launch::agent::{PROGRAM, REMOTE_SHELLS};

/// Bytes that are written before the disk is waited for: a fraction of the 64 MiB that the init container may use.
const PIECE: u64 = 8 << 20;

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
    let (mut source, mut target) = (File::open(from)?, File::create_new(to)?);
    while io::copy(&mut (&mut source).take(PIECE), &mut target)? > 0 {
        // What the disk does not have yet counts as memory of the container: on a slow disk, a program larger than its limit would end it.
        target.sync_data()?;
    }
    // For any user that the containers run as.
    fs::set_permissions(to, fs::Permissions::from_mode(0o555))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_program_is_copied_twice() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("source");
        let pieces = usize::try_from(PIECE).unwrap() * 2 + 5;
        let content: Vec<u8> = (0..pieces)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        fs::write(&program, &content).unwrap();
        let target = folder.path().join("installed");
        fs::create_dir(&target).unwrap();
        for _ in 0..2 {
            install(&program, &target).unwrap();
            let found = target.join(PROGRAM);
            assert!(fs::read(&found).unwrap() == content);
            let mode = fs::metadata(&found).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o555);
        }
        let names = fs::read_dir(&target).unwrap().count();
        assert_eq!(names, 1 + REMOTE_SHELLS.len(), "no part is left");
    }
}
