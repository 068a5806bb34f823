//! One run: what is kept of it in memory, and the documents about it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use trainyard_core::{
    chronicle::Chronicle,
    spec,
    view::{
        VERSION, events,
        losses::losses,
        pyramid::Series,
        rows::{self, Row},
        saves, seats,
        strip::{By, Strip, StripAsk, strip},
        trace::trace,
    },
};
use trainyard_host::store::RunFolder;
use trainyard_web::{Document, Problem, ProblemCode, RunPart, SeriesAsk, StripQuery};

use super::{
    Local,
    cache::Stamp,
    document,
    folded::MadeOf,
    history::{History, known_until},
    index::ending,
    lock, names, of_run, problem, unreadable,
    verdicts::Diagnoses,
};
use crate::stored::Stored;

/// Rows of runs that are over, which are kept. One takes about two kilobytes.
const ROWS_KEPT: usize = 4_096;

/// A document of folded logs, and what it was made of.
type FoldedDocument = (MadeOf, Arc<Vec<u8>>);

/// A run that pages look at.
#[derive(Debug)]
pub(super) struct RunSlot {
    pub(super) id: String,
    pub(super) folder: RunFolder,
    light: Mutex<Light>,
    /// What takes long has a lock of its own, so that a strip does not wait for a diagnosis.
    pub(super) diagnoses: Mutex<Diagnoses>,
    /// Folded logs by attempt.
    pub(super) folded: Mutex<BTreeMap<u32, FoldedDocument>>,
}

#[derive(Debug, Default)]
struct Light {
    stored: Option<(Stamp, Arc<Stored>)>,
    history: History,
}

/// A run and its history at one moment.
pub(super) struct Moment {
    pub(super) stored: Arc<Stored>,
    pub(super) chronicle: Arc<Chronicle>,
    /// Until when something is known.
    pub(super) until: Timestamp,
}

impl RunSlot {
    pub(super) fn new(folder: RunFolder) -> Self {
        Self {
            id: names::id(&folder),
            folder,
            light: Mutex::default(),
            diagnoses: Mutex::default(),
            folded: Mutex::default(),
        }
    }

    /// The run as it is stored now.
    pub(super) fn stored(&self) -> Result<Arc<Stored>, Problem> {
        self.read(&mut lock(&self.light))
    }

    fn read(&self, light: &mut Light) -> Result<Arc<Stored>, Problem> {
        let stamp = Stamp::of(&self.folder);
        if let Some((known, stored)) = &light.stored
            && *known == stamp
            // An engine that dies changes no file.
            && (!stored.live || self.folder.is_live())
        {
            return Ok(Arc::clone(stored));
        }
        let stored = Stored::read(self.folder.clone()).map_err(|error| unreadable(&error))?;
        let stored = Arc::new(stored);
        light.stored = stamp.is_settled().then(|| (stamp, Arc::clone(&stored)));
        Ok(stored)
    }

    /// The run and its history at `now`.
    pub(super) fn moment(&self, now: Timestamp) -> Result<Moment, Problem> {
        let mut light = lock(&self.light);
        // Facts first: the status is then as new as they are, or newer, and completes them.
        let refreshed = light.history.refresh(&self.folder);
        refreshed.map_err(|error| unreadable(&error))?;
        let stored = self.read(&mut light)?;
        let until = known_until(&stored, now);
        let chronicle = light.history.chronicle(&stored, until);
        Ok(Moment {
            stored,
            chronicle,
            until,
        })
    }

