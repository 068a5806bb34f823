//! `trainyard status`: where a job is.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    diagnose::VerdictSummary,
    job::{Account, ConditionStatus, JobStatus, ProgressRecord},
    reason::Code,
};

use super::watched::{Frame, watch};
use crate::{
    args::{Format, Status},
    bar, clean,
    cluster::{self, Site},
    failure::{Exit, Failure},
    job_report::{JobReport, Origin, Placed, Processes},
    paint::Paint,
    printer::Printer,
    run::report,
    stored, words,
};

/// Width of the column of headings.
const HEADINGS: usize = 12;
/// Pods that are listed one by one.
const PODS_LISTED: usize = 16;

/// The JSON form.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    report: &'a JobReport,
}

/// Prints the status.
pub(super) fn run(args: &Status, printer: &mut Printer) -> Result<Exit, Failure> {
    let mut site = None;
    if args.watch {
        return watch(printer, |printer| {
            let now = Timestamp::now();
            let report = read(args, &mut site, now)?;
            Ok(Frame {
                is_last: report.row.ended_at.is_some(),
                ..Frame::of(render(
                    &report,
                    now,
                    printer.width(),
                    printer.stdout_paint(),
                ))
            })
        });
    }
    let now = Timestamp::now();
    let report = read(args, &mut site, now)?;
    match args.format {
        Format::Text => {
            let text = render(&report, now, printer.width(), printer.stdout_paint());
            printer.data(text.as_bytes())?;
        }
        Format::Json => printer.json(&document(&report))?,
    }
    Ok(Exit::Done)
}

fn read<'a>(
    args: &'a Status,
    site: &mut Option<Site<'a>>,
    now: Timestamp,
) -> Result<JobReport, Failure> {
    if !args.place.is_cluster() {
        let store = stored::open(&args.state)?;
        return Ok(stored::find(&store, &args.which)?.report(now));
    }
    cluster::connected(site, &args.place, |site| {
        let job = site.find(&args.which.job)?;
        let pods = site.look.pods(&job).map_err(cluster::refused)?;
        Ok(site.report(&args.which.job, &job, &pods, now))
    })
}

/// The status as text.
pub(super) fn text(report: &JobReport, now: Timestamp) -> String {
    render(report, now, None, Paint::Plain)
}

/// The JSON form of the status.
pub(super) fn document(report: &JobReport) -> impl Serialize {
    Document { version: 1, report }
}

fn render(report: &JobReport, now: Timestamp, width: Option<usize>, paint: Paint) -> String {
    let mut page = Page {
        text: String::new(),
        width: width.map(|width| width.saturating_sub(HEADINGS + 5)),
        paint,
    };
    let (row, status) = (&report.row, &report.status);
    page.headline(report, now);
    if let Some(waiting) = &status.trainyard.waiting
        && row.live
        && waiting.code != Code::Training
    {
        page.line("waits", &clean::text(&waiting.message));
    }
    page.entries(&report.notes);
    page.failures(report);
    page.pods(report);
    if let Origin::Machine { processes, .. } = &row.origin {
        page.lines("processes", &process_lines(processes));
    }
    if let Some(places) = &report.places {
        page.lines("places", &place_lines(places));
    }
    page.line("attempts", &row.attempts.to_string());
    page.step(report, now);
    if let Some(checkpoint) = &status.trainyard.checkpoint {
        let lines = words::wrapped(&clean::text(&checkpoint.words(now)), page.width);
        page.lines("checkpoint", &lines);
    }
    if let Some(stall) = &report.stalled {
        page.line("stalled", stall);
    }
    // What is wrong with the numbers that the program reports.
    let reported = report.attempt_progress();
    if let Some(complaint) = reported.and_then(ProgressRecord::complaint) {
        page.line("warning", &complaint);
    }
    page.budget(report);
    page.time(report);
    page.conditions(status, now);
    page.entries(&report.more);
    page.text
}

/// The processes of each pod.
fn process_lines(pods: &[Processes]) -> Vec<String> {
    let mut lines: Vec<String> = pods
        .iter()
        .take(PODS_LISTED)
        .map(|pod| {
            let numbers: Vec<String> = pod.pids.iter().map(u32::to_string).collect();
            let rank = pod.rank.map(|rank| format!(" (rank {rank})"));
            let rank = rank.unwrap_or_default();
            format!("{}{rank}  {}", pod.short_name, numbers.join(", "))
        })
        .collect();
    lines.extend(more_pods(pods.len(), lines.len()));
    lines
}

