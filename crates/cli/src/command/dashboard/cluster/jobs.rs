//! The list of jobs of a cluster, and one job.

use std::{collections::BTreeMap, sync::Arc};

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
    super::shared::{
        Unread,
        list::{Listed, page},
    },
    Cluster, document,
    health::{notes, unread},
    index::{self, Brief},
    lock, problem,
    reader::Reader,
    run::{Moment, RunSlot},
};
use crate::{
    cluster,
    command::status,
    job_report::{JobReport, Placed},
};

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
    pub(super) fn jobs(
        &self,
        ask: &JobsAsk,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let health = self.known()?;
        let briefs = self.briefs(now);
        let mut briefs = reader.visible(briefs);
        if ask.text.is_some() {
            briefs = self.covered_lines(briefs, reader, now);
        }
        let page = page(briefs, listed, ask)?;
        let rows = page.shown.iter().map(|brief| self.row_now(brief, now));
        document(&Jobs {
            version: VERSION,
            rows: rows.collect(),
            counts: page.counts,
            total: page.total,
            cursor: page.cursor,
            unreadable: unread(&health, reader.sees_all(), now),
            as_of: reader.as_of(&health),
            notes: notes(&health, reader.sees_all(), now)
                .into_iter()
                .chain(reader.note())
                .collect(),
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
        (namespace, name): (&str, &str),
        run: Option<&str>,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let health = self.known()?;
        let mut called = self.live.called(namespace, name);
        called.retain(|job| reader.sees_job(job));
        called.sort_by_key(|job| std::cmp::Reverse(job.created_at()));
        let wanted = called
            .iter()
            .find(|job| run.is_none_or(|run| job.uid() == run));
        let Some(wanted) = wanted else {
            return Err(self.no_job((namespace, name), &health, reader));
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
        all.extend(notes(&health, reader.sees_all(), now));
        all.extend(reader.note());
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
            "asOf": reader.as_of(&health),
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

    /// The same for a job that is not there and for one that whoever asks may not see.
    fn no_job(
        &self,
        (namespace, name): (&str, &str),
        health: &Health,
        reader: &Reader<'_>,
    ) -> Problem {
        let message = format!("no job `{name}` in namespace `{namespace}`");
        if let Some(within) = self.live.namespace().filter(|within| *within != namespace) {
            return problem(
                ProblemCode::NotFound,
                format!("{message}: this dashboard shows namespace `{within}` alone"),
                format!("start one with `--namespace {namespace}`, or with `--all-namespaces`"),
            );
        }
        if let Some(first) = unread(health, reader.sees_all(), Timestamp::now()).first() {
            let message = format!("{message} that can be read; {}", first.why);
            return problem(ProblemCode::NotFound, message, "look at the list of jobs");
        }
        let jobs = self.live.jobs();
        let near = jobs.iter().filter(|job| job.namespace() == namespace);
        let near = near.filter(|job| reader.sees_job(job));
        let near = spec::nearest(name, near.map(LiveJob::name));
        let hint = near.map_or_else(
            || match &reader.sight {
                None => "a job that was deleted leaves nothing here".to_owned(),
                Some(_) => "a job that was deleted leaves nothing here, and one that you may not list is not shown".to_owned(),
            },
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

/// What of a job the list is filtered and sorted by.
pub(super) fn listed(brief: &Arc<Brief>) -> Listed<'_> {
    let row = &brief.row;
    Listed {
        id: &row.id,
        job: &row.job,
        namespace: &row.namespace,
        kind: &row.kind,
        state: row.state,
        line: row.line.as_deref().unwrap_or_default(),
        ranks: row.ranks,
        accelerators: row.accelerators,
        attempt: row.attempt,
        step: row.step,
        trained_ratio: row.trained_ratio,
        started_at: row.started_at,
        ended_at: row.ended_at,
        live: row.live && row.state != RowState::Unknown,
    }
}

impl RunSlot {
    /// The job as it was asked for.
    pub(super) fn object(&self) -> Value {
        lock(&self.light).job.object()
    }
}
