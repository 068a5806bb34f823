//! `trainyard status JOB --cluster`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    job::{JobStatus, ProgressRecord},
    ledger::{PhaseMillis, Span},
    reason::Code,
    spec::Job,
};
use trainyard_kube::look::{JobSeen, PodSeen};

use super::{Site, connect, refused};
use crate::{
    args::{Format, Place, Status},
    command::status::{Budget, Page, budget, since},
    failure::{Exit, Failure},
    printer::{Paint, Printer},
    run::clean,
    words,
};

/// Pods that are listed one by one; of more, those that do not run.
const PODS_LISTED: usize = 16;

/// The JSON form, with the fields of a local run that mean the same. Documented in
/// `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    version: u32,
    job: &'a str,
    kind: &'static str,
    namespace: &'a str,
    uid: &'a str,
    state: &'static str,
    live: bool,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    attempts: u32,
    pods: u32,
    last_step: Option<u64>,
    budget: BTreeMap<&'static str, Budget>,
    progress: Option<&'a ProgressRecord>,
    stalled: Option<String>,
    ledger: PhaseMillis,
    timeline: Vec<Span>,
    trained_ratio: Option<f64>,
    places: Vec<Placed<'a>>,
    status: &'a JobStatus,
}

/// Where a pod is.
#[derive(Debug, Serialize)]
struct Placed<'a> {
    pod: &'a str,
    attempt: u32,
    phase: String,
    node: Option<&'a str>,
}

/// Prints the status.
pub(crate) fn run(args: &Status, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(&args.which.job)?;
    let pods = site.look.pods(&job).map_err(refused)?;
    let now = Timestamp::now();
    match args.format {
        Format::Text => {
            let page = render(&site, &args.which.job, &job, &pods, now, printer);
            printer.data(page.as_bytes())?;
        }
        Format::Json => {
            let mut json = serde_json::to_vec_pretty(&document(&job, &pods, now))
                .context("cannot write the status as JSON")?;
            json.push(b'\n');
            printer.data(&json)?;
        }
    }
    Ok(Exit::Done)
}

/// When the clock of the ledger stops: with the job.
fn until(job: &JobSeen, now: Timestamp) -> Timestamp {
    job.status.completion_time.unwrap_or(now)
}

fn document<'a>(job: &'a JobSeen, pods: &'a [PodSeen], now: Timestamp) -> Document<'a> {
    let ledger = &job.status.trainyard.ledger;
    Document {
        version: 1,
        job: &job.key.name,
        kind: job.kind().name(),
        namespace: &job.key.namespace,
        uid: &job.uid,
        state: job.state(),
        live: !job.has_ended(),
        started_at: job.status.start_time.or(job.created_at),
        ended_at: job.status.completion_time,
        attempts: job.status.trainyard.attempt,
        pods: job.pods(),
        last_step: last_step(job),
        budget: budget(&job.status, &job.limits()),
        progress: job.status.trainyard.progress.as_ref(),
        stalled: stall(job, now),
        ledger: ledger.totals(until(job, now)),
        timeline: ledger.spans(until(job, now)),
        trained_ratio: ledger.ettr(until(job, now)),
        places: pods
            .iter()
            .map(|pod| Placed {
                pod: &pod.facts.name,
                attempt: pod.facts.attempt,
                phase: format!("{:?}", pod.facts.phase),
                node: pod.facts.node.as_deref(),
            })
            .collect(),
        status: &job.status,
    }
}

