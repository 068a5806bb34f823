//! What is collected of a run on this machine.

use std::{collections::BTreeSet, io::Read as _, path::Path};

use jiff::Timestamp;
use serde_json::Value;
use trainyard_host::store::{LogFile, StoreError};

use super::{Bundle, LEAST_ROOM, LOG_BYTES, facts, line, redact};
use crate::{
    args::Debug,
    command::{doctor, stacks, status},
    failure::Failure,
    stored::{self, Stored},
    words,
};

/// Room for the line about what the store has left out.
const GAP_BYTES: u64 = 128;

/// Everything about the run that the arguments name.
pub(super) fn collect(args: &Debug) -> Result<Bundle, Failure> {
    let store = stored::open(&args.state)?;
    let run = stored::find(&store, &args.which)?;
    let is_latest = store
        .latest(&run.record.name)
        .is_ok_and(|latest| latest.id == run.folder.id);
    let (job, id) = (&run.record.name, &run.folder.id);
    let now = Timestamp::now();
    let title = format!(
        "Run `{id}` of job `{job}` ({}), state {}, collected at {now} by trainyard {}.\n",
        run.record.kind,
        run.state(),
        env!("CARGO_PKG_VERSION")
    );
    let mut bundle = Bundle::new(format!("{job}-{id}"), title, &run.record.job, now);
    bundle.add_run(&run, is_latest.then_some(args.state.state_dir.as_path()));
    Ok(bundle)
}

impl Bundle {
    /// Adds all parts. The doctor reads only the latest run, which is in the store at `doctor`.
    fn add_run(&mut self, run: &Stored, doctor: Option<&Path>) {
        let now = Timestamp::now();
        self.environment(run);
        self.file(
            "machine.txt",
            "this machine: version, kernel, GPUs",
            facts::machine().as_bytes(),
        );
        match &run.record.job {
            Value::Null => {
                self.leave_out("job.json: the run was made by a version that did not keep it");
            }
            job => {
                let what = "the job as run, without values of variables";
                self.json("job.json", what, job);
            }
        }
        let report = run.report(now);
        let text = status::text(&report, now);
        self.text("status.txt", "as `trainyard status` prints it", &text);
        let what = "status, conditions, attempts, timeline";
        self.json("status.json", what, &status::document(&report));
        self.leave_out(
            "events: a run on this machine keeps none; conditions and timeline are in status.json",
        );
        match &run.report {
            Some(report) => self.json("report.json", "the report of the run", report),
            None => self.leave_out("report.json: the run has not ended, or its engine was killed"),
        }
        if !run.failures.is_empty() {
            let what = "what failed first in each attempt, with the doctor's verdict then";
            self.json("failures.json", what, &run.failures);
        }
        match doctor.map(|state| doctor::report_of_job(&run.record.name, state)) {
            Some(Ok(report)) => {
                for why in &report.incomplete {
                    self.leave_out(&format!("doctor.txt does not take into account: {why}"));
                }
                self.text(
                    "doctor.txt",
                    "the doctor's report over the last attempt",
                    &report.text(),
                );
            }
            Some(Err(failure)) => self.leave_out(&format!("doctor.txt: {}", failure.line())),
            None => self.leave_out("doctor.txt: the doctor reads only the latest run of a job"),
        }
        self.stacks(run, now);
        self.logs(run);
    }

    fn environment(&mut self, run: &Stored) {
        let mut text = String::new();
        let mut unread = Vec::new();
        let pods = if run.live {
            run.folder.pods().unwrap_or_else(|error| {
                unread.push(format!("environment of pods: {error}"));
                Vec::new()
            })
        } else {
            Vec::new()
        };
        let mut read = Vec::new();
        for pod in &pods {
            for (pid, variables) in facts::variables(pod) {
                let what = format!("pod {}, process {pid}", pod.pod);
                match variables {
                    Ok(variables) => read.push((what, variables)),
                    Err(error) => unread.push(format!("environment of {what}: {error}")),
                }
            }
        }
        // Values are known before the first text is written.
        for (name, value) in read.iter().flat_map(|(_, variables)| variables) {
            self.redactor.learn(name, value);
        }
        for what in unread {
            self.leave_out(&what);
        }
        for (what, variables) in &read {
            let pairs = variables
                .iter()
                .map(|(name, value)| (name.as_str(), Some(value.as_str())));
            let list = facts::listed(pairs, &mut self.redactor);
            line(&mut text, format_args!("{what}:"));
            text.push_str(&list);
        }
        if text.is_empty() {
            let stated = redact::variables(&run.record.job);
            let stated: BTreeSet<(&str, Option<&str>)> = stated.into_iter().collect();
            let list = facts::listed(stated, &mut self.redactor);
            text = format!("variables that the job file states:\n{list}");
        }
        let what = "names of environment variables, values of harmless ones only";
        self.text("environment.txt", what, &text);
    }

