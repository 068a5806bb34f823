//! Why history cannot be read or written.

use std::{
    io,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;
use thiserror::Error;

/// How long one query may take, in seconds.
pub(crate) const QUERY_SECONDS: u64 = 20;

/// Why history cannot be read or written.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// There is no store.
    #[error("there is no history at `{}`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file, its folder or its lock cannot be used.
    #[error("cannot open history at `{}`", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// Another process writes to it.
    #[error("history at `{}` is being written by {holder}", path.display())]
    Held {
        /// The file.
        path: PathBuf,
        /// Who, as its lock file says.
        holder: String,
    },
    /// A newer version wrote it.
    #[error("history at `{}` has version {found}; this program reads versions up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program reads.
        known: i64,
    },
    /// It is a database, but another program's.
    #[error("`{}` is a database of another program", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged, or no database.
    #[error("history at `{}` cannot be read: the file is damaged, or is not a database", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What `SQLite` found.
        #[source]
        source: rusqlite::Error,
    },
    /// There is no room.
    #[error("there is no room for history at `{}`", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds it for longer than we wait.
    #[error("history at `{}` is busy: another process holds it", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A query took too long.
    #[error("the query of history at `{}` took longer than {seconds} s and was ended", path.display())]
    TooSlow {
        /// The file.
        path: PathBuf,
        /// The limit.
        seconds: u64,
    },
    /// Anything else that `SQLite` refuses.
    #[error("cannot {doing} in history at `{}`", path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// The step.
        doing: &'static str,
        /// What `SQLite` says.
        #[source]
        source: rusqlite::Error,
    },
    /// A line of an export that cannot be read.
    #[error("line {line} is not one of an export of history: {reason}")]
    NotAnExport {
        /// The line, from 1.
        line: u64,
        /// Why.
        reason: String,
    },
    /// The stream of an export cannot be read or written.
    #[error("cannot read or write the export")]
    Stream(#[source] io::Error),
}

impl HistoryError {
    /// What the reader can do.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { .. } => {
                "run `trainyard history sync` to create it; `--store` selects another file".into()
            }
            Self::Held { .. } => "wait until it ends, or end it; `--store` selects another file".into(),
            Self::Newer { .. } => "use a version of trainyard as new as the one that wrote it; the file was not changed".into(),
            Self::Foreign { .. } => "name another file with `--store`; this one was not changed".into(),
            Self::Damaged { path, .. } => format!(
                "move it aside and run `trainyard history sync`; what is readable can be copied with `sqlite3 {} .recover`",
                path.display()
            ),
            Self::Full { .. } => {
                "free space, or keep less with `trainyard history prune --detail 30d`".into()
            }
            Self::Busy { .. } => "try again once the other process has ended".into(),
            Self::TooSlow { .. } => "ask for less time with `--since`".into(),
            Self::Unusable { .. } | Self::Sql { .. } | Self::NotAnExport { .. } | Self::Stream(_) => return None,
        })
    }

    /// What an error of `SQLite` is for whoever asked for `doing`.
    pub(crate) fn of(path: &Path, doing: &'static str, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path, source }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(ErrorCode::OperationInterrupted) => Self::TooSlow {
                path,
                seconds: QUERY_SECONDS,
            },
            _ => Self::Sql {
                path,
                doing,
                source,
            },
        }
    }
}
