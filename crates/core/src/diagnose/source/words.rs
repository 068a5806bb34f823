//! Lines that need more than one rule: exits, launchers, watchdogs and tracebacks.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::{
    ExitSeen, GroupWait, Line, MAX_EVIDENCE, MAX_GROUPS, MAX_NAMES, Member, Raised, Rule,
    STEPS_AFTER_CAUSE, STEPS_AFTER_LOGGED, Seen, Source, WATCHED_LINES, bounded, levels, lossy,
    numbers, shown, signal_number, torch,
};

/// A program says within so many lines behind an exception that it goes on.
const LINES_AFTER_EXCEPTION: u64 = 2;

/// How programs say that.
static HANDLED: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = [
        "ontinuing",
        "ignoring",
        "Ignoring",
        "skipping",
        "Skipping",
        "skipped",
        "disabled",
        "alling back",
        "retrying",
        "Retrying",
        "on-fatal",
        "ot fatal",
        "using default",
    ];
    AhoCorasick::new(words).expect("words are few and short")
});

/// So many lines from the beginning of a log a frame of a traceback counts without its head.
const LINES_OF_HEAD: u64 = 8;

impl Source {
    pub(super) fn exit(&mut self, rule: &Rule, line: &Line<'_>, number: u64) {
        let captures = rule.regex().and_then(|regex| regex.captures(line.text));
        let get = |name: &str| {
            let found = captures.as_ref()?.name(name)?;
            Some(lossy(found.as_bytes()))
        };
        let signal = get("signal").and_then(|word| signal_number(&word));
        let code: Option<i64> = get("code").and_then(|word| word.parse().ok());
        let (code, signal) = match code {
            // `-1` is what many launchers report where they do not know.
            Some(code @ -64..-1) => (None, Some(-code)),
            Some(code @ 129..=192) if signal.is_none() => (Some(code), Some(code - 128)),
            code => (code, signal),
        };
        if code == Some(0) {
            return;
        }
        let mut ranks: Vec<Option<u32>> = get("rank")
            .or_else(|| get("ranks"))
            .map(|word| numbers(&word).into_iter().map(Some).collect())
            .unwrap_or_default();
        if ranks.is_empty() {
            // The summary says whom it is about; the prefix only who printed it.
            ranks.push(
                self.summary
                    .rank
                    .take()
                    .or(line.rank)
                    .or_else(|| self.default_rank(line)),
            );
        }
        let mut evidence = self.evidence(line, number);
        evidence.node = get("node").or(self.summary.node.take()).or(evidence.node);
        // What the launcher says of several is not about the first one alone.
        let first =
            ranks.len() == 1 && (rule.reports_first() || std::mem::take(&mut self.summary.first));
        let waited_for = !matches!(rule.id.as_str(), "srun-signal" | "shell-killed");
        for rank in ranks {
            if self.exits.len() < MAX_NAMES {
                let evidence = evidence.clone();
                self.exits.push(ExitSeen {
                    rank,
                    code,
                    signal,
                    waited_for,
                    first,
                    evidence,
                });
            }
        }
        self.marks.note_failure(number);
    }

