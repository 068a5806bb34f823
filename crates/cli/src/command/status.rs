//! `trainyard status`: where a job is.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    diagnose::VerdictSummary,
    job::{Account, ConditionStatus, JobStatus, ProgressRecord},
    ledger::{PhaseMillis, Span},
    reason::Code,
    spec::Replicas,
};
use trainyard_host::FailedRank;

use crate::{
    args::{Format, Status},
    bar, cluster,
    failure::{Exit, Failure},
    printer::{Paint, Printer},
    processes::{self, Processes},
    run::{
        clean,
        report::{self, Limits},
    },
    stored::{self, Stored},
    words,
};

/// Width of the column of headings.
const HEADINGS: usize = 12;

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    version: u32,
    job: &'a str,
    kind: &'a str,
    namespace: &'a str,
    run_id: &'a str,
    folder: &'a Path,
    state: &'static str,
    live: bool,
    pid: Option<u32>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    attempts: u32,
    pods: u32,
    last_step: Option<u64>,
    last_loss: Option<f64>,
    attempt_step: Option<u64>,
    budget: BTreeMap<&'static str, Budget>,
    /// What the last attempt that reported a step reported last.
    progress: Option<&'a ProgressRecord>,
    /// While it is stalled: how long no step came, and how long steps took.
    stalled: Option<String>,
    ledger: PhaseMillis,
    /// In order of time: attempt, phase, milliseconds.
    timeline: Vec<Span>,
    trained_ratio: Option<f64>,
    failures: &'a [FailedRank],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processes: Vec<Processes>,
    status: &'a JobStatus,
}

#[derive(Debug, Serialize)]
pub(crate) struct Budget {
    spent: u32,
    /// Absent where the account bears any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
}

/// Prints the status.
pub(super) fn run(args: &Status, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::status::run(args, printer);
    }
    let store = stored::open(&args.state)?;
    let run = stored::find(&store, &args.which)?;
    let now = Timestamp::now();
    match args.format {
        Format::Text => {
            let text = render(&run, now, printer.width(), printer.stdout_paint());
            printer.data(text.as_bytes())?;
        }
        Format::Json => {
            let mut json = serde_json::to_vec_pretty(&document(&run, now))
                .context("cannot write the status as JSON")?;
            json.push(b'\n');
            printer.data(&json)?;
        }
    }
    Ok(Exit::Done)
}

fn document(run: &Stored, now: Timestamp) -> Document<'_> {
    let (ledger, trained_ratio) = run.ledger(now);
    Document {
        version: 1,
        job: &run.record.name,
        kind: &run.record.kind,
        namespace: &run.record.namespace,
        run_id: &run.folder.id,
        folder: &run.folder.path,
        state: run.state(),
        live: run.live,
        pid: run.live.then_some(run.record.pid),
        started_at: run.record.started_at,
        ended_at: run.ended_at(),
        attempts: run.attempts(),
        pods: run.pods(),
        last_step: run.last_step(),
        last_loss: run.last_loss(),
        attempt_step: run.attempt_progress().map(|reported| reported.step),
        budget: budget(&run.status, &run.record.limits),
        progress: run.progress_record(),
        stalled: run.stall(now),
        ledger,
        timeline: run.spans(now),
        trained_ratio,
        failures: &run.failures,
        processes: processes::of(run),
        status: &run.status,
    }
}

/// What each account has paid and bears.
pub(crate) fn budget(status: &JobStatus, limits: &Limits) -> BTreeMap<&'static str, Budget> {
    let spent = status.trainyard.spent;
    let budget = Account::ALL.map(|account| {
        let budget = Budget {
            spent: spent.of(account),
            limit: limits.get(&account).copied(),
        };
        (account.name(), budget)
    });
    budget.into()
}

fn render(run: &Stored, now: Timestamp, width: Option<usize>, paint: Paint) -> String {
    let mut page = Page::new(width, paint);
    let ago = format!("{} ago", words::age(since(run.record.started_at, now)));
    let when = match run.ended_at() {
        Some(ended) => {
            let took = words::duration(since(run.record.started_at, ended));
            format!("started {ago}, took {took}")
        }
        None if run.live => format!("started {ago}, in process {}", run.record.pid),
        None => format!("started {ago}"),
    };
    page.headline(&run.record.name, &run.record.kind, run.state(), &when);
    if let Some(waiting) = &run.status.trainyard.waiting
        && run.live
        && waiting.code != Code::Training
    {
        page.line("waits", &waiting.message);
    }
    if run.state() == "Interrupted" {
        page.line(
            "note",
            "its engine died without a report; no process of it is left",
        );
    }
    page.failures(run);
    page.pods(&run.record.replicas, &run.status);
    page.lines("processes", &processes::lines(run));
    page.line("attempts", &run.attempts().to_string());
    page.step(run);
    if let Some(stall) = run.stall(now) {
        page.line("stalled", &stall);
    }
    let reported = run.progress_record();
    page.complaint(reported.filter(|reported| reported.attempt == run.attempts()));
    page.budget(&run.status, &run.record.limits);
    let (ledger, ratio) = run.ledger(now);
    page.time(&ledger, &run.spans(now), ratio);
    page.conditions(&run.status, now);
    page.line("run", &run.folder.path.display().to_string());
    page.text
}

/// The page, as it grows.
pub(crate) struct Page {
    pub(crate) text: String,
    /// Room beside the headings.
    width: Option<usize>,
    paint: Paint,
}

impl Page {
    pub(crate) fn new(width: Option<usize>, paint: Paint) -> Self {
        Self {
            text: String::new(),
            width: width.map(|width| width.saturating_sub(HEADINGS + 5)),
            paint,
        }
    }

