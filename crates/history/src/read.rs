//! Questions about history, from any process, while another one writes.
//!
//! Every query ends after [`LIMIT`], and every list after [`LISTED_MAX`] rows.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, Row, params};
use serde::Serialize;

use crate::{
    HistoryError,
    error::QUERY_SECONDS,
    lock,
    schema::{self, Found},
};

/// How long one query may take.
const LIMIT: Duration = Duration::from_secs(QUERY_SECONDS);
/// How long a query waits for a writer, where both cannot work at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Steps of `SQLite`'s machine between two looks at the clock: about a millisecond.
const STEPS: i32 = 20_000;
/// Runs of one list.
pub const LISTED_MAX: u32 = 10_000;

/// History, open for reading.
#[derive(Debug)]
pub struct Reader {
    pub(crate) path: PathBuf,
    connection: Connection,
    until: Arc<Mutex<Instant>>,
}

/// Which runs are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Runs that were made, or still ran, since then, in Unix milliseconds.
    pub since: Option<i64>,
    /// Runs with this outcome; `live` for those without one.
    pub outcome: Option<String>,
    /// Runs of this team.
    pub team: Option<String>,
    /// Runs of jobs of this kind.
    pub kind: Option<String>,
    /// Runs of the job with this name.
    pub job: Option<String>,
    /// At most so many, the newest; no more than [`LISTED_MAX`].
    pub limit: u32,
}

/// A list of runs, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// How many runs pass the filter.
    pub total: u64,
    /// Those that are listed.
    pub runs: Vec<Listed>,
}

/// A run of a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its id.
    pub uid: String,
    /// The cluster; empty for a run of one machine.
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// The job.
    pub job: String,
    /// Its kind.
    pub kind: String,
    /// Its team.
    pub team: String,
    /// How many ranks it has.
    pub ranks: u32,
    /// How many accelerators it asks for, where that is known.
    pub accelerators: Option<u32>,
    /// When it was made, in Unix milliseconds; so are the times below.
    pub created: i64,
    /// When it ended.
    pub ended: Option<i64>,
    /// How; nothing while it lives.
    pub outcome: Option<String>,
    /// The label of the verdict that explains it.
    pub cause: Option<String>,
    /// In one sentence.
    pub sentence: Option<String>,
    /// How many attempts were made.
    pub attempts: u32,
    /// The furthest step.
    pub last_step: Option<i64>,
    /// Share of the time in which it was meant to train that it trained; nothing before any such time is closed.
    pub trained_ratio: Option<f64>,
    /// The phase of a live run, as it was last seen.
    pub phase: Option<String>,
    /// When it was last seen.
    pub seen: i64,
}

impl Reader {
    /// Opens the store at `path`. Reads only.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let missing = || HistoryError::Missing {
            path: path.to_owned(),
        };
        let unusable = |source| HistoryError::Unusable {
            path: path.to_owned(),
            source,
        };
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(unusable(std::io::ErrorKind::IsADirectory.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
            Err(error) => return Err(unusable(error)),
        }
        let refused = |source| HistoryError::of(path, "open the file", source);
        // Readers of a write-ahead log write into its shared memory; where the folder may not be written, they read without it.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(refused)?;
        connection.busy_timeout(PATIENCE).map_err(refused)?;
        if schema::find(&connection, path)? == Found::Empty {
            return Err(missing());
        }
        let until = Arc::new(Mutex::new(Instant::now() + LIMIT));
        let shared = Arc::clone(&until);
        let is_late =
            move || Instant::now() > *shared.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .progress_handler(STEPS, Some(is_late))
            .map_err(refused)?;
        Ok(Self {
            path: path.to_owned(),
            connection,
            until,
        })
    }

    /// Whether it lies on a network file system, where readers wait for writers.
    pub fn is_on_network(&self) -> bool {
        lock::lies_on_network(&self.path).unwrap_or(false)
    }

    /// The runs that pass `filter`.
    pub fn list(&self, filter: &Filter) -> Result<Listing, HistoryError> {
        const WHERE: &str = "(?1 IS NULL OR run.created >= ?1 OR run.ended >= ?1 OR run.ended IS NULL) \
             AND (?2 IS NULL OR run.outcome = ?2 OR (?2 = 'live' AND run.ended IS NULL)) \
             AND (?3 IS NULL OR run.team = ?3) AND (?4 IS NULL OR run.kind = ?4) AND (?5 IS NULL OR run.name = ?5)";
        let (outcome, team) = (filter.outcome.as_deref(), filter.team.as_deref());
        let (kind, job) = (filter.kind.as_deref(), filter.job.as_deref());
        let values = params![filter.since, outcome, team, kind, job];
        let count = format!("SELECT COUNT(*) FROM run WHERE {WHERE}");
        let total = self.rows("count runs", &count, values, |row| row.get::<_, i64>(0))?;
        let total = total.first().copied().unwrap_or(0);
        let sql = format!(
            "SELECT uid, cluster, namespace, name, kind, team, ranks, accelerators, created, ended, outcome, cause, sentence, \
             attempts, last_step, phase, seen, \
             (SELECT SUM(ms) FROM run_day WHERE run_day.run = run.id AND run_day.phase = 'training'), \
             (SELECT SUM(ms) FROM run_day WHERE run_day.run = run.id AND run_day.phase <> 'suspended') \
             FROM run WHERE {WHERE} ORDER BY run.created DESC, run.uid DESC LIMIT ?6"
        );
        let limit = filter.limit.min(LISTED_MAX);
        let values = params![filter.since, outcome, team, kind, job, limit];
        let runs = self.rows("list runs", &sql, values, listed)?;
        Ok(Listing {
            total: total.try_into().unwrap_or(0),
            runs,
        })
    }

    /// All rows of a query, within the limit of time.
    pub(crate) fn rows<T>(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl rusqlite::Params,
        each: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, HistoryError> {
        let refused = |source| HistoryError::of(&self.path, doing, source);
        self.begin();
        let mut statement = self.connection.prepare(sql).map_err(refused)?;
        let rows = statement.query_map(values, each).map_err(refused)?;
        rows.collect::<Result<_, _>>().map_err(refused)
    }

    /// Gives the next query its time.
    fn begin(&self) {
        self.allow(LIMIT);
    }

    pub(crate) fn allow(&self, limit: Duration) {
        let until = Instant::now() + limit;
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

fn listed(row: &Row<'_>) -> rusqlite::Result<Listed> {
    let trained: Option<i64> = row.get(17)?;
    let meant: Option<i64> = row.get(18)?;
    Ok(Listed {
        uid: row.get(0)?,
        cluster: row.get(1)?,
        namespace: row.get(2)?,
        job: row.get(3)?,
        kind: row.get(4)?,
        team: row.get(5)?,
        ranks: row.get(6)?,
        accelerators: row.get(7)?,
        created: row.get(8)?,
        ended: row.get(9)?,
        outcome: row.get(10)?,
        cause: row.get(11)?,
        sentence: row.get(12)?,
        attempts: row.get(13)?,
        last_step: row.get(14)?,
        phase: row.get(15)?,
        seen: row.get(16)?,
        trained_ratio: ratio(trained.unwrap_or(0), meant.unwrap_or(0)),
    })
}

/// `part` of `whole`; nothing where there is no whole.
#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a fleet fit a double for a share"
)]
pub(crate) fn ratio(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
