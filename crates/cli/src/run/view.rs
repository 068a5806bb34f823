//! What a person sees of a run: events in, lines out.
//!
//! Pure: time, width and colour are arguments; nothing is written here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use trainyard_core::{
    job::{EventKind, Exit, JobRecord, JobStatus, ProgressRecord},
    reason::Code,
    spec::{Job, Slot},
};
use trainyard_host::{RunEvent, Stream};

use super::{
    fold::{Fold, Folded, Line},
    live::Live,
    names::{self, Names},
    queue::Batch,
};
use crate::{clean, paint::Paint, printer::Verbosity, words};

/// How often the number of lines left out is printed.
const LEFT_OUT_EVERY: Duration = Duration::from_secs(1);
/// Width of the live line if the terminal's width is unknown.
const DEFAULT_WIDTH: usize = 80;
/// Sentences are not broken where there is less room than this.
const ROOM_MIN: usize = 40;
/// Most ranks that are named among those whose lines were left out.
const LEFT_OUT_NAMED: usize = 3;

/// One line to show, without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A rank wrote it.
    Rank(
        /// The line.
        String,
    ),
    /// A message of trainyard.
    Own(
        /// The line.
        String,
    ),
}

/// How a view looks and how much it prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Colour of the ranks' lines.
    pub(crate) ranks: Paint,
    /// Colour of trainyard's messages.
    pub(crate) own: Paint,
    /// How much trainyard prints.
    pub(crate) verbosity: Verbosity,
}

/// The state of the screen, but for the terminal.
#[derive(Debug)]
pub(crate) struct View {
    names: Names,
    kind: &'static str,
    look: Look,
    fold: Fold,
    live: Live,
    /// Streams whose last piece was not a whole line.
    unfinished: BTreeSet<(Slot, Arc<str>, bool)>,
    left_out: BTreeMap<Slot, u64>,
    left_out_due: Duration,
    /// The attempt whose first failure was printed, and the pod that failed.
    printed_failure: (u32, Option<Slot>),
    /// Pods that failed in an attempt, and how, until it is known which of them was the first.
    failed: Vec<(Slot, u32, String)>,
    attempt: u32,
    /// The time at which the next attempt starts, once it was printed.
    printed_retry: Option<Timestamp>,
    /// The stall that was printed: its attempt and start.
    printed_stall: Option<(u32, Timestamp)>,
    /// The attempt and the warning about its numbers, once printed.
    printed_complaint: Option<(u32, String)>,
    /// A message to print after the waiting lines.
    pause: Option<String>,
    /// The time at which the run began.
    began: Timestamp,
    /// Columns of the terminal, where there is one.
    width: Option<usize>,
    said: Vec<Said>,
}

impl View {
    /// A view of a run of `job` that begins at `began`: the zero of all other times.
    pub(crate) fn new(job: &Job, look: Look, began: Timestamp) -> Self {
        let names = Names::new(job);
        Self {
            kind: job.kind.name(),
            fold: Fold::new(names.count()),
            live: Live::new(job.name.as_str(), job.total_replicas()),
            names,
            look,
            unfinished: BTreeSet::new(),
            left_out: BTreeMap::new(),
            left_out_due: Duration::ZERO,
            printed_failure: (0, None),
            failed: Vec::new(),
            attempt: 0,
            printed_retry: None,
            printed_stall: None,
            printed_complaint: None,
            pause: None,
            began,
            width: None,
            said: Vec::new(),
        }
    }

    /// How wide the terminal is, where there is one.
    pub(crate) fn width_is(&mut self, width: Option<usize>) {
        self.width = width;
    }

    /// Handles what arrived.
    pub(crate) fn take(&mut self, batch: Batch) {
        for (now, event) in batch.events {
            self.event(event, now);
        }
        for (now, attempt, step, loss) in batch.progress.into_values() {
            self.live.progress(attempt, step, loss, now);
        }
        for (slot, lines) in batch.left_out {
            *self.left_out.entry(slot).or_default() += lines;
        }
        if let Some(pause) = self.pause.take() {
            self.name_failed();
            self.print_message(&pause);
        }
    }

