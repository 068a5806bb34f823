//! The report of a run as text: what failed first, the failure budget, where the time went, what next.
//!
//! Pure: the report of the engine and the width in, text out.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use trainyard_core::{
    diagnose::VerdictSummary,
    job::{Account, Spent},
};
use trainyard_host::{FailedRank, InjectionResult, Outcome, RunReport};

use crate::{bar, clean, paint::Paint, words};

/// Lines of the first failure that are shown; the log has all of them.
const LAST_LINES: usize = 12;
/// Failures after the first that are listed.
const OTHERS_LISTED: usize = 5;
/// Width of the column of headings.
const HEADINGS: usize = 15;

/// Failure budgets by account; an account that is not in it has no limit.
pub(crate) type Limits = BTreeMap<Account, u32>;

/// The report as text, for a terminal of `width` columns where it goes to one.
pub(crate) fn render(
    report: &RunReport,
    limits: &Limits,
    width: Option<usize>,
    paint: Paint,
) -> String {
    let mut page = Page {
        text: String::new(),
        width: width.map(|width| width.saturating_sub(HEADINGS + 3)),
        paint,
    };
    page.headline(report);
    if let Some((first, others)) = repeated(&report.failures).split_first() {
        page.first_failure(first);
        page.other_failures(others);
        let last = report.verdict.as_ref().filter(|last| {
            let known = first.failed.verdict.as_ref();
            known
                .is_none_or(|known| known.sentence != last.sentence && !known.is_same_failure(last))
        });
        if let Some(last) = last {
            page.verdict("last verdict", last);
        }
    } else if let Some(verdict) = &report.verdict {
        page.verdict("verdict", verdict);
    }
    if report.outcome == Outcome::Failed && !report.message.is_empty() {
        page.entry("because", &report.message);
    }
    if let Some(used) = used_budgets(&report.spent, limits) {
        page.entry("failure budget", &used);
    }
    if let Some(step) = report.last_step {
        let last = report.progress.as_ref().and_then(|reported| reported.loss);
        let loss = last
            .map(|loss| loss.0)
            .or(report.last_loss)
            .map(|loss| format!(", loss {}", words::loss(loss)));
        page.entry(
            "reached",
            &format!("step {}{}", words::grouped(step), loss.unwrap_or_default()),
        );
    }
    if let Some(checkpoint) = &report.status.trainyard.checkpoint {
        page.entry(
            "checkpoint",
            &clean::text(&checkpoint.words(report.ended_at)),
        );
    }
    if let Some(complaint) = complaint(report) {
        page.entry("warning", &complaint);
    }
    page.faults(report);
    if report.already_succeeded.is_none() {
        page.time(report);
    }
    page.entry("logs", &report.folder.display().to_string());
    page.entry("next", &next(report));
    page.text
}

/// What is wrong with the numbers that the program reported, although it may have ended well.
pub(crate) fn complaint(report: &RunReport) -> Option<String> {
    report.progress.as_ref()?.complaint()
}

