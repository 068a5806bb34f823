//! Facts become rows: at most [`BATCH`] of them in one transaction, with the sums that they change and the number of the fact that comes next.
//!
//! Flow: [`Store::write`] as often as facts come, then [`Store::end`] once nothing comes any more.
//! Guarantees: what returned `Ok` is in the file, whoever is killed afterwards; ends also survive a power cut. Facts that were written are passed over.
//! Without room only ends are written, and facts are not counted as written.

mod rows;

use std::collections::BTreeMap;

use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, Params, Statement, Transaction,
    TransactionBehavior, params,
};
use trainyard_core::{
    chronicle::{Fact, What},
    ledger::PhaseMillis,
};

pub(crate) use self::rows::{ADD_DAY, FORGET_DAYS};
use self::rows::{apply, attempt, ended, failed, verdict};
use crate::{
    HistoryError, Store,
    row::{self, Row, short},
};

/// Facts of one transaction.
pub const BATCH: usize = 200;

/// What is known of a run before it has facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Its id, which no other run has, on whatever machine.
    pub uid: String,
    /// Where it was read from, such as a folder.
    pub source: String,
    /// The cluster; empty for a run of one machine.
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the job.
    pub name: String,
    /// The kind of the job.
    pub kind: String,
    /// The team: the label `trainyard.dev/team`, else the namespace.
    pub team: String,
    /// How many ranks it has.
    pub ranks: u32,
    /// How many accelerators it asks for, where that is known.
    pub accelerators: Option<u32>,
    /// When it was made, in Unix milliseconds.
    pub created: i64,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// When, in Unix milliseconds.
    pub ended: i64,
    /// `succeeded`, `failed`, `stopped`, `interrupted` or `unknown`.
    pub outcome: String,
    /// The label of the verdict that explains it, where there is one.
    pub cause: Option<String>,
    /// In one sentence.
    pub sentence: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// The furthest step, where any was reported.
    pub last_step: Option<u64>,
}

/// What became of facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Facts that were written.
    pub new: u64,
    /// Facts that were there.
    pub known: u64,
    /// Facts that cannot be true; see the rules of [`Store::write`].
    pub refused: u64,
    /// Facts for which there was no room.
    pub no_room: u64,
}

/// How far a run is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The number of the first fact that is not written.
    pub next_seq: u64,
    /// Its end is written, and everything before it.
    pub is_complete: bool,
}

/// A run as a transaction knows it.
struct Known {
    id: i64,
    next_seq: i64,
    complete: bool,
    accelerators: i64,
}

impl Store {
    /// Writes what is new in `facts` of `run`, which are in the order of their numbers. `seen` is when they were read, in Unix milliseconds.
    ///
    /// Times before 1970 or after 9999, spans of more than ten years and sums that do not add up are refused, and counted: they come from a file that
    /// anybody may have written.
    pub fn write(&mut self, run: &Run, facts: &[Fact], seen: i64) -> Result<Written, HistoryError> {
        let mut written = Written::default();
        if facts.is_empty() {
            self.batch(run, facts, seen, &mut written)?;
        }
        for batch in facts.chunks(BATCH) {
            self.batch(run, batch, seen, &mut written)?;
        }
        Ok(written)
    }