/// Which pods are where; of many, only those that do not run as they should.
fn place_lines(pods: &[Placed]) -> Vec<String> {
    let many = pods.len() > PODS_LISTED;
    let odd = |pod: &&Placed| !many || !matches!(pod.phase.as_str(), "Running" | "Succeeded");
    let mut lines: Vec<String> = pods
        .iter()
        .filter(odd)
        .take(PODS_LISTED)
        .map(|pod| {
            let node = pod.node.as_deref().unwrap_or("no node");
            let terminating = if pod.terminating { ", terminating" } else { "" };
            format!(
                "{} {} on {node}, attempt {}{terminating}",
                pod.pod, pod.phase, pod.attempt
            )
        })
        .collect();
    if !lines.is_empty() {
        lines.extend(more_pods(pods.len(), lines.len()));
    }
    lines
}

fn more_pods(all: usize, listed: usize) -> Option<String> {
    let more = all.checked_sub(listed).filter(|more| *more > 0)?;
    let more = words::counted(more as u64, "more pod");
    Some(format!("and {more}; `--format json` lists them all"))
}

/// The page, as it grows.
struct Page {
    text: String,
    /// Room beside the headings.
    width: Option<usize>,
    paint: Paint,
}

impl Page {
    fn line(&mut self, heading: &str, text: &str) {
        let pad = (HEADINGS + 2).saturating_sub(heading.chars().count());
        let heading = self.paint.apply("1", heading);
        writeln!(self.text, "  {heading}{:pad$}{text}", "")
            .expect("a string takes whatever is written");
    }

    fn lines(&mut self, heading: &str, lines: &[String]) {
        for (at, line) in lines.iter().enumerate() {
            self.line(if at == 0 { heading } else { "" }, line);
        }
    }

    fn entries(&mut self, entries: &[(&str, String)]) {
        for (heading, text) in entries {
            self.line(heading, text);
        }
    }

    fn headline(&mut self, report: &JobReport, now: Timestamp) {
        let row = &report.row;
        let codes = match row.state {
            "Succeeded" | "Running" => "1;32",
            "Failed" | "Interrupted" | "Invalid" => "1;31",
            _ => "1;33",
        };
        let began = row.started_at.unwrap_or(now);
        let ago = words::age(words::since(began, now));
        let how = match (row.ended_at, &row.origin) {
            (Some(ended), _) => {
                format!(", took {}", words::duration(words::since(began, ended)))
            }
            (None, Origin::Machine { pid: Some(pid), .. }) => format!(", in process {pid}"),
            _ => String::new(),
        };
        writeln!(
            self.text,
            "{} ({}) {}, started {ago} ago{how}",
            self.paint.apply("1", &row.job),
            row.kind,
            self.paint.apply(codes, row.state),
        )
        .expect("a string takes whatever is written");
    }

    /// The first failure of the job, and that of its last attempt that had one.
    fn failures(&mut self, report: &JobReport) {
        let known = report.failures.as_deref().unwrap_or_default();
        let last = report.status.trainyard.last_failure.as_ref();
        if let [first, others @ ..] = report::repeated(known).as_slice() {
            self.line("failed first", &first.words());
            if let Some(last) = others.last() {
                self.line("failed last", &last.words());
            }
        } else if let Some(last) = last.filter(|_| report.failures.is_none()) {
            let same = last.since_attempt;
            let same = same.map(|since| format!(", the same since attempt {since}"));
            let same = same.unwrap_or_default();
            let text = format!(
                "{} in attempt {}: {}{same}",
                last.pod, last.attempt, last.message
            );
            self.line("failed last", &text);
        }
        // An attempt may also end for what its ranks talk over, without any that failed.
        let decided = last.and_then(|last| last.verdict.as_ref());
        let concluded = known.iter().filter_map(|failed| failed.verdict.as_ref());
        let verdicts = decided.into_iter().chain(concluded);
        if let Some(verdict) = verdicts.max_by_key(|verdict| verdict.attempt) {
            self.verdict(verdict);
        }
    }

    /// What the doctor concluded about the last failure that has a verdict.
    fn verdict(&mut self, verdict: &VerdictSummary) {
        let mut lines = words::wrapped(&clean::text(&verdict.headline()), self.width);
        lines.push(verdict.weight());
        lines.extend(words::wrapped(&clean::text(&verdict.next), self.width));
        self.lines("verdict", &lines);
    }

