//! Lines of the log of one pod of a run.

use std::{fs, io};

use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    spec::{Kind, Slot},
    view::{VERSION, read_line},
};
use trainyard_host::store::LogFile;
use trainyard_web::{Document, LogsAsk, Problem, ProblemCode};

use super::{
    super::shared::ShownLine,
    of_run, problem,
    run::RunSlot,
    unreadable,
    window::{Hits, Place, RawLine, Window},
};
use crate::stored::Stored;

/// Logs that are listed.
const PODS_MAX: usize = 4_096;
/// Most lines of an answer.
const LINES_MAX: usize = 2_000;
/// The first part of a log has at most this much; a log with less is whole.
const FIRST_PART: u64 = 32 << 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Logs<'a> {
    version: u32,
    attempt: u32,
    pod: &'a str,
    container: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    lines: Vec<ShownLine>,
    first: u64,
    last: u64,
    size: u64,
    at_end: bool,
    kept: Vec<(u64, u64)>,
    pods: Vec<PodLog>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<Value>,
}

/// A log that can be asked for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodLog {
    pod: String,
    container: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<u32>,
    attempt: u32,
    size: u64,
}

/// How many bytes were written to a log, without it being read.
pub(super) fn size(log: &LogFile) -> u64 {
    match fs::symlink_metadata(&log.path).map(|found| found.len()) {
        Ok(length) if length < FIRST_PART => length,
        Ok(length) => log.view().map_or(length, |view| view.size()),
        Err(_) => 0,
    }
}

/// When the byte at `offset` was written, to a second.
pub(super) fn written_at(times: &[(u64, i64)], offset: u64) -> Option<i64> {
    let after = times.partition_point(|(known, _)| *known <= offset);
    let last = after.checked_sub(1).and_then(|last| times.get(last));
    last.map(|(_, millis)| *millis)
}

impl RunSlot {
    pub(super) fn logs(&self, ask: &LogsAsk) -> Result<Document, Problem> {
        let stored = self.stored()?;
        let logs = self.logs_of(&stored, ask.attempt)?;
        let log = choose(&stored, &logs, ask)?;
        let view = log.view().map_err(|error| unreadable(&error))?;
        let cannot = |error: io::Error| {
            problem(
                ProblemCode::Unreadable,
                format!("cannot read the log of pod `{}`: {error}", log.pod),
                "`trainyard logs` prints what can be read of it",
            )
        };
        let window = Window::new(&view);
        let size = view.size();
        let place = match (ask.offset, ask.line) {
            (Some(offset), _) if ask.backwards => Place::Before(offset.min(size)),
            (Some(offset), _) => Place::From(offset.min(size)),
            (None, None) => Place::Before(size),
            (None, Some(line)) => {
                let offset = window.offset_of_line(line).map_err(cannot)?;
                let offset = offset.ok_or_else(|| {
                    problem(
                        ProblemCode::Busy,
                        format!("line {line} was not found within two seconds"),
                        "ask for an offset in bytes",
                    )
                })?;
                if ask.backwards {
                    Place::Before(offset)
                } else {
                    Place::From(offset)
                }
            }
        };
        let most = usize::try_from(ask.lines).unwrap_or(LINES_MAX);
        let most = most.clamp(1, LINES_MAX);
        let search = ask.search.as_deref().filter(|text| !text.is_empty());
        let (lines, hits) = match search {
            Some(text) => {
                let (lines, hits) = window.search(place, most, text).map_err(cannot)?;
                (lines, Some(hits))
            }
            None => (window.lines(place, most).map_err(cannot)?, None),
        };
        let asked = match place {
            Place::From(at) | Place::Before(at) => at,
        };
        let first = lines.first().map_or(asked, |line| line.offset);
        let last = lines.last().map_or(asked, |line| line.end);
        let ranks = ranks(&stored, &log.pod);
        let only = ranks
            .filter(|(_, count)| *count == 1)
            .map(|(first, _)| first);
        let times = log.times();
        let mut scratch = Vec::new();
        let logs_listed = logs.iter().take(PODS_MAX);
        let answer = Logs {
            version: VERSION,
            attempt: log.attempt,
            pod: &log.pod,
            container: &log.container,
            rank: only,
            lines: lines
                .into_iter()
                .map(|line| shown(&line, only, &times, &mut scratch))
                .collect(),
            first,
            last,
            size,
            at_end: last >= size,
            kept: view.kept(),
            pods: logs_listed.map(|log| pod_log(&stored, log)).collect(),
            hits: hits.map(|hits| match hits {
                Hits::Exactly(count) => json!(count),
                Hits::AtLeast(count) => json!({ "atLeast": count }),
            }),
        };
        of_run(&self.id, answer)
    }