    pub(crate) fn line(&mut self, heading: &str, text: &str) {
        let pad = (HEADINGS + 2).saturating_sub(heading.chars().count());
        let heading = self.paint.apply("1", heading);
        writeln!(self.text, "  {heading}{:pad$}{text}", "")
            .expect("a string takes whatever is written");
    }

    pub(crate) fn lines(&mut self, heading: &str, lines: &[String]) {
        for (at, line) in lines.iter().enumerate() {
            self.line(if at == 0 { heading } else { "" }, line);
        }
    }

    pub(crate) fn headline(&mut self, name: &str, kind: &str, state: &str, when: &str) {
        let codes = match state {
            "Succeeded" | "Running" => "1;32",
            "Failed" | "Interrupted" | "Invalid" => "1;31",
            _ => "1;33",
        };
        writeln!(
            self.text,
            "{} ({kind}) {}, {when}",
            self.paint.apply("1", name),
            self.paint.apply(codes, state),
        )
        .expect("a string takes whatever is written");
    }

    /// The first failure of the run, and that of its last attempt that had one.
    fn failures(&mut self, run: &Stored) {
        if let [first, others @ ..] = report::repeated(&run.failures).as_slice() {
            self.line("failed first", &first.words());
            if let Some(last) = others.last() {
                self.line("failed last", &last.words());
            }
        }
        // An attempt may also end for what its ranks talk over, without any that failed.
        let decided = run.status.trainyard.last_failure.as_ref();
        let decided = decided.and_then(|last| last.verdict.as_ref());
        let concluded = run
            .failures
            .iter()
            .filter_map(|failed| failed.verdict.as_ref());
        let verdicts = decided.into_iter().chain(concluded);
        if let Some(verdict) = verdicts.max_by_key(|verdict| verdict.attempt) {
            self.verdict(verdict);
        }
    }

    /// What the doctor concluded about the last failure that has a verdict.
    pub(crate) fn verdict(&mut self, verdict: &VerdictSummary) {
        let mut lines = words::wrapped(&clean::text(&verdict.headline()), self.width);
        lines.push(verdict.weight());
        lines.extend(words::wrapped(&clean::text(&verdict.next), self.width));
        self.lines("verdict", &lines);
    }

    fn step(&mut self, run: &Stored) {
        let Some(furthest) = run.last_step() else {
            return;
        };
        let reported = run.attempt_progress().filter(|_| run.report.is_none());
        let mut text = words::grouped(reported.map_or(furthest, |reported| reported.step));
        let loss = match (reported, run.live) {
            (None, true) => None,
            _ => run.last_loss(),
        };
        if let Some(loss) = loss {
            write!(text, ", loss {}", words::loss(loss))
                .expect("a string takes whatever is written");
        }
        match reported {
            Some(reported) if reported.step < furthest => {
                write!(
                    text,
                    "; an earlier attempt reached {}",
                    words::grouped(furthest)
                )
            }
            None if run.live && run.attempts() > 1 => write!(text, " in an earlier attempt"),
            _ => Ok(()),
        }
        .expect("a string takes whatever is written");
        self.line("step", &text);
    }

    pub(crate) fn pods(&mut self, replicas: &Replicas, status: &JobStatus) {
        let mut roles = Vec::new();
        for (role, wanted) in replicas {
            let counts = status
                .replica_statuses
                .get(role)
                .cloned()
                .unwrap_or_default();
            let counts = [
                (counts.active, "active"),
                (counts.succeeded, "succeeded"),
                (counts.failed, "failed"),
            ];
            let parts: Vec<String> = counts
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, word)| format!("{count} {word}"))
                .collect();
            roles.push(match parts.as_slice() {
                [] => format!("{role} {wanted}"),
                parts => format!("{role} {wanted} ({})", parts.join(", ")),
            });
        }
        self.line("pods", &roles.join("; "));
    }

    pub(crate) fn budget(&mut self, status: &JobStatus, limits: &Limits) {
        let spent = &status.trainyard.spent;
        let accounts = Account::ALL.map(|account| report::account_words(account, spent, limits));
        let lines = words::wrapped(&accounts.join(", "), self.width);
        self.lines("budget", &lines);
    }

    /// What is wrong with the numbers that the program reports.
    pub(crate) fn complaint(&mut self, record: Option<&ProgressRecord>) {
        if let Some(complaint) = record.and_then(ProgressRecord::complaint) {
            self.line("warning", &complaint);
        }
    }

    pub(crate) fn time(&mut self, ledger: &PhaseMillis, spans: &[Span], ratio: Option<f64>) {
        let mut lines = bar::render(ledger, spans, self.width, self.paint);
        if !lines.is_empty() {
            lines.push(bar::trained(ratio));
        }
        self.lines("time", &lines);
    }

    pub(crate) fn conditions(&mut self, status: &JobStatus, now: Timestamp) {
        let conditions = &status.conditions;
        let names = conditions
            .iter()
            .map(|condition| condition.kind.name().len());
        let width = names.max().unwrap_or_default().max(10);
        let lines: Vec<String> = conditions
            .iter()
            .map(|condition| {
                let holds = match condition.status {
                    ConditionStatus::True => "yes",
                    ConditionStatus::False => "no",
                    ConditionStatus::Unknown => "?",
                };
                let ago = words::age(since(condition.last_transition_time, now));
                format!(
                    "{:<width$} {holds:<3} {:>4} ago  {}",
                    condition.kind.name(),
                    ago,
                    condition.message
                )
            })
            .collect();
        self.lines("conditions", &lines);
    }
}

/// The time from one moment to another; none where they are the other way round.
pub(crate) fn since(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}
