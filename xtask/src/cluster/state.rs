//! The folder of one cluster: its files, logs, keys and the links to its programs.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::{
    Failure,
    cache::{self, cannot},
};

/// The name of a cluster that is not given one.
pub(super) const DEFAULT_NAME: &str = "default";
/// It becomes part of paths and of names of cgroups and devices.
const LONGEST_NAME: usize = 32;
/// How much of a log is quoted in an error.
const LAST_LINES: usize = 12;

/// The folder of one cluster, which need not exist.
#[derive(Debug)]
pub(super) struct State {
    name: String,
    folder: PathBuf,
    /// Held until the change is done.
    lock: Option<File>,
}

impl State {
    /// The folder of the cluster `name`, for a look.
    pub(super) fn of(name: &str) -> Result<Self, Failure> {
        if !is_name(name) {
            return Err(Failure::CouldNotRun(format!(
                "invalid cluster name `{name}`: expected at most {LONGEST_NAME} of a-z, 0-9 and `-`, \
                 with no `-` at either end"
            )));
        }
        let root = cache::folder()?.join("cluster/run");
        fs::create_dir_all(&root).map_err(cannot("make", &root))?;
        // The folder is compared with what processes were started with, so links must not matter.
        let root = fs::canonicalize(&root).map_err(cannot("find", &root))?;
        Ok(Self {
            name: name.to_owned(),
            folder: root.join(name),
            lock: None,
        })
    }

    /// The folder of the cluster `name`, for a change: no other call changes it meanwhile.
    pub(super) fn locked(name: &str) -> Result<Self, Failure> {
        let mut state = Self::of(name)?;
        let path = state.folder.with_extension("lock");
        let lock = File::create(&path).map_err(cannot("make", &path))?;
        lock.lock().map_err(cannot("lock", &path))?;
        state.lock = Some(lock);
        Ok(state)
    }

    /// Makes the folder, readable by its owner alone: it holds keys.
    pub(super) fn make(&self) -> Result<(), Failure> {
        for folder in ["", "bin", "logs", "pids", "pieces", "keys"] {
            let path = self.folder.join(folder);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(cannot("make", &path))?;
        }
        Ok(())
    }

    /// Removes the folder and what it holds.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(cannot("remove", &self.folder)(error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file of the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same as text, for the arguments of programs.
    pub(super) fn text(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// A program of the cluster.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// What a piece writes.
    pub(super) fn log(&self, piece: &str) -> PathBuf {
        self.folder.join("logs").join(piece)
    }

    /// The end of a piece's log, to be added to an error.
    pub(super) fn log_tail(&self, piece: &str) -> String {
        let text = fs::read(self.log(piece)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LAST_LINES);
        let mut words = String::new();
        for line in lines.iter().skip(from) {
            words.push_str("\n  ");
            words.push_str(line);
        }
        words
    }

    /// Writes a file that only its owner may read; it is there whole or not at all.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.file(name);
        let parent = path.parent().expect("a file lies in a folder");
        fs::create_dir_all(parent).map_err(cannot("make", parent))?;
        let unfinished = path.with_added_extension("unfinished");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)
            .map_err(cannot("write", &unfinished))?;
        file.write_all(text.as_bytes())
            .map_err(cannot("write", &unfinished))?;
        fs::rename(&unfinished, &path).map_err(cannot("write", &path))?;
        Ok(path)
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    name.len() <= LONGEST_NAME
        && name.starts_with(allowed)
        && name.ends_with(allowed)
        && name.chars().all(|letter| allowed(letter) || letter == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_safe_in_paths_are_names() {
        for (name, good) in [
            ("default", true),
            ("a", true),
            ("two-words-2", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a/b", false),
            ("..", false),
            ("a234567890123456789012345678901234", false),
        ] {
            assert_eq!(is_name(name), good, "{name}");
        }
    }
}
