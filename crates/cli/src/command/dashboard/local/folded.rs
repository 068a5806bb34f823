//! The logs of all pods of an attempt, equal lines together.
//!
//! Lines are folded in order of time over all pods, so that what many ranks write at the same moment is one group. Where the logs have more than
//! [`BYTES_MAX`], the end of each is read, and most of the log of the pod that failed first.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    io,
    sync::Arc,
};

use jiff::Timestamp;
use memchr::memchr;
use serde::Serialize;
use trainyard_core::view::{
    fold::{CONTEXT_MAX, Folded, Folder, Severity},
    read_line,
};
use trainyard_host::store::LogFile;
use trainyard_web::{Document, Problem};

use super::{
    document, lock,
    logs::{ranks, written_at},
    run::RunSlot,
};
use crate::stored::Stored;

#[cfg(test)]
mod tests;

/// Bytes of all logs together that are folded.
const BYTES_MAX: u64 = 64 << 20;
/// Of that, how much the log of the first failure may take.
const FAILED_BYTES: u64 = 16 << 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FoldedLogs<'a> {
    run: &'a str,
    attempt: u32,
    #[serde(flatten)]
    folded: Folded,
    /// Where the first failure is.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure_at: Option<FailureAt>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<Unread>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_left_out: Option<u64>,
}

#[derive(Serialize)]
struct Unread {
    pod: String,
    why: String,
}

/// The first line that reports an error.
#[derive(Clone, Serialize)]
struct FailureAt {
    pod: String,
    container: String,
    offset: u64,
    #[serde(skip)]
    at: Option<i64>,
    #[serde(skip)]
    before: Vec<String>,
}

/// What of a log is folded.
struct Part<'a> {
    log: &'a LogFile,
    rank: Option<u32>,
    times: Vec<(u64, i64)>,
    /// Pieces with where they begin.
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// Where in the first piece the next line begins.
    place: usize,
    /// The lines before it.
    before: VecDeque<String>,
    /// The newest time so far: lines without one have that of the line before.
    newest: Option<i64>,
}

/// A line with its time.
struct Next {
    at: Option<i64>,
    offset: u64,
    begin: usize,
    end: usize,
    severity: Severity,
}

/// What a document of folded logs was made of: the same gives the same.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MadeOf {
    /// Bytes of all logs.
    bytes: u64,
    /// Lines that verdicts rest on.
    causes: Vec<String>,
    /// The pod that failed first.
    failed: Option<String>,
}

impl RunSlot {
    pub(super) fn folded_logs(
        &self,
        attempt: Option<u32>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let stored = self.stored()?;
        let logs = self.logs_of(&stored, attempt)?;
        let attempt = logs.first().map_or(0, |log| log.attempt);
        let sizes: Vec<u64> = logs.iter().map(super::logs::size).collect();
        let bytes = sizes.iter().copied().fold(0, u64::saturating_add);
        let verdicts = self.moment(now)?;
        let verdicts = verdicts.chronicle.verdicts.iter();
        let causes: Vec<String> = verdicts
            .filter(|(_, it)| it.summary.attempt == attempt)
            .flat_map(|(_, it)| it.evidence.iter().map(|line| line.text.clone()))
            .collect();
        let made_of = MadeOf {
            bytes,
            causes,
            failed: failed_pod(&stored, attempt).map(str::to_owned),
        };
        // Whoever asks for the same meanwhile waits for this answer, and does not make it twice.
        let mut known = lock(&self.folded);
        if let Some((of, json)) = known.get(&attempt)
            && *of == made_of
        {
            return Ok(Document::json(json.to_vec()));
        }
        let answer = document(&fold(&self.id, &stored, &logs, &sizes, &made_of))?;
        known.insert(attempt, (made_of, Arc::new(answer.json.clone())));
        // The newest ones are what people look at.
        while known.len() > 4 {
            known.pop_first();
        }
        Ok(answer)
    }
}