    fn stacks(&mut self, run: &Stored, now: Timestamp) {
        if !run.live {
            return self.leave_out("stacks: the run has ended");
        }
        match stacks::read(run, &[], true) {
            Ok(read) => {
                let job = &run.record.name;
                let text = stacks::text(job, &read, true);
                self.text(
                    "stacks.txt",
                    "what every rank did when this was collected",
                    &text,
                );
                let document = stacks::document(job, Some(&run.folder.id), &read, now);
                self.json("stacks.json", "the same with all threads", &document);
            }
            Err(failure) => self.leave_out(&format!("stacks: {}", failure.line())),
        }
    }

    /// The logs of the last attempt, and before them those of pods that failed first in others.
    fn logs(&mut self, run: &Stored) {
        let attempts = match run.folder.attempts() {
            Ok(attempts) => attempts,
            Err(error) => return self.leave_out(&format!("logs: {error}")),
        };
        let last = attempts.last().copied();
        let mut logs: Vec<LogFile> = Vec::new();
        for attempt in attempts {
            let all = match run.folder.logs(attempt) {
                Ok(all) => all,
                Err(error) => {
                    self.leave_out(&format!("logs of attempt {attempt}: {error}"));
                    continue;
                }
            };
            let failed = |log: &LogFile| {
                let mut failures = run.failures.iter();
                failures.any(|failed| failed.attempt == attempt && failed.pod == log.pod)
            };
            let is_last = Some(attempt) == last;
            logs.extend(all.into_iter().filter(|log| is_last || failed(log)));
        }
        if logs.is_empty() {
            return self.leave_out("logs: no pod has written anything");
        }
        self.logs_are("the last attempt, and of pods that failed first in others");
        for (at, log) in logs.iter().enumerate() {
            if self.archive.room() < LEAST_ROOM {
                let rest = words::counted((logs.len() - at) as u64, "log");
                return self.leave_out(&format!("logs: no room for {rest}"));
            }
            self.log_of(log);
        }
    }

    fn log_of(&mut self, log: &LogFile) {
        let name = format!(
            "logs/attempt-{}/{}/{}.log",
            log.attempt, log.pod, log.container
        );
        let read = read_end(log, LOG_BYTES.min(self.archive.room()));
        let text = match read {
            Ok(text) => text,
            Err(error) => return self.leave_out(&format!("{name}: {error}")),
        };
        let attempt = format!("attempt-{}", log.attempt);
        let file = format!("{}.log", log.container);
        self.log(&["logs", &attempt, &log.pod, &file], &text);
    }
}

/// The end of a log, at most `most` bytes.
fn read_end(log: &LogFile, most: usize) -> Result<String, String> {
    let cannot = |error: StoreError| error.to_string();
    let end = log.last_offset(0).map_err(cannot)?;
    let from = end.saturating_sub(most as u64);
    let mut bytes = Vec::new();
    log.open(from)
        .map_err(cannot)?
        // A program that prints meanwhile makes it no longer, apart from the line about what is left out.
        .take(most as u64 + GAP_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    whole_lines(&String::from_utf8_lossy(&bytes), from > 0)
}

/// A text without lines of which a part is missing, since a part of a secret is not recognized: the first one where it is `cut`, and those
/// on both sides of what the store has left out.
fn whole_lines(text: &str, cut: bool) -> Result<String, String> {
    let mut whole = String::with_capacity(text.len());
    let mut drop_next = cut;
    // Where the last line begins that was kept.
    let mut last = None;
    for line in text.split_inclusive(['\n', '\r']) {
        if is_gap(line) {
            whole.truncate(last.take().unwrap_or(whole.len()));
            whole.push_str(line);
            drop_next = true;
        } else if std::mem::take(&mut drop_next) {
            last = None;
        } else {
            last = Some(whole.len());
            whole.push_str(line);
        }
    }
    if whole.is_empty() && !text.is_empty() {
        return Err(format!("its last line has more than {} bytes", text.len()));
    }
    Ok(whole)
}

/// Whether a line stands for what the store has left out.
fn is_gap(line: &str) -> bool {
    let count = line
        .strip_prefix('[')
        .and_then(|line| line.strip_suffix(" bytes left out]\n"));
    count.is_some_and(|count| count.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_which_a_part_is_missing_are_dropped() {
        let cases = [
            ("", false, Some("")),
            ("a\nb", false, Some("a\nb")),
            ("cret=x\na\nb", true, Some("a\nb")),
            ("cret=x\r50%\r60%", true, Some("50%\r60%")),
            (
                "a\npass\n[12 bytes left out]\nword\nb\n",
                false,
                Some("a\n[12 bytes left out]\nb\n"),
            ),
            (
                "a\n[x bytes left out]\nb",
                false,
                Some("a\n[x bytes left out]\nb"),
            ),
            ("one long line", true, None),
        ];
        for (text, cut, want) in cases {
            assert_eq!(whole_lines(text, cut).ok().as_deref(), want, "{text:?}");
        }
    }
}
