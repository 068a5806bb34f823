//! Whose the store is. A folder that another user has prepared is refused, as git does with repositories.
//!
//! Owns the rule and its sentences. Whoever can write to a store decides what `mpirun` executes (`bin/ssh`) and where logs
//! go, so every folder on the way to a run is checked: no link, owned by us or by root, not writable by others.
//!
//! Root may read the store of anybody: nothing in it is executed, followed or believed by reading.

use std::{
    fs::{self, DirBuilder, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use nix::unistd::{Uid, geteuid};

use super::StoreError;

/// Write permission of the group and of everybody.
const WRITE_OF_OTHERS: u32 = 0o022;
/// A folder that others may look into, as far as the umask allows it, and never write to.
const OPEN_FOLDER: u32 = 0o755;
/// A folder that is for its owner alone, whatever the umask is.
const PRIVATE_FOLDER: u32 = 0o700;

/// What is going to be done with a folder or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
}

/// What decides whether a folder or file is used.
#[derive(Clone, Copy, Debug)]
struct Facts {
    owner: Uid,
    mode: u32,
}

impl Facts {
    fn of(found: &Metadata) -> Self {
        Self {
            owner: Uid::from_raw(found.uid()),
            mode: found.mode(),
        }
    }
}

/// Whether the folder at `path` is there; an error where it must not be used.
pub(super) fn check_folder(path: &Path, purpose: Purpose) -> Result<bool, StoreError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(StoreError::corrupt(path, &error)),
    };
    if found.is_symlink() {
        return Err(StoreError::Linked {
            path: path.to_owned(),
        });
    }
    if !found.is_dir() {
        return Err(StoreError::NotAFolder {
            path: path.to_owned(),
        });
    }
    judge(path, Facts::of(&found), geteuid(), purpose)?;
    Ok(true)
}

/// Whether an open file is one of this store, as `check_folder` says it of folders.
pub(super) fn check_file(found: &Metadata, purpose: Purpose) -> io::Result<()> {
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let (owner, us) = (Uid::from_raw(found.uid()), geteuid());
    if may_own(owner, us, purpose) {
        Ok(())
    } else {
        let reason = format!("it belongs to user {owner}; this program runs as user {us}");
        Err(io::Error::other(reason))
    }
}

/// The folder at `path` for writing, made where there is none. The folder above it must exist.
pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    let not_writable = |source| StoreError::NotWritable {
        path: path.to_owned(),
        source,
    };
    if !check_folder(path, Purpose::Write)? {
        match DirBuilder::new().mode(OPEN_FOLDER).create(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(not_writable(error)),
        }
        // Somebody was faster: it is checked like any other that was there before.
        check_folder(path, Purpose::Write)?;
    }
    let found = fs::symlink_metadata(path).map_err(not_writable)?;
    if found.mode() & WRITE_OF_OTHERS != 0 {
        // Ours, made under a umask that lets the group write.
        let mode = found.mode() & !WRITE_OF_OTHERS & 0o7777;
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(not_writable)?;
    }
    Ok(())
}

/// A new folder that nobody else can enter.
pub(super) fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_FOLDER).create(path)?;
    // A umask can only remove our own permissions.
    fs::set_permissions(path, Permissions::from_mode(PRIVATE_FOLDER))
}

/// Whether a link in the folder of volumes is followed. Data often lies on another disk, so a link that we or root made is.
pub(crate) fn check_volume(path: &Path) -> Result<(), StoreError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::corrupt(path, &error)),
    };
    // The mode of a link says nothing, and that of a volume is its owner's choice.
    let facts = Facts {
        mode: PRIVATE_FOLDER,
        ..Facts::of(&found)
    };
    judge(path, facts, geteuid(), Purpose::Write)
}

fn judge(path: &Path, facts: Facts, us: Uid, purpose: Purpose) -> Result<(), StoreError> {
    let Facts { owner, mode } = facts;
    if !may_own(owner, us, purpose) {
        return Err(StoreError::NotOurs {
            path: path.to_owned(),
            owner: owner.as_raw(),
            us: us.as_raw(),
        });
    }
    // What is ours is closed when it is written to.
    if owner != us && !us.is_root() && mode & WRITE_OF_OTHERS != 0 {
        return Err(StoreError::Shared {
            path: path.to_owned(),
            mode: mode & 0o777,
        });
    }
    Ok(())
}

fn may_own(owner: Uid, us: Uid, purpose: Purpose) -> bool {
    owner == us || owner.is_root() || (purpose == Purpose::Read && us.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_owner_is_checked() {
        use Purpose::{Read, Write};
        let cases = [
            ("ours", 1001, 0o755, 1001, Write, None),
            ("ours, closed later", 1001, 0o777, 1001, Write, None),
            (
                "another user's",
                1002,
                0o700,
                1001,
                Read,
                Some("belongs to user 1002"),
            ),
            (
                "another user's",
                1002,
                0o777,
                1001,
                Write,
                Some("belongs to user 1002"),
            ),
            ("root's", 0, 0o755, 1001, Read, None),
            ("root's, for all", 0, 0o1777, 1001, Write, Some("mode 777")),
            (
                "root's, for a group",
                0,
                0o775,
                1001,
                Read,
                Some("mode 775"),
            ),
            ("root reads", 1001, 0o700, 0, Read, None),
            ("root reads what a group writes", 1001, 0o770, 0, Read, None),
            (
                "root writes",
                1001,
                0o700,
                0,
                Write,
                Some("belongs to user 1001"),
            ),
            ("root's own", 0, 0o777, 0, Write, None),
        ];
        for (name, owner, mode, us, purpose, want) in cases {
            let facts = Facts {
                owner: Uid::from_raw(owner),
                mode,
            };
            let got = judge(Path::new("/s"), facts, Uid::from_raw(us), purpose);
            match (got, want) {
                (Ok(()), None) => {}
                (Err(error), Some(want)) => {
                    assert!(error.to_string().contains(want), "{name}: {error}");
                    assert!(error.hint().is_some(), "{name}");
                }
                (got, want) => panic!("{name}: got {got:?}, want {want:?}"),
            }
        }
    }

    #[test]
    fn a_folder_is_closed_whatever_the_umask_was() {
        let outer = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let open = outer.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        make_folder(&open).unwrap();
        assert_eq!(mode(&open), 0o755);

        let private = outer.path().join("private");
        make_private_folder(&private).unwrap();
        assert_eq!(mode(&private), 0o700);
        assert!(
            make_private_folder(&private).is_err(),
            "never one that is there"
        );

        let link = outer.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        for purpose in [Purpose::Read, Purpose::Write] {
            let error = check_folder(&link, purpose).unwrap_err();
            assert!(matches!(error, StoreError::Linked { .. }), "{error}");
        }
        assert!(make_private_folder(&link).is_err());
        check_volume(&link).expect("a link of our own to a volume");
    }
}
