//! The checkpoint folder: saving so that a kill at any moment leaves a whole checkpoint behind.
//!
//! Flow: bytes go to a temporary file, which is synced and renamed to `step-NNNNNNNN.checkpoint`;
//! the folder is synced; then `latest`, a file that holds that name, is replaced in the same way.
//! Only rank 0 uses the folder.
//!
//! Invariant: `latest` never names a file that is not whole, unless the storage lost what it had
//! promised to keep; then the newest whole file is used, with a warning.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::state::{Identity, State};

const LATEST: &str = "latest";
const PREFIX: &str = "step-";
const SUFFIX: &str = ".checkpoint";
const TEMPORARY: &str = ".temporary";
/// No state of this trainer is near it; a limit against a wrong file filling the memory.
const BYTES_MAX: u64 = 1 << 30;

/// A folder of checkpoints.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    keep: usize,
}

/// What a save did.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) path: PathBuf,
    pub(crate) bytes: usize,
    pub(crate) took: Duration,
}

/// What could not be done with the folder.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The folder cannot be made or listed.
    #[error("cannot use the checkpoint folder `{path}`")]
    Open {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A save did not succeed; earlier ones are still there.
    #[error("cannot save step {step} to `{path}`")]
    Save {
        /// The step.
        step: u64,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The folder belongs to a run with other settings.
    #[error(
        "`{path}` was saved with another {what}: {found}, this run has {wanted}; use the same, or \
         another `--checkpoint-dir`"
    )]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// The setting that differs.
        what: &'static str,
        /// What it was.
        found: String,
        /// What it is.
        wanted: String,
    },
}

impl Folder {
    /// Creates the folder if it does not exist.
    pub(crate) fn open(path: &Path, keep: usize) -> Result<Self, CheckpointError> {
        fs::create_dir_all(path).map_err(|source| CheckpointError::Open {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            keep,
        })
    }

    /// Saves `state` and removes what is older than the newest few.
    pub(crate) fn save(&self, state: &State) -> Result<Saved, CheckpointError> {
        let begun = Instant::now();
        let name = file_name(state.step);
        let bytes = state.encode();
        let write = || {
            self.replace(&name, &bytes)?;
            self.replace(LATEST, format!("{name}\n").as_bytes())?;
            self.prune(&name)
        };
        let path = self.path.join(&name);
        match write() {
            Ok(()) => Ok(Saved {
                path,
                bytes: bytes.len(),
                took: begun.elapsed(),
            }),
            Err(source) => Err(CheckpointError::Save {
                step: state.step,
                path,
                source,
            }),
        }
    }

    /// The state to resume from, if there is one. Incomplete files are skipped, each with a warning
    /// to `warn`.
    pub(crate) fn load(
        &self,
        identity: &Identity,
        warn: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Result<Option<State>, CheckpointError> {
        let open = |source| CheckpointError::Open {
            path: self.path.clone(),
            source,
        };
        for name in self.candidates().map_err(open)? {
            let path = self.path.join(&name);
            let sentence = match read(&path) {
                Ok(bytes) => match State::decode(&bytes) {
                    Ok(state) => return same_run(&path, state, identity).map(Some),
                    Err(error) => format!("skipped `{}`: {error}", path.display()),
                },
                Err(error) => format!("skipped `{}`: {error}", path.display()),
            };
            warn(&sentence).map_err(open)?;
        }
        Ok(None)
    }

    /// Names of checkpoints in the order to try them: the one `latest` names, then newest first.
    fn candidates(&self) -> io::Result<Vec<String>> {
        let latest = read(&self.path.join(LATEST)).unwrap_or_default();
        let latest = String::from_utf8_lossy(&latest).trim_end().to_owned();
        let mut names = self.names()?;
        // A stable sort on "is not the latest" moves that one to the front.
        names.sort_by_key(|(_, name)| *name != latest);
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }

    /// Checkpoints with their steps, newest first.
    fn names(&self) -> io::Result<Vec<(u64, String)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string()
                && let Some(step) = step_of(&name)
            {
                names.push((step, name));
            }
        }
        names.sort_by(|a, b| b.cmp(a));
        Ok(names)
    }

    /// Writes the file `name` atomically and durably.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.path.join(format!("{name}{TEMPORARY}"));
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, self.path.join(name))?;
        // Without this the rename itself may be lost with the power.
        File::open(&self.path)?.sync_all()
    }

    /// Removes all but the newest few, and what an interrupted save left.
    ///
    /// `current` stays even if files of later steps, from a run that was rolled back, are newer.
    fn prune(&self, current: &str) -> io::Result<()> {
        let names = self.names()?;
        let older = names.iter().filter(|(_, name)| name != current);
        for (_, name) in older.skip(self.keep.saturating_sub(1)) {
            fs::remove_file(self.path.join(name))?;
        }
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let left = entry.file_name().into_string().is_ok_and(|name| {
                let name = name.strip_suffix(TEMPORARY);
                name.is_some_and(|name| name == LATEST || step_of(name).is_some())
            });
            if left {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn file_name(step: u64) -> String {
    format!("{PREFIX}{step:08}{SUFFIX}")
}

fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let step = digits.parse().ok()?;
    (file_name(step) == name).then_some(step)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let length = fs::metadata(path)?.len();
    if length > BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has {length} bytes, the maximum is {BYTES_MAX}"),
        ));
    }
    fs::read(path)
}

fn same_run(path: &Path, state: State, identity: &Identity) -> Result<State, CheckpointError> {
    let found = &state.identity;
    let settings = [
        ("`--seed`", found.seed, identity.seed),
        (
            "`--hidden`",
            found.shape.hidden as u64,
            identity.shape.hidden as u64,
        ),
        ("data set (checksum)", found.data, identity.data),
    ];
    for (what, found, wanted) in settings {
        if found != wanted {
            return Err(CheckpointError::OtherRun {
                path: path.to_owned(),
                what,
                found: found.to_string(),
                wanted: wanted.to_string(),
            });
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests;
