//! What is kept of one log.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{nccl::NcclFacts, report::Evidence, steps::StepTimes, torch::Work},
    LINE_TAIL, MAX_LINE, Source, WATCHED_LINES,
};
use crate::line::stamp::Stamp;

/// What one rule has found in one source.
#[derive(Clone, Debug)]
pub(in crate::diagnose) struct Seen {
    pub(in crate::diagnose) count: u64,
    pub(in crate::diagnose) evidence: Vec<Evidence>,
    pub(in crate::diagnose) first_line: u64,
    pub(in crate::diagnose) last_line: u64,
    pub(in crate::diagnose) stamp: Option<Stamp>,
    pub(in crate::diagnose) ranks: BTreeSet<u32>,
    /// Ranks that the text names, not those that wrote it.
    pub(in crate::diagnose) named: BTreeSet<u32>,
    pub(in crate::diagnose) nodes: BTreeSet<String>,
    pub(in crate::diagnose) peers: BTreeSet<String>,
    pub(in crate::diagnose) fields: BTreeMap<String, String>,
    /// Every line of it is only a warning.
    pub(in crate::diagnose) only_warnings: bool,
    /// One of its lines is an exception without its traceback.
    pub(in crate::diagnose) raised_alone: bool,
    /// One of its lines is the last of a traceback.
    pub(in crate::diagnose) raised: bool,
}

/// How one process ended.
#[derive(Clone, Debug)]
pub(in crate::diagnose) struct ExitSeen {
    pub(in crate::diagnose) rank: Option<u32>,
    pub(in crate::diagnose) code: Option<i64>,
    pub(in crate::diagnose) signal: Option<i64>,
    /// Reported by the parent that waited for that process, so the signal is the one that ended it.
    pub(in crate::diagnose) waited_for: bool,
    /// The launcher reports that it ended before all others.
    pub(in crate::diagnose) first: bool,
    pub(in crate::diagnose) evidence: Evidence,
}

/// An exception that no rule matches.
#[derive(Clone, Debug)]
pub(in crate::diagnose) struct Raised {
    pub(in crate::diagnose) text: String,
    pub(in crate::diagnose) frame: Option<String>,
}

/// How far one rank is in one process group, as its watchdog logs it.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct GroupWait {
    /// The name of the group that all its ranks use; none for the default group.
    pub(in crate::diagnose) group: Option<String>,
    pub(in crate::diagnose) work: Option<Work>,
    pub(in crate::diagnose) enqueued: Option<i64>,
    pub(in crate::diagnose) completed: Option<i64>,
}

/// One process or rank, as one source shows it.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct Member {
    pub(in crate::diagnose) rank: Option<u32>,
    pub(in crate::diagnose) node: Option<String>,
    pub(in crate::diagnose) device: Option<u32>,
    pub(in crate::diagnose) nccl: NcclFacts,
    /// What it waits in, by process group.
    pub(in crate::diagnose) waits: Vec<GroupWait>,
    pub(in crate::diagnose) raised: Option<Raised>,
    pub(in crate::diagnose) fields: BTreeMap<String, String>,
    /// Step times that it logged.
    pub(in crate::diagnose) steps: StepTimes,
    /// The last line on which it reported progress.
    pub(in crate::diagnose) progress_line: u64,
    pub(in crate::diagnose) first: Option<Stamp>,
    pub(in crate::diagnose) last: Option<Stamp>,
}

/// The last line of each kind; 0 where there is none.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct Marks {
    pub(in crate::diagnose) progress: u64,
    pub(in crate::diagnose) done: u64,
    pub(in crate::diagnose) failure: u64,
    /// Results that were saved or printed.
    pub(in crate::diagnose) result: u64,
    /// How often the step grew since the last failure.
    pub(in crate::diagnose) steps_since_failure: u32,
    /// The last exception that stands alone.
    bare: u64,
    /// How often the step grew since then.
    pub(in crate::diagnose) steps_since_bare: u32,
    /// The last exception behind which the program says that it goes on.
    pub(in crate::diagnose) handled: u64,
    /// What kept a container from its start is over.
    pub(in crate::diagnose) started: u64,
    /// The last failure with a step behind it and another cause behind that.
    pub(in crate::diagnose) passed: u64,
    /// The same with several steps behind it: other ranks may finish one or two more steps after one has failed.
    pub(in crate::diagnose) survived: u64,
    /// The last line that explains a failure by itself.
    pub(in crate::diagnose) cause: u64,
    /// The last line with which a program was started again by hand or by a script, behind a failure.
    pub(in crate::diagnose) run: u64,
    /// The program of the last command that named one.
    script: Option<String>,
    pub(super) top_step: Option<u64>,
    /// The same since the last exception that stands alone.
    top_since_bare: Option<u64>,
    /// The last step that a line reports.
    last_step: Option<u64>,
}

