//! The list of jobs of a cluster, and one job.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    job::ProgressRecord,
    lint, spec,
    view::{
        VERSION,
        rows::{Row, RowState},
    },
};
use trainyard_kube::look::{Health, JobSeen, LiveJob};
use trainyard_web::{Document, JobsAsk, Problem, ProblemCode};

use super::{
    Cluster, document,
    health::{Unread, notes, unread},
    index::{self, Brief},
    lock, problem,
    run::{Moment, RunSlot},
};
use crate::{
    clean, cluster,
    command::status,
    job_report::{JobReport, Placed},
};

/// Most rows of a page.
const ROWS_MAX: usize = 200;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Jobs {
    version: u32,
    rows: Vec<Row>,
    counts: BTreeMap<&'static str, usize>,
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// What cannot be read, and why.
    unreadable: Vec<Unread>,
    /// When the API server answered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<Timestamp>,
    notes: Vec<String>,
}

impl Cluster {
    pub(super) fn jobs(&self, ask: &JobsAsk, now: Timestamp) -> Result<Document, Problem> {
        let health = self.known()?;
        let briefs = self.briefs(now);
        let page = page(&briefs, ask)?;
        let rows = page.shown.iter().map(|brief| self.row_now(brief, now));
        document(&Jobs {
            version: VERSION,
            rows: rows.collect(),
            counts: page.counts,
            total: page.total,
            cursor: page.cursor,
            unreadable: unread(&health, now),
            as_of: health.answered_at,
            notes: notes(&health, now),
        })
    }

    /// Every job in brief.
    pub(super) fn briefs(&self, now: Timestamp) -> Vec<Arc<Brief>> {
        lock(&self.index).briefs(&self.live.jobs(), now)
    }

    /// The row of a job as it is now: that of one that has ended stays as it is.
    fn row_now(&self, brief: &Brief, now: Timestamp) -> Row {
        if !brief.row.live {
            return brief.row.clone();
        }
        let row = self.row(&brief.row.id, now);
        row.unwrap_or_else(|| brief.row.clone())
    }

    /// The row of a job, for a list that is shown already.
    pub(super) fn row(&self, uid: &str, now: Timestamp) -> Option<Row> {
        let job = self.live.job(uid)?.read()?;
        let observed = self.known_slot(uid).map(|slot| slot.chronicle());
        let chronicle = observed.unwrap_or_else(|| Arc::new(super::history::of_status(&job, now)));
        Some(index::row(&job, &chronicle, now))
    }

    pub(super) fn job(
        &self,
        namespace: &str,
        name: &str,
        run: Option<&str>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let health = self.known()?;
        let mut called = self.live.called(namespace, name);
        called.sort_by_key(|job| std::cmp::Reverse(job.created_at()));
        let wanted = called
            .iter()
            .find(|job| run.is_none_or(|run| job.uid() == run));
        let Some(wanted) = wanted else {
            return Err(self.no_job(namespace, name, &health));
        };
        let slot = self.slot(wanted.uid())?;
        let moment = slot.moment(now)?;
        let job = &moment.job;
        let report = self.report(&moment, now);
        let mut all: Vec<String> = report.notes.iter().map(|(_, note)| note.clone()).collect();
        all.extend(moment_notes(&moment));
        let reported = report.attempt_progress();
        all.extend(reported.and_then(ProgressRecord::complaint));
        let (explain, refused) = self.explain(&slot, &moment, now);
        all.extend(refused);
        all.extend(notes(&health, now));
        document(&json!({
            "version": VERSION,
            "run": slot.uid,
            "row": index::row(job, &moment.chronicle, now),
            "status": serde_json::to_value(status::document(&report)).unwrap_or_default(),
            "runs": called.iter().map(|job| json!({
                "id": job.uid(),
                "startedAt": job.created_at(),
                "kind": job.kind().name(),
            })).collect::<Vec<Value>>(),
            "explain": explain,
            "warnings": lint::review_object(&slot.object(), None),
            "notes": all,
            "asOf": health.answered_at,
        }))
    }

    fn report(&self, moment: &Moment, now: Timestamp) -> JobReport {
        let job = &moment.job;
        let places = moment.pods.iter().map(|pod| Placed {
            pod: pod.name.clone(),
            attempt: pod.attempt,
            phase: format!("{:?}", pod.phase),
            node: pod.node.clone(),
            terminating: pod.deleted_at.is_some(),
        });
        let why = self.command("explain", job);
        cluster::report(job, places.collect(), &why, now)
    }

    /// A command of this program for a job.
    pub(super) fn command(&self, command: &str, job: &JobSeen) -> String {
        let flags = cluster::flags(&self.place, &job.key.namespace);
        format!("{} {command} {}{flags}", self.program(), job.resource())
    }

