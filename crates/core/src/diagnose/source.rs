//! One log as it is read: finds the lines that matter and keeps their facts.
//!
//! Owns the two stages of the search and what is known from one source so far. Does not compare sources;
//! that is [`super::group`].
//!
//! Invariant: what is kept is bounded by the number of rules and ranks, not by the length of the log;
//! a line longer than [`MAX_LINE`] is cut, and never buffered whole.

mod first_ranks;
mod last_lines;
mod late_tasks;
mod levels;
mod members;
mod samples;
mod state;
mod text;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use self::state::{LauncherSummary, PartialLine};
pub(super) use self::text::shown;
use self::text::{host, is_fixed, leading_nuls, lossy, newlines, numbers, signal_number};
pub(super) use self::{
    first_ranks::FirstRanks,
    late_tasks::LateTasks,
    state::{
        Errors, ExitSeen, GroupWait, Marks, Member, Raised, STEPS_AFTER_CAUSE,
        STEPS_AFTER_EXCEPTION, STEPS_AFTER_LOGGED, Seen,
    },
};
use self::{last_lines::LastLines, members::Members, samples::Samples};
use super::{
    nccl::{self, Known},
    report::Evidence,
    rules::{Part, Rule, Rules, Stage},
    torch::{self, Trace},
};
use crate::{
    line::{self, Line, stamp::Stamp},
    progress,
};

/// How many bytes of one line are read.
pub const MAX_LINE: usize = 16 << 10;
/// How many bytes at the end of a longer line are read, too: a progress bar and the message after it are one line.
const LINE_TAIL: usize = 2 << 10;
/// Lines at the beginning of a log that are always read: versions, command lines.
const HEAD_LINES: u32 = 256;
/// Lines at the beginning of a log in which every rule is looked for.
const SHORT_LINES: u64 = 64;
/// Lines after a failure that are always read: wrapped errors appear there.
const WATCHED_LINES: u32 = 8;
/// Lines at the end of each block whose step and loss are read.
const SAMPLED_LINES: usize = 12;
/// The same while no step was read yet: other lines may follow the last step.
const SAMPLED_BEFORE_STEPS: usize = 512;
/// The same in the middle of a large log, of which there are many blocks.
const SAMPLED_IN_MIDDLE: usize = 2;
/// Ranks, nodes and exits that one source can name.
const MAX_NAMES: usize = 8192;
/// Places that are kept of what one rule has found.
const MAX_EVIDENCE: usize = 3;
/// Process groups in which one rank can wait.
const MAX_GROUPS: usize = 16;
/// Facts with a name of their own that a rank can have.
const MAX_FIELDS: usize = 24;
/// Text that is kept of a line.
const MAX_TEXT: usize = 300;

/// One log.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) rank: Option<u32>,
    pub(super) node: Option<String>,
    pub(super) lines: u64,
    pub(super) bytes: u64,
    pub(super) seen: BTreeMap<u16, Seen>,
    pub(super) exits: Vec<ExitSeen>,
    pub(super) members: Members,
    pub(super) marks: Marks,
    pub(super) errors: Errors,
    last_lines: LastLines,
    /// How many processes a launcher's command line asks for.
    pub(super) asked_processes: Option<u32>,
    /// Processes that each report rank 0.
    pub(super) first_ranks: FirstRanks,
    pub(super) notable: u64,
    traces: BTreeMap<Option<u32>, Trace>,
    summary: LauncherSummary,
    /// Tasks that a coordination service reports late or gone.
    pub(super) late_tasks: LateTasks,
    partial: PartialLine,
    /// The last line of a traceback.
    last_exception: u64,
    /// The process whose exception `torch.multiprocessing` announced.
    spawned: Option<u32>,
    /// How many of the next lines are always read.
    watched: u32,
    /// The last line that may be of the message of an exception: every rule is looked for up to it.
    message_until: u64,
    samples: Samples,
    last_stamp: Option<Stamp>,
    found: Vec<u16>,
    scratch: Vec<u8>,
}