/// A result that is further than this from the end of a log is that of one of several parts.
const LINES_AFTER_RESULT: u64 = 30;

impl Source {
    /// Whether the log ends with results, behind `line`.
    pub(in crate::diagnose) fn ends_with_results(&self, line: u64) -> bool {
        let result = self.marks.result;
        result > line && self.lines <= result + LINES_AFTER_RESULT
    }
}

impl Errors {
    /// Notes an exception that stands alone, `steps` after the one before. What the job trained past, or came again and
    /// again while it trained, did not end it.
    pub(super) fn note_bare(&mut self, text: &str, steps: u32, steps_to_pass: u32) {
        let name = |text: &str| text.split(':').next().map(str::to_owned);
        let before = self
            .bare
            .as_ref()
            .and_then(|seen| seen.fields.get("detail"));
        if before.is_some_and(|before| name(before) == name(text)) {
            self.steps_between = self.steps_between.saturating_add(steps);
            self.steps_to_pass = self.steps_to_pass.max(steps_to_pass);
            return;
        }
        if steps >= self.steps_to_pass {
            self.bare = None;
        }
        self.steps_between = 0;
        self.steps_to_pass = self.steps_to_pass.max(steps_to_pass);
    }
}

impl Source {
    /// Notes an error that a step or two behind it do not clear, as after an exception that stands alone.
    pub(super) fn note_alone(&mut self, line: u64) {
        let steps = self.marks.steps_since_bare;
        self.errors.steps_between = self.errors.steps_between.saturating_add(steps);
        self.marks.note_bare(line);
        self.watched = self.watched.max(WATCHED_LINES);
    }

    /// Whether the job trained on behind line `line`, or reached its end.
    pub(in crate::diagnose) fn trained_past(&self, line: u64) -> bool {
        let trained = self.marks.steps_since_bare >= STEPS_AFTER_CAUSE;
        self.marks.done > line || (self.marks.progress > line && trained)
    }

    /// Whether the job got past the error of line `line`.
    pub(in crate::diagnose) fn is_past(&self, line: u64) -> bool {
        let last_bar = self.errors.is_fatal
            && self.marks.done <= line
            && self.marks.steps_since_bare < STEPS_AFTER_CAUSE;
        self.marks.continue_after(line) && !last_bar
    }

    /// Whether the job trained on after the last exception that stands alone.
    pub(in crate::diagnose) fn passed_bare(&self) -> bool {
        let steps = self.marks.steps_since_bare;
        steps > 0 && steps.saturating_add(self.errors.steps_between) >= self.errors.steps_to_pass
    }

    /// Whether a rank that logged its steps before line `line` has logged none since.
    pub(in crate::diagnose) fn stopped_at(&self, ranks: &BTreeSet<u32>, line: u64) -> bool {
        let mut members = self.members.iter();
        members.any(|member| {
            let named = member.rank.is_some_and(|rank| ranks.contains(&rank));
            named && (1..=line).contains(&member.progress_line)
        })
    }
}

/// The same after an exception that a program logged: it was alive then.
pub(in crate::diagnose) const STEPS_AFTER_LOGGED: u32 = 2;
/// The same after an exception that a rule names, without its traceback.
pub(in crate::diagnose) const STEPS_AFTER_EXCEPTION: u32 = 4;
/// How often the step must grow after what explains a failure by itself: other ranks may finish one or two more steps
/// after one has failed.
pub(in crate::diagnose) const STEPS_AFTER_CAUSE: u32 = 3;

impl Marks {
    /// Notes a line that explains a failure by itself: what the job trained past before it did not end the job.
    pub(super) fn note_cause(&mut self, line: u64) {
        if line > self.failure {
            if self.steps_since_failure > 0 {
                self.passed = self.failure;
            }
            if self.steps_since_failure >= STEPS_AFTER_CAUSE {
                self.survived = self.failure;
            }
        }
        self.cause = self.cause.max(line);
        self.note_failure(line);
    }

    /// Notes that a program is started. Where it is the one of the command before, what failed is of an earlier run; another
    /// program may fail because of what the first one did not write. `script` is none where the line names no program.
    pub(super) fn note_run(&mut self, line: u64, script: Option<String>) {
        if script == self.script && self.failure > 0 {
            self.run = line;
        }
        if script.is_some() {
            self.script = script;
        }
    }

    /// Whether line `line` is of a run before the last one, and the last one failed by itself.
    pub(in crate::diagnose) fn of_earlier_run(&self, line: u64) -> bool {
        line < self.run && self.run < self.cause
    }

