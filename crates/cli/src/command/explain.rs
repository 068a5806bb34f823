//! `trainyard explain`: why a job is not running, or why it failed.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    explain::{Answer, Cause, CutOff, Facts, FailedPod, Operator, Standing, Subject, explain},
    job::{ConditionStatus, ConditionType, Exit as PodExit},
};
use trainyard_host::{FailedRank, Outcome};

mod growth;

use self::growth::Growth;
use super::watched::{Frame, watch};
use crate::{
    args::{Explain, Format},
    clean,
    cluster::{self, Site},
    failure::{Exit, Failure},
    paint::Paint,
    printer::Printer,
    stored::{self, Stored},
    words,
};

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    job: &'a str,
    namespace: &'a str,
    #[serde(flatten)]
    answer: &'a Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<&'a Growth>,
}

/// Width of the column of headings.
const HEADINGS: usize = 10;

/// Prints the answer.
pub(super) fn run(args: &Explain, printer: &mut Printer) -> Result<Exit, Failure> {
    let mut site = None;
    if args.watch {
        return watch(printer, |printer| {
            let facts = facts(args, &mut site)?;
            let answer = explain(&facts);
            Ok(Frame {
                exit: exit(&answer),
                is_last: !matches!(answer.standing, Standing::Runs | Standing::Waits),
                ..Frame::of(text(&facts, &answer, printer))
            })
        });
    }
    let facts = facts(args, &mut site)?;
    let answer = explain(&facts);
    let growth = site
        .as_ref()
        .and_then(|site| growth::of(site, &args.which.job, &facts));
    match args.format {
        Format::Text => {
            let mut text = text(&facts, &answer, printer);
            if let Some(growth) = &growth {
                text.push_str(&growth.lines(columns(printer), printer.stdout_paint()));
            }
            printer.data(text.as_bytes())?;
        }
        Format::Json => printer.json(&Document {
            capacity: growth.as_ref(),
            ..to_document(&facts, &answer)
        })?,
    }
    Ok(exit(&answer))
}

/// The JSON form of the answer.
pub(super) fn document_of<'a>(facts: &'a Facts, answer: &'a Answer) -> impl Serialize + 'a {
    to_document(facts, answer)
}

fn to_document<'a>(facts: &'a Facts, answer: &'a Answer) -> Document<'a> {
    Document {
        version: 1,
        job: &facts.job.name,
        namespace: &facts.job.namespace,
        answer,
        capacity: None,
    }
}

/// The answer as text, without colours and as wide as it is.
pub(super) fn plain_text(facts: &Facts, answer: &Answer) -> String {
    render(&facts.job.name, answer, None, Paint::Plain)
}

fn facts<'a>(args: &'a Explain, site: &mut Option<Site<'a>>) -> Result<Facts, Failure> {
    if !args.place.is_cluster() {
        let store = stored::open(&args.state)?;
        return Ok(here(&stored::find(&store, &args.which)?, Timestamp::now()));
    }
    cluster::connected(site, &args.place, |site| {
        let job = site.find(&args.which.job)?;
        let words = site.words(&args.which.job);
        site.look.facts(&job, &words).map_err(cluster::refused)
    })
}

fn text(facts: &Facts, answer: &Answer, printer: &Printer) -> String {
    render(
        &facts.job.name,
        answer,
        columns(printer),
        printer.stdout_paint(),
    )
}

/// The columns beside the headings.
fn columns(printer: &Printer) -> Option<usize> {
    let width = printer.width();
    width.map(|width| width.saturating_sub(HEADINGS + 2))
}

/// A run whose engine was killed did not do what was asked of it, like one that failed.
fn exit(answer: &Answer) -> Exit {
    if answer.standing == Standing::Failed || answer.cause == Cause::Interrupted {
        Exit::Failed
    } else {
        Exit::Done
    }
}

fn render(job: &str, answer: &Answer, width: Option<usize>, paint: Paint) -> String {
    let mut text = String::new();
    let codes = match answer.standing {
        Standing::Runs | Standing::Succeeded => "1;32",
        Standing::Waits | Standing::Stopped => "1;33",
        Standing::Failed => "1;31",
    };
    let name = paint.apply(codes, job);
    let first = words::wrapped(
        &clean::text(&answer.sentence),
        width.map(|width| width + HEADINGS),
    );
    writeln!(text, "{name}: {}", first.join("\n  ")).expect("a string takes whatever is written");
    let mut entry = |heading: &str, body: &str| text.push_str(&entry(heading, body, width, paint));
    for (at, evidence) in answer.evidence.iter().enumerate() {
        let heading = if at == 0 { "evidence" } else { "" };
        entry(
            heading,
            &clean::text(&format!("{}: {}", evidence.from, evidence.says)),
        );
    }
    entry("next", &clean::text(&answer.next));
    text
}

/// A heading and what stands beside it.
fn entry(heading: &str, body: &str, width: Option<usize>, paint: Paint) -> String {
    let mut text = String::new();
    for (at, line) in words::wrapped(body, width).iter().enumerate() {
        let heading = if at == 0 { heading } else { "" };
        let pad = HEADINGS.saturating_sub(heading.chars().count());
        let heading = paint.apply("1", heading);
        writeln!(text, "  {heading}{:pad$}{line}", "").expect("a string takes whatever is written");
    }
    text
}

/// The JSON form of the answer for a run on this machine.
pub(super) fn document(run: &Stored, now: Timestamp) -> serde_json::Value {
    let facts = here(run, now);
    let document = serde_json::to_value(document_of(&facts, &explain(&facts)));
    document.unwrap_or_default()
}

/// What is known of a run on this machine.
fn here(run: &Stored, now: Timestamp) -> Facts {
    let cut_off = match &run.report {
        Some(report) => (report.outcome == Outcome::Stopped).then_some(CutOff::Stopped),
        None => (!run.live).then_some(CutOff::Interrupted),
    };
    let suspended = run.status.conditions.iter().any(|condition| {
        condition.kind == ConditionType::Suspended && condition.status == ConditionStatus::True
    });
    Facts {
        job: Subject {
            name: run.record.name.clone(),
            program: "trainyard".to_owned(),
            handle: run.record.name.clone(),
            wanted: run.pods(),
            suspend: suspended,
            created_at: Some(run.record.started_at),
            ..Subject::default()
        },
        status: run.status_now(),
        unreadable: None,
        limits: run.record.limits.clone(),
        errors: Vec::new(),
        pods: Vec::new(),
        events: Vec::new(),
        quotas: Vec::new(),
        claims: Vec::new(),
        nodes: std::collections::BTreeMap::new(),
        operator: Operator::Here,
        cut_off,
        failures: run.failures.iter().map(failed).collect(),
        now,
    }
}

fn failed(rank: &FailedRank) -> FailedPod {
    FailedPod {
        attempt: rank.attempt,
        pod: rank.pod.clone(),
        container: rank.container.clone(),
        exit: Some(PodExit {
            code: rank.code,
            out_of_memory: rank.out_of_memory,
            at: Some(rank.at),
        }),
        disruption: None,
        last_line: rank.last_lines.last().cloned(),
    }
}