    /// The lines that are due at `now`.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<Said> {
        while let Some(folded) = self.fold.due(now) {
            self.rank_line(&folded);
        }
        if !self.left_out.is_empty() && now >= self.left_out_due {
            self.left_out_due = now + LEFT_OUT_EVERY;
            self.print_left_out();
        }
        std::mem::take(&mut self.said)
    }

    /// When [`View::due`] will have something to say if nothing happens.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        let left_out = (!self.left_out.is_empty()).then_some(self.left_out_due);
        self.fold.due_at().into_iter().chain(left_out).min()
    }

    /// The lines that are left at the end.
    pub(crate) fn finish(&mut self) -> Vec<Said> {
        self.print_folded_lines();
        self.name_failed();
        if !self.left_out.is_empty() {
            self.print_left_out();
        }
        std::mem::take(&mut self.said)
    }

    /// The line at the bottom of the terminal.
    pub(crate) fn live_line(&self, now: Duration) -> String {
        let width = self.width.unwrap_or(DEFAULT_WIDTH);
        self.live.render(now, width, self.look.own)
    }

    /// A stop of the run was requested, for the `count`th time.
    pub(crate) fn stop_requested(&mut self, count: u32) {
        self.print_message(match count {
            1 => {
                "stopping: pods get SIGTERM and their grace period to save; \
                 press Ctrl-C again to kill them"
            }
            _ => "killing all pods",
        });
    }

    fn event(&mut self, event: RunEvent, now: Duration) {
        match event {
            RunEvent::Output {
                slot,
                container,
                stream,
                bytes,
                ..
            } => self.output(slot, &container, stream, &bytes, now),
            RunEvent::Progress {
                attempt,
                step,
                loss,
                ..
            } => self.live.progress(attempt, step, loss, now),
            RunEvent::Prepared {
                run_id,
                folder,
                pods,
            } => {
                self.live.wants(pods);
                let pods = words::counted(pods.into(), "pod");
                let kind = self.kind;
                self.print_message(&format!("{kind} as {pods}, run {run_id}"));
                self.detail(&format!("logs go to {}", folder.display()));
            }
            RunEvent::Status(status) => self.status(&status, now),
            RunEvent::PodStarted { slot, attempt, pid } => {
                self.attempt_begins(attempt);
                self.detail(&format!("{} started as process {pid}", names::short(slot)));
            }
            RunEvent::PodRunning { slot, attempt } => self.live.up(slot, attempt),
            RunEvent::FailedFirst(failed) => {
                self.failed_first(failed.slot, failed.attempt, &words::failed(&failed));
                self.name_failed();
            }
            RunEvent::PodEnded {
                slot,
                attempt,
                exit,
                stopped,
            } => {
                self.live.down(slot, attempt);
                self.unfinished.retain(|(ended, ..)| *ended != slot);
                self.ended(slot, attempt, exit, stopped);
            }
            RunEvent::Event(event) if event.kind == EventKind::Warning => {
                self.name_failed();
                self.print_message(&event.message);
            }
            RunEvent::Event(event) => self.detail(&event.message),
            RunEvent::Note(note) => self.print_message(&format!("note: {note}")),
            RunEvent::Injected(fault) => self.print_message(&fault),
            RunEvent::Finished(_) => self.live.waits(None),
        }
    }

    fn output(
        &mut self,
        slot: Slot,
        container: &Arc<str>,
        stream: Stream,
        bytes: &[u8],
        now: Duration,
    ) {
        let key = (slot, Arc::clone(container), stream == Stream::Err);
        let mut bytes = bytes;
        if self.unfinished.contains(&key) {
            // The line was shown, cut, when its first piece came.
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                return;
            };
            bytes = bytes.get(end + 1..).unwrap_or_default();
            self.unfinished.remove(&key);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let whole = piece.strip_suffix(b"\n");
            let more = whole.is_none() && piece.len() >= clean::LINE_MAX;
            if whole.is_none() {
                self.unfinished.insert(key.clone());
            }
            let text = clean::line(
                whole.unwrap_or(piece),
                more,
                clean::IN_THE_LOG,
                self.look.ranks,
            );
            self.fold
                .add(slot, Line::new(&text, container, stream), now);
        }
    }

    fn status(&mut self, status: &JobStatus, now: Duration) {
        let record = &status.trainyard;
        self.live.attempt(record.attempt);
        let retry = record.retry_at.and_then(|at| {
            let after = Duration::try_from(at.duration_since(self.began)).ok()?;
            (after > now).then_some((at, after))
        });
        self.live.begins_at(retry.map(|(_, after)| after));
        if let Some((at, after)) = retry
            && self.printed_retry != Some(at)
        {
            // An event after the status reports why the last attempt ended.
            self.printed_retry = Some(at);
            self.pause = Some(format!(
                "attempt {} starts in {}",
                record.attempt,
                words::duration(after.saturating_sub(now))
            ));
        }
        self.progress_of(record, now);
        let waiting = record.waiting.as_ref();
        let waiting = waiting.filter(|reason| !matches!(reason.code, Code::Training | Code::Ended));
        self.live
            .waits(waiting.map(|reason| reason.message.clone()));
    }

    /// Prints once that it is stalled, that it no longer is, and that its numbers are not finite.
    fn progress_of(&mut self, record: &JobRecord, now: Duration) {
        let moment = self.began.checked_add(now).unwrap_or(self.began);
        let stall = record.stall(moment);
        let last = record
            .attempt_progress()
            .map(|progress| progress.last_step_at);
        let open = record.ledger.open.filter(|_| stall.is_some());
        let since = open.map(|open| last.unwrap_or(open.since));
        self.live.stalled(since.map(|since| {
            let after = since.duration_since(self.began);
            after.try_into().unwrap_or_default()
        }));
        let stalled = self.printed_stall.map(|(attempt, _)| attempt);
        match (stall, open) {
            (Some(stall), Some(open))
                if self.printed_stall != Some((record.attempt, open.since)) =>
            {
                self.printed_stall = Some((record.attempt, open.since));
                self.print_message(&format!("stalled: {stall}"));
            }
            (None, _) if stalled == Some(record.attempt) && record.ledger.ended.is_none() => {
                self.printed_stall = None;
                if record
                    .ledger
                    .open
                    .is_some_and(|open| open.phase.follows_step())
                {
                    self.print_message("step reports resumed");
                }
            }
            _ => {}
        }
        let complaint = record
            .attempt_progress()
            .and_then(ProgressRecord::complaint);
        self.live.complains(complaint.clone());
        let complaint = complaint.map(|complaint| (record.attempt, complaint));
        if complaint != self.printed_complaint {
            if let Some((_, complaint)) = &complaint {
                self.print_message(&format!("warning: {complaint}"));
            }
            self.printed_complaint = complaint;
        }
    }

    /// The first pod of an attempt was started.
    ///
    /// Not printed with the status: the event that reports why the last attempt ended comes after it.
    fn attempt_begins(&mut self, attempt: u32) {
        if attempt <= self.attempt {
            return;
        }
        self.name_failed();
        if attempt > 1 {
            self.print_message(&format!("attempt {attempt} starts"));
        }
        self.attempt = attempt;
        self.live.attempt(attempt);
    }

    fn ended(&mut self, slot: Slot, attempt: u32, exit: Option<Exit>, stopped: bool) {
        let name = names::short(slot);
        let Some(exit) = exit else {
            return self.detail(&format!("{name} ended before it started"));
        };
        let how = words::exit(exit.code, exit.out_of_memory);
        if exit.code == 0 {
            self.detail(&format!("{name} succeeded"));
        } else if stopped {
            self.detail(&format!("{name} was stopped: {how}"));
        } else if self.printed_failure.0 < attempt {
            // Pods that fail together end in any order; which of them was the first is an event of its own.
            self.failed.push((slot, attempt, how));
        } else if self.printed_failure != (attempt, Some(slot)) {
            self.print_message(&format!("{name} failed too: {how}"));
        }
    }

    /// Names the pods that failed, the first of an attempt as the first unless that is known already.
    fn name_failed(&mut self) {
        for (slot, attempt, how) in std::mem::take(&mut self.failed) {
            if self.printed_failure.0 < attempt {
                self.failed_first(slot, attempt, &how);
            } else if self.printed_failure != (attempt, Some(slot)) {
                self.print_message(&format!("{} failed too: {how}", names::short(slot)));
            }
        }
    }

    fn failed_first(&mut self, slot: Slot, attempt: u32, how: &str) {
        self.printed_failure = (attempt, Some(slot));
        let name = names::short(slot);
        let failed = self.look.own.apply("1;31", "failed first");
        self.print_message(&format!("{name} {failed} in attempt {attempt}: {how}"));
    }

    fn print_left_out(&mut self) {
        let counts = std::mem::take(&mut self.left_out);
        let total: u64 = counts.values().sum();
        let mut loudest: Vec<(Slot, u64)> = counts.into_iter().collect();
        loudest.sort_by_key(|(slot, lines)| (std::cmp::Reverse(*lines), *slot));
        let mut text = format!("{} left out (", words::counted(total, "line"));
        for (at, (slot, lines)) in loudest.iter().take(LEFT_OUT_NAMED).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(
                text,
                "{comma}{} of {}",
                words::grouped(*lines),
                names::short(*slot)
            )
            .expect("a string takes whatever is written");
        }
        if let Some(others) = loudest.len().checked_sub(LEFT_OUT_NAMED).filter(|n| *n > 0) {
            write!(text, ", and {others} more ranks").expect("a string takes whatever is written");
        }
        text.push_str("): output too fast; the log has all lines");
        // It goes where the lines would have gone, also when trainyard itself is to be quiet.
        let line = self.message_line(&text, self.look.ranks);
        self.said.push(Said::Rank(line));
    }

    fn rank_line(&mut self, folded: &Folded) {
        let name = format!("[{}]", self.names.of(&folded.slots, &folded.line.container));
        let mark = if folded.line.stderr { "·" } else { "" };
        let used = name.chars().count() + mark.chars().count();
        let pad = (self.names.column() + 1).saturating_sub(used).max(1);
        let painted = match folded.slots.as_slice() {
            [slot] => self.look.ranks.apply(&names::colour(*slot), &name),
            _ => self.look.ranks.apply("1", &name),
        };
        let line = format!("{painted}{mark}{:pad$}{}", "", folded.line.text);
        self.said.push(Said::Rank(line.trim_end().to_owned()));
    }

    /// Prints a message of trainyard, unless `--quiet` is set. Earlier output of ranks stays before it.
    fn print_message(&mut self, text: &str) {
        if self.look.verbosity < Verbosity::Normal {
            return;
        }
        self.print_folded_lines();
        let line = self.message_line(text, self.look.own);
        self.said.push(Said::Own(line));
    }

    fn message_line(&self, text: &str, paint: Paint) -> String {
        let column = self.names.column() + 1;
        let pad = column - names::OWN.len();
        let room = self.width.map(|width| width.saturating_sub(column + 1));
        let lines = words::wrapped(text, room.filter(|room| *room >= ROOM_MIN));
        let text = lines.join(&format!("\n{:column$}", ""));
        format!("{}{:pad$}{text}", paint.apply("1", names::OWN), "")
    }

    /// Prints a detail, with `--verbose` only.
    fn detail(&mut self, text: &str) {
        if self.look.verbosity >= Verbosity::Verbose {
            self.print_message(text);
        }
    }

    fn print_folded_lines(&mut self) {
        while let Some(folded) = self.fold.pop() {
            self.rank_line(&folded);
        }
    }
}

#[cfg(test)]
mod tests;