    /// What a reader should know of what is missing.
    pub(super) fn notes(&self, now: Timestamp) -> Vec<String> {
        let known = self.moment(now).map(|moment| moment.chronicle);
        let mut notes = Vec::new();
        let light = lock(&self.light);
        let history = &light.history;
        if !history.is_recorded {
            notes.push(
                "the run has no `facts.jsonl`: an older version wrote it, so only sums are known"
                    .to_owned(),
            );
        }
        if history.unread > 0 {
            let count = history.unread;
            notes.push(format!(
                "{count} lines of `facts.jsonl` are not facts and were not read"
            ));
        }
        if history.left_out > 0 {
            let count = history.left_out;
            notes.push(format!(
                "the last {count} bytes of `facts.jsonl` are beyond the limit and were not read"
            ));
        }
        let unseen = known.map_or(0, |chronicle| chronicle.not_observed_millis());
        if unseen > 0 && history.is_recorded {
            notes.push(format!("the order of {unseen} ms was not observed"));
        }
        notes
    }

    fn series(&self, ask: &SeriesAsk, now: Timestamp) -> Result<Vec<NamedSeries>, Problem> {
        let moment = self.moment(now)?;
        let light = lock(&self.light);
        let from = ask.from.or(moment.chronicle.began).unwrap_or(i64::MIN);
        // The last point may be as late as the end itself.
        let to = ask.to.unwrap_or(i64::MAX);
        let points = usize::try_from(ask.points).unwrap_or(usize::MAX);
        let all = light.history.series.iter();
        let wanted = all.filter(|(name, _)| ask.names.is_empty() || ask.names.contains(name));
        let series = wanted.map(|(name, pyramid)| NamedSeries {
            name: name.clone(),
            unit: unit(name),
            series: pyramid.series(from, to, points),
        });
        Ok(series.collect())
    }
}

#[derive(Serialize)]
struct NamedSeries {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(flatten)]
    series: Series,
}

fn unit(name: &str) -> Option<&'static str> {
    Some(match name {
        "stepSeconds" => "s",
        "tokensPerSecond" => "tokens/s",
        "samplesPerSecond" => "samples/s",
        "tflops" => "TFLOP/s",
        "step" => "steps",
        _ => return None,
    })
}

impl Local {
    /// The row of a run in the list of jobs. What a list needs is kept apart from the runs that pages look at, which a long list would displace.
    pub(super) fn row_of(
        &self,
        folder: &RunFolder,
        live: bool,
        now: Timestamp,
    ) -> Result<Row, Problem> {
        let id = names::id(folder);
        let stamp = Stamp::of(folder);
        if let Some((known, row)) = lock(&self.rows).get(&id)
            && *known == stamp
            && !live
        {
            return Ok(row.clone());
        }
        let stored = Stored::read_as(folder.clone(), live).map_err(|error| unreadable(&error))?;
        let row = row(&id, &stored, now);
        if !live && stamp.is_settled() {
            let mut rows = lock(&self.rows);
            if rows.len() >= ROWS_KEPT {
                rows.clear();
            }
            rows.insert(id, (stamp, row.clone()));
        }
        Ok(row)
    }
}

/// The row of a run. Its last day comes from its status alone, so that a list reads no facts.
fn row(id: &str, stored: &Stored, now: Timestamp) -> Row {
    let until = known_until(stored, now);
    let entry = stored.row();
    let report = stored.report(now);
    let ended = stored.report.as_ref();
    let status = stored.status_now();
    let state = rows::state(
        ended.map(|report| ending(report.outcome)),
        stored.live,
        &status,
    );
    let failures = stored.failures.iter();
    let verdict = ended
        .and_then(|report| report.verdict.as_ref())
        .or_else(|| failures.rev().find_map(|it| it.verdict.as_ref()));
    let message = ended.map(|report| report.message.as_str());
    let line = rows::line(state, &status, verdict, message, until);
    let steps = report.attempt_progress().and_then(|it| it.total_steps);
    let chronicle = History::default().chronicle(stored, until);
    Row {
        id: id.to_owned(),
        job: entry.job.clone(),
        namespace: entry.namespace.clone(),
        kind: entry.kind.clone(),
        state,
        ranks: stored.record.ranks.count(&stored.record.replicas),
        accelerators: accelerators(stored),
        attempt: entry.attempts,
        attempts_max: rows::attempts_max(&stored.record.limits),
        spent: stored.status.trainyard.spent,
        step: entry.shown_step().0,
        steps,
        day: rows::day(&chronicle, until),
        trained_ratio: report.trained_ratio,
        line_kind: line.as_ref().map(|line| line.kind),
        line: line.map(|line| line.text),
        started_at: stored.record.started_at,
        ended_at: entry.ended_at,
        live: stored.live,
    }
}

