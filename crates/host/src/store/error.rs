//! Why the store cannot be read or written.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::VERSION;

/// Why the store cannot be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The folder, or a file in it, may not be written.
    #[error("cannot write to `{}`", path.display())]
    NotWritable {
        /// The folder or file.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// Something else has the folder's name.
    #[error("`{}` is not a folder", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// A link where a folder must be.
    #[error("`{}` is a symbolic link; the state of runs must be a folder itself", path.display())]
    Linked {
        /// The link.
        path: PathBuf,
    },
    /// Another user's folder or file.
    #[error("`{}` belongs to user {owner}, and this program runs as user {us}", path.display())]
    NotOurs {
        /// The folder or file.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// The number of the user that runs this program.
        us: u32,
    },
    /// A folder of root's that others can write to.
    #[error("`{}` belongs to root and other users can write to it (mode {mode:o})", path.display())]
    Shared {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file that must be there.
    #[error("`{}` is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file that does not hold what it must.
    #[error("`{}` cannot be understood: {message}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        message: String,
    },
    /// The folder was written by a program that knows more.
    #[error("`{}` states version {found}; this program knows up to {VERSION}", path.display())]
    Newer {
        /// The file that states it.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Another engine runs the job.
    #[error("job `{job}` runs already, in process {pid}")]
    Running {
        /// The job.
        job: String,
        /// The process that runs it.
        pid: u32,
    },
    /// No engine answers for the run.
    #[error("job `{job}` does not run")]
    NotRunning {
        /// The job.
        job: String,
        /// What was tried.
        #[source]
        source: io::Error,
    },
    /// The job never ran.
    #[error("no run of job `{job}` is in `{}`", root.display())]
    NoSuchJob {
        /// The job.
        job: String,
        /// The store.
        root: PathBuf,
    },
}

impl StoreError {
    /// What the reader can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotWritable { .. } => {
                "run it in a folder that you may write, or name one for its state".to_owned()
            }
            Self::NotAFolder { path } => {
                format!("rename `{}`; it was left as it is", path.display())
            }
            Self::Linked { path } => format!(
                "nothing was read or written; name the folder that `{}` leads to with `--state-dir`, or remove the link",
                path.display()
            ),
            Self::NotOurs { .. } | Self::Shared { .. } => {
                "nothing was read or written, because whoever can write there decides what a run executes; \
                 name a folder of your own with `--state-dir`, or run as its owner"
                    .to_owned()
            }
            Self::Missing { .. } => {
                "the run was cut short before it was written; remove its folder if you do not need it"
                    .to_owned()
            }
            Self::Corrupt { path, .. } => format!(
                "nothing was changed; move `{}` away to go on without it",
                path.display()
            ),
            Self::Newer { .. } => "use the newer program, or another folder".to_owned(),
            Self::Running { job, .. } => {
                format!("follow it with `trainyard logs {job}`, or wait until it has ended")
            }
            Self::NotRunning { .. } | Self::NoSuchJob { .. } => {
                "`trainyard ps` lists what ran here".to_owned()
            }
        })
    }

    pub(super) fn corrupt(path: &Path, message: &impl fmt::Display) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            message: message.to_string(),
        }
    }
}