    /// The logs of an attempt, or of the last one that has any, in the order of pods.
    pub(super) fn logs_of(
        &self,
        stored: &Stored,
        attempt: Option<u32>,
    ) -> Result<Vec<LogFile>, Problem> {
        let attempts = self.folder.attempts().map_err(|error| unreadable(&error))?;
        let last = attempts.last().copied();
        let Some(wanted) = attempt.or(last) else {
            return Err(problem(
                ProblemCode::NotFound,
                "no pod of this run has written anything",
                "wait until a pod runs, or look at what the job waits for",
            ));
        };
        let mut logs = if attempts.contains(&wanted) {
            let logs = self.folder.logs(wanted);
            logs.map_err(|error| unreadable(&error))?
        } else {
            Vec::new()
        };
        if logs.is_empty() {
            let hint = match last {
                Some(last) => format!("its last attempt with logs is {last}"),
                None => "no attempt has logs".to_owned(),
            };
            let message = format!("attempt {wanted} has no logs");
            return Err(problem(ProblemCode::NotFound, message, hint));
        }
        // Folders are sorted by letters, in which `worker-10` comes before `worker-2`.
        logs.sort_by_cached_key(|log| {
            let slot = stored.slot_called(&log.pod);
            (slot.is_none(), slot, log.container.clone())
        });
        Ok(logs)
    }
}

fn shown(
    line: &RawLine,
    only: Option<u32>,
    times: &[(u64, i64)],
    scratch: &mut Vec<u8>,
) -> ShownLine {
    let read = read_line(&line.text, scratch);
    ShownLine {
        offset: line.offset,
        at: read.at.or_else(|| written_at(times, line.offset)),
        rank: read.rank.or(only),
        text: String::from_utf8_lossy(&line.text).into_owned(),
        severity: read.severity,
        cut: line.cut,
    }
}

/// The first rank of a pod and how many it holds.
pub(super) fn ranks(stored: &Stored, pod: &str) -> Option<(u32, u32)> {
    let slot = stored.slot_called(pod)?;
    let held = stored.record.ranks.of_pod(&stored.record.replicas, slot)?;
    Some((*held.start(), held.end() - held.start() + 1))
}

fn pod_log(stored: &Stored, log: &LogFile) -> PodLog {
    let ranks = ranks(stored, &log.pod);
    PodLog {
        pod: log.pod.clone(),
        container: log.container.clone(),
        first_rank: ranks.map(|(first, _)| first),
        ranks: ranks.map(|(_, count)| count),
        attempt: log.attempt,
        size: size(log),
    }
}

/// The log that is asked for: that of the first failure, else the first one, where nothing is.
fn choose<'a>(stored: &Stored, logs: &'a [LogFile], ask: &LogsAsk) -> Result<&'a LogFile, Problem> {
    let attempt = logs.first().map(|log| log.attempt);
    let failures = stored.failures.iter();
    let failed = failures
        .filter(|failed| Some(failed.attempt) == attempt)
        .find(|failed| logs.iter().any(|log| log.pod == failed.pod));
    let record = &stored.record;
    let of_rank = |rank: u32| -> Option<Slot> { record.ranks.pod_of(&record.replicas, rank) };
    let is_in =
        |log: &LogFile, slot: Option<Slot>| slot.is_some() && stored.slot_called(&log.pod) == slot;
    let is_pod = |log: &LogFile| match (&ask.pod, ask.rank) {
        (Some(pod), _) => log.pod == *pod || is_in(log, stored.slot_called(pod)),
        (None, Some(rank)) => is_in(log, of_rank(rank)),
        (None, None) => match failed {
            Some(failed) => log.pod == failed.pod,
            None => Some(&log.pod) == logs.first().map(|first| &first.pod),
        },
    };
    let of_pod: Vec<&LogFile> = logs.iter().filter(|log| is_pod(log)).collect();
    let trains = stored.kind().map_or("", Kind::container);
    let is_default = ask.pod.is_none() && ask.rank.is_none();
    let failed_container = failed.filter(|_| is_default).map(|it| &it.container);
    let found = match &ask.container {
        Some(container) => of_pod.iter().find(|log| log.container == *container),
        None => of_pod
            .iter()
            .find(|log| Some(&log.container) == failed_container)
            .or_else(|| of_pod.iter().find(|log| log.container == trains))
            .or_else(|| of_pod.first()),
    };
    found.copied().ok_or_else(|| {
        let what = match (&ask.pod, ask.rank, &ask.container) {
            (Some(pod), _, _) if of_pod.is_empty() => format!("pod `{pod}`"),
            (None, Some(rank), _) if of_pod.is_empty() => format!("rank {rank}"),
            (_, _, Some(container)) => format!("container `{container}`"),
            _ => "this pod".to_owned(),
        };
        problem(
            ProblemCode::NotFound,
            format!(
                "attempt {} has no log of {what}",
                attempt.unwrap_or_default()
            ),
            "choose one of the pods that the list of logs has",
        )
    })
}
