//! The list of jobs, one job with its runs, and failures by cause.

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    job::ProgressRecord,
    lint,
    view::{
        VERSION,
        failures::{Judged, causes},
        rows::{Row, RowState},
    },
};
use trainyard_web::{Document, JobsAsk, Problem, ProblemCode};

use super::{
    Local, document,
    index::{Brief, Entry},
    names, problem, unreadable,
};
use crate::command::{explain, status};

/// Most rows of a page.
const ROWS_MAX: usize = 200;
/// Runs of a job that are listed with it, the newest ones.
const RUNS_MAX: usize = 200;
/// Runs whose failures are counted, the newest ones.
const FAILED_RUNS_MAX: usize = 10_000;

/// What rows can be sorted by.
const SORTS: [&str; 10] = [
    "startedAt",
    "endedAt",
    "job",
    "namespace",
    "kind",
    "state",
    "ranks",
    "attempt",
    "step",
    "trainedRatio",
];

#[derive(Serialize)]
struct Jobs {
    version: u32,
    rows: Vec<Row>,
    counts: BTreeMap<&'static str, usize>,
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    unreadable: Vec<Unreadable>,
}

#[derive(Serialize)]
struct Unreadable {
    run: String,
    why: String,
}

/// A run that was read.
struct Listed {
    id: String,
    entry: Entry,
    brief: std::sync::Arc<Brief>,
}

impl Local {
    pub(super) fn jobs(&self, ask: &JobsAsk, now: Timestamp) -> Result<Document, Problem> {
        let order = Order::of(ask.sort.as_deref())?;
        let state = match ask.state.as_deref() {
            None => None,
            Some(name) => Some(state_called(name)?),
        };
        let store = self.store()?;
        let newest = self.index().newest(&store, now);
        let (entries, unlisted) = newest.map_err(|error| unreadable(&error))?;
        let mut missing: Vec<Unreadable> = unlisted
            .into_iter()
            .map(|(run, why)| Unreadable { run, why })
            .collect();
        let mut listed = Vec::new();
        for entry in entries {
            let id = names::id(&entry.folder);
            match entry.brief.clone() {
                Ok(brief) => listed.push(Listed { id, entry, brief }),
                Err(why) => missing.push(Unreadable { run: id, why }),
            }
        }
        listed.retain(|it| matches(ask, it));
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for it in &listed {
            *counts.entry(it.brief.state.name()).or_default() += 1;
        }
        listed.retain(|it| state.is_none_or(|state| it.brief.state == state));
        listed.sort_by(|one, other| order.compare(one, other));
        let total = listed.len();
        let begin = begin(&listed, ask.cursor.as_deref())?;
        let limit = (ask.limit as usize).clamp(1, ROWS_MAX);
        let mut rows = Vec::new();
        for it in listed.iter().skip(begin).take(limit) {
            match self.row_of(&it.entry.folder, it.entry.live, now) {
                Ok(row) => rows.push(row),
                Err(problem) => missing.push(Unreadable {
                    run: it.id.clone(),
                    why: problem.message,
                }),
            }
        }
        let next = begin + limit;
        let last = listed.get(next.saturating_sub(1));
        let cursor = last.filter(|_| next < total);
        document(&Jobs {
            version: VERSION,
            rows,
            counts,
            total,
            cursor: cursor.map(|last| format!("{next}.{}", last.id)),
            unreadable: missing,
        })
    }

    pub(super) fn job(
        &self,
        namespace: &str,
        name: &str,
        run: Option<&str>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let not_found = || {
            problem(
                ProblemCode::NotFound,
                format!("no run of job `{name}` in namespace `{namespace}` is stored here"),
                "`trainyard ps --all` lists all runs",
            )
        };
        let store = self.store()?;
        let jobs = store.jobs().map_err(|error| unreadable(&error))?;
        if !jobs.iter().any(|job| job == name) {
            return Err(not_found());
        }
        let entries = self.index().of_job(&store, name, RUNS_MAX, now);
        let mut entries = entries.map_err(|error| unreadable(&error))?;
        // A run that cannot be read is listed by its name.
        entries.retain(|entry| {
            let brief = entry.brief.as_ref();
            !brief.is_ok_and(|brief| brief.namespace != namespace)
        });
        let folder = match run {
            Some(run) => {
                let run = run.split('.').next().unwrap_or(run);
                let wanted = names::find(&store, &format!("{run}.{name}"))?;
                Some(wanted)
            }
            None => entries.first().map(|entry| entry.folder.clone()),
        };
        let slot = self.runs.slot(folder.ok_or_else(not_found)?);
        let stored = slot.stored()?;
        if stored.record.namespace != namespace {
            return Err(not_found());
        }
        let report = stored.report(now);
        let mut notes: Vec<String> = report.notes.iter().map(|(_, note)| note.clone()).collect();
        notes.extend(slot.notes(now));
        let reported = report.attempt_progress();
        notes.extend(reported.and_then(ProgressRecord::complaint));
        let warnings = match &stored.record.job {
            Value::Null => Vec::new(),
            job => lint::review_object(job, None),
        };
        document(&json!({
            "version": VERSION,
            "run": slot.id,
            "row": self.row_of(&slot.folder, stored.live, now)?,
            "status": serde_json::to_value(status::document(&report)).unwrap_or_default(),
            "runs": entries.iter().map(run_entry).collect::<Vec<Value>>(),
            "explain": explain::document(&stored, now),
            "warnings": warnings,
            "notes": notes,
        }))
    }

