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
    #[error("`{}` is a symbolic link; the state folder must be a real folder", path.display())]
    Linked {
        /// The link.
        path: PathBuf,
    },
    /// Another user's folder or file.
    #[error("`{}` belongs to user {owner}, but this program runs as user {us}", path.display())]
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
    #[error("cannot parse `{}`: {message}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        message: String,
    },
    /// The folder was written by a program that knows more.
    #[error("`{}` has version {found}; this program supports up to {VERSION}", path.display())]
    Newer {
        /// The file that states it.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Another engine runs the job.
    #[error("job `{job}` is already running, in process {pid}")]
    Running {
        /// The job.
        job: String,
        /// The process that runs it.
        pid: u32,
    },
    /// No engine answers for the run.
    #[error("job `{job}` is not running")]
    NotRunning {
        /// The job.
        job: String,
        /// What was tried.
        #[source]
        source: io::Error,
    },
    /// The engine of the run is stopped, so it answers nobody.
    #[error("the engine of job `{job}`, process {pid}, is stopped (Ctrl-Z or SIGSTOP)")]
    EngineStopped {
        /// The job.
        job: String,
        /// The engine's process.
        pid: u32,
    },
    /// The engine of the run could not be asked, or did not answer.
    #[error("no answer from job `{job}`")]
    NoAnswer {
        /// The job.
        job: String,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// The engine of the run refused what it was asked for.
    #[error("{message}")]
    Refused {
        /// Why.
        message: String,
    },
    /// The job never ran.
    #[error("no run of job `{job}` in `{}`", root.display())]
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
                "run it in a writable folder, or choose a state folder".to_owned()
            }
            Self::NotAFolder { path } => {
                format!("rename `{}`; it was not changed", path.display())
            }
            Self::Linked { path } => format!(
                "nothing was read or written; pass the target of `{}` to `--state-dir`, or remove the link",
                path.display()
            ),
            Self::NotOurs { .. } | Self::Shared { .. } => {
                "nothing was read or written, because whoever can write there decides what a run executes; \
                 choose a folder of your own with `--state-dir`, or run as its owner"
                    .to_owned()
            }
            Self::Missing { .. } => {
                "the run was interrupted before it was written; delete its folder if you do not need it"
                    .to_owned()
            }
            Self::Corrupt { path, .. } => format!(
                "nothing was changed; move `{}` away to continue without it",
                path.display()
            ),
            Self::Newer { .. } => "use a newer version of trainyard, or another state folder".to_owned(),
            Self::Running { job, .. } => {
                format!("watch it with `trainyard logs {job} --follow`, or wait until it has ended")
            }
            Self::NotRunning { .. } | Self::NoSuchJob { .. } => {
                "`trainyard ps` lists all runs".to_owned()
            }
            Self::EngineStopped { pid, .. } => {
                format!("`kill -CONT {pid}` continues it; its pods run meanwhile")
            }
            Self::Refused { .. } | Self::NoAnswer { .. } => return None,
        })
    }

    pub(super) fn corrupt(path: &Path, message: &impl fmt::Display) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            message: message.to_string(),
        }
    }
}