    pub(super) fn note_failure(&mut self, line: u64) {
        self.failure = self.failure.max(line);
        self.steps_since_failure = 0;
        self.top_step = None;
    }

    /// Notes an exception that stands alone. A line that reports the step of before once more is no progress.
    pub(super) fn note_bare(&mut self, line: u64) {
        self.bare = line;
        self.steps_since_bare = 0;
        self.top_since_bare = self.last_step;
    }

    /// Notes a line that reports progress; of several ranks, only the first to report a step counts.
    pub(super) fn note_step(&mut self, line: u64, step: Option<u64>) {
        self.progress = self.progress.max(line);
        // The last lines of a block are read behind all others of it.
        if line > self.failure && (step.is_none() || step > self.top_step) {
            self.steps_since_failure = self.steps_since_failure.saturating_add(1);
            self.top_step = step.max(self.top_step);
        }
        if line > self.bare && (step.is_none() || step > self.top_since_bare) {
            self.steps_since_bare = self.steps_since_bare.saturating_add(1);
            self.top_since_bare = step.max(self.top_since_bare);
        }
        self.last_step = step.or(self.last_step);
    }

    /// Whether the program continued after `line`.
    pub(in crate::diagnose) fn continue_after(&self, line: u64) -> bool {
        self.progress.max(self.done) > line
    }
}

/// Errors that no rule names.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct Errors {
    /// An exception that no rule matches.
    pub(in crate::diagnose) user: Option<Seen>,
    /// The end of a file, met while a checkpoint was read.
    pub(in crate::diagnose) cut_checkpoint: Option<Seen>,
    /// The last line of a traceback that is not here.
    pub(in crate::diagnose) bare: Option<Seen>,
    /// How often the step must grow after `bare` for the job to have trained past it.
    steps_to_pass: u32,
    /// How often it grew between the exceptions of `bare`, which all have the same name.
    pub(super) steps_between: u32,
    /// Whether the log begins inside a traceback: its last line counts with steps behind it, too.
    pub(in crate::diagnose) cut_head: bool,
    /// The last error that only wraps another one.
    pub(in crate::diagnose) passed_on: Option<Evidence>,
    /// An error in the last lines of the log, whether or not a rule matches it.
    pub(in crate::diagnose) last: Option<Evidence>,
    /// The first line of level ERROR since the last progress that no rule matches.
    pub(in crate::diagnose) level: Option<Evidence>,
    /// Whether a program that writes `level` ends.
    pub(super) is_fatal: bool,
    /// The last line that stands out, or the last line of the log.
    pub(in crate::diagnose) odd: Option<Evidence>,
    /// The last line, where the log ends within a traceback.
    pub(in crate::diagnose) cut_trace: Option<Evidence>,
}

/// What the summary of a launcher says before the exit code that it is about.
#[derive(Clone, Debug, Default)]
pub(super) struct LauncherSummary {
    pub(super) rank: Option<u32>,
    pub(super) node: Option<String>,
    /// What follows is about the process that failed first.
    pub(super) first: bool,
}

/// A line of which the end was not read yet: its first [`MAX_LINE`] bytes, and its last ones where it is longer.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialLine {
    pub(super) bytes: Vec<u8>,
    tail: Vec<u8>,
}

impl PartialLine {
    pub(super) fn is_begun(&self) -> bool {
        !self.bytes.is_empty()
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.bytes.len());
        let (part, rest) = bytes.split_at(bytes.len().min(room));
        self.bytes.extend_from_slice(part);
        let from = rest.len().saturating_sub(LINE_TAIL);
        self.tail
            .extend_from_slice(rest.get(from..).unwrap_or_default());
        if self.tail.len() > 2 * LINE_TAIL {
            self.tail.drain(..self.tail.len() - LINE_TAIL);
        }
    }

    /// The beginning and the end of the line.
    pub(super) fn take(&mut self) -> (Vec<u8>, Vec<u8>) {
        (
            std::mem::take(&mut self.bytes),
            std::mem::take(&mut self.tail),
        )
    }
}

impl Seen {
    pub(super) fn new(line: u64, stamp: Option<Stamp>) -> Self {
        Self {
            count: 0,
            evidence: Vec::new(),
            first_line: line,
            last_line: line,
            stamp,
            ranks: BTreeSet::new(),
            named: BTreeSet::new(),
            nodes: BTreeSet::new(),
            peers: BTreeSet::new(),
            fields: BTreeMap::new(),
            only_warnings: true,
            raised_alone: false,
            raised: false,
        }
    }
}

impl Member {
    pub(super) fn touch(&mut self, stamp: Option<Stamp>) {
        if let Some(stamp) = stamp {
            self.first.get_or_insert(stamp);
            self.last = Some(stamp);
        }
    }
}
