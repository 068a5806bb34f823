//! The version of the tables, and how an older file becomes one of this version.
//!
//! Invariants: steps are numbered and only go forward, each in a transaction of its own with its number. Before the first step of an older file
//! its copy is written beside it. A file whose number is not known is not changed.

use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use rusqlite::Connection;

use crate::{HistoryError, lock::beside};

/// The version that this program writes.
pub(crate) const VERSION: i64 = 1;
/// `TYHI`: how a file says that it is ours.
pub(crate) const APPLICATION: i64 = 0x5459_4849;
/// The step to each version from the one before.
pub(crate) const STEPS: &[&str] = &[include_str!("schema/0001.sql")];

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing is in it.
    Empty,
    /// It has this version, which this program can read or raise.
    Version(i64),
}

/// What `connection` has open. Reads only.
pub(crate) fn find(connection: &Connection, path: &Path) -> Result<Found, HistoryError> {
    let refused = |source| HistoryError::of(path, "read the version", source);
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0));
    let application: i64 = number("application_id").map_err(refused)?;
    let version: i64 = number("user_version").map_err(refused)?;
    let tables: i64 = connection
        .query_row("SELECT COUNT(*) FROM sqlite_master", [], |row| row.get(0))
        .map_err(refused)?;
    match (application, version) {
        (APPLICATION, version) if version > VERSION => Err(HistoryError::Newer {
            path: path.to_owned(),
            found: version,
            known: VERSION,
        }),
        (APPLICATION, version) if version > 0 => Ok(Found::Version(version)),
        // Killed before the first step.
        (0 | APPLICATION, 0) if tables == 0 => Ok(Found::Empty),
        _ => Err(HistoryError::Foreign {
            path: path.to_owned(),
        }),
    }
}

/// Raises the file to the last of `steps`.
pub(crate) fn migrate(
    connection: &mut Connection,
    path: &Path,
    steps: &[&str],
) -> Result<(), HistoryError> {
    let version = match find(connection, path)? {
        Found::Empty => 0,
        Found::Version(version) => version,
    };
    let refused = |source| HistoryError::of(path, "change the tables", source);
    let count = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    if version > 0 && version < count {
        copy(connection, path, version)?;
    }
    for (step, number) in steps.iter().zip(1_i64..) {
        if number <= version {
            continue;
        }
        let transaction = connection.transaction().map_err(refused)?;
        transaction.execute_batch(step).map_err(refused)?;
        transaction
            .pragma_update(None, "user_version", number)
            .map_err(refused)?;
        transaction.commit().map_err(refused)?;
    }
    Ok(())
}

/// Copies the file as it is to `FILE.vN`, unless that was done before.
fn copy(connection: &Connection, path: &Path, version: i64) -> Result<(), HistoryError> {
    let unusable = |source| HistoryError::Unusable {
        path: path.to_owned(),
        source,
    };
    let (half, whole) = (
        beside(path, &format!("v{version}.part")),
        beside(path, &format!("v{version}")),
    );
    if whole.exists() {
        return Ok(());
    }
    // Of one who was killed meanwhile.
    if half.exists() {
        fs::remove_file(&half).map_err(unusable)?;
    }
    // Its owner's alone from the first moment; `VACUUM INTO` writes into a file that is empty.
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&half)
        .map_err(unusable)?;
    let name = half.to_string_lossy();
    connection
        .execute("VACUUM INTO ?1", [name.as_ref()])
        .map_err(|source| HistoryError::of(path, "copy the file", source))?;
    fs::rename(&half, &whole).map_err(unusable)
}