    /// The run has ended and all its facts are written.
    pub fn end(&mut self, run: &Run, end: &End, seen: i64) -> Result<(), HistoryError> {
        let work = |writer: &mut Writer<'_>, run: &Known, complete: bool| {
            let step = end.last_step.and_then(|step| i64::try_from(step).ok());
            writer.run(
                "UPDATE run SET ended = ?2, outcome = ?3, cause = ?4, sentence = ?5, attempts = ?6, last_step = ?7, phase = NULL, \
                 phase_since = NULL, phase_attempt = NULL, complete = ?8 WHERE id = ?1",
                params![
                    run.id,
                    end.ended,
                    end.outcome,
                    end.cause.as_deref().map(short),
                    short(&end.sentence),
                    end.attempts,
                    step,
                    complete
                ],
            )?;
            writer.run(
                "UPDATE attempt SET ended = ?2 WHERE run = ?1 AND ended IS NULL",
                params![run.id, end.ended],
            )
        };
        let sync = Sync::Full;
        let mut result = Ok(0);
        if !self.is_full {
            result = self.transact(run, seen, sync, |writer, run| work(writer, run, true));
        }
        if self.is_full || result.as_ref().is_err_and(is_full) {
            self.fill();
            result = self.transact(run, seen, sync, |writer, run| work(writer, run, false));
        }
        match result {
            Ok(_) => Ok(()),
            Err(source) => Err(HistoryError::of(
                &self.path,
                "write the end of a run",
                source,
            )),
        }
    }

    /// How far a run is written; nothing where it is not known.
    pub fn state(&self, uid: &str) -> Result<Option<RunState>, HistoryError> {
        let sql = "SELECT next_seq, complete = 1 AND COALESCE(outcome, '') <> 'unknown' FROM run WHERE uid = ?1";
        let found = self.connection.query_row(sql, [uid], |row| {
            let next: i64 = row.get(0)?;
            Ok(RunState {
                next_seq: next.try_into().unwrap_or(0),
                is_complete: row.get(1)?,
            })
        });
        found
            .optional()
            .map_err(|source| HistoryError::of(&self.path, "read a run", source))
    }

    /// The closed time of a run by phase, as it is written.
    pub fn totals(&self, uid: &str) -> Result<PhaseMillis, HistoryError> {
        let refused = |source| HistoryError::of(&self.path, "add up a run", source);
        let sql = "SELECT run_day.phase, SUM(run_day.ms) FROM run_day JOIN run ON run.id = run_day.run WHERE run.uid = ?1 \
                   GROUP BY run_day.phase";
        let mut statement = self.connection.prepare(sql).map_err(refused)?;
        let rows = statement
            .query_map([uid], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
            })
            .map_err(refused)?;
        let mut totals = PhaseMillis::new();
        for row in rows {
            let (phase, ms) = row.map_err(refused)?;
            totals.insert(row::phase(&phase), ms.try_into().unwrap_or(0));
        }
        Ok(totals)
    }

    /// Runs of `source` whose end is not written.
    pub fn open_runs(&self, source: &str) -> Result<Vec<String>, HistoryError> {
        let refused = |source| HistoryError::of(&self.path, "list runs", source);
        let sql = "SELECT uid FROM run WHERE source = ?1 AND complete = 0 ORDER BY uid";
        let mut statement = self.connection.prepare(sql).map_err(refused)?;
        let rows = statement.query_map([source], |row| row.get(0));
        rows.map_err(refused)?
            .collect::<Result<_, _>>()
            .map_err(refused)
    }

    /// What is left of a run cannot be read: it ended no later than it was last seen. Should it be there again, it is continued.
    pub fn lose(&mut self, uid: &str, sentence: &str) -> Result<(), HistoryError> {
        let mut work = || -> rusqlite::Result<()> {
            Sync::Full.set(&self.connection)?;
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(
                "UPDATE run SET ended = COALESCE(ended, seen), outcome = COALESCE(outcome, 'unknown'), sentence = COALESCE(sentence, ?2), \
                 phase = NULL, phase_since = NULL, phase_attempt = NULL, complete = 1 WHERE uid = ?1",
                [uid, sentence],
            )?;
            transaction.execute(
                "UPDATE attempt SET ended = (SELECT run.ended FROM run WHERE run.id = attempt.run) \
                 WHERE ended IS NULL AND run = (SELECT id FROM run WHERE uid = ?1)",
                [uid],
            )?;
            transaction.commit()
        };
        work().map_err(|source| HistoryError::of(&self.path, "write the end of a run", source))
    }

    fn batch(
        &mut self,
        run: &Run,
        facts: &[Fact],
        seen: i64,
        written: &mut Written,
    ) -> Result<(), HistoryError> {
        let ends = |fact: &Fact| matches!(fact.what, What::Failed(_) | What::Ended { .. });
        let sync = if facts.iter().any(ends) {
            Sync::Full
        } else {
            Sync::Normal
        };
        let mut result = Ok(Written::default());
        if !self.is_full {
            result = self.transact(run, seen, sync, |writer, run| detail(writer, run, facts));
        }
        if self.is_full || result.as_ref().is_err_and(is_full) {
            self.fill();
            result = self.transact(run, seen, sync, |writer, run| only_ends(writer, run, facts));
        }
        let more = result.map_err(|source| HistoryError::of(&self.path, "write facts", source))?;
        written.new += more.new;
        written.known += more.known;
        written.refused += more.refused;
        written.no_room += more.no_room;
        Ok(())
    }

    /// One transaction with the run.
    fn transact<T>(
        &mut self,
        run: &Run,
        seen: i64,
        sync: Sync,
        work: impl FnOnce(&mut Writer<'_>, &Known) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        sync.set(&self.connection)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let result = {
            let mut writer = Writer {
                transaction: &transaction,
                statements: BTreeMap::new(),
            };
            let known = known(&mut writer, run, seen)?;
            work(&mut writer, &known)?
        };
        transaction.commit()?;
        Ok(result)
    }
}

/// How much a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// A process that is killed loses nothing; a power cut may lose the last commits.
    Normal,
    /// Neither loses anything.
    Full,
}

