//! History as lines of JSON: from one store into another, whatever their versions of `SQLite` are.
//!
//! The first line says what the file is. Then comes each run with its rows, in the order of their keys: the same history gives the same bytes. Sums over
//! runs are not in it; whoever reads it adds them up. The last line says how many runs there are, so that a file that was cut between two lines is not taken
//! for a whole one.

use std::{
    io::{BufRead, Read as _, Write},
    ops::RangeInclusive,
};

use rusqlite::{
    OptionalExtension as _, Transaction, TransactionBehavior, params, params_from_iter,
    types::Value as Sql,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    HistoryError, Reader, Store, row, schema,
    write::{ADD_DAY, FORGET_DAYS},
};

/// What the first line says.
const FORMAT: &str = "trainyard-history";
/// The table of the last line.
const END: &str = "end";
/// Why a file without it is refused.
const CUT: &str = "the file ends before its last line: it was cut off";
/// Longest line that is read: a verdict with all its text has much less.
const LINE_MAX: u64 = 1 << 20;
/// Accelerator time of all runs together, in milliseconds: answers add it up in 64 bits. It is that of a million accelerators for nine years.
const GPU_MS_MAX: i64 = 1 << 58;
/// Columns of a run.
const RUN: &[&str] = &[
    "uid",
    "source",
    "cluster",
    "namespace",
    "name",
    "kind",
    "team",
    "ranks",
    "accelerators",
    "created",
    "began",
    "ended",
    "outcome",
    "cause",
    "sentence",
    "attempts",
    "last_step",
    "phase",
    "phase_since",
    "phase_attempt",
    "seen",
    "next_seq",
    "complete",
    "detail",
    "excerpts",
];
/// Tables with rows of runs: their keys, which are the columns that they are ordered by, and the other columns.
const TABLES: &[(&str, &[&str], &[&str])] = &[
    (
        "attempt",
        &["n"],
        &[
            "began",
            "ended",
            "pod",
            "message",
            "step",
            "account",
            "label",
            "fingerprint",
            "confidence",
            "sentence",
            "rank",
            "node",
            "verdict",
        ],
    ),
    (
        "span",
        &["seq", "part"],
        &["began", "ended", "attempt", "phase", "ms", "exact"],
    ),
    (
        "seat",
        &["seq"],
        &["at", "attempt", "slot", "first_rank", "ranks", "node"],
    ),
    ("pod", &["seq"], &["at", "attempt", "slot", "state"]),
    ("event", &["seq"], &["at", "kind", "attempt", "sentence"]),
    (
        "checkpoint",
        &["seq"],
        &["at", "attempt", "step", "bytes", "stall_ms", "write_ms"],
    ),
    (
        "excerpt",
        &["seq", "part"],
        &["attempt", "rank", "file", "line", "text"],
    ),
    (
        "node_fact",
        &["seq", "part"],
        &["at", "node", "kind", "attempt", "detail"],
    ),
    ("gap", &["seq"], &["began", "ended"]),
    (DAYS, &["day", "phase"], &["ms", "gpu_ms"]),
];
const DAYS: &str = "run_day";

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: i64,
}

/// Any other line.
#[derive(Serialize, Deserialize)]
struct Line {
    table: String,
    row: Map<String, Value>,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// Runs that were added.
    pub runs: u64,
    /// Runs that the store had without their ends, and of which the export knows more.
    pub updated: u64,
    /// Runs that the store had already.
    pub known: u64,
}