/// The accelerators that the job asks for, where it is stored and can be read.
fn accelerators(stored: &Stored) -> Option<u32> {
    let job = spec::job_from_value(&stored.record.job).job?;
    Some(rows::accelerators(&job))
}

impl Local {
    pub(super) fn part(
        &self,
        run: &str,
        part: &RunPart,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let slot = self.run(run)?;
        let id = slot.id.as_str();
        match part {
            RunPart::Strip(ask) => {
                let moment = slot.moment(now)?;
                of_run(id, drawn(&moment, ask))
            }
            RunPart::Ledger => {
                let moment = slot.moment(now)?;
                let held = accelerators(&moment.stored).unwrap_or(0);
                of_run(id, losses(&moment.chronicle, held, moment.until))
            }
            RunPart::Verdicts => {
                let verdicts = slot.verdicts(now)?;
                of_run(id, json!({ "version": VERSION, "verdicts": verdicts }))
            }
            RunPart::Seats { attempt } => {
                let moment = slot.moment(now)?;
                of_run(id, seats::seats(&moment.chronicle, None, *attempt))
            }
            RunPart::Series(ask) => {
                let series = slot.series(ask, now)?;
                of_run(id, json!({ "version": VERSION, "series": series }))
            }
            RunPart::Logs(ask) => slot.logs(ask),
            RunPart::FoldedLogs { attempt } => slot.folded_logs(*attempt, now),
            RunPart::Events { cursor } => {
                let moment = slot.moment(now)?;
                let all = events::events(&moment.chronicle);
                let page = events::page(all, cursor.as_deref());
                let (page, next) = page.ok_or_else(|| {
                    problem(
                        ProblemCode::BadRequest,
                        "the cursor is not one of this list",
                        "ask for the first page, without a cursor",
                    )
                })?;
                let mut answer = json!({ "version": VERSION, "events": page });
                if let (Some(next), Some(answer)) = (next, answer.as_object_mut()) {
                    answer.insert("cursor".to_owned(), json!(next));
                }
                of_run(id, answer)
            }
            RunPart::Checkpoints => {
                let moment = slot.moment(now)?;
                of_run(id, saves::checkpoints(&moment.chronicle, at_risk(&moment)))
            }
            RunPart::Spec => {
                let stored = slot.stored()?;
                of_run(
                    id,
                    json!({ "version": VERSION, "spec": &stored.record.job }),
                )
            }
            RunPart::Trace => {
                let moment = slot.moment(now)?;
                let name = &moment.stored.record.name;
                let mut answer = document(&trace(&moment.chronicle, name, moment.until))?;
                answer.file_name = Some(format!("{id}.trace.json"));
                Ok(answer)
            }
        }
    }
}

fn drawn(moment: &Moment, ask: &StripQuery) -> Strip {
    let chronicle = &moment.chronicle;
    let until = moment.until;
    let end = chronicle.until(until).unwrap_or(until.as_millisecond());
    let from = ask.from.or(chronicle.began).unwrap_or(end);
    let ask = StripAsk {
        from,
        to: ask.to.unwrap_or(end),
        columns: ask.columns,
        rows: ask.rows,
        by: if ask.by_node { By::Node } else { By::Rank },
    };
    strip(chronicle, &ask, until)
}

/// The newest step and its time, where a failure would lose it.
fn at_risk(moment: &Moment) -> Option<(u64, i64)> {
    let stored = &moment.stored;
    let outcome = stored.report.as_ref().map(|report| report.outcome);
    if outcome == Some(trainyard_host::Outcome::Succeeded) {
        return None;
    }
    let record = stored.progress_record()?;
    Some((record.step, record.last_step_at.as_millisecond()))
}