impl Sync {
    fn set(self, connection: &Connection) -> rusqlite::Result<()> {
        let value = match self {
            Self::Normal => "NORMAL",
            Self::Full => "FULL",
        };
        connection.pragma_update(None, "synchronous", value)
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    // What the kernel says where a limit of files, or a quota, is met.
    const WRITE: i32 = rusqlite::ffi::SQLITE_IOERR_WRITE;
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error
            .sqlite_error()
            .is_some_and(|it| it.extended_code == WRITE)
}

/// One transaction, with the statements that it has prepared.
struct Writer<'t> {
    transaction: &'t Transaction<'t>,
    statements: BTreeMap<&'static str, Statement<'t>>,
}

impl Writer<'_> {
    fn run(&mut self, sql: &'static str, values: impl Params) -> rusqlite::Result<usize> {
        if let Some(statement) = self.statements.get_mut(sql) {
            return statement.execute(values);
        }
        let mut statement = self.transaction.prepare(sql)?;
        let changed = statement.execute(values)?;
        self.statements.insert(sql, statement);
        Ok(changed)
    }
}

/// The run, which is made where there is none. One that was lost and is there again has not ended.
fn known(writer: &mut Writer<'_>, run: &Run, seen: i64) -> rusqlite::Result<Known> {
    writer.run(
        "INSERT INTO run (uid, source, cluster, namespace, name, kind, team, ranks, accelerators, created, seen) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
         ON CONFLICT (uid) DO UPDATE SET seen = excluded.seen, source = excluded.source, \
           ended = CASE WHEN run.outcome = 'unknown' THEN NULL ELSE run.ended END, \
           sentence = CASE WHEN run.outcome = 'unknown' THEN NULL ELSE run.sentence END, \
           complete = CASE WHEN run.outcome = 'unknown' THEN 0 ELSE run.complete END, \
           outcome = CASE WHEN run.outcome = 'unknown' THEN NULL ELSE run.outcome END",
        params![
            run.uid,
            run.source,
            run.cluster,
            run.namespace,
            run.name,
            run.kind,
            run.team,
            run.ranks,
            run.accelerators,
            run.created,
            seen
        ],
    )?;
    let sql = "SELECT id, next_seq, complete = 1 AND COALESCE(outcome, '') <> 'unknown', accelerators FROM run WHERE uid = ?1";
    writer.transaction.query_row(sql, [&run.uid], |row| {
        Ok(Known {
            id: row.get(0)?,
            next_seq: row.get(1)?,
            complete: row.get(2)?,
            accelerators: row.get::<_, Option<i64>>(3)?.unwrap_or(0),
        })
    })
}

fn detail(writer: &mut Writer<'_>, run: &Known, facts: &[Fact]) -> rusqlite::Result<Written> {
    let mut written = Written::default();
    let mut next = run.next_seq;
    for fact in facts {
        let Ok(seq) = i64::try_from(fact.seq) else {
            written.refused += 1;
            continue;
        };
        // A run whose end is written has all its facts, also where detail was deleted since.
        if run.complete || seq < next {
            written.known += 1;
            continue;
        }
        match row::of(fact) {
            Ok(None) => written.new += 1,
            Ok(Some(row)) => {
                apply(writer, run, seq, fact.at, &row)?;
                written.new += 1;
            }
            Err(row::Refused) => written.refused += 1,
        }
        next = seq.saturating_add(1);
    }
    if next != run.next_seq {
        writer.run(
            "UPDATE run SET next_seq = ?2 WHERE id = ?1",
            params![run.id, next],
        )?;
    }
    Ok(written)
}

/// Attempts and their ends, which may be written twice. What else there is counts as new once there is room.
fn only_ends(writer: &mut Writer<'_>, run: &Known, facts: &[Fact]) -> rusqlite::Result<Written> {
    let mut written = Written::default();
    for fact in facts {
        let is_known = i64::try_from(fact.seq).is_ok_and(|seq| seq < run.next_seq);
        if run.complete || is_known {
            written.known += 1;
            continue;
        }
        match row::of(fact) {
            Ok(Some(Row::Attempt { n })) => attempt(writer, run.id, fact.at, n)?,
            Ok(Some(row @ Row::Failed { .. })) => failed(writer, run.id, fact.at, &row)?,
            Ok(Some(Row::Verdict(it))) => verdict(writer, run.id, &it)?,
            Ok(Some(Row::Ended { outcome })) => ended(writer, run.id, fact.at, &outcome)?,
            Ok(_) => {}
            Err(row::Refused) => {
                written.refused += 1;
                continue;
            }
        }
        written.no_room += 1;
    }
    Ok(written)
}