fn fold<'a>(
    run: &'a str,
    stored: &Stored,
    logs: &[LogFile],
    sizes: &[u64],
    made_of: &MadeOf,
) -> FoldedLogs<'a> {
    let attempt = logs.first().map_or(0, |log| log.attempt);
    let is_failed = |log: &LogFile| made_of.failed.as_deref() == Some(log.pod.as_str());
    let rooms = rooms(sizes, logs.iter().map(is_failed).collect());
    let (mut parts, mut unread) = (Vec::new(), Vec::new());
    let (mut bytes, mut left_out) = (0, 0);
    for ((log, room), size) in logs.iter().zip(rooms).zip(sizes) {
        let rank = ranks(stored, &log.pod);
        let rank = rank
            .filter(|(_, count)| *count == 1)
            .map(|(first, _)| first);
        match read(log, room) {
            Ok(pieces) => {
                let count: u64 = pieces.iter().map(|(_, piece)| piece.len() as u64).sum();
                bytes += count;
                left_out += size.saturating_sub(count);
                parts.push(Part {
                    log,
                    rank,
                    times: times_of(log.times(), &pieces),
                    pieces,
                    place: 0,
                    before: VecDeque::new(),
                    newest: None,
                });
            }
            Err(why) => unread.push(Unread {
                pod: log.pod.clone(),
                why,
            }),
        }
    }
    let (folder, first) = push_all(&mut parts);
    let causes: Vec<&str> = made_of.causes.iter().map(String::as_str).collect();
    let before = first.as_ref().map(|it| it.before.as_slice());
    FoldedLogs {
        run,
        attempt,
        folded: folder.finish(&causes, before.unwrap_or_default()),
        first_failure_at: first,
        unread,
        bytes,
        bytes_left_out: Some(left_out).filter(|bytes| *bytes > 0),
    }
}

/// How much of each log is read: all where that fits, else more of the one that failed.
fn rooms(sizes: &[u64], is_failed: Vec<bool>) -> Vec<u64> {
    let all = sizes.iter().copied().fold(0, u64::saturating_add);
    if all <= BYTES_MAX {
        return sizes.to_vec();
    }
    let count = |of: usize| u64::try_from(of).unwrap_or(u64::MAX).max(1);
    // A pod may have many containers.
    let failed = is_failed.iter().filter(|is_failed| **is_failed);
    let each = FAILED_BYTES.min(2 * FAILED_BYTES / count(failed.count()));
    let failed: u64 = sizes
        .iter()
        .zip(&is_failed)
        .filter(|(_, is_failed)| **is_failed)
        .map(|(size, _)| (*size).min(each))
        .sum();
    let share = (BYTES_MAX - failed) / count(sizes.len());
    let room = |(size, is_failed): (&u64, bool)| {
        let most = if is_failed { share.max(each) } else { share };
        (*size).min(most)
    };
    sizes.iter().zip(is_failed).map(room).collect()
}

/// The pod that failed first in an attempt.
fn failed_pod(stored: &Stored, attempt: u32) -> Option<&str> {
    let failed = stored.failures.iter().find(|it| it.attempt == attempt);
    failed.map(|failed| failed.pod.as_str())
}

/// Those of the times of a log that belong to `pieces` of it, one for each place: a log of a month has tens of thousands.
fn times_of(mut times: Vec<(u64, i64)>, pieces: &VecDeque<(u64, Vec<u8>)>) -> Vec<(u64, i64)> {
    let begin = pieces.front().map_or(0, |(begin, _)| *begin);
    let last = pieces.back();
    let end = last.map_or(0, |(begin, piece)| begin.saturating_add(piece.len() as u64));
    times.truncate(times.partition_point(|(offset, _)| *offset < end));
    let first = times.partition_point(|(offset, _)| *offset <= begin);
    times.drain(..first.saturating_sub(1));
    // The last one of a place is the one that counts.
    times.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = next.1;
        }
        is_same
    });
    times.shrink_to_fit();
    times
}