    /// The lines of a launcher's summary that name rank and host before the exit code: torchelastic, Open MPI, PRRTE,
    /// MPICH and Intel MPI.
    pub(super) fn summary(&mut self, text: &[u8]) {
        let text = text.trim_ascii_start();
        let value = |key: &[u8]| {
            let rest = text.strip_prefix(key)?.trim_ascii_start();
            Some(lossy(rest.strip_prefix(b":")?.trim_ascii()))
        };
        let first_number = |word: &str| {
            let word = word.split([' ', ']']).next().unwrap_or_default();
            numbers(word).first().copied()
        };
        if let Some(rank) = value(b"rank ") {
            self.summary.rank = first_number(&rank);
        } else if let Some(host) = value(b"host ") {
            self.summary.node = Some(host);
        } else if text.starts_with(b"Root Cause (first observed failure)")
            || memchr::memmem::find(text, b"first process to do so was").is_some()
        {
            self.summary.first = true;
        } else if let Some(at) = memchr::memmem::find(text, b"Process name: ")
            && let name = lossy(text.get(at + 14..).unwrap_or_default().trim_ascii())
            && memchr::memmem::find(text, b"Exit code").is_none()
        {
            // `[[31459,1],3]`, `[prterun-node-1-25@1,3]`; Horovod's `3` comes behind the exit code.
            let rank = name.rsplit(',').next().and_then(first_number);
            match self.exits.last_mut() {
                Some(exit) if exit.rank.is_none() && exit.first && !name.contains(',') => {
                    exit.rank = rank;
                }
                _ => self.summary.rank = rank,
            }
        } else if let Some(at) = memchr::memmem::find(text, b"noticed that process rank ")
            && let Some(rest) = text.strip_suffix(b" exited on")
            && let rest = lossy(rest.get(at + 26..).unwrap_or_default())
            && let Some((rank, node)) = rest.split_once(" with PID ")
        {
            // PRRTE breaks the line before the signal.
            self.summary.rank = first_number(rank);
            self.summary.node = node
                .split_once(" on node ")
                .map(|(_, node)| node.to_owned());
            self.summary.first = true;
        } else if let Some(rest) = text.strip_prefix(b"=")
            && let rest = lossy(rest.trim_ascii())
            && let Some((process, node)) = rest.split_once(" RUNNING AT ")
        {
            let rank = process.strip_prefix("RANK ");
            self.summary.rank = rank.and_then(first_number);
            self.summary.node = Some(node.trim().to_owned());
        }
    }

    /// A command that starts a program. In a log of several pods each one starts its own, which says nothing about the others.
    pub(super) fn note_run(&mut self, line: &Line<'_>, number: u64) {
        if line.rank.is_none() && line.node.is_none() {
            self.marks.note_run(number, script(line.text));
        }
    }