/// Writes all of a history; says how many runs.
pub fn export(reader: &Reader, out: &mut dyn Write) -> Result<u64, HistoryError> {
    let refused = |source| HistoryError::of(&reader.path, "read rows", source);
    // One moment of the history, however long it takes.
    reader.allow(std::time::Duration::from_hours(24));
    let connection = reader.connection();
    let transaction = connection.unchecked_transaction().map_err(refused)?;
    let head = Head {
        format: FORMAT.to_owned(),
        version: schema::VERSION,
    };
    write_line(out, &head)?;
    let sql = format!(
        "SELECT {}, id FROM run ORDER BY created, uid",
        RUN.join(", ")
    );
    let mut runs = transaction.prepare(&sql).map_err(refused)?;
    let mut rows = runs.query([]).map_err(refused)?;
    let mut count = 0;
    while let Some(row) = rows.next().map_err(refused)? {
        let id: i64 = row.get(RUN.len()).map_err(refused)?;
        write_line(out, &line("run", RUN, row).map_err(refused)?)?;
        for (table, keys, others) in TABLES {
            let columns: Vec<&str> = keys.iter().chain(*others).copied().collect();
            let sql = format!(
                "SELECT {} FROM {table} WHERE run = ?1 ORDER BY {}",
                columns.join(", "),
                keys.join(", ")
            );
            let mut statement = transaction.prepare(&sql).map_err(refused)?;
            let mut rows = statement.query([id]).map_err(refused)?;
            while let Some(row) = rows.next().map_err(refused)? {
                write_line(out, &line(table, &columns, row).map_err(refused)?)?;
            }
        }
        count += 1;
    }
    let end = Line {
        table: END.to_owned(),
        row: Map::from_iter([("runs".to_owned(), json!(count))]),
    };
    write_line(out, &end)?;
    out.flush().map_err(HistoryError::Stream)?;
    Ok(count)
}

impl Store {
    /// Adds the runs of an export that the store does not have, each with all its rows in one transaction. A run whose end the store does not have is replaced
    /// where the export knows more of it.
    pub fn import(&mut self, from: &mut dyn BufRead) -> Result<Imported, HistoryError> {
        let mut lines = Lines { from, number: 0 };
        let head: Head = lines
            .next()?
            .ok_or_else(|| lines.refused("the file is empty"))?;
        if head.format != FORMAT {
            return Err(lines.refused(format!("its format is `{}`", head.format)));
        }
        if head.version > schema::VERSION {
            return Err(lines.refused(format!(
                "it has version {}; this program reads versions up to {}",
                head.version,
                schema::VERSION
            )));
        }
        let mut imported = Imported::default();
        let mut gpu_ms = self.gpu_ms()?;
        let mut next: Option<Line> = lines.next()?;
        while let Some(run) = next {
            if run.table == END {
                return match lines.next::<Line>()? {
                    None => Ok(imported),
                    Some(_) => Err(lines.refused("a line behind the last one")),
                };
            }
            if run.table != "run" {
                return Err(lines.refused(format!("a row of `{}` without its run", run.table)));
            }
            next = self.import_run(&run, &mut lines, &mut imported, &mut gpu_ms)?;
        }
        Err(lines.refused(CUT))
    }

    /// The accelerator time of all runs together, in milliseconds.
    fn gpu_ms(&self) -> Result<i64, HistoryError> {
        let refused = |source| HistoryError::of(&self.path, "add up the history", source);
        // `SUM` would fail where an import of an older version has filled the sums.
        let sql = "SELECT CAST(TOTAL(gpu_ms) AS INTEGER) FROM phase_day";
        let sum = self.connection.query_row(sql, [], |row| row.get(0));
        sum.map_err(refused)
    }

