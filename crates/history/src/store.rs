//! The file that is written: opened by one process at a time.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};

use crate::{
    HistoryError,
    lock::{self, Lock, beside},
    schema::{self, APPLICATION, Found},
};

/// How long a write waits for a reader that holds the file.
const PATIENCE: Duration = Duration::from_secs(10);
/// Room for ends that is set aside while there is room.
const RESERVE: u64 = 1 << 20;
/// Pages of the write-ahead log after which it is written into the file: fewer than the room that is set aside holds, so that this works on a full disk.
const CHECKPOINT_PAGES: i64 = 200;
/// The same without room.
const CHECKPOINT_PAGES_FULL: i64 = 16;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who opens it, for whoever is refused meanwhile.
    pub holder: String,
    /// The most pages that the file may have; nothing for as many as the disk holds.
    pub pages_max: Option<u32>,
}

/// History, open for writing.
#[derive(Debug)]
pub struct Store {
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
    /// Detail is not written: there is no room.
    pub(crate) is_full: bool,
    pages_max: Option<u32>,
    on_network: bool,
    _lock: Lock,
}

impl Store {
    /// Opens the store at `path`, and makes it where there is none.
    pub fn open(path: &Path, options: &Options) -> Result<Self, HistoryError> {
        let unusable = |source| HistoryError::Unusable {
            path: path.to_owned(),
            source,
        };
        lock::make_folder(path).map_err(unusable)?;
        let lock = Lock::take(path, &options.holder)?;
        // Made here, so that it is its owner's alone from the first moment.
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(unusable)?;
        let on_network = lock::lies_on_network(path).map_err(unusable)?;
        let refused = |source| HistoryError::of(path, "open the file", source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(refused)?;
        connection.busy_timeout(PATIENCE).map_err(refused)?;
        if on_network {
            connection
                .pragma_update(None, "locking_mode", "EXCLUSIVE")
                .map_err(refused)?;
        }
        let found = schema::find(&connection, path)?;
        if found == Found::Empty {
            // Before the first table, which fixes it.
            let pragma = |name, value| connection.pragma_update(None, name, value);
            pragma("auto_vacuum", 2).map_err(refused)?;
            pragma("application_id", APPLICATION).map_err(refused)?;
        }
        let journal = if on_network { "TRUNCATE" } else { "WAL" };
        connection
            .pragma_update_and_check(None, "journal_mode", journal, |_| Ok(()))
            .map_err(refused)?;
        connection
            .pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
            .map_err(refused)?;
        schema::migrate(&mut connection, path, schema::STEPS)?;
        let mut store = Self {
            path: path.to_owned(),
            connection,
            is_full: false,
            pages_max: options.pages_max,
            on_network,
            _lock: lock,
        };
        store.limit_pages(0)?;
        store.set_aside();
        Ok(store)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it lies on a network file system, where readers wait for writers.
    pub fn is_on_network(&self) -> bool {
        self.on_network
    }

    /// Whether detail is not written because there is no room.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Bytes of the file that are used.
    pub fn bytes(&self) -> Result<u64, HistoryError> {
        let refused = |source| HistoryError::of(&self.path, "read the size", source);
        let number = |name: &str| -> Result<u64, HistoryError> {
            let value: i64 = self
                .connection
                .pragma_query_value(None, name, |row| row.get(0))
                .map_err(refused)?;
            Ok(value.try_into().unwrap_or(0))
        };
        let used = number("page_count")?.saturating_sub(number("freelist_count")?);
        Ok(used.saturating_mul(number("page_size")?))
    }

    /// From now on only ends are written, into the room that was set aside.
    pub(crate) fn fill(&mut self) {
        self.is_full = true;
        drop(fs::remove_file(beside(&self.path, "reserve")));
        let reserve = u32::try_from(RESERVE / 4_096).unwrap_or(0);
        drop(self.limit_pages(reserve));
        // Best effort: what fails here fails again where it is reported.
        let often = ("wal_autocheckpoint", CHECKPOINT_PAGES_FULL);
        drop(self.connection.pragma_update(None, often.0, often.1));
        drop(
            self.connection
                .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)"),
        );
    }

    fn limit_pages(&mut self, more: u32) -> Result<(), HistoryError> {
        let Some(most) = self.pages_max else {
            return Ok(());
        };
        let most = i64::from(most.saturating_add(more));
        self.connection
            .pragma_update_and_check(None, "max_page_count", most, |_| Ok(()))
            .map_err(|source| HistoryError::of(&self.path, "limit the file", source))
    }

    /// Sets room for ends aside. Without room for that, there is none for detail either.
    fn set_aside(&mut self) {
        let path = beside(&self.path, "reserve");
        if fs::symlink_metadata(&path).is_ok_and(|it| it.is_file() && it.len() >= RESERVE) {
            return;
        }
        let written = lock::open_beside(&path).and_then(|mut file| {
            file.set_len(0)?;
            let zeros = [0_u8; 8 << 10];
            for _ in 0..RESERVE / (8 << 10) {
                file.write_all(&zeros)?;
            }
            Ok(())
        });
        if written.is_err() {
            self.fill();
        }
    }
}
