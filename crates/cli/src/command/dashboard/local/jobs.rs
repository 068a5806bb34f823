//! The list of jobs, one job with its runs, and failures by cause.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    job::ProgressRecord,
    lint,
    view::{
        VERSION,
        failures::{Judged, causes},
        rows::Row,
    },
};
use trainyard_web::{Document, JobsAsk, Problem, ProblemCode};

use super::{
    super::shared::{
        Unread,
        list::{Listed, page},
    },
    Local, document,
    index::{Brief, Entry},
    names, problem, unreadable,
};
use crate::command::{explain, status};

/// Runs of a job that are listed with it, the newest ones.
const RUNS_MAX: usize = 200;
/// Runs whose failures are counted, the newest ones.
const FAILED_RUNS_MAX: usize = 10_000;

#[derive(Serialize)]
struct Jobs {
    version: u32,
    rows: Vec<Row>,
    counts: BTreeMap<&'static str, usize>,
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    unreadable: Vec<Unread>,
}

/// A run that was read.
struct Read {
    id: String,
    entry: Entry,
    brief: std::sync::Arc<Brief>,
}

impl Local {
    pub(super) fn jobs(&self, ask: &JobsAsk, now: Timestamp) -> Result<Document, Problem> {
        let store = self.store()?;
        let newest = self.index().newest(&store, now);
        let (entries, unlisted) = newest.map_err(|error| unreadable(&error))?;
        let mut missing: Vec<Unread> = unlisted
            .into_iter()
            .map(|(run, why)| Unread { run, why })
            .collect();
        let mut read = Vec::new();
        for entry in entries {
            let id = names::id(&entry.folder);
            match entry.brief.clone() {
                Ok(brief) => read.push(Read { id, entry, brief }),
                Err(why) => missing.push(Unread { run: id, why }),
            }
        }
        let page = page(read, listed, ask)?;
        let mut rows = Vec::new();
        for it in &page.shown {
            match self.row_of(&it.entry.folder, it.entry.live, now) {
                Ok(row) => rows.push(row),
                Err(problem) => missing.push(Unread {
                    run: it.id.clone(),
                    why: problem.message,
                }),
            }
        }
        document(&Jobs {
            version: VERSION,
            rows,
            counts: page.counts,
            total: page.total,
            cursor: page.cursor,
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

/// What of a run the list is filtered and sorted by.
fn listed(it: &Read) -> Listed<'_> {
    let brief = &it.brief;
    Listed {
        id: &it.id,
        job: &it.entry.folder.job,
        namespace: &brief.namespace,
        kind: &brief.kind,
        state: brief.state,
        line: brief.line.as_ref().map_or("", |line| line.text.as_str()),
        ranks: brief.ranks,
        accelerators: None,
        attempt: brief.attempt,
        step: brief.step,
        trained_ratio: brief.trained_ratio,
        started_at: brief.started_at,
        ended_at: brief.ended_at,
        live: it.entry.live,
    }
}