    /// One run; returns the line behind it. `gpu_ms` is the accelerator time of all runs together.
    fn import_run(
        &mut self,
        run: &Line,
        lines: &mut Lines<'_>,
        imported: &mut Imported,
        gpu_ms: &mut i64,
    ) -> Result<Option<Line>, HistoryError> {
        let path = self.path.clone();
        let refused = |source| HistoryError::of(&path, "write an imported run", source);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(refused)?;
        let sql = format!(
            "INSERT INTO run ({}) VALUES ({}) ON CONFLICT (uid) DO NOTHING",
            RUN.join(", "),
            places(RUN.len())
        );
        let row = values(RUN, run).map_err(|reason| lines.refused(reason))?;
        let is_update = forget_older(&transaction, run).map_err(refused)?;
        let added = transaction.execute(&sql, params_from_iter(row));
        // A value of a wrong type or a column that must not be empty.
        let is_new = added.map_err(|source| lines.wrong(&path, source))? > 0;
        let id = transaction.last_insert_rowid();
        let next = loop {
            let line: Option<Line> = lines.next()?;
            let line = match line {
                Some(line) if line.table != "run" && line.table != END => line,
                None => return Err(lines.refused(CUT)),
                other => break other,
            };
            let Some((table, keys, others)) =
                TABLES.iter().find(|(table, ..)| *table == line.table)
            else {
                return Err(lines.refused(format!("unknown table `{}`", line.table)));
            };
            if !is_new {
                continue;
            }
            let columns: Vec<&str> = keys.iter().chain(*others).copied().collect();
            let mut row = vec![Sql::Integer(id)];
            row.extend(values(&columns, &line).map_err(|reason| lines.refused(reason))?);
            if *table == DAYS {
                let own = line.row.get("gpu_ms").and_then(Value::as_i64);
                *gpu_ms = gpu_ms.saturating_add(own.unwrap_or(0));
                if *gpu_ms > GPU_MS_MAX {
                    return Err(
                        lines.refused("`gpu_ms` of all runs together is more than sums hold")
                    );
                }
                for sql in ADD_DAY {
                    let added = transaction.execute(sql, params_from_iter(&row));
                    added.map_err(|source| lines.wrong(&path, source))?;
                }
                continue;
            }
            let sql = format!(
                "INSERT INTO {table} (run, {}) VALUES ({})",
                columns.join(", "),
                places(row.len())
            );
            let added = transaction.execute(&sql, params_from_iter(&row));
            added.map_err(|source| lines.wrong(&path, source))?;
        };
        if is_new && has_long_day(&transaction, id).map_err(refused)? {
            return Err(lines.refused("a day of the run before it has more time than a day"));
        }
        transaction.commit().map_err(refused)?;
        if is_update {
            imported.updated += 1;
        } else if is_new {
            imported.runs += 1;
        } else {
            imported.known += 1;
        }
        Ok(next)
    }
}

/// Deletes the run with the id of `run` where it was taken before its end and `run` knows more of it. Whether there was one.
fn forget_older(transaction: &Transaction<'_>, run: &Line) -> rusqlite::Result<bool> {
    let number = |column: &str| run.row.get(column).and_then(Value::as_i64).unwrap_or(0);
    let uid = run.row.get("uid").and_then(Value::as_str);
    let sql = "SELECT id FROM run WHERE uid = ?1 AND (complete = 0 OR COALESCE(outcome, '') = 'unknown') \
               AND (next_seq < ?2 OR (complete = 0 AND ?3 = 1))";
    let (uid, next) = (uid.unwrap_or_default(), number("next_seq"));
    let complete = number("complete");
    let older = transaction.query_row(sql, params![uid, next, complete], |row| {
        row.get::<_, i64>(0)
    });
    let Some(id) = older.optional()? else {
        return Ok(false);
    };
    for sql in FORGET_DAYS {
        transaction.execute(sql, [id])?;
    }
    for (table, ..) in TABLES {
        transaction.execute(&format!("DELETE FROM {table} WHERE run = ?1"), [id])?;
    }
    transaction.execute("DELETE FROM run WHERE id = ?1", [id])?;
    Ok(true)
}

/// Whether a day of the run `id` has more time than a day: each of its lines may be small, and there may be many of one day.
fn has_long_day(transaction: &Transaction<'_>, id: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT COUNT(*) FROM run_day WHERE run = ?1 AND (ms > ?2 OR gpu_ms > ?3)";
    let most = row::DAY.saturating_mul(row::ACCELERATORS_MAX);
    let long = transaction.query_row(sql, params![id, row::DAY, most], |row| row.get::<_, i64>(0));
    Ok(long? > 0)
}

/// The lines of an export.
struct Lines<'a> {
    from: &'a mut dyn BufRead,
    number: u64,
}

