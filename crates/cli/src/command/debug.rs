//! `trainyard debug`: everything that a colleague needs about a run, in one file.
//!
//! Owns what goes into the archive and what is left out. A part that cannot be read is named in its `README.txt`, and the
//! others are there all the same.

mod archive;
mod facts;
mod redact;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use trainyard_host::store::{LogFile, StoreError};

use self::{archive::Archive, redact::Redactor};
use super::{doctor, stacks, status};
use crate::{
    args::Debug,
    environment,
    failure::{Exit, Failure},
    output,
    printer::Printer,
    stored::{self, Stored},
    words,
};

/// Lines that are kept of each log.
const LINES: usize = 2_000;
/// Bytes that are kept of each log.
const LOG_BYTES: usize = 1 << 20;
/// Room for the line about what the store has left out.
const GAP_BYTES: u64 = 128;
/// With less room in the archive no log is read any more.
const LEAST_ROOM: usize = 4 << 10;
/// Things left out that are named one by one, and the longest reason.
const NAMED: usize = 100;
const REASON_CHARS: usize = 500;

/// Writes the archive.
pub(super) fn run(args: &Debug, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return Err(Failure::new(
            "`debug` collects only runs on this machine; it does not collect jobs of a cluster yet",
        )
        .hint(format!(
            "`trainyard status {0} --cluster --format json` and `trainyard logs {0} --cluster` print what there is",
            args.which.job
        )));
    }
    let store = stored::open(&args.state)?;
    let run = stored::find(&store, &args.which)?;
    let is_latest = store
        .latest(&run.record.name)
        .is_ok_and(|latest| latest.id == run.folder.id);
    let mut bundle = Bundle::new(&run, Timestamp::now());
    bundle.collect(&run, is_latest.then_some(args.state.state_dir.as_path()));
    let left_out = bundle.left_out.len() as u64;
    let files = bundle.archive.files + 1;
    let bytes = bundle.finish()?;
    let path = args.output.clone().unwrap_or_else(|| {
        let (job, id) = (&run.record.name, &run.folder.id);
        PathBuf::from(format!("{job}-{id}-debug.tar.gz"))
    });
    output::write_private(&path, &bytes)
        .with_context(|| format!("cannot write the archive to `{}`", path.display()))?;
    let more = match left_out {
        0 => String::new(),
        count => format!(
            "; left out: {}, see its README.txt",
            words::counted(count, "part")
        ),
    };
    printer.summary(&format!(
        "wrote {}, {} bytes, to `{}`{more}",
        words::counted(files, "file"),
        words::grouped(bytes.len() as u64),
        path.display()
    ));
    Ok(Exit::Done)
}

/// The archive and what is said about it.
struct Bundle {
    archive: Archive,
    redactor: Redactor,
    title: String,
    contents: String,
    left_out: Vec<String>,
}

impl Bundle {
    fn new(run: &Stored, now: Timestamp) -> Self {
        let (job, id) = (&run.record.name, &run.folder.id);
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let mut redactor = Redactor::new();
        redactor.learn_job(&run.record.job);
        for (name, value) in environment::inherited(None) {
            redactor.learn(&name, &value);
        }
        Self {
            archive: Archive::new(&format!("{job}-{id}"), seconds),
            redactor,
            title: format!(
                "Run `{id}` of job `{job}` ({}), state {}, collected at {now} by trainyard {}.\n",
                run.record.kind,
                run.state(),
                env!("CARGO_PKG_VERSION")
            ),
            contents: String::new(),
            left_out: Vec::new(),
        }
    }

    /// Adds all parts. The doctor reads only the latest run, which is in the store at `doctor`.
    fn collect(&mut self, run: &Stored, doctor: Option<&Path>) {
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
        line(
            &mut self.contents,
            format_args!(
                "logs/: the last {LINES} lines of each log of the last attempt, and of pods that failed first in others"
            ),
        );
        for (at, log) in logs.iter().enumerate() {
            if self.archive.room() < LEAST_ROOM {
                let rest = words::counted((logs.len() - at) as u64, "log");
                return self.leave_out(&format!("logs: no room for {rest}"));
            }
            self.log(log);
        }
    }

