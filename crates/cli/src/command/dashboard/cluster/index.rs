//! The jobs of a cluster in brief: parsed once for each version of a job.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use trainyard_core::{
    chronicle::Chronicle,
    job::{ConditionStatus, ConditionType},
    view::{
        failures::Judged,
        rows::{self, Line, LineKind, Row, RowState},
    },
};
use trainyard_host::Ranks;
use trainyard_kube::look::{JobSeen, LiveJob};

use super::history::{failed_at, known_until, of_status};
use crate::cluster;

/// A job in brief. One takes about a kilobyte.
#[derive(Clone, Debug)]
pub(super) struct Brief {
    pub(super) row: Row,
    /// The verdict on its last failure.
    pub(super) judged: Option<Judged>,
    /// When it was created.
    pub(super) created_at: Option<Timestamp>,
    /// How many pods it wants.
    pub(super) pods: u32,
    /// The code of what it waits for.
    pub(super) code: Option<String>,
    /// The queue of Kueue that it belongs to.
    pub(super) queue: Option<String>,
}

/// Jobs in brief, by identity.
#[derive(Debug, Default)]
pub(super) struct Index {
    known: BTreeMap<String, (u64, Arc<Brief>)>,
}

impl Index {
    /// Every job of `jobs` in brief.
    pub(super) fn briefs(&mut self, jobs: &[LiveJob], now: Timestamp) -> Vec<Arc<Brief>> {
        let mut known = BTreeMap::new();
        for job in jobs {
            let (uid, version) = (job.uid(), job.version());
            let kept = self.known.remove(uid).filter(|(of, _)| *of == version);
            let brief = match kept {
                Some((_, brief)) => Some(brief),
                None => job.read().map(|seen| Arc::new(Brief::of(&seen, now))),
            };
            if let Some(brief) = brief {
                known.insert(uid.to_owned(), (version, brief));
            }
        }
        // What is left over is gone.
        self.known = known;
        let briefs = self.known.values();
        briefs.map(|(_, brief)| Arc::clone(brief)).collect()
    }
}

impl Brief {
    pub(super) fn of(job: &JobSeen, now: Timestamp) -> Self {
        let chronicle = of_status(job, now);
        let row = row(job, &chronicle, now);
        let waiting = job.status.trainyard.waiting.as_ref();
        let code = waiting.and_then(|it| serde_json::to_value(it.code).ok());
        Self {
            judged: judged(job, &chronicle, now),
            created_at: job.created_at,
            pods: job.pods(),
            code: code.and_then(|code| code.as_str().map(str::to_owned)),
            queue: job.queue.clone(),
            row,
        }
    }
}

/// The row of a job. What depends on the time now is that of `now`.
pub(super) fn row(job: &JobSeen, chronicle: &Chronicle, now: Timestamp) -> Row {
    let until = known_until(job, now);
    let entry = cluster::row(job);
    let record = &job.status.trainyard;
    let state = state(job);
    let line = line(job, state, until);
    let spec = job.job.as_ref();
    let steps = record.attempt_progress().and_then(|it| it.total_steps);
    Row {
        id: job.uid.clone(),
        job: entry.job.clone(),
        namespace: entry.namespace.clone(),
        kind: entry.kind.clone(),
        state,
        ranks: spec.map_or(0, |spec| Ranks::of(spec).count(&spec.replicas())),
        accelerators: spec.map(rows::accelerators),
        attempt: entry.attempts,
        attempts_max: rows::attempts_max(&job.limits()),
        spent: record.spent,
        step: entry.shown_step().0,
        steps,
        day: rows::day(chronicle, until),
        trained_ratio: record.ledger.ettr(until),
        line_kind: line.as_ref().map(|line| line.kind),
        line: line.map(|line| line.text),
        started_at: entry.started_at.unwrap_or(now),
        ended_at: job.has_ended().then_some(until),
        live: entry.live,
    }
}

/// The state of a job in one word. One that another controller processes has no ledger: its conditions say what they say.
fn state(job: &JobSeen) -> RowState {
    let is_readable = job.errors.is_empty() && job.unreadable.is_none();
    if !is_readable && !job.has_ended() {
        return RowState::Unknown;
    }
    let state = rows::state(None, true, &job.status);
    let has_ledger = job.status.trainyard.ledger.began.is_some();
    if has_ledger || job.has_ended() {
        return state;
    }
    let mut conditions = job.status.conditions.iter().rev();
    let last = conditions.find(|it| it.status == ConditionStatus::True);
    match last.map(|it| it.kind) {
        Some(ConditionType::Running) => RowState::Running,
        Some(ConditionType::Restarting) => RowState::Restarting,
        Some(ConditionType::Suspended) => RowState::Suspended,
        _ if job.suspend => RowState::Suspended,
        _ => RowState::Waiting,
    }
}

/// The sentence that is shown with a job.
fn line(job: &JobSeen, state: RowState, until: Timestamp) -> Option<Line> {
    let of = |kind: LineKind, text: String| {
        let text: String = text.chars().take(rows::LINE_CHARS).collect();
        Some(Line { kind, text })
    };
    if state == RowState::Unknown {
        let invalid = job.errors.first();
        let invalid = invalid.map(|first| format!("{}: {}", first.code, first.message));
        let unreadable = job.unreadable.as_ref().map(ToString::to_string);
        return of(LineKind::Failure, invalid.or(unreadable)?);
    }
    if let Some(manager) = job.manager() {
        let sentence = format!("`{manager}` processes it, not the operator of Trainyard");
        return of(LineKind::Waiting, sentence);
    }
    let conditions = job.status.conditions.iter();
    let mut failed = conditions
        .filter(|it| it.kind == ConditionType::Failed && it.status == ConditionStatus::True);
    let message = failed.next_back().map(|it| it.message.as_str());
    rows::line(state, &job.status, None, message, until)
}

/// The verdict on the last failure, with its time as far as that is known.
fn judged(job: &JobSeen, chronicle: &Chronicle, now: Timestamp) -> Option<Judged> {
    let last = job.status.trainyard.last_failure.as_ref()?;
    let verdict = last.verdict.clone()?;
    let at = failed_at(chronicle, last.attempt);
    let began = job.status.start_time.or(job.created_at);
    Some(Judged {
        run: job.uid.clone(),
        job: job.key.name.to_string(),
        namespace: job.key.namespace.to_string(),
        at: at.or(began).unwrap_or(now),
        verdict,
    })
}