    /// `mpirun -np 8 …` in a transcript.
    pub(super) fn launcher(&mut self, text: &[u8]) {
        if memchr::memmem::find(text, b"mpirun ").is_none()
            && memchr::memmem::find(text, b"mpiexec ").is_none()
        {
            return;
        }
        let mut words = text
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if matches!(word, b"-np" | b"-n" | b"--np" | b"-c")
                && let Some(count) = words.next().map(lossy).and_then(|word| word.parse().ok())
            {
                self.asked_processes.get_or_insert(count);
                return;
            }
        }
    }

    pub(super) fn watchdog(&mut self, line: &Line<'_>) {
        let work = torch::work(line.text);
        let status = torch::status(line.text);
        if work.is_none() && status.is_none() {
            return;
        }
        let Some(rank) = line.rank.or_else(|| torch::rank(line.text)).or(self.rank) else {
            return;
        };
        let group = torch::group(line.text);
        let index = self.members.of(Some(rank));
        if let Some(member) = self.members.get_mut(index) {
            member.touch(line.stamp);
            member.wait(group, work, status);
        }
    }

    /// An exception without its traceback: the log is an excerpt, or the program printed no more.
    pub(super) fn bare(&mut self, line: &Line<'_>, number: u64, rank: Option<u32>, text: String) {
        let evidence = self.evidence(line, number);
        let stamp = line.stamp.or(self.last_stamp);
        self.notable += 1;
        // A logger that reports what nobody caught is the last to write.
        let logged = torch::exception(line.text.trim_ascii_start()).is_none()
            && memchr::memmem::find(line.text, b"ncaught").is_none()
            && memchr::memmem::find(line.text, b"nhandled").is_none()
            || HANDLED.is_match(line.text);
        let steps = if logged {
            STEPS_AFTER_LOGGED
        } else {
            STEPS_AFTER_CAUSE
        };
        let before = self.marks.steps_since_bare;
        self.errors.note_bare(&text, before, steps);
        self.marks.note_bare(number);
        self.watched = self.watched.max(WATCHED_LINES);
        let seen = self
            .errors
            .bare
            .get_or_insert_with(|| Seen::new(number, stamp));
        seen.count += 1;
        seen.last_line = number;
        bounded(&mut seen.ranks, rank);
        if seen.evidence.len() < MAX_EVIDENCE {
            seen.evidence.push(evidence);
        }
        seen.fields.entry("detail".to_owned()).or_insert(text);
    }

    /// A line behind an exception that says that the program goes on without what failed.
    fn note_handled(&mut self, text: &[u8], number: u64) {
        let last = self.last_exception;
        if last > 0
            && (last + 1..=last + LINES_AFTER_EXCEPTION).contains(&number)
            && HANDLED.is_match(text)
        {
            self.marks.handled = last;
        }
    }

    /// The traceback of the lines of `rank`, while there are not too many.
    fn trace_of(&mut self, rank: Option<u32>) -> Option<&mut torch::Trace> {
        if self.traces.len() >= MAX_NAMES && !self.traces.contains_key(&rank) {
            return None;
        }
        Some(self.traces.entry(rank).or_default())
    }

    /// Follows tracebacks; an exception that no rule claims is the user's own.
    pub(super) fn python(&mut self, line: &Line<'_>, number: u64, claimed: bool) {
        let text = torch::unboxed(line.text);
        let trimmed = text.trim_ascii_start();
        let key = line.rank;
        if torch::begins_box(trimmed)
            || trimmed.starts_with(b"Traceback (most recent call last)")
            || trimmed.starts_with(b"Original Traceback (most recent call last)")
        {
            if let Some(trace) = self.trace_of(key) {
                trace.begin();
            }
            return;
        }
        if trimmed.starts_with(b"Exception ignored in") || trimmed.starts_with(b"--- Logging error")
        {
            if let Some(trace) = self.trace_of(key) {
                trace.ignore();
            }
            return;
        }
        // A quoted name is that of a thread of the JVM, whose lines have no traceback of Python.
        if trimmed.starts_with(b"Exception in thread ")
            && !trimmed.starts_with(b"Exception in thread \"")
        {
            if let Some(trace) = self.trace_of(key) {
                trace.note_thread();
            }
            return;
        }
        if let Some(rest) = trimmed.strip_prefix(b"-- Process ")
            && memchr::memmem::find(rest, b" terminated with the following error").is_some()
        {
            // `torch.multiprocessing` starts a process for each rank; its traceback follows.
            let number = rest.split(|byte| *byte == b' ').next();
            self.spawned = number.and_then(|word| numbers(&lossy(word)).first().copied());
            return;
        }
        if !claimed && trimmed.starts_with(b"what():") && trimmed.len() > b"what():  ".len() {
            // An uncaught C++ exception: no rule names it, and the line says why the process aborts.
            let rank = key.or_else(|| self.default_rank(line));
            self.bare(line, number, rank, shown(trimmed));
            return;
        }
        if trimmed.starts_with(b"File \"") {
            // `kubectl logs --tail` may begin inside a traceback.
            if number <= LINES_OF_HEAD
                && !self.traces.contains_key(&key)
                && memchr::memmem::find(trimmed, b"\", line ").is_some()
                && let Some(trace) = self.trace_of(key)
            {
                trace.begin_headless();
            }
            if let Some(trace) = self.traces.get_mut(&key) {
                trace.frame(text);
                // Not every exception is called an error.
                self.watched = self.watched.max(WATCHED_LINES);
            }
            return;
        }
        let is_last = |trace: &torch::Trace| trace.is_open() && trimmed.len() == text.len();
        let ends_trace = self.traces.get(&key).is_some_and(is_last);
        let name = torch::exception(trimmed);
        let name = name.or_else(|| torch::any_exception(trimmed).filter(|_| ends_trace));
        let Some(name) = name else {
            self.note_handled(trimmed, number);
            let tagged = torch::exception_behind_tag(trimmed).filter(|_| !claimed);
            if let Some(found) = tagged.filter(|_| !levels::is_logged(line.text)) {
                let rank = key.or_else(|| self.default_rank(line));
                self.bare(line, number, rank, shown(found));
            }
            return;
        };
        // `torch.multiprocessing` re-raises the exception of its child, which follows.
        if trimmed.trim_ascii() == b"Exception:" {
            return;
        }
        let rank = key
            .or_else(|| self.default_rank(line))
            .or_else(|| self.spawned.take());
        let Some(trace) = self.traces.get_mut(&key) else {
            let last = name.ends_with("Error") || name.ends_with("Exception");
            if last && !claimed && trimmed.len() > name.len() + 2 {
                self.bare(line, number, rank, shown(trimmed));
            }
            return;
        };
        let Some(frames) = trace.end() else { return };
        self.traces.remove(&key);
        self.last_exception = number;
        if (frames.of_thread || frames.headless) && !claimed {
            // What led to it may be in the part that is missing, so it counts as little as without its frames.
            self.errors.cut_head |= frames.headless;
            self.bare(line, number, rank, shown(trimmed));
            return;
        }
        let raised = Raised {
            text: shown(trimmed),
            frame: frames.shown,
        };
        // An end of file while a checkpoint is read says only where it happened.
        let cut_short = frames.loads && name == "EOFError";
        let index = self.member_of_line(line);
        let evidence = self.evidence(line, number);
        if let Some(member) = self.members.get_mut(index) {
            member.touch(line.stamp);
            if member.raised.is_none() {
                member.raised = Some(raised.clone());
            }
        }
        if claimed {
            return;
        }
        self.notable += 1;
        self.marks.note_cause(number);
        let stamp = line.stamp.or(self.last_stamp);
        if let Some(lines) = torch::lines_of_message(&raised.text) {
            self.message_until = number + lines;
            self.watched = self
                .watched
                .max(u32::try_from(lines).unwrap_or(WATCHED_LINES));
        }
        let kept = if cut_short {
            &mut self.errors.cut_checkpoint
        } else {
            &mut self.errors.user
        };
        let passed = self.marks.survived.max(self.marks.run);
        if kept.as_ref().is_some_and(|known| known.last_line <= passed) {
            // The program caught that one and trained on, or was started again.
            *kept = None;
        }
        let seen = kept.get_or_insert_with(|| Seen::new(number, stamp));
        seen.count += 1;
        seen.last_line = number;
        bounded(&mut seen.ranks, rank);
        if seen.evidence.len() < MAX_EVIDENCE {
            seen.evidence.push(evidence);
        }
        seen.fields
            .entry("detail".to_owned())
            .or_insert(raised.text);
        if let Some(frame) = raised.frame {
            seen.fields.entry("frame".to_owned()).or_insert(frame);
        }
    }
}

