//! A run as its history has it: the rows of one run, as the value that draws and adds up.
//!
//! Invariant: the closed time has the sums of `run_day`, to the millisecond. Where spans were pruned, or there was no room for them, days say how much time went
//! where, without an order.

use rusqlite::{Row, params};
use serde::de::DeserializeOwned;
use trainyard_core::{
    account::Account,
    chronicle::{
        Booked, Chronicle, Fact, Headline, KeptVerdict, Outcome, Save, Stretch, VERSION, What,
    },
    ledger::PhaseMillis,
};

use crate::{Filter, HistoryError, Listed, Reader, row};

/// Spans, attempts and checkpoints of one run that are read; a chronicle keeps fewer.
const ROWS_MAX: i64 = 100_000;

/// A run, and what happened to it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The run.
    pub run: Listed,
    /// What happened to it, without its pods.
    pub chronicle: Chronicle,
    /// Until when it is known, in Unix milliseconds: its end, or when it was last seen.
    pub until: i64,
}

/// One row of the table of spans.
struct SpanRow {
    seq: i64,
    from: i64,
    to: i64,
    is_exact: bool,
    is_gap: bool,
    part: Booked,
}

impl Reader {
    /// Hands every run that passes `filter` and that `wants` to `each`, the newest first; says how many pass the filter and were not listed.
    pub fn each_kept(
        &self,
        filter: &Filter,
        wants: impl Fn(&Listed) -> bool,
        mut each: impl FnMut(Kept),
    ) -> Result<u64, HistoryError> {
        let listing = self.list(filter)?;
        let listed = u64::try_from(listing.runs.len()).unwrap_or(u64::MAX);
        for run in listing.runs.into_iter().filter(wants) {
            each(self.kept(run)?);
        }
        Ok(listing.total.saturating_sub(listed))
    }

    fn kept(&self, run: Listed) -> Result<Kept, HistoryError> {
        let mut whats = self.time(&run)?;
        whats.extend(self.attempts(&run)?);
        whats.extend(self.checkpoints(&run)?);
        let until = run.ended.unwrap_or(run.seen);
        if let Some(at) = run.ended {
            // How it was stopped is known only to the row.
            let outcome = word(run.outcome.as_deref()).unwrap_or(Outcome::Unknown);
            whats.push((at, What::Ended { outcome }));
        }
        let chronicle = chronicle(whats);
        Ok(Kept {
            run,
            chronicle,
            until,
        })
    }

    /// Its time: the spans where they are whole, else the sums by day.
    fn time(&self, run: &Listed) -> Result<Vec<(i64, What)>, HistoryError> {
        let sql = "SELECT began, phase, phase_since, phase_attempt FROM run WHERE uid = ?1";
        let found = self.rows("read a run", sql, [&run.uid], |row| {
            Ok((
                row.get::<_, Option<i64>>(0)?,
                row.get::<_, Option<String>>(1)?,
                row.get::<_, Option<i64>>(2)?,
                row.get::<_, Option<u32>>(3)?,
            ))
        })?;
        let Some((began, phase, since, attempt)) = found.into_iter().next() else {
            return Ok(Vec::new());
        };
        let began = began.unwrap_or(run.created);
        let days = self.days(run)?;
        let spans = self.spans(run)?;
        let mut whats = of_spans(began, &spans);
        if sums(&whats) != by_phase(&days) {
            whats = of_days(began, &days);
        }
        if let (Some(phase), Some(since), None) = (phase, since, run.ended) {
            let phase = row::phase(&phase);
            let attempt = attempt.unwrap_or(run.attempts);
            whats.push((since, What::Phase { attempt, phase }));
        }
        Ok(whats)
    }

    /// Its closed time by day and phase.
    fn days(&self, run: &Listed) -> Result<Vec<(String, Booked)>, HistoryError> {
        let sql = "SELECT run_day.day, run_day.phase, run_day.ms FROM run_day JOIN run ON run.id = run_day.run WHERE run.uid = ?1 \
                   ORDER BY run_day.day, run_day.phase";
        self.rows("add up a run", sql, [&run.uid], |row| {
            let part = Booked {
                attempt: None,
                phase: row::phase(&row.get::<_, String>(1)?),
                millis: unsigned(row.get(2)?),
            };
            Ok((row.get(0)?, part))
        })
    }