    fn log(&mut self, log: &LogFile) {
        let name = format!(
            "logs/attempt-{}/{}/{}.log",
            log.attempt, log.pod, log.container
        );
        let read = read_end(log, LOG_BYTES.min(self.archive.room()));
        let text = match read {
            Ok(text) => text,
            Err(error) => return self.leave_out(&format!("{name}: {error}")),
        };
        let text = self.redactor.text(&text);
        let text = last_lines(&text);
        let attempt = format!("attempt-{}", log.attempt);
        let file = format!("{}.log", log.container);
        let path = ["logs", &attempt, &log.pod, &file];
        if let Err(reason) = self.archive.add(&path, text.as_bytes()) {
            self.leave_out(&format!("{name}: {reason}"));
        }
    }

    fn json(&mut self, name: &str, what: &str, document: &impl Serialize) {
        let shown = serde_json::to_value(document)
            .map(|document| self.redactor.document(&document))
            .and_then(|shown| serde_json::to_string_pretty(&shown));
        match shown {
            Ok(text) => self.file(name, what, text.as_bytes()),
            Err(error) => self.leave_out(&format!("{name}: {error}")),
        }
    }

    /// Adds a text without its secrets.
    fn text(&mut self, name: &str, what: &str, text: &str) {
        let text = self.redactor.text(text);
        self.file(name, what, text.as_bytes());
    }

    fn file(&mut self, name: &str, what: &str, bytes: &[u8]) {
        match self.archive.add(&[name], bytes) {
            Ok(()) => {
                line(&mut self.contents, format_args!("{name}: {what}"));
            }
            Err(reason) => self.leave_out(&format!("{name}: {reason}")),
        }
    }

    fn leave_out(&mut self, what: &str) {
        let what = self.redactor.text(what);
        self.left_out
            .push(what.chars().take(REASON_CHARS).collect());
    }

    fn finish(self) -> Result<Vec<u8>, Failure> {
        let mut readme = format!("{}\nFiles\n\n{}\nLeft out\n\n", self.title, self.contents);
        for what in self.left_out.iter().take(NAMED) {
            line(&mut readme, format_args!("{what}"));
        }
        if let Some(more) = self.left_out.len().checked_sub(NAMED + 1) {
            let more = words::counted(more as u64 + 1, "more part");
            line(&mut readme, format_args!("and {more}"));
        }
        let places = words::counted(self.redactor.count, "place");
        line(
            &mut readme,
            format_args!(
                "values of environment variables, except of a list of harmless names\n\n\
                 Something was replaced by `[redacted]` in {places}. A secret that neither a name nor a\n\
                 well-known form gives away cannot be recognized: look through the logs before you pass this on."
            ),
        );
        let bytes = self.archive.finish(&readme);
        bytes.map_err(|error| Failure::new(format!("cannot write the archive: {error}")))
    }
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a string takes whatever is written");
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

/// At most [`LINES`] lines.
fn last_lines(text: &str) -> &str {
    let whole = text.strip_suffix('\n').unwrap_or(text);
    let from = whole.rmatch_indices('\n').nth(LINES - 1);
    from.and_then(|(at, _)| text.get(at + 1..)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_log_the_last_lines_are_kept() {
        let lines = |from: usize, to: usize| -> String {
            let lines: Vec<String> = (from..to).map(|line| format!("line {line}\n")).collect();
            lines.concat()
        };
        assert_eq!(last_lines(""), "");
        assert_eq!(last_lines("a\nb"), "a\nb");
        assert_eq!(last_lines(&lines(0, LINES)), lines(0, LINES));
        assert_eq!(last_lines(&lines(0, LINES + 5)), lines(5, LINES + 5));
    }

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
