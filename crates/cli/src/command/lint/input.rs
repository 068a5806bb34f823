//! Which files are read: those that are named, and those in the folders that are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::failure::Failure;

/// How deep folders are followed.
const MAX_DEPTH: usize = 16;
/// The most files that are taken out of folders.
const MAX_FILES: usize = 100_000;
/// What the name of a manifest in a folder ends with.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The files of `path`: itself, or where it is a folder the manifests below it, sorted by name.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    walk(path, 0, &mut found)?;
    if found.is_empty() {
        let message = format!("no manifests in `{}`", path.display());
        return Err(
            Failure::new(message).hint("manifests are files that end with .yaml, .yml or .json")
        );
    }
    Ok(found)
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let cannot = || format!("cannot read the folder `{}`", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        paths.push(entry.with_context(cannot)?.path());
    }
    paths.sort();
    for path in paths {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // A link to a folder may point back to this one.
        let is_folder = path.is_dir() && !path.is_symlink();
        if is_folder && !hidden {
            if depth >= MAX_DEPTH {
                let message = format!(
                    "the folder `{}` is more than {MAX_DEPTH} levels deep",
                    path.display()
                );
                return Err(Failure::new(message).hint("pass it by name"));
            }
            walk(&path, depth + 1, found)?;
        } else if path.is_file() && is_manifest(&path) {
            found.push(path);
        }
        if found.len() > MAX_FILES {
            let message = format!(
                "there are more than {MAX_FILES} manifests in `{}`",
                folder.display()
            );
            return Err(Failure::new(message).hint("pass a smaller folder"));
        }
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.contains(&ending))
}
