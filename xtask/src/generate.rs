//! `cargo xtask gen`: the reference pages that the program writes about itself, and the manifests
//! that are made from its types and tables.
//!
//! Invariant: a file is either written by hand or listed here, never both, so that nothing a
//! person wrote is overwritten.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Failure, alerts, step};

/// Whether pages are written or compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write them.
    Write,
    /// Fail where one differs from what would be written.
    Check,
}

/// Each page, and the word after `trainyard reference` that prints it.
const PAGES: &[(&str, &str)] = &[
    ("docs/reference/cli.md", "cli"),
    ("docs/reference/lint-rules.md", "lint-rules"),
    ("docs/reference/doctor-rules.md", "doctor-rules"),
    ("docs/reference/preflight-checks.md", "preflight-checks"),
];

/// Folders in which every file is generated: one that is no longer made is stale.
const FOLDERS: &[&str] = &["deploy/alerts", "deploy/crds", "deploy/grafana"];

/// Writes or compares every file.
pub(crate) fn run(mode: Mode) -> Result<(), Failure> {
    let mut want = manifests()?;
    want.extend(alerts::files());
    let program = step::shared_program("trainyard")?;
    for (page, word) in PAGES {
        let mut command = Command::new(&program);
        let text = step::capture(command.args(["reference", word]).current_dir(step::root()))?;
        want.insert(PathBuf::from(page), text);
    }
    let mut stale = Vec::new();
    for (file, want) in &want {
        let path = step::root().join(file);
        if fs::read_to_string(&path).is_ok_and(|have| have == *want) {
            continue;
        }
        match mode {
            Mode::Check => stale.push(file.display().to_string()),
            Mode::Write => {
                write(&path, want)?;
                println!("wrote {}", file.display());
            }
        }
    }
    for file in left_over(&want)? {
        match mode {
            Mode::Check => stale.push(file.display().to_string()),
            Mode::Write => {
                fs::remove_file(step::root().join(&file))
                    .map_err(|error| cannot("remove", &file, &error))?;
                println!("removed {}", file.display());
            }
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "stale: {}\n\nhint: run `cargo xtask gen` and commit what it writes",
            stale.join(", ")
        )))
    }
}

/// The manifests by their path from the root, as a program of `tools/programs` writes
/// them: chores depend on no crate of the workspace.
fn manifests() -> Result<BTreeMap<PathBuf, String>, Failure> {
    let folder = step::root().join("target/xtask/manifests");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| cannot("clear", &folder, &error))?;
    }
    let mut command = step::tool("manifests")?;
    step::run(command.arg(&folder))?;
    let mut found = BTreeMap::new();
    for path in files(&folder)? {
        let text = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?;
        let name = path.strip_prefix(&folder).unwrap_or(&path);
        found.insert(name.to_owned(), text);
    }
    Ok(found)
}

/// Files of the generated folders that are not in `want`.
fn left_over(want: &BTreeMap<PathBuf, String>) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let have = files(&step::root().join(folder))?;
        found.extend(
            have.iter()
                .filter_map(|path| path.strip_prefix(step::root()).ok())
                .filter(|file| !want.contains_key(*file))
                .map(Path::to_owned),
        );
    }
    Ok(found)
}

/// Every file below `folder`; none where the folder does not exist.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop().filter(|folder| folder.exists()) {
        for entry in fs::read_dir(&folder).map_err(|error| cannot("list", &folder, &error))? {
            let path = entry
                .map_err(|error| cannot("list", &folder, &error))?
                .path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))?;
    fs::write(path, text).map_err(|error| cannot("write", path, &error))
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::CouldNotRun(format!("cannot {verb} `{}`: {error}", path.display()))
}