    fn spans(&self, run: &Listed) -> Result<Vec<SpanRow>, HistoryError> {
        let sql = "SELECT span.seq, span.began, span.ended, span.exact, gap.seq IS NOT NULL, span.attempt, span.phase, span.ms \
                   FROM span JOIN run ON run.id = span.run LEFT JOIN gap ON gap.run = span.run AND gap.seq = span.seq \
                   WHERE run.uid = ?1 ORDER BY span.seq, span.part LIMIT ?2";
        let read = |row: &Row<'_>| {
            Ok(SpanRow {
                seq: row.get(0)?,
                from: row.get(1)?,
                to: row.get(2)?,
                is_exact: row.get(3)?,
                is_gap: row.get(4)?,
                part: Booked {
                    attempt: row.get(5)?,
                    phase: row::phase(&row.get::<_, String>(6)?),
                    millis: unsigned(row.get(7)?),
                },
            })
        };
        self.rows("read spans", sql, params![run.uid, ROWS_MAX], read)
    }

    /// Its attempts that failed, with what was concluded about them.
    fn attempts(&self, run: &Listed) -> Result<Vec<(i64, What)>, HistoryError> {
        let sql = "SELECT attempt.n, attempt.ended, attempt.pod, attempt.account, attempt.message, attempt.step, attempt.verdict \
                   FROM attempt JOIN run ON run.id = attempt.run WHERE run.uid = ?1 ORDER BY attempt.n LIMIT ?2";
        let rows = self.rows("read attempts", sql, params![run.uid, ROWS_MAX], |row| {
            let account: Option<String> = row.get(3)?;
            let headline = Headline {
                attempt: row.get(0)?,
                pod: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                slot: None,
                account: word::<Account>(account.as_deref()),
                message: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
                step: row.get::<_, Option<i64>>(5)?.map(unsigned),
            };
            let at: Option<i64> = row.get(1)?;
            Ok((at, headline, row.get::<_, Option<String>>(6)?))
        })?;
        let mut whats = Vec::new();
        for (at, headline, verdict) in rows {
            let at = at.unwrap_or(run.seen);
            let verdict = verdict.and_then(|json| serde_json::from_str::<KeptVerdict>(&json).ok());
            if !headline.message.is_empty() || verdict.is_some() {
                whats.push((at, What::Failed(headline)));
            }
            whats.extend(verdict.map(|it| (at, What::Verdict(Box::new(it)))));
        }
        Ok(whats)
    }

    fn checkpoints(&self, run: &Listed) -> Result<Vec<(i64, What)>, HistoryError> {
        let sql = "SELECT checkpoint.at, checkpoint.step, checkpoint.attempt, checkpoint.bytes, checkpoint.stall_ms, checkpoint.write_ms \
                   FROM checkpoint JOIN run ON run.id = checkpoint.run WHERE run.uid = ?1 ORDER BY checkpoint.seq LIMIT ?2";
        let read = |row: &Row<'_>| {
            let save = Save {
                step: unsigned(row.get(1)?),
                attempt: row.get(2)?,
                bytes: unsigned(row.get(3)?),
                stall_millis: row.get::<_, Option<i64>>(4)?.map(unsigned),
                write_millis: row.get::<_, Option<i64>>(5)?.map(unsigned),
            };
            Ok((row.get(0)?, What::Saved(save)))
        };
        self.rows("read checkpoints", sql, params![run.uid, ROWS_MAX], read)
    }
}

/// The facts of spans, in order: the parts of one span have its number.
fn of_spans(began: i64, spans: &[SpanRow]) -> Vec<(i64, What)> {
    let mut whats = vec![(began, What::Began)];
    for parts in spans.chunk_by(|one, other| one.seq == other.seq) {
        let Some(first) = parts.first() else { continue };
        let (from, to) = (first.from, first.to);
        let what = if first.is_exact
            && let Some(attempt) = first.part.attempt
        {
            What::Span {
                from,
                to,
                attempt,
                phase: first.part.phase,
            }
        } else {
            let booked = parts.iter().map(|it| it.part).collect();
            if first.is_gap {
                What::Unseen { from, to, booked }
            } else {
                What::Merged { from, to, booked }
            }
        };
        whats.push((from, what));
    }
    whats
}

/// The facts of days, each of which has an order that is not kept. A run has no gaps, so each begins where the one before ended.
fn of_days(began: i64, days: &[(String, Booked)]) -> Vec<(i64, What)> {
    let mut whats = vec![(began, What::Began)];
    let mut from = began;
    for parts in days.chunk_by(|one, other| one.0 == other.0) {
        let booked: Vec<Booked> = parts.iter().map(|(_, part)| *part).collect();
        let millis = booked
            .iter()
            .fold(0_u64, |sum, part| sum.saturating_add(part.millis));
        let to = from.saturating_add_unsigned(millis);
        whats.push((from, What::Unseen { from, to, booked }));
        from = to;
    }
    whats
}

fn chronicle(whats: Vec<(i64, What)>) -> Chronicle {
    let facts = whats.into_iter().zip(0..).map(|((at, what), seq)| Fact {
        version: VERSION,
        seq,
        at,
        what,
    });
    let mut chronicle = Chronicle::default();
    for fact in facts {
        chronicle.apply(&fact);
    }
    chronicle
}

/// The sums that facts of time give.
fn sums(whats: &[(i64, What)]) -> PhaseMillis {
    let stretches = chronicle(whats.to_vec()).stretches;
    let parts = stretches.iter().flat_map(Stretch::booked);
    add_up(parts)
}

fn by_phase(days: &[(String, Booked)]) -> PhaseMillis {
    add_up(days.iter().map(|(_, part)| *part))
}

fn add_up(parts: impl Iterator<Item = Booked>) -> PhaseMillis {
    let mut sums = PhaseMillis::new();
    for part in parts.filter(|part| part.millis > 0) {
        let sum = sums.entry(part.phase).or_default();
        *sum = sum.saturating_add(part.millis);
    }
    sums
}

/// The value that a word of a table stands for.
fn word<T: DeserializeOwned>(text: Option<&str>) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(text?.to_owned())).ok()
}

fn unsigned(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}