/// The failure budget used by each account that used any.
fn used_budgets(spent: &Spent, limits: &Limits) -> Option<String> {
    let parts: Vec<String> = Account::ALL
        .into_iter()
        .filter(|account| spent.of(*account) > 0)
        .map(|account| account_words(account, spent, limits))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `user: 1 of 3 used`.
pub(crate) fn account_words(account: Account, spent: &Spent, limits: &Limits) -> String {
    let used = spent.of(account);
    match limits.get(&account) {
        Some(limit) => format!(
            "{}: {used} of {} used",
            account.name(),
            words::grouped((*limit).into())
        ),
        None => format!("{}: {used} used (no limit)", account.name()),
    }
}

/// The name of the failed pod, with its ranks.
fn pod_with_ranks(failed: &FailedRank) -> String {
    let pod = super::names::short(failed.slot);
    match failed.rank {
        Some(rank) if failed.ranks > 1 => {
            let last = rank.saturating_add(failed.ranks - 1);
            format!("{pod} (ranks {rank} to {last})")
        }
        Some(rank) => format!("{pod} (rank {rank})"),
        None => pod,
    }
}

/// Who failed, in which attempt and how, in one sentence.
pub(crate) fn failed(failed: &FailedRank) -> String {
    let mut text = format!(
        "{} in attempt {}: {}",
        pod_with_ranks(failed),
        failed.attempt,
        words::failed(failed)
    );
    if let Some(injected) = &failed.injected {
        write!(text, ", injected (`{injected}`)").expect("a string takes whatever is written");
    }
    text
}

/// What became of one fault: `injected at 3.0s, step 120, in attempt 1, on …`, or `was not injected: …`.
pub(crate) fn fault_words(fault: &InjectionResult) -> String {
    let name = &fault.fault;
    if !fault.fired {
        let reason = fault.reason.as_deref();
        let reason = reason.unwrap_or("the run did not record it");
        return format!("`{name}` was not injected: {reason}");
    }
    let after = fault.after_millis.map(Duration::from_millis);
    let parts = [
        after.map(|after| format!(" at {}", words::duration(after))),
        fault
            .step
            .map(|step| format!(", step {}", words::grouped(step))),
        fault
            .attempt
            .map(|attempt| format!(", in attempt {attempt}")),
        Some(format!(", on `{}`", fault.pods.join("`, `"))),
    ];
    let parts: String = parts.into_iter().flatten().collect();
    format!("`{name}` injected{parts}")
}

/// A failure, and the attempts that ended with it.
pub(crate) struct Repeated<'a> {
    pub(crate) failed: &'a FailedRank,
    attempts: Vec<u32>,
}

/// The failures in order of time, each one once.
pub(crate) fn repeated(failures: &[FailedRank]) -> Vec<Repeated<'_>> {
    let mut found: Vec<Repeated<'_>> = Vec::new();
    for failed in failures {
        match found.iter_mut().find(|known| is_same(known.failed, failed)) {
            Some(known) => known.attempts.push(failed.attempt),
            None => found.push(Repeated {
                failed,
                attempts: vec![failed.attempt],
            }),
        }
    }
    found
}

/// Whether two attempts ended with the same failure: the same verdict, or without one the same end of the same pod.
fn is_same(one: &FailedRank, other: &FailedRank) -> bool {
    match (&one.verdict, &other.verdict) {
        (Some(one), Some(other)) => one.is_same_failure(other),
        (None, None) => {
            let end = |failed: &FailedRank| (failed.slot, failed.code, failed.out_of_memory);
            end(one) == end(other) && one.injected == other.injected
        }
        _ => false,
    }
}

impl Repeated<'_> {
    /// Who failed, how, and in which attempts.
    pub(crate) fn words(&self) -> String {
        let first = failed(self.failed);
        match self.attempts.as_slice() {
            [] | [_] => first,
            [_, again] => format!("{first}; the same in attempt {again}"),
            attempts => {
                let again: Vec<String> = attempts.iter().skip(1).map(u32::to_string).collect();
                let times = attempts.len();
                format!(
                    "{first}; the same in attempts {} ({times} times)",
                    again.join(", ")
                )
            }
        }
    }
}

struct Page {
    text: String,
    /// Room beside the headings.
    width: Option<usize>,
    paint: Paint,
}

impl Page {
    fn line(&mut self, heading: &str, text: &str) {
        let pad = HEADINGS.saturating_sub(heading.chars().count());
        let heading = self.paint.apply("1", heading);
        writeln!(self.text, "  {heading}{:pad$}{text}", "")
            .expect("a string takes whatever is written");
    }

    fn entry(&mut self, heading: &str, text: &str) {
        let lines = text
            .lines()
            .flat_map(|line| words::wrapped(line, self.width));
        for (at, line) in lines.collect::<Vec<_>>().iter().enumerate() {
            self.line(if at == 0 { heading } else { "" }, line);
        }
    }

    fn headline(&mut self, report: &RunReport) {
        let (word, codes) = match report.outcome {
            Outcome::Succeeded => ("succeeded", "1;32"),
            Outcome::Failed => ("failed", "1;31"),
            Outcome::Stopped => ("was stopped", "1;33"),
        };
        let word = self.paint.apply(codes, word);
        let job = self.paint.apply("1", &report.job);
        let after = words::duration(elapsed(report));
        if let Some(run) = &report.already_succeeded {
            let at = report
                .last_step
                .map(|step| format!(" at step {}", words::grouped(step)));
            writeln!(
                self.text,
                "\n{job} had already {word} in run {run}: this run resumed{} and trained no steps ({after})",
                at.unwrap_or_default()
            )
            .expect("a string takes whatever is written");
            return;
        }
        let attempts = words::counted(report.attempts.into(), "attempt");
        writeln!(self.text, "\n{job} {word} after {after}, {attempts}")
            .expect("a string takes whatever is written");
    }