    /// The last step, its loss and its age.
    fn step(&mut self, report: &JobReport, now: Timestamp) {
        let row = &report.row;
        let Some(furthest) = row.last_step else {
            return;
        };
        let (shown, loss) = row.shown_step();
        let mut text = words::grouped(shown.unwrap_or(furthest));
        let reported = report.attempt_progress();
        if let Some(total) = reported.and_then(|reported| reported.total_steps) {
            text = format!("{text} of {}", words::grouped(total));
        }
        if let Some(loss) = loss {
            text = format!("{text}, loss {}", words::loss(loss));
        }
        if let Some(reported) = reported.filter(|_| row.live) {
            let age = words::age(words::since(reported.last_step_at, now));
            text = format!("{text}, reported {age} ago");
        }
        match shown {
            Some(step) if step < furthest => {
                text = format!(
                    "{text}; an earlier attempt reached {}",
                    words::grouped(furthest)
                );
            }
            None if row.attempts > 1 => text.push_str(" in an earlier attempt"),
            _ => {}
        }
        self.line("step", &text);
    }

    fn pods(&mut self, report: &JobReport) {
        let mut roles = Vec::new();
        // The status is what the engine decided last; its pods ended with it.
        let active = match report.row.state {
            "Interrupted" => "lost",
            _ => "active",
        };
        for (role, wanted) in &report.replicas {
            let counts = report
                .status
                .replica_statuses
                .get(role)
                .cloned()
                .unwrap_or_default();
            let counts = [
                (counts.active, active),
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

    fn budget(&mut self, report: &JobReport) {
        let spent = &report.status.trainyard.spent;
        let accounts =
            Account::ALL.map(|account| report::account_words(account, spent, &report.limits));
        let lines = words::wrapped(&accounts.join(", "), self.width);
        self.lines("budget", &lines);
    }

    fn time(&mut self, report: &JobReport) {
        let mut lines = bar::render(&report.ledger, &report.timeline, self.width, self.paint);
        if !lines.is_empty() {
            lines.push(bar::trained(report.trained_ratio));
        }
        self.lines("time", &lines);
    }

    fn conditions(&mut self, status: &JobStatus, now: Timestamp) {
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
                let ago = words::age(words::since(condition.last_transition_time, now));
                format!(
                    "{:<width$} {holds:<3} {:>4} ago  {}",
                    condition.kind.name(),
                    ago,
                    clean::text(&condition.message)
                )
            })
            .collect();
        self.lines("conditions", &lines);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::job_report::JobRow;

    #[test]
    fn step_line_of_the_last_attempt() {
        let now = Timestamp::from_second(1_000).unwrap();
        let line = |attempt_step, ended_at: Option<Timestamp>, attempts| {
            let reported = serde_json::json!({
                "attempt": 2, "step": 120, "totalSteps": 5_000, "lastStepAt": now,
            });
            let report = JobReport {
                row: JobRow {
                    job: "j".to_owned(),
                    kind: "PyTorchJob".to_owned(),
                    namespace: "team".to_owned(),
                    origin: Origin::Cluster {
                        uid: "1".to_owned(),
                    },
                    state: "Running",
                    live: ended_at.is_none(),
                    attempts,
                    pods: 1,
                    created_at: None,
                    started_at: None,
                    ended_at,
                    last_step: Some(340),
                    last_loss: Some(0.5),
                    attempt_step,
                    checkpoint_step: None,
                },
                budget: BTreeMap::new(),
                progress: serde_json::from_value(reported).unwrap(),
                stalled: None,
                ledger: BTreeMap::new(),
                timeline: Vec::new(),
                trained_ratio: None,
                failures: None,
                places: None,
                status: JobStatus::default(),
                replicas: BTreeMap::new(),
                limits: BTreeMap::new(),
                notes: Vec::new(),
                more: Vec::new(),
            };
            let text = render(&report, now, None, Paint::Plain);
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("  step          "));
            line.unwrap_or_else(|| panic!("{text}")).to_owned()
        };
        let furthest = "an earlier attempt reached 340";
        let want = format!("120 of 5,000, loss 0.5000, reported 0s ago; {furthest}");
        assert_eq!(line(Some(120), None, 2), want);
        assert_eq!(line(None, None, 3), "340 in an earlier attempt");
        assert_eq!(line(Some(120), Some(now), 2), "340 of 5,000, loss 0.5000");
    }
}
