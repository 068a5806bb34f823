//! Writing the files that the user names.
//!
//! Invariant: a file is replaced in one step, so that a reader sees the old text or the new one. What is written
//! first is a new file with a random name beside it, so nothing that somebody laid there is followed or overwritten. A link
//! stays one: the target file is replaced.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use tempfile::{Builder, NamedTempFile};

/// What the umask takes from a file that is new.
const NEW_FILE: u32 = 0o666;

/// Replaces the file at `path`, or makes it. Devices and pipes are written to as they are.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, NEW_FILE, |file| file.write_all(content))
}

/// The same for what is too large for memory: `fill` writes it.
pub(crate) fn write_pieces(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    write_with(path, NEW_FILE, fill)
}

/// The same for a name that this program chose in a folder that the user named: a link in its place is replaced and not followed, whoever laid it.
pub(crate) fn write_pieces_in_folder(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    finish(beside(path, NEW_FILE)?, path, fill)
}

/// The same for what nobody else should read: a new file is this user's alone.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, 0o600, |file| file.write_all(content))
}

fn write_with(
    path: &Path,
    permissions: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let Some((path, old)) = resolve(path)? else {
        return finish(beside(path, permissions)?, path, fill);
    };
    // Asks whether it may be written, which a new file in its place would not.
    let mut opened = OpenOptions::new().write(true).open(&path)?;
    if !old.is_file() {
        return fill(&mut opened);
    }
    let temporary = beside(&path, 0o600)?;
    let new = temporary.as_file();
    let (made, user, group) = (new.metadata()?, old.uid(), old.gid());
    if (made.uid(), made.gid()) != (user, group) {
        // Only root can give files away; for others it becomes theirs, as with every editor that does this.
        drop(fchown(new, Some(user), Some(group)));
    }
    new.set_permissions(old.permissions())?;
    finish(temporary, &path, fill)
}

/// The file itself behind any number of links, where there is one.
fn resolve(path: &Path) -> io::Result<Option<(PathBuf, Metadata)>> {
    match fs::canonicalize(path) {
        Ok(path) => {
            let found = fs::metadata(&path)?;
            Ok(Some((path, found)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.is_symlink() {
                let reason = "it is a symbolic link to a file that does not exist";
                return Err(io::Error::new(io::ErrorKind::NotFound, reason));
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Builder::new()
        .prefix(".trainyard-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)
        // Its own message names a temporary file.
        .map_err(|error| error.kind().into())
}

/// The file removes itself unless all of it was written.
fn finish(
    mut temporary: NamedTempFile,
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    fill(temporary.as_file_mut())?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(&at("new"), b"1").unwrap();
        fs::write(at("plain"), "").unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
        assert_eq!(mode("new"), mode("plain"), "as the umask wants it");

        fs::set_permissions(at("new"), Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(at("new")).unwrap().ino();
        symlink("new", at("link")).unwrap();
        write(&at("link"), b"2").unwrap();
        assert_eq!(fs::read(at("new")).unwrap(), b"2");
        assert_eq!(mode("new"), 0o640);
        assert!(at("link").is_symlink(), "a link stays one");
        assert_ne!(
            fs::metadata(at("new")).unwrap().ino(),
            before,
            "in one step"
        );

        symlink("nowhere", at("broken")).unwrap();
        let error = write(&at("broken"), b"3").unwrap_err().to_string();
        assert!(error.contains("does not exist"), "{error}");
        symlink("plain", at("laid")).unwrap();
        write_pieces_in_folder(&at("laid"), |file| file.write_all(b"ours")).unwrap();
        assert_eq!(
            fs::read(at("plain")).unwrap(),
            b"",
            "nobody's link is followed"
        );
        assert!(!at("laid").is_symlink());
        write(Path::new("/dev/null"), b"4").unwrap();
        assert!(write(folder.path(), b"5").is_err());
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 5, "nothing is left behind");
    }
}
