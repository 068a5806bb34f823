//! What each row of a run is in the tables.

use rusqlite::params;

use super::{Known, Writer};
use crate::row::{Row, Span, Verdict, days, gpu_ms, name, short};

pub(super) fn apply(
    writer: &mut Writer<'_>,
    run: &Known,
    seq: i64,
    at: i64,
    row: &Row,
) -> rusqlite::Result<()> {
    let id = run.id;
    match row {
        Row::Began => began(writer, id, at),
        Row::Span(it) => span(writer, run, seq, it),
        Row::Phase { attempt, phase } => writer
            .run(
                "UPDATE run SET phase = ?2, phase_since = ?3, phase_attempt = ?4 WHERE id = ?1",
                params![id, phase, at, attempt],
            )
            .map(drop),
        Row::Attempt { n } => attempt(writer, id, at, *n),
        Row::Pod {
            attempt,
            slot,
            state,
        } => writer
            .run(
                "INSERT INTO pod (run, seq, at, attempt, slot, state) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![id, seq, at, attempt, slot, state],
            )
            .map(drop),
        Row::Seat {
            attempt,
            slot,
            first_rank,
            ranks,
            node,
        } => writer
            .run(
                "INSERT INTO seat (run, seq, at, attempt, slot, first_rank, ranks, node) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![id, seq, at, attempt, slot, first_rank, ranks, node],
            )
            .map(drop),
        Row::Failed {
            n, slot, message, ..
        } => {
            failed(writer, id, at, row)?;
            let Some(slot) = slot else { return Ok(()) };
            writer
                .run(
                    "INSERT INTO node_fact (run, seq, part, at, node, kind, attempt, detail) \
                     SELECT run, ?2, 0, ?3, node, 'failed', ?4, ?5 FROM seat \
                     WHERE run = ?1 AND slot = ?6 AND attempt = ?4 ORDER BY seat.seq DESC LIMIT 1",
                    params![id, seq, at, n, message, slot],
                )
                .map(drop)
        }
        Row::Verdict(it) => {
            verdict(writer, id, it)?;
            evidence(writer, id, seq, at, it)
        }
        Row::Checkpoint {
            attempt,
            step,
            bytes,
            stall,
            write,
        } => writer
            .run(
                "INSERT INTO checkpoint (run, seq, at, attempt, step, bytes, stall_ms, write_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![id, seq, at, attempt, step, bytes, stall, write],
            )
            .map(drop),
        Row::Left {
            attempt,
            node,
            detail,
        } => {
            writer.run(
                "INSERT INTO node_fact (run, seq, part, at, node, kind, attempt, detail) VALUES (?1, ?2, 0, ?3, ?4, 'left', ?5, ?6)",
                params![id, seq, at, node, attempt, detail],
            )?;
            event(writer, id, seq, at, "swapped", Some(*attempt), detail)
        }
        Row::Event {
            kind,
            attempt,
            sentence,
        } => event(writer, id, seq, at, kind, *attempt, sentence),
        Row::Ended { outcome } => ended(writer, id, at, outcome),
    }
}

/// Time that was counted is forgotten: what follows counts it again.
fn began(writer: &mut Writer<'_>, run: i64, at: i64) -> rusqlite::Result<()> {
    forget_days(writer, run)?;
    writer.run("DELETE FROM span WHERE run = ?1", params![run])?;
    writer.run("DELETE FROM gap WHERE run = ?1", params![run])?;
    writer
        .run(
            "UPDATE run SET began = ?2, ended = NULL, outcome = NULL, phase = NULL, phase_since = NULL, phase_attempt = NULL WHERE id = ?1",
            params![run, at],
        )
        .map(drop)
}

/// Takes the days of a run out of the sums.
fn forget_days(writer: &mut Writer<'_>, run: i64) -> rusqlite::Result<()> {
    for sql in FORGET_DAYS {
        writer.run(sql, params![run])?;
    }
    Ok(())
}

/// What takes the days of run `?1` out of the sums.
pub(crate) const FORGET_DAYS: [&str; 3] = [
    "UPDATE phase_day SET \
       ms = ms - (SELECT run_day.ms FROM run_day WHERE run_day.run = ?1 AND run_day.day = phase_day.day AND run_day.phase = phase_day.phase), \
       gpu_ms = gpu_ms - (SELECT run_day.gpu_ms FROM run_day WHERE run_day.run = ?1 AND run_day.day = phase_day.day \
                          AND run_day.phase = phase_day.phase) \
     WHERE (day, namespace, team, phase) IN (SELECT run_day.day, run.namespace, run.team, run_day.phase FROM run_day \
                                             JOIN run ON run.id = run_day.run WHERE run.id = ?1)",
    "DELETE FROM phase_day WHERE ms = 0 AND gpu_ms = 0 AND day IN (SELECT run_day.day FROM run_day WHERE run_day.run = ?1)",
    "DELETE FROM run_day WHERE run = ?1",
];

/// Adds days of run `?1`.
pub(crate) const ADD_DAY: [&str; 2] = [
    "INSERT INTO run_day (run, day, phase, ms, gpu_ms) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (run, day, phase) DO UPDATE SET ms = run_day.ms + excluded.ms, gpu_ms = run_day.gpu_ms + excluded.gpu_ms",
    "INSERT INTO phase_day (day, namespace, team, phase, ms, gpu_ms) \
     SELECT ?2, run.namespace, run.team, ?3, ?4, ?5 FROM run WHERE run.id = ?1 \
     ON CONFLICT (day, namespace, team, phase) DO UPDATE \
     SET ms = phase_day.ms + excluded.ms, gpu_ms = phase_day.gpu_ms + excluded.gpu_ms",
];

