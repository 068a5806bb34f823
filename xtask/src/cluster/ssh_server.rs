//! An ssh server for the image of tools, on a machine that has none.
//!
//! Its packages are unpacked into the cache and never installed: the machine gets no service, no user
//! and no keys by it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Failure,
    cache::{self, cannot},
    report, step,
};

/// Where the machine has it.
const PROGRAM: &str = "usr/sbin/sshd";
/// The package of Debian, and libraries that come with no other program of the image.
const PACKAGES: &[&str] = &["openssh-server", "libwrap0", "libnsl2"];

/// Whether nothing has to be fetched: the machine has one, or the cache does.
pub(super) fn is_there() -> Result<bool, Failure> {
    Ok(Path::new("/").join(PROGRAM).is_file() || folder()?.exists())
}

fn folder() -> Result<PathBuf, Failure> {
    Ok(cache::folder()?.join("cluster/ssh-server"))
}

/// The root below which an ssh server lies with its own libraries; none where the machine has one.
///
/// It is unpacked in `work`, which must be on the file system of the cache, by programs that `helper` prepares.
pub(super) fn root(
    work: &Path,
    helper: impl Fn(&str) -> Command,
) -> Result<Option<PathBuf>, Failure> {
    if Path::new("/").join(PROGRAM).is_file() {
        return Ok(None);
    }
    let root = folder()?;
    if root.exists() {
        return Ok(Some(root));
    }
    report::progress("fetching an ssh server for the image of tools, once");
    let unfinished = work.join("ssh-server");
    let packages = work.join("packages");
    for folder in [&unfinished, &packages] {
        fs::create_dir_all(folder).map_err(cannot("make", folder))?;
    }
    step::run(
        helper("apt-get")
            .args(["--quiet=2", "download"])
            .args(PACKAGES)
            .current_dir(&packages),
    )?;
    for entry in fs::read_dir(&packages).map_err(cannot("list", &packages))? {
        let entry = entry.map_err(cannot("list", &packages))?;
        step::run(
            helper("dpkg-deb")
                .arg("--extract")
                .arg(entry.path())
                .arg(&unfinished),
        )?;
    }
    let parent = root.parent().expect("a folder of the cache");
    fs::create_dir_all(parent).map_err(cannot("make", parent))?;
    fs::rename(&unfinished, &root).map_err(cannot("make", &root))?;
    Ok(Some(root))
}

/// Every file below `root` that is a program or a library, as seen from there.
pub(super) fn files(root: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut files = BTreeSet::from([PathBuf::from(PROGRAM)]);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(cannot("list", &folder))? {
            let path = entry.map_err(cannot("list", &folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                folders.push(path);
            } else if name.contains(".so.")
                && let Ok(within) = path.strip_prefix(root)
            {
                files.insert(within.to_owned());
            }
        }
    }
    Ok(files)
}