/// The script or the module that a command runs: `train.py` of `torchrun --nproc-per-node 2 train.py`.
fn script(text: &[u8]) -> Option<String> {
    let words = || {
        text.split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
    };
    let module = || words().skip_while(|word| *word != b"-m").nth(1);
    words()
        .find(|word| word.ends_with(b".py"))
        .or_else(module)
        .map(lossy)
}

impl Member {
    /// Adds what a line of the watchdog says of one process group.
    fn wait(
        &mut self,
        group: Option<String>,
        work: Option<torch::Work>,
        status: Option<(i64, i64)>,
    ) {
        // Lines without a group come from versions that name it only in the status, which follows.
        let begun = |wait: &GroupWait| wait.group.is_none() && wait.enqueued.is_none();
        let known = self.waits.iter().position(|wait| wait.group == group);
        let known = known.or_else(|| {
            self.waits
                .iter()
                .position(|wait| work.is_none() && begun(wait))
        });
        let index = known.unwrap_or(self.waits.len());
        if index == self.waits.len() {
            if index >= MAX_GROUPS {
                return;
            }
            self.waits.push(GroupWait::default());
        }
        if let Some(wait) = self.waits.get_mut(index) {
            wait.group = group.or(wait.group.take());
            if wait.work.is_none() {
                wait.work = work;
            }
            if let Some((enqueued, completed)) = status
                && wait.enqueued.is_none()
            {
                wait.enqueued = Some(enqueued);
                wait.completed = Some(completed);
            }
        }
    }
}