fn render(
    site: &Site<'_>,
    word: &str,
    job: &JobSeen,
    pods: &[PodSeen],
    now: Timestamp,
    printer: &Printer,
) -> String {
    let paint: Paint = printer.stdout_paint();
    let mut page = Page::new(printer.width(), paint);
    let began = job.status.start_time.or(job.created_at).unwrap_or(now);
    let ago = format!("{} ago", words::age(since(began, now)));
    let when = match job.status.completion_time {
        Some(ended) => {
            let took: Duration = since(began, ended);
            format!("started {ago}, took {}", words::duration(took))
        }
        None => format!("started {ago}"),
    };
    page.headline(&job.key.name, job.kind().name(), job.state(), &when);
    if let Some(waiting) = &job.status.trainyard.waiting
        && !job.has_ended()
        && waiting.code != Code::Training
    {
        page.line("waits", &clean::text(&waiting.message));
    }
    if let Some(failed) = &job.status.trainyard.last_failure {
        let (pod, attempt) = (&failed.pod, failed.attempt);
        let same = match failed.since_attempt {
            Some(since) => format!(", the same since attempt {since}"),
            None => String::new(),
        };
        page.line(
            "failed last",
            &format!("{pod} in attempt {attempt}: {}{same}", failed.message),
        );
        if let Some(verdict) = &failed.verdict {
            page.verdict(verdict);
        }
    }
    if let Some(why) = &job.unreadable {
        page.line("unreadable", &clean::text(&why.to_string()));
    }
    if let Some(first) = job.errors.first() {
        page.line("invalid", &format!("{}: {}", first.code, first.message));
    }
    if let Some(manager) = job.manager() {
        page.line("managed by", manager);
    }
    let replicas = job.job.as_ref().map(Job::replicas).unwrap_or_default();
    page.pods(&replicas, &job.status);
    page.lines("places", &places(pods));
    page.line("attempts", &job.status.trainyard.attempt.to_string());
    if let Some(reported) = &job.status.trainyard.progress {
        page.line("step", &step(reported, now));
    }
    if let Some(stall) = stall(job, now) {
        page.line("stalled", &stall);
    }
    page.complaint(job.status.trainyard.attempt_progress());
    page.budget(&job.status, &job.limits());
    let ledger = &job.status.trainyard.ledger;
    let until = until(job, now);
    page.time(
        &ledger.totals(until),
        &ledger.spans(until),
        ledger.ettr(until),
    );
    page.conditions(&job.status, now);
    page.line("namespace", &job.key.namespace);
    page.line("why", &format!("`{}`", site.command("explain", word)));
    page.text
}

/// The furthest step that is known.
pub(super) fn last_step(job: &JobSeen) -> Option<u64> {
    let record = &job.status.trainyard;
    let reported = record.progress.as_ref().map(|reported| reported.step);
    reported.max(record.ledger.best_step)
}

/// Of the job called `name`: its attempt, how it is stalled, and what is wrong with the numbers that it reports.
pub(crate) fn progress(
    place: &Place,
    name: &str,
    now: Timestamp,
) -> Result<(u32, Option<String>, Option<String>), Failure> {
    let job = connect(place)?.find(name)?;
    let record = &job.status.trainyard;
    let complaint = record
        .attempt_progress()
        .and_then(ProgressRecord::complaint);
    Ok((record.attempt, stall(&job, now), complaint))
}

fn stall(job: &JobSeen, now: Timestamp) -> Option<String> {
    let stall = job.status.trainyard.stall(now);
    stall.filter(|_| !job.has_ended())
}

/// The last step, its loss and its age.
fn step(reported: &ProgressRecord, now: Timestamp) -> String {
    let mut text = words::grouped(reported.step);
    if let Some(total) = reported.total_steps {
        text = format!("{text} of {}", words::grouped(total));
    }
    if let Some(loss) = reported.loss {
        text = format!("{text}, loss {}", words::loss(loss.0));
    }
    let age = words::age(since(reported.last_step_at, now));
    format!("{text}, reported {age} ago in attempt {}", reported.attempt)
}

/// Which pods are where; of many, only those that do not run as they should.
fn places(pods: &[PodSeen]) -> Vec<String> {
    use trainyard_core::job::PodPhase;
    let many = pods.len() > PODS_LISTED;
    let odd = |pod: &&PodSeen| {
        !many || !matches!(pod.facts.phase, PodPhase::Running | PodPhase::Succeeded)
    };
    let shown: Vec<&PodSeen> = pods.iter().filter(odd).collect();
    let mut lines: Vec<String> = shown
        .iter()
        .take(PODS_LISTED)
        .map(|pod| {
            let facts = &pod.facts;
            let node = facts.node.as_deref().unwrap_or("no node");
            let leaving = if facts.deleted_at.is_some() {
                ", leaving"
            } else {
                ""
            };
            format!(
                "{} {:?} on {node}, attempt {}{leaving}",
                facts.name, facts.phase, facts.attempt
            )
        })
        .collect();
    let left = pods.len() - lines.len();
    if left > 0 && !lines.is_empty() {
        lines.push(format!("and {} more", words::counted(left as u64, "pod")));
    }
    lines
}