    pub(super) fn failures(&self, window_millis: u64, now: Timestamp) -> Result<Document, Problem> {
        let store = self.store()?;
        let all = self.index().all(&store, FAILED_RUNS_MAX, now);
        let all = all.map_err(|error| unreadable(&error))?;
        let since = now.as_millisecond().saturating_sub_unsigned(window_millis);
        let judged: Vec<Judged> = all
            .iter()
            .filter_map(|entry| entry.brief.as_ref().ok())
            .flat_map(|brief| &brief.judged)
            .filter(|it| it.at.as_millisecond() >= since)
            .cloned()
            .collect();
        document(&json!({ "version": VERSION, "rows": causes(&judged) }))
    }
}

fn run_entry(entry: &Entry) -> Value {
    let brief = entry.brief.as_ref().ok();
    let started = brief.map(|brief| brief.started_at);
    let started = started.or_else(|| names::started_at(&entry.folder));
    let mut run = json!({ "id": names::id(&entry.folder), "startedAt": started });
    let ended = brief.filter(|brief| brief.ended_at.is_some());
    if let (Some(brief), Some(run)) = (ended, run.as_object_mut()) {
        run.insert("outcome".to_owned(), json!(brief.state.name()));
    }
    run
}

/// Whether a row is asked for, but for its state.
fn matches(ask: &JobsAsk, it: &Listed) -> bool {
    let brief = &it.brief;
    let is = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    let text = ask.text.as_deref().map(str::to_lowercase);
    let has_text = text.is_none_or(|text| {
        let line = brief.line.as_ref().map_or("", |line| line.text.as_str());
        let places = [it.entry.folder.job.as_str(), &brief.namespace, line];
        places
            .iter()
            .any(|place| place.to_lowercase().contains(&text))
    });
    has_text && is(&ask.namespace, &brief.namespace) && is(&ask.kind, &brief.kind)
}

fn state_called(name: &str) -> Result<RowState, Problem> {
    let mut states = RowState::ALL.into_iter();
    let found = states.find(|state| state.name() == name);
    found.ok_or_else(|| names::unknown("state", name, &RowState::ALL.map(RowState::name)))
}

/// Where a page begins: behind the row that ended the one before, wherever that is by now.
fn begin(listed: &[Listed], cursor: Option<&str>) -> Result<usize, Problem> {
    let Some(cursor) = cursor else {
        return Ok(0);
    };
    let parts = cursor.split_once('.');
    let parts = parts.and_then(|(place, id)| Some((place.parse::<usize>().ok()?, id)));
    let Some((place, id)) = parts else {
        let message = format!("`{cursor}` is not a cursor of this list");
        let hint = "ask for the first page, without a cursor";
        return Err(problem(ProblemCode::BadRequest, message, hint));
    };
    let known = listed.iter().position(|it| it.id == id);
    Ok(known.map_or(place, |known| known + 1).min(listed.len()))
}

/// How rows are sorted.
struct Order {
    by: Option<&'static str>,
    descending: bool,
}

impl Order {
    fn of(sort: Option<&str>) -> Result<Self, Problem> {
        let Some(sort) = sort else {
            return Ok(Self {
                by: None,
                descending: false,
            });
        };
        let (name, descending) = match sort.strip_prefix('-') {
            Some(name) => (name, true),
            None => (sort, false),
        };
        let by = SORTS.into_iter().find(|known| *known == name);
        let by = by.ok_or_else(|| names::unknown("column to sort by", name, &SORTS))?;
        Ok(Self {
            by: Some(by),
            descending,
        })
    }

    fn compare(&self, one: &Listed, other: &Listed) -> Ordering {
        let newest = || {
            let key = |it: &Listed| (it.entry.live, it.brief.started_at);
            key(other)
                .cmp(&key(one))
                .then_with(|| one.id.cmp(&other.id))
        };
        let Some(by) = self.by else {
            return newest();
        };
        let (first, second) = (&*one.brief, &*other.brief);
        let ratio = |brief: &Brief| brief.trained_ratio.unwrap_or(-1.0);
        let order = match by {
            "startedAt" => first.started_at.cmp(&second.started_at),
            "endedAt" => first.ended_at.cmp(&second.ended_at),
            "job" => one.entry.folder.job.cmp(&other.entry.folder.job),
            "namespace" => first.namespace.cmp(&second.namespace),
            "kind" => first.kind.cmp(&second.kind),
            "state" => first.state.cmp(&second.state),
            "ranks" => first.ranks.cmp(&second.ranks),
            "attempt" => first.attempt.cmp(&second.attempt),
            "step" => first.step.cmp(&second.step),
            _ => ratio(first).total_cmp(&ratio(second)),
        };
        let order = if self.descending {
            order.reverse()
        } else {
            order
        };
        order.then_with(newest)
    }
}
