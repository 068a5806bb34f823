//! Deletes what need not be kept, as [`Retention`] decides, in transactions of bounded size.

use rusqlite::{TransactionBehavior, params};
use serde::Serialize;

use crate::{
    HistoryError, Retention, Store,
    retention::{Due, Kept},
    write::FORGET_DAYS,
};

/// Rows that one transaction deletes.
const ROWS_MAX: usize = 500;
/// Runs that are looked at together.
const RUNS_MAX: i64 = 500;
/// Pages that one step gives back to the disk.
const PAGES: i64 = 2_000;

/// Tables of detail.
const DETAIL: [&str; 5] = ["span", "seat", "pod", "event", "checkpoint"];
/// Tables of what is kept until nothing is.
const ENDS: [&str; 3] = ["attempt", "node_fact", "gap"];

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    /// Runs of which nothing is left.
    pub runs: u64,
    /// Runs whose detail was deleted.
    pub details: u64,
    /// Runs whose lines of logs were deleted.
    pub excerpts: u64,
    /// Bytes of the store before.
    pub bytes_before: u64,
    /// Bytes of the store now.
    pub bytes_after: u64,
}

impl Store {
    /// Deletes what is due at `now`, in Unix milliseconds: by age, and then the oldest detail and the oldest runs until the store is small enough.
    pub fn prune(&mut self, retention: &Retention, now: i64) -> Result<Pruned, HistoryError> {
        let mut pruned = Pruned {
            bytes_before: self.bytes()?,
            ..Pruned::default()
        };
        let mut last = (i64::MIN, 0);
        loop {
            let runs = self.ended_after(last, retention.first_cutoff(now))?;
            let Some((id, kept)) = runs.last() else { break };
            last = (kept.ended.unwrap_or(i64::MAX), *id);
            for (id, kept) in runs {
                self.delete(id, retention.due(kept, now), &mut pruned)?;
            }
        }
        self.shrink(retention.cap_bytes, &mut pruned)?;
        self.give_back()?;
        pruned.bytes_after = self.bytes()?;
        Ok(pruned)
    }

    /// The end before which a run that is not there need not be written: where the store is nearly as large as it may become and no detail is left
    /// whose deletion would make room, one that is older than all that are left was deleted for their sake, or would be.
    pub fn cap_cutoff(&self, retention: &Retention) -> Result<i64, HistoryError> {
        let (bytes, cap) = (self.bytes()?, retention.cap_bytes);
        if bytes < cap - cap / 8 {
            return Ok(i64::MIN);
        }
        let refused = |source| HistoryError::of(&self.path, "find the oldest run", source);
        let sql = "SELECT MIN(ended), COALESCE(MAX(detail), 0) FROM run WHERE complete = 1 AND ended IS NOT NULL";
        let found = self
            .connection
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let (oldest, has_detail): (Option<i64>, bool) = found.map_err(refused)?;
        Ok(match oldest {
            Some(_) if has_detail => i64::MIN,
            Some(oldest) => oldest,
            None if bytes > cap => i64::MAX,
            None => i64::MIN,
        })
    }