/// The last `room` bytes of a log, from the begin of a line on.
fn read(log: &LogFile, room: u64) -> Result<VecDeque<(u64, Vec<u8>)>, String> {
    let view = log.view().map_err(|error| error.to_string())?;
    let mut left = room;
    let mut pieces = VecDeque::new();
    for (begin, end) in view.kept().into_iter().rev() {
        if left == 0 {
            break;
        }
        let from = begin.max(end.saturating_sub(left));
        let length = usize::try_from(end - from).map_err(|error| error.to_string())?;
        let mut piece = vec![0; length];
        let count = fill(&view, from, &mut piece).map_err(|error| error.to_string())?;
        piece.truncate(count);
        left -= end - from;
        let mut offset = from;
        if from > 0
            && let Some(newline) = memchr(b'\n', &piece)
        {
            // What comes before is half a line.
            piece.drain(..=newline);
            offset += newline as u64 + 1;
        }
        pieces.push_front((offset, piece));
    }
    Ok(pieces)
}

fn fill(view: &trainyard_host::store::LogView, from: u64, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(room) = piece.get_mut(filled..).filter(|room| !room.is_empty()) {
        let count = view.read_at(from + filled as u64, room)?;
        if count == 0 {
            break;
        }
        filled += count;
    }
    Ok(filled)
}

/// Folds all lines in order of time.
fn push_all(parts: &mut [Part<'_>]) -> (Folder, Option<FailureAt>) {
    let mut folder = Folder::default();
    let mut first: Option<FailureAt> = None;
    let mut scratch = Vec::new();
    let mut waiting: BinaryHeap<Reverse<(Option<i64>, usize)>> = BinaryHeap::new();
    let mut next: Vec<Option<Next>> = Vec::new();
    for (index, part) in parts.iter_mut().enumerate() {
        let line = part.next(&mut scratch);
        if let Some(line) = &line {
            waiting.push(Reverse((line.at, index)));
        }
        next.push(line);
    }
    while let Some(Reverse((_, index))) = waiting.pop() {
        let (Some(part), Some(slot)) = (parts.get_mut(index), next.get_mut(index)) else {
            continue;
        };
        let Some(line) = slot.take() else { continue };
        let raw = part
            .pieces
            .front()
            .and_then(|(_, piece)| piece.get(line.begin..line.end))
            .unwrap_or_default();
        folder.push(part.rank, line.at, raw);
        let is_earlier = match &first {
            None => true,
            Some(known) => matches!((line.at, known.at), (Some(at), Some(known)) if at < known),
        };
        if line.severity == Severity::Error && is_earlier {
            first = Some(FailureAt {
                pod: part.log.pod.clone(),
                container: part.log.container.clone(),
                offset: line.offset,
                at: line.at,
                before: part.before.iter().cloned().collect(),
            });
        }
        let text = String::from_utf8_lossy(raw.get(..raw.len().min(600)).unwrap_or_default());
        let text = text.into_owned();
        part.before.push_back(text);
        if part.before.len() > CONTEXT_MAX {
            part.before.pop_front();
        }
        part.place = line.end + 1;
        *slot = part.next(&mut scratch);
        if let Some(line) = slot {
            waiting.push(Reverse((line.at, index)));
        }
    }
    (folder, first)
}

impl Part<'_> {
    /// The line at its place, if there is one.
    fn next(&mut self, scratch: &mut Vec<u8>) -> Option<Next> {
        loop {
            let (begins, piece) = self.pieces.front()?;
            let Some(rest) = piece.get(self.place..).filter(|rest| !rest.is_empty()) else {
                self.pieces.pop_front();
                self.place = 0;
                continue;
            };
            let length = memchr(b'\n', rest).unwrap_or(rest.len());
            let (begin, end) = (self.place, self.place + length);
            let offset = begins + begin as u64;
            let line = read_line(rest.get(..length).unwrap_or_default(), scratch);
            let written = || written_at(&self.times, offset);
            let at = line.at.or_else(written).max(self.newest);
            self.newest = at;
            return Some(Next {
                at,
                offset,
                begin,
                end,
                severity: line.severity,
            });
        }
    }
}