impl Lines<'_> {
    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<T>, HistoryError> {
        let mut line = Vec::new();
        let read = (&mut self.from).take(LINE_MAX).read_until(b'\n', &mut line);
        if read.map_err(HistoryError::Stream)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.last() != Some(&b'\n') {
            let reason = if line.len() as u64 == LINE_MAX {
                "it is too long"
            } else {
                "the file ends within it"
            };
            return Err(self.refused(reason));
        }
        let parsed = serde_json::from_slice(&line);
        parsed
            .map(Some)
            .map_err(|error| self.refused(error.to_string()))
    }

    fn refused(&self, reason: impl Into<String>) -> HistoryError {
        HistoryError::NotAnExport {
            line: self.number,
            reason: reason.into(),
        }
    }

    /// A row that the tables refuse is a fault of the line; the rest is one of the store.
    fn wrong(&self, path: &std::path::Path, source: rusqlite::Error) -> HistoryError {
        if source.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) {
            return self.refused(source.to_string());
        }
        HistoryError::of(path, "write an imported run", source)
    }
}

fn write_line(out: &mut dyn Write, line: &impl Serialize) -> Result<(), HistoryError> {
    let mut text = serde_json::to_vec(line)
        .map_err(|error| HistoryError::Stream(std::io::Error::other(error)))?;
    text.push(b'\n');
    out.write_all(&text).map_err(HistoryError::Stream)
}

fn line(table: &str, columns: &[&str], row: &rusqlite::Row<'_>) -> rusqlite::Result<Line> {
    let mut values = Map::new();
    for (at, column) in columns.iter().enumerate() {
        let value = match row.get::<_, Sql>(at)? {
            // No table has blobs.
            Sql::Null | Sql::Blob(_) => continue,
            Sql::Integer(number) => json!(number),
            Sql::Real(number) => json!(number),
            Sql::Text(text) => Value::String(text),
        };
        values.insert((*column).to_owned(), value);
    }
    Ok(Line {
        table: table.to_owned(),
        row: values,
    })
}

/// The values of `columns`; what a line has besides is of a newer version, and passed over. A value that no store writes is refused: readers rely on types,
/// and sums on numbers that are small enough.
fn values(columns: &[&str], line: &Line) -> Result<Vec<Sql>, String> {
    let table = line.table.as_str();
    let values = columns.iter().map(|column| {
        let value = line.row.get(*column).unwrap_or(&Value::Null);
        match (value, is_text(table, column)) {
            (Value::Null, _) => Some(Sql::Null),
            (Value::String(text), true) => Some(Sql::Text(text.clone())),
            (Value::Number(number), false) => {
                let range = range(table, column);
                let number = number.as_i64().filter(|number| range.contains(number));
                number.map(Sql::Integer)
            }
            _ => None,
        }
        .ok_or_else(|| {
            format!(
                "`{column}` of `{table}` cannot be `{}`",
                row::short(&value.to_string())
            )
        })
    });
    values.collect()
}

fn is_text(table: &str, column: &str) -> bool {
    // A flag of a run, and a sentence about a node.
    if column == "detail" {
        return table == "node_fact";
    }
    let texts = [
        "uid",
        "source",
        "cluster",
        "namespace",
        "name",
        "kind",
        "team",
        "outcome",
        "cause",
        "sentence",
        "phase",
        "pod",
        "message",
        "account",
        "label",
        "fingerprint",
        "confidence",
        "node",
        "verdict",
        "slot",
        "state",
        "file",
        "text",
        "day",
    ];
    texts.contains(&column)
}

fn range(table: &str, column: &str) -> RangeInclusive<i64> {
    match column {
        "ms" if table == DAYS => 0..=row::DAY,
        "gpu_ms" => 0..=row::DAY.saturating_mul(row::ACCELERATORS_MAX),
        "ranks" | "accelerators" | "attempts" | "n" | "first_rank" | "rank" | "attempt"
        | "phase_attempt" => 0..=i64::from(u32::MAX),
        "complete" | "detail" | "excerpts" | "exact" => 0..=1,
        "step" | "last_step" | "bytes" | "seq" | "next_seq" | "part" | "line" => 0..=i64::MAX,
        // Times and durations.
        _ => 0..=row::LAST,
    }
}

fn places(count: usize) -> String {
    let places: Vec<String> = (1..=count).map(|at| format!("?{at}")).collect();
    places.join(", ")
}