    /// Deletes the oldest detail, and where none is left the oldest runs, until at most `most` bytes are used.
    fn shrink(&mut self, most: u64, pruned: &mut Pruned) -> Result<(), HistoryError> {
        for due in [Due::Detail { excerpts: true }, Due::All] {
            let mut last = (i64::MIN, 0);
            while self.bytes()? > most {
                let runs = self.ended_after(last, i64::MAX)?;
                let Some((id, kept)) = runs.last() else { break };
                last = (kept.ended.unwrap_or(i64::MAX), *id);
                for (id, kept) in runs {
                    if self.bytes()? <= most {
                        return Ok(());
                    }
                    if due == Due::All || kept.has_detail {
                        self.delete(id, due, pruned)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs that ended after `last` and before `before`, the oldest first. Live runs, and those whose last facts are not written, are not among them.
    fn ended_after(&self, last: (i64, i64), before: i64) -> Result<Vec<(i64, Kept)>, HistoryError> {
        let refused = |source| HistoryError::of(&self.path, "list old runs", source);
        let sql = "SELECT id, ended, detail, excerpts FROM run WHERE complete = 1 AND ended IS NOT NULL AND ended < ?3 \
                   AND (ended > ?1 OR (ended = ?1 AND id > ?2)) ORDER BY ended, id LIMIT ?4";
        let mut statement = self.connection.prepare(sql).map_err(refused)?;
        let values = params![last.0, last.1, before, RUNS_MAX];
        let rows = statement.query_map(values, |row| {
            let kept = Kept {
                ended: row.get(1)?,
                has_detail: row.get(2)?,
                has_excerpts: row.get(3)?,
            };
            Ok((row.get(0)?, kept))
        });
        let rows = rows.map_err(refused)?;
        rows.collect::<Result<_, _>>().map_err(refused)
    }

    /// Killed between two of its transactions, it deletes the rest the next time: the flags of a run are changed last.
    fn delete(&mut self, run: i64, due: Due, pruned: &mut Pruned) -> Result<(), HistoryError> {
        let (excerpts, detail, all) = match due {
            Due::Nothing => return Ok(()),
            Due::Excerpts => (true, false, false),
            Due::Detail { excerpts } => (excerpts, true, false),
            Due::All => (true, true, true),
        };
        if excerpts {
            self.delete_rows("excerpt", run)?;
            pruned.excerpts += u64::from(!all);
        }
        if detail {
            for table in DETAIL {
                self.delete_rows(table, run)?;
            }
            pruned.details += u64::from(!all);
        }
        if !all {
            let sql = "UPDATE run SET excerpts = excerpts AND NOT ?2, detail = detail AND NOT ?3 WHERE id = ?1";
            let done = self.connection.execute(sql, params![run, excerpts, detail]);
            return done
                .map(drop)
                .map_err(|source| HistoryError::of(&self.path, "delete detail", source));
        }
        for table in ENDS {
            self.delete_rows(table, run)?;
        }
        // The sums change with the run in one transaction: they are those of the runs that are there.
        let mut work = || -> rusqlite::Result<()> {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            for sql in FORGET_DAYS {
                transaction.execute(sql, [run])?;
            }
            transaction.execute("DELETE FROM run WHERE id = ?1", [run])?;
            transaction.commit()
        };
        work().map_err(|source| HistoryError::of(&self.path, "delete a run", source))?;
        pruned.runs += 1;
        Ok(())
    }

    fn delete_rows(&self, table: &str, run: i64) -> Result<(), HistoryError> {
        let keys = match table {
            "attempt" => "n",
            "span" | "excerpt" | "node_fact" => "seq, part",
            _ => "seq",
        };
        let sql = format!(
            "DELETE FROM {table} WHERE run = ?1 AND ({keys}) IN (SELECT {keys} FROM {table} WHERE run = ?1 LIMIT {ROWS_MAX})"
        );
        loop {
            let deleted = self.connection.execute(&sql, [run]);
            let deleted =
                deleted.map_err(|source| HistoryError::of(&self.path, "delete rows", source))?;
            if deleted < ROWS_MAX {
                return Ok(());
            }
        }
    }

    /// Gives free pages back to the disk.
    fn give_back(&self) -> Result<(), HistoryError> {
        let refused = |source| HistoryError::of(&self.path, "shrink the file", source);
        let free = || -> rusqlite::Result<i64> {
            self.connection
                .pragma_query_value(None, "freelist_count", |row| row.get(0))
        };
        let mut left = free().map_err(refused)?;
        while left > 0 {
            let sql = format!("PRAGMA incremental_vacuum({PAGES})");
            self.connection.execute_batch(&sql).map_err(refused)?;
            let now = free().map_err(refused)?;
            // Another process reads pages that would move.
            if now >= left {
                return Ok(());
            }
            left = now;
        }
        Ok(())
    }
}