    fn no_job(&self, namespace: &str, name: &str, health: &Health) -> Problem {
        let message = format!("no job `{name}` in namespace `{namespace}`");
        if let Some(within) = self.live.namespace().filter(|within| *within != namespace) {
            return problem(
                ProblemCode::NotFound,
                format!("{message}: this dashboard shows namespace `{within}` alone"),
                format!("start one with `--namespace {namespace}`, or with `--all-namespaces`"),
            );
        }
        if let Some(first) = unread(health, Timestamp::now()).first() {
            let message = format!("{message} that can be read; {}", first.why);
            return problem(ProblemCode::NotFound, message, "look at the list of jobs");
        }
        let jobs = self.live.jobs();
        let near = jobs.iter().filter(|job| job.namespace() == namespace);
        let near = spec::nearest(name, near.map(LiveJob::name));
        let hint = near.map_or_else(
            || "a job that was deleted leaves nothing here".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        problem(ProblemCode::NotFound, message, hint)
    }
}

fn moment_notes(moment: &Moment) -> Vec<String> {
    let mut notes = Vec::new();
    let unseen = moment.chronicle.not_observed_millis();
    if unseen > 0 {
        notes.push(format!("the order of {unseen} ms was not observed"));
    }
    if moment.job.status.trainyard.ledger.began.is_none() {
        let words = "its status has no ledger, so where its time went is not known";
        notes.push(words.to_owned());
    }
    notes
}

/// A page of the list.
pub(super) struct Page {
    pub(super) shown: Vec<Arc<Brief>>,
    pub(super) counts: BTreeMap<&'static str, usize>,
    pub(super) total: usize,
    pub(super) cursor: Option<String>,
}

/// The rows that are asked for.
pub(super) fn page(briefs: &[Arc<Brief>], ask: &JobsAsk) -> Result<Page, Problem> {
    let order = Order::of(ask.sort.as_deref())?;
    let mut listed: Vec<&Arc<Brief>> = briefs.iter().filter(|it| matches(ask, &it.row)).collect();
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for it in &listed {
        *counts.entry(it.row.state.name()).or_default() += 1;
    }
    let state = ask.state.as_deref();
    listed.retain(|it| state.is_none_or(|state| it.row.state.name() == state));
    listed.sort_by(|one, other| order.compare(&one.row, &other.row));
    let total = listed.len();
    let begin = begin(&listed, ask.cursor.as_deref())?;
    let limit = usize::try_from(ask.limit).unwrap_or(ROWS_MAX);
    let next = begin.saturating_add(limit.clamp(1, ROWS_MAX));
    let last = listed.get(next.saturating_sub(1));
    let cursor = last.filter(|_| next < total);
    let cursor = cursor.map(|last| format!("{next}.{}", last.row.id));
    let shown = listed.iter().take(next).skip(begin);
    Ok(Page {
        shown: shown.map(|it| Arc::clone(it)).collect(),
        counts,
        total,
        cursor,
    })
}

/// Whether a row is asked for, but for its state.
fn matches(ask: &JobsAsk, row: &Row) -> bool {
    let is = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    let text = ask.text.as_deref().map(str::to_lowercase);
    let has_text = text.is_none_or(|text| {
        let line = row.line.as_deref().unwrap_or_default();
        let mut places = [row.job.as_str(), &row.namespace, line].into_iter();
        places.any(|place| place.to_lowercase().contains(&text))
    });
    has_text && is(&ask.namespace, &row.namespace) && is(&ask.kind, &row.kind)
}

/// Where a page begins: behind the row that ended the one before, wherever that is by now.
fn begin(listed: &[&Arc<Brief>], cursor: Option<&str>) -> Result<usize, Problem> {
    let Some(cursor) = cursor else {
        return Ok(0);
    };
    let parts = cursor.split_once('.');
    let parts = parts.and_then(|(place, id)| Some((place.parse::<usize>().ok()?, id)));
    let Some((place, id)) = parts else {
        let message = format!("`{}` is not a cursor of this list", clean::text(cursor));
        let hint = "ask for the first page, without a cursor";
        return Err(problem(ProblemCode::BadRequest, message, hint));
    };
    let known = listed.iter().position(|it| it.row.id == id);
    Ok(known.map_or(place, |known| known + 1))
}

/// How rows are sorted: running first and then newest, where nothing is asked for.
struct Order<'a> {
    by: &'a str,
    descending: bool,
}

impl<'a> Order<'a> {
    fn of(sort: Option<&'a str>) -> Result<Self, Problem> {
        let sort = sort.unwrap_or_default();
        let (by, descending) = match sort.strip_prefix('-') {
            Some(by) => (by, true),
            None => (sort, false),
        };
        let known = [
            "",
            "startedAt",
            "endedAt",
            "job",
            "namespace",
            "kind",
            "state",
            "ranks",
            "accelerators",
            "attempt",
            "step",
            "trainedRatio",
        ];
        if !known.contains(&by) {
            return Err(problem(
                ProblemCode::BadRequest,
                format!("unknown column to sort by `{}`", clean::text(by)),
                format!("use one of:{}", known.join(" ")),
            ));
        }
        Ok(Self { by, descending })
    }

    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        let newest = || {
            let key = |it: &Row| (it.live && it.state != RowState::Unknown, it.started_at);
            let order = key(other).cmp(&key(one));
            order.then_with(|| one.id.cmp(&other.id))
        };
        let ratio = |row: &Row| row.trained_ratio.unwrap_or(-1.0);
        let order = match self.by {
            "startedAt" => one.started_at.cmp(&other.started_at),
            "endedAt" => one.ended_at.cmp(&other.ended_at),
            "job" => one.job.cmp(&other.job),
            "namespace" => one.namespace.cmp(&other.namespace),
            "kind" => one.kind.cmp(&other.kind),
            "state" => one.state.cmp(&other.state),
            "ranks" => one.ranks.cmp(&other.ranks),
            "accelerators" => one.accelerators.cmp(&other.accelerators),
            "attempt" => one.attempt.cmp(&other.attempt),
            "step" => one.step.cmp(&other.step),
            "trainedRatio" => ratio(one).total_cmp(&ratio(other)),
            _ => return newest(),
        };
        let order = if self.descending {
            order.reverse()
        } else {
            order
        };
        order.then_with(newest)
    }
}

impl RunSlot {
    /// The job as it was asked for.
    pub(super) fn object(&self) -> Value {
        lock(&self.light).job.object()
    }
}