impl Source {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rank: line::rank_of_name(name),
            watched: HEAD_LINES,
            ..Self::default()
        }
    }

    /// Reads more of the log; it may end anywhere.
    pub(super) fn read(&mut self, rules: &Rules, mut bytes: &[u8], part: Part) {
        self.bytes += bytes.len() as u64;
        self.last_lines.note(bytes, part);
        if self.partial.is_begun() {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.partial.extend(bytes);
                return;
            };
            let (rest, after) = bytes.split_at(end + 1);
            let rest = rest.get(..end).unwrap_or_default();
            self.partial.extend(rest);
            let (mut line, tail) = self.partial.take();
            self.lines += 1;
            self.candidate(rules, &line, self.lines, None, None);
            if !tail.is_empty() {
                self.candidate(rules, &tail, self.lines, None, None);
            }
            line.clear();
            self.partial.bytes = line;
            bytes = after;
        } else {
            // NULs before a line are not part of it and are dropped.
            bytes = bytes.get(leading_nuls(bytes)..).unwrap_or_default();
        }
        let end = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        let (whole, rest) = bytes.split_at(end);
        self.block(rules, whole, part);
        self.partial
            .extend(rest.get(leading_nuls(rest)..).unwrap_or_default());
    }

    /// Reads one line that the caller has split off.
    pub(super) fn line(
        &mut self,
        rules: &Rules,
        rank: Option<u32>,
        stamp: Option<Stamp>,
        bytes: &[u8],
    ) {
        self.bytes += bytes.len() as u64 + 1;
        self.last_lines.note(bytes, Part::End);
        self.last_lines.note(b"\n", Part::End);
        self.lines += 1;
        let number = self.lines;
        self.last_stamp = stamp.or(self.last_stamp);
        let watched = self.watched > 0;
        self.watched = self.watched.saturating_sub(1);
        if watched || rules.anchors().is_match(bytes) {
            self.candidate(rules, bytes, number, rank, stamp);
        } else {
            self.sample(rules, bytes, number, rank);
        }
    }

    /// Takes what is left as the last line.
    pub(super) fn end(&mut self, rules: &Rules) {
        let (line, tail) = self.partial.take();
        if !line.is_empty() {
            self.lines += 1;
            let number = self.lines;
            self.candidate(rules, &line, number, None, None);
            if !tail.is_empty() {
                self.candidate(rules, &tail, number, None, None);
            }
        }
        self.judge_last_lines(rules);
        self.find_ctrl_c(rules);
        self.find_last_error(rules);
    }

    /// Whole lines. The first stage runs over the block, not over its lines.
    fn block(&mut self, rules: &Rules, block: &[u8], part: Part) {
        let mut from = 0;
        let mut walk = rules.anchors().walk(block, part);
        while from < block.len() {
            let rest = block.get(from..).unwrap_or_default();
            let watched = self.watched > 0;
            let at = if watched {
                self.watched -= 1;
                0
            } else if let Some(hit) = walk.hit(from) {
                hit - from
            } else {
                self.lines += newlines(rest);
                break;
            };
            let before = rest.get(..at).unwrap_or_default();
            let start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
            let end = memchr::memchr(b'\n', rest.get(at..).unwrap_or_default())
                .map_or(rest.len(), |newline| at + newline);
            self.lines += newlines(rest.get(..start).unwrap_or_default()) + 1;
            let start = start + leading_nuls(rest.get(start..end).unwrap_or_default());
            // Of a line that is too long, the part around the hit.
            let first = if end - start > MAX_LINE {
                at.saturating_sub(2048).max(start)
            } else {
                start
            };
            let text = rest
                .get(first..end.min(first + MAX_LINE))
                .unwrap_or_default();
            self.candidate(rules, text, self.lines, None, None);
            if end - first > MAX_LINE {
                let text = rest.get(start..end).unwrap_or_default();
                self.candidate(rules, tail(text), self.lines, None, None);
            }
            if watched && part == Part::End {
                self.sample(rules, text, self.lines, None);
            }
            from += end + 1;
        }
        let sampled = match part {
            Part::Middle => SAMPLED_IN_MIDDLE,
            Part::End if self.marks.continue_after(0) => SAMPLED_LINES,
            Part::End => SAMPLED_BEFORE_STEPS,
        };
        let mut begin = block.len();
        let mut count = 0;
        while count < sampled
            && let Some(before) = begin.checked_sub(1)
        {
            begin = memchr::memrchr(b'\n', block.get(..before).unwrap_or_default())
                .map_or(0, |newline| newline + 1);
            count += 1;
        }
        let last = block.get(begin..).unwrap_or_default();
        let last = last.strip_suffix(b"\n").unwrap_or(last);
        for (after, text) in last.split(|byte| *byte == b'\n').enumerate().take(count) {
            let text = text.get(..text.len().min(MAX_LINE)).unwrap_or_default();
            let number = (self.lines + 1 + after as u64).saturating_sub(count as u64);
            self.sample(rules, text, number, None);
        }
    }

    /// A line that may matter.
    fn candidate(
        &mut self,
        rules: &Rules,
        raw: &[u8],
        number: u64,
        rank: Option<u32>,
        stamp: Option<Stamp>,
    ) {
        let raw = raw.get(..raw.len().min(MAX_LINE)).unwrap_or_default();
        let mut scratch = std::mem::take(&mut self.scratch);
        // A progress bar writes many texts into one line.
        for part in raw.split(|byte| *byte == b'\r') {
            if part.is_empty() {
                continue;
            }
            let mut line = line::read(part, &mut scratch);
            line.rank = rank.or(line.rank);
            line.stamp = stamp.or(line.stamp);
            self.last_stamp = line.stamp.or(self.last_stamp);
            let claimed = self.judge(rules, &line, number);
            if !claimed && let Some(text) = progress::text_after_bar(line.text) {
                self.judge(rules, &Line { text, ..line }, number);
            }
        }
        self.scratch = scratch;
    }

    /// Reads one line. Returns whether a rule explains or wraps an error in it.
    fn judge(&mut self, rules: &Rules, line: &Line<'_>, number: u64) -> bool {
        let text = line.text;
        let mut member = None;
        if let Some(header) = nccl::header(text) {
            let index = self
                .members
                .of_process(header.host, header.pid, line.rank.or(self.rank));
            let known = self.members.get_mut(index).map(|member| {
                member.device = header.device.or(member.device);
                member.touch(line.stamp);
                if header.warning {
                    return Known::No;
                }
                let known = member.nccl.note(header.rest, number);
                if let Some((rank, _)) = member.nccl.world() {
                    member.rank = Some(rank);
                    if member.nccl.bus.is_none() {
                        member.nccl.bus = nccl::bus(header.rest);
                    }
                }
                known
            });
            self.notable += 1;
            if known == Some(Known::Yes) {
                if text.ends_with(b"Init COMPLETE") {
                    self.marks.progress = self.marks.progress.max(number);
                }
                return false;
            }
            member = Some(index);
        } else if let Some(version) = nccl::version(text) {
            let version = version.to_owned();
            let index = self.member_of_line(line);
            if let Some(member) = self.members.get_mut(index) {
                member.nccl.version.get_or_insert(version);
            }
        }
        self.watchdog(line);
        self.summary(text);
        self.late_tasks.note(text, line.rank);
        self.launcher(text);
        if number <= u64::from(HEAD_LINES) {
            self.first_ranks.note(text, number, self.marks.failure);
        }
        let code = torch::unboxed(text);
        let quoted = self
            .traces
            .get(&line.rank)
            .is_some_and(|trace| trace.quotes(code));
        if quoted && !code.trim_ascii_start().starts_with(b"File \"") {
            // Code that names an error is not that error.
            return false;
        }
        let failed = self.marks.failure;
        if torch::is_raised_again(text) {
            // The exception itself follows, with its own traceback.
            self.errors.passed_on = Some(self.evidence(line, number));
            self.marks.note_failure(number);
            self.watched = self.watched.max(WATCHED_LINES);
            self.traces.remove(&line.rank);
            return true;
        }
        // Many lines are always read, and few of them can match a rule.
        let anchored =
            number <= SHORT_LINES.max(self.message_until) || rules.anchors().is_match(text);
        let claimed = anchored && self.rules(rules, line, number, member);
        if anchored {
            self.note_level(line, number, claimed);
        }
        if claimed || self.marks.failure != failed {
            self.watched = self.watched.max(WATCHED_LINES);
        }
        self.python(line, number, claimed);
        claimed
    }

    /// Runs the rules whose literals are in the line. Returns whether one explains or wraps an error.
    fn rules(
        &mut self,
        rules: &Rules,
        line: &Line<'_>,
        number: u64,
        member: Option<usize>,
    ) -> bool {
        let mut found = std::mem::take(&mut self.found);
        rules.finder.rules_in(line.text, &mut found);
        let mut claimed = false;
        let mut labels: Vec<&str> = Vec::new();
        let warning = levels::is_warning(line.text);
        let trace = self.traces.get(&line.rank);
        // A program that prints an exception without its traceback has caught it.
        let of_thread = trace.is_some_and(Trace::is_of_thread);
        let raised = !of_thread && trace.is_some_and(Trace::is_begun);
        for index in &found {
            let rule = rules.rule(*index);
            // Two rules for one label would report the same thing twice.
            if rule
                .label
                .as_deref()
                .is_some_and(|label| labels.contains(&label))
                || !rule.matches(line.text)
            {
                continue;
            }
            labels.extend(rule.label.as_deref());
            self.notable += 1;
            match rule.stage {
                Stage::Cause | Stage::Symptom => {
                    match rule.stage {
                        _ if warning => {}
                        Stage::Cause => self.marks.note_cause(number),
                        _ => self.marks.note_failure(number),
                    }
                    claimed = true;
                }
                Stage::Wrapper => {
                    claimed = true;
                    self.note_alone(number);
                    // That a launcher ends the others says less than what it was passed.
                    if !rule.reports_cleanup() || self.errors.passed_on.is_none() {
                        self.errors.passed_on = Some(self.evidence(line, number));
                    }
                }
                Stage::Result => self.marks.result = self.marks.result.max(number),
                Stage::Progress => self.marks.note_step(number, None),
                Stage::Done => self.marks.done = number,
                Stage::Exit => {
                    self.exit(rule, line, number);
                    claimed = true;
                    continue;
                }
                Stage::Note if rule.id == "k8s-started" => self.marks.started = number,
                Stage::Note if rule.id == "run-started" => self.note_run(line, number),
                Stage::Note | Stage::Fact => {}
            }
            if rule.label.is_some() {
                let rank = member
                    .and_then(|index| self.members.get(index))
                    .map(|member| (member.rank, member.node.clone()));
                self.record_match(rules, *index, line, number, rank);
                if let Some(seen) = self.seen.get_mut(index) {
                    seen.only_warnings &= warning;
                    let exception = torch::exception(line.text.trim_ascii_start()).is_some();
                    seen.raised |= raised && exception;
                    seen.raised_alone |= !raised && !of_thread && exception;
                }
            } else {
                self.fields(rule, line.text, line.rank);
            }
        }
        self.found = found;
        claimed
    }

    fn record_match(
        &mut self,
        rules: &Rules,
        index: u16,
        line: &Line<'_>,
        number: u64,
        process: Option<(Option<u32>, Option<String>)>,
    ) {
        let rule = rules.rule(index);
        let evidence = self.evidence(line, number);
        let (process_rank, process_node) = process.unwrap_or_default();
        let rank = process_rank
            .or(line.rank)
            .or_else(|| self.default_rank(line));
        let node = process_node
            .or_else(|| line.node.map(lossy))
            .or_else(|| self.node.clone());
        let stamp = line.stamp.or(self.last_stamp);
        let seen = self
            .seen
            .entry(index)
            .or_insert_with(|| Seen::new(number, stamp));
        seen.count += 1;
        seen.last_line = number;
        let repeated = seen.evidence.iter().any(|known| known.line == number);
        if seen.evidence.len() < MAX_EVIDENCE && !repeated {
            seen.evidence.push(evidence);
        }
        let captures = rule
            .regex()
            .and_then(|regex| Some((regex, regex.captures(line.text)?)));
        let mut named = false;
        if let Some((regex, captures)) = captures {
            for name in regex.capture_names().flatten() {
                let Some(value) = captures.name(name).map(|found| lossy(found.as_bytes())) else {
                    continue;
                };
                let value = value.trim();
                match name {
                    "rank" | "ranks" => {
                        let ranks = numbers(value);
                        named |= !ranks.is_empty();
                        bounded(&mut seen.named, ranks.iter().copied());
                        bounded(&mut seen.ranks, ranks);
                    }
                    "reporter" => {
                        let ranks = numbers(value);
                        named |= !ranks.is_empty();
                        bounded(&mut seen.ranks, ranks);
                    }
                    "node" => bounded(&mut seen.nodes, [value.to_owned()]),
                    "peer" if !value.is_empty() => {
                        bounded(&mut seen.peers, [host(value).to_owned()]);
                    }
                    _ if !value.is_empty() && seen.fields.len() < MAX_FIELDS => {
                        let short = value.chars().take(160).collect();
                        seen.fields.entry(name.to_owned()).or_insert(short);
                    }
                    _ => {}
                }
            }
        }
        if !named {
            bounded(&mut seen.ranks, rank);
        }
        bounded(&mut seen.nodes, node);
    }

    /// Named groups of a rule that are facts of the rank.
    fn fields(&mut self, rule: &Rule, text: &[u8], rank: Option<u32>) {
        let Some(regex) = rule.regex() else { return };
        let Some(captures) = regex.captures(text) else {
            return;
        };
        let own = captures
            .name("own_rank")
            .map(|found| numbers(&lossy(found.as_bytes())));
        let rank = own.and_then(|ranks| ranks.first().copied()).or(rank);
        let index = self.members.of(rank.or(self.rank));
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        for name in regex.capture_names().flatten() {
            let Some(found) = captures.name(name).filter(|found| !found.is_empty()) else {
                continue;
            };
            // Steps have one reader.
            if rule.stage == Stage::Progress && progress::GROUPS.contains(&name) {
                continue;
            }
            let kept = is_fixed(member.fields.get(name), name);
            if (member.fields.contains_key(name) || member.fields.len() < MAX_FIELDS) && !kept {
                member
                    .fields
                    .insert(name.to_owned(), lossy(found.as_bytes()));
            }
        }
    }

    fn evidence(&self, line: &Line<'_>, number: u64) -> Evidence {
        Evidence {
            file: self.name.clone(),
            line: number,
            text: shown(line.text),
            rank: line.rank.or(self.rank),
            node: line.node.map(lossy).or_else(|| self.node.clone()),
        }
    }
}

/// The end of a line that is too long to be read whole.
fn tail(line: &[u8]) -> &[u8] {
    line.get(line.len().saturating_sub(LINE_TAIL)..)
        .unwrap_or_default()
}

fn bounded<T: Ord>(set: &mut BTreeSet<T>, values: impl IntoIterator<Item = T>) {
    for value in values {
        if set.len() < MAX_NAMES {
            set.insert(value);
        }
    }
}

#[cfg(test)]
mod tests;