fn span(writer: &mut Writer<'_>, run: &Known, seq: i64, span: &Span) -> rusqlite::Result<()> {
    for (part, number) in span.parts.iter().zip(0_i64..) {
        let ms = i64::try_from(part.millis).unwrap_or(0);
        writer.run(
            "INSERT INTO span (run, seq, part, began, ended, attempt, phase, ms, exact) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![run.id, seq, number, span.from, span.to, part.attempt, name(part.phase), ms, span.exact],
        )?;
    }
    if span.is_gap {
        writer.run(
            "INSERT INTO gap (run, seq, began, ended) VALUES (?1, ?2, ?3, ?4)",
            params![run.id, seq, span.from, span.to],
        )?;
    }
    for part in days(span) {
        let gpu = gpu_ms(part.phase, part.ms, run.accelerators);
        for sql in ADD_DAY {
            writer.run(
                sql,
                params![run.id, part.day, name(part.phase), part.ms, gpu],
            )?;
        }
    }
    Ok(())
}

pub(super) fn attempt(writer: &mut Writer<'_>, run: i64, at: i64, n: u32) -> rusqlite::Result<()> {
    writer.run(
        "UPDATE attempt SET ended = ?3 WHERE run = ?1 AND n < ?2 AND ended IS NULL",
        params![run, n, at],
    )?;
    writer.run(
        "INSERT INTO attempt (run, n, began) VALUES (?1, ?2, ?3) ON CONFLICT (run, n) DO UPDATE SET began = excluded.began",
        params![run, n, at],
    )?;
    writer
        .run(
            "UPDATE run SET attempts = ?2 WHERE id = ?1 AND attempts < ?2",
            params![run, n],
        )
        .map(drop)
}

pub(super) fn failed(
    writer: &mut Writer<'_>,
    run: i64,
    at: i64,
    row: &Row,
) -> rusqlite::Result<()> {
    let Row::Failed {
        n,
        pod,
        slot,
        account,
        message,
        step,
    } = row
    else {
        return Ok(());
    };
    writer.run(
        "INSERT INTO attempt (run, n, ended, pod, account, message, step) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
         ON CONFLICT (run, n) DO UPDATE SET ended = excluded.ended, pod = excluded.pod, \
           account = COALESCE(excluded.account, attempt.account), message = excluded.message, step = excluded.step",
        params![run, n, at, pod, account, message, step],
    )?;
    // What a verdict says of the node counts for more.
    writer
        .run(
            "UPDATE attempt SET node = (SELECT seat.node FROM seat WHERE seat.run = ?1 AND seat.slot = ?3 AND seat.attempt = ?2 \
             ORDER BY seat.seq DESC LIMIT 1) WHERE run = ?1 AND n = ?2 AND label IS NULL",
            params![run, n, slot],
        )
        .map(drop)
}

pub(super) fn verdict(writer: &mut Writer<'_>, run: i64, it: &Verdict) -> rusqlite::Result<()> {
    writer
        .run(
            "INSERT INTO attempt (run, n, account, label, fingerprint, confidence, sentence, rank, node, verdict) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
             ON CONFLICT (run, n) DO UPDATE SET account = COALESCE(attempt.account, excluded.account), label = excluded.label, \
               fingerprint = excluded.fingerprint, confidence = excluded.confidence, sentence = excluded.sentence, \
               rank = excluded.rank, node = COALESCE(excluded.node, attempt.node), verdict = excluded.verdict",
            params![
                run,
                it.attempt,
                it.account,
                it.label,
                it.fingerprint,
                it.confidence,
                it.sentence,
                it.rank,
                it.nodes.first(),
                it.json
            ],
        )
        .map(drop)
}

fn evidence(
    writer: &mut Writer<'_>,
    run: i64,
    seq: i64,
    at: i64,
    it: &Verdict,
) -> rusqlite::Result<()> {
    for (line, part) in it.evidence.iter().zip(0_i64..) {
        let number = i64::try_from(line.line).unwrap_or(0);
        writer.run(
            "INSERT INTO excerpt (run, seq, part, attempt, rank, file, line, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![run, seq, part, it.attempt, line.rank, short(&line.file), number, short(&line.text)],
        )?;
    }
    // An attempt has one verdict, the last: what an earlier one said of nodes is withdrawn.
    writer.run(
        "DELETE FROM node_fact WHERE run = ?1 AND attempt = ?2 AND kind = 'blamed'",
        params![run, it.attempt],
    )?;
    for (node, part) in it.nodes.iter().zip(0_i64..) {
        writer.run(
            "INSERT INTO node_fact (run, seq, part, at, node, kind, attempt, detail) VALUES (?1, ?2, ?3, ?4, ?5, 'blamed', ?6, ?7)",
            params![run, seq, part, at, node, it.attempt, it.label],
        )?;
    }
    Ok(())
}

fn event(
    writer: &mut Writer<'_>,
    run: i64,
    seq: i64,
    at: i64,
    kind: &str,
    attempt: Option<u32>,
    sentence: &str,
) -> rusqlite::Result<()> {
    writer
        .run(
            "INSERT INTO event (run, seq, at, kind, attempt, sentence) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![run, seq, at, kind, attempt, sentence],
        )
        .map(drop)
}

pub(super) fn ended(
    writer: &mut Writer<'_>,
    run: i64,
    at: i64,
    outcome: &str,
) -> rusqlite::Result<()> {
    writer
        .run(
            "UPDATE run SET ended = ?2, outcome = ?3, phase = NULL, phase_since = NULL, phase_attempt = NULL WHERE id = ?1",
            params![run, at, outcome],
        )
        .map(drop)
}