    fn first_failure(&mut self, first: &Repeated<'_>) {
        self.entry("failed first", &first.words());
        let failed = first.failed;
        let lines = failed.last_lines.as_slice();
        let blank = lines.iter().rev().take_while(|line| line.trim().is_empty());
        let lines = lines.get(..lines.len() - blank.count()).unwrap_or_default();
        for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
            let shown = clean::line(line.as_bytes(), false, clean::IN_THE_LOG, self.paint);
            self.line("", format!("| {shown}").trim_end());
        }
        if lines.is_empty() {
            self.line("", "it wrote nothing");
        }
        if let Some(verdict) = &failed.verdict {
            self.verdict("verdict", verdict);
        }
    }

    fn verdict(&mut self, heading: &str, verdict: &VerdictSummary) {
        let headline = clean::text(&verdict.headline());
        self.entry(heading, &format!("{headline}\n{}", verdict.weight()));
    }

    fn other_failures(&mut self, others: &[Repeated<'_>]) {
        for (at, failed) in others.iter().take(OTHERS_LISTED).enumerate() {
            let heading = if at == 0 { "then" } else { "" };
            self.entry(heading, &failed.words());
        }
        if let Some(more) = others
            .len()
            .checked_sub(OTHERS_LISTED)
            .filter(|more| *more > 0)
        {
            self.line("", &format!("and {more} more"));
        }
    }

    /// What became of each injected fault.
    fn faults(&mut self, report: &RunReport) {
        for (at, fault) in report.injections.iter().enumerate() {
            let heading = if at == 0 { "faults" } else { "" };
            let lines = words::wrapped(&fault_words(fault), self.width);
            for (at, line) in lines.iter().enumerate() {
                self.line(if at == 0 { heading } else { "" }, line);
            }
        }
    }

    fn time(&mut self, report: &RunReport) {
        let spans = report.status.trainyard.ledger.spans(report.ended_at);
        let mut lines = bar::render(&report.ledger, &spans, self.width, self.paint);
        if !lines.is_empty() {
            lines.push(bar::trained(report.trained_ratio));
        }
        for (at, line) in lines.iter().enumerate() {
            self.line(if at == 0 { "time" } else { "" }, line);
        }
    }
}

fn elapsed(report: &RunReport) -> Duration {
    let elapsed = report.ended_at.duration_since(report.started_at);
    elapsed.try_into().unwrap_or_default()
}

/// What the reader can do now.
fn next(report: &RunReport) -> String {
    let job = &report.job;
    match (report.outcome, report.failures.first()) {
        (Outcome::Succeeded, _) if report.already_succeeded.is_some() => {
            "run it with `--fresh` to start with empty volumes; the old content is kept".to_owned()
        }
        (Outcome::Succeeded, _) => {
            format!("`trainyard logs {job}` prints the output of every rank")
        }
        (Outcome::Stopped, _) => {
            "run the same command again; volumes and their checkpoints are kept".to_owned()
        }
        (Outcome::Failed, Some(failed)) => {
            let cure = match (failed.code, &report.verdict) {
                _ if failed.out_of_memory => {
                    "give the container more memory, or the model a smaller batch\n".to_owned()
                }
                (_, Some(verdict)) => format!("{}\n", clean::text(&verdict.next)),
                (126 | 127, None) => {
                    "check `command` in the job file and the `PATH` of the container\n".to_owned()
                }
                _ => String::new(),
            };
            format!("{cure}`trainyard logs {job} --first-failure` prints its whole log")
        }
        (Outcome::Failed, None) => {
            let cure = report.verdict.as_ref().map_or_else(String::new, |verdict| {
                format!("{}\n", clean::text(&verdict.next))
            });
            format!(
                "{cure}`trainyard status {job}` shows the conditions; `trainyard logs {job}` the output"
            )
        }
    }
}

#[cfg(test)]
mod tests;
