//! One log as it is read: finds the lines that matter and keeps their facts.
//!
//! Owns the two stages of the search and what is known from one source so far. Does not compare sources;
//! that is [`super::group`].
//!
//! Invariant: what is kept is bounded by the number of rules and ranks, not by the length of the log;
//! a line longer than [`MAX_LINE`] is cut, and never buffered whole.

mod first_ranks;
mod last_lines;
mod members;
mod samples;
mod text;
mod words;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use self::first_ranks::FirstRanks;
use self::last_lines::LastLines;
use self::text::{host, is_fixed, leading_nuls, lossy, newlines, numbers, shown, signal_number};
use super::{
    line::{self, Line},
    nccl::{self, Known, NcclFacts},
    report::Evidence,
    rules::{Part, Rule, Rules, Stage},
    stamp::Stamp,
    steps::StepTimes,
    torch::{self, Trace, Work},
};
use crate::progress::{self, LineReader};

/// How many bytes of one line are read.
pub const MAX_LINE: usize = 16 << 10;
/// Lines at the beginning of a log that are always read: versions, command lines.
const HEAD_LINES: u32 = 256;
/// Lines after a failure that are always read: wrapped errors appear there.
const WATCHED_LINES: u32 = 8;
/// Lines at the end of each block whose step and loss are read.
const SAMPLED_LINES: usize = 12;
/// The same in the middle of a large log, of which there are many blocks.
const SAMPLED_IN_MIDDLE: usize = 2;
/// Ranks, nodes and exits that one source can name.
const MAX_NAMES: usize = 8192;
/// Places that are kept of what one rule has found.
const MAX_EVIDENCE: usize = 3;
/// Facts with a name of their own that a rank can have.
const MAX_FIELDS: usize = 24;
/// Text that is kept of a line.
const MAX_TEXT: usize = 300;

/// What one rule has found in one source.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) count: u64,
    pub(super) evidence: Vec<Evidence>,
    pub(super) first_line: u64,
    pub(super) last_line: u64,
    pub(super) stamp: Option<Stamp>,
    pub(super) ranks: BTreeSet<u32>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) peers: BTreeSet<String>,
    pub(super) fields: BTreeMap<String, String>,
}

/// How one process ended.
#[derive(Clone, Debug)]
pub(super) struct ExitSeen {
    pub(super) rank: Option<u32>,
    pub(super) code: Option<i64>,
    pub(super) signal: Option<i64>,
    /// Reported by the parent that waited for that process, so the signal is the one that ended it.
    pub(super) waited_for: bool,
    pub(super) evidence: Evidence,
}

/// An exception that no rule matches.
#[derive(Clone, Debug)]
pub(super) struct Raised {
    pub(super) text: String,
    pub(super) frame: Option<String>,
}

/// One process or rank, as one source shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    pub(super) rank: Option<u32>,
    pub(super) node: Option<String>,
    pub(super) device: Option<u32>,
    pub(super) nccl: NcclFacts,
    pub(super) work: Option<Work>,
    pub(super) group: Option<String>,
    pub(super) enqueued: Option<i64>,
    pub(super) completed: Option<i64>,
    pub(super) raised: Option<Raised>,
    pub(super) fields: BTreeMap<String, String>,
    /// Step times that it logged.
    pub(super) steps: StepTimes,
    pub(super) first: Option<Stamp>,
    pub(super) last: Option<Stamp>,
}

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
    pub(super) members: Vec<Member>,
    pub(super) progress_line: u64,
    pub(super) done_line: u64,
    pub(super) failure_line: u64,
    /// An exception that no rule matches.
    pub(super) user_error: Option<Seen>,
    /// The end of a file, met while a checkpoint was read.
    pub(super) cut_checkpoint: Option<Seen>,
    /// The last line of a traceback that is not here.
    pub(super) bare_error: Option<Seen>,
    /// The last error that only wraps another one.
    pub(super) passed_on: Option<Evidence>,
    /// An error in the last lines of the log, whether or not a rule matches it.
    pub(super) last_error: Option<Evidence>,
    last_lines: LastLines,
    /// How many processes a launcher's command line asks for.
    pub(super) asked_processes: Option<u32>,
    /// Processes that each report rank 0.
    pub(super) first_ranks: FirstRanks,
    pub(super) notable: u64,
    by_pid: BTreeMap<u32, Vec<usize>>,
    by_rank: BTreeMap<u32, usize>,
    whole: Option<usize>,
    traces: BTreeMap<Option<u32>, Trace>,
    block_rank: Option<u32>,
    block_node: Option<String>,
    carry: Vec<u8>,
    /// How many of the next lines are always read.
    watched: u32,
    /// The last line whose step and loss were read.
    sampled: u64,
    /// What lines of each rank said of its progress; `None` where lines name no rank.
    readers: BTreeMap<Option<u32>, LineReader>,
    /// Whether the rest of a line that is too long is being skipped.
    skipping: bool,
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
        if self.carry.is_empty() && !self.skipping {
            // NULs before a line are not part of it and are dropped.
            bytes = bytes.get(leading_nuls(bytes)..).unwrap_or_default();
        }
        if !self.carry.is_empty() || self.skipping {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.keep(bytes);
                return;
            };
            let (rest, after) = bytes.split_at(end + 1);
            self.keep(rest.get(..end).unwrap_or_default());
            self.skipping = false;
            let line = std::mem::take(&mut self.carry);
            self.lines += 1;
            let number = self.lines;
            self.candidate(rules, &line, number, None, None);
            self.carry = line;
            self.carry.clear();
            bytes = after;
        }
        let end = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        let (whole, rest) = bytes.split_at(end);
        self.block(rules, whole, part);
        self.keep(rest.get(leading_nuls(rest)..).unwrap_or_default());
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
        let line = std::mem::take(&mut self.carry);
        if !line.is_empty() {
            self.lines += 1;
            let number = self.lines;
            self.candidate(rules, &line, number, None, None);
        }
        self.find_last_error(rules);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.carry.len());
        if bytes.len() > room {
            self.skipping = true;
        }
        let part = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        self.carry.extend_from_slice(part);
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
            if watched && part == Part::End {
                self.sample(rules, text, self.lines, None);
            }
            from += end + 1;
        }
        let sampled = match part {
            Part::Middle => SAMPLED_IN_MIDDLE,
            Part::End => SAMPLED_LINES,
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
            self.judge(rules, &line, number);
        }
        self.scratch = scratch;
    }

    fn judge(&mut self, rules: &Rules, line: &Line<'_>, number: u64) {
        let text = line.text;
        let mut member = None;
        if let Some(header) = nccl::header(text) {
            let index = self.process(header.host, header.pid, line.rank);
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
                    self.progress_line = number;
                }
                return;
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
        self.elastic(text);
        self.launcher(text);
        if number <= u64::from(HEAD_LINES) {
            self.first_ranks.note(text, number, self.failure_line);
        }
        let quoted = self
            .traces
            .get(&line.rank)
            .is_some_and(|trace| trace.quotes(text));
        if quoted && !text.trim_ascii_start().starts_with(b"File \"") {
            // Code that names an error is not that error.
            return;
        }
        let failed = self.failure_line;
        // Many lines are always read, and few of them can match a rule.
        let claimed = rules.anchors().is_match(text) && self.rules(rules, line, number, member);
        if claimed || self.failure_line != failed {
            self.watched = self.watched.max(WATCHED_LINES);
        }
        self.python(line, number, claimed);
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
                    self.failure_line = number;
                    claimed = true;
                }
                Stage::Wrapper => {
                    claimed = true;
                    self.passed_on = Some(self.evidence(line, number));
                }
                Stage::Progress => self.progress_line = number,
                Stage::Done => self.done_line = number,
                Stage::Exit => {
                    self.exit(rule, line, number);
                    claimed = true;
                    continue;
                }
                Stage::Note | Stage::Fact => {}
            }
            if rule.label.is_some() {
                let rank = member
                    .and_then(|index| self.members.get(index))
                    .map(|member| (member.rank, member.node.clone()));
                self.record_match(rules, *index, line, number, rank);
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
        let index = match rank {
            Some(rank) => self.member_of_rank(rank),
            None => self.whole_source_member(),
        };
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

impl Seen {
    fn new(line: u64, stamp: Option<Stamp>) -> Self {
        Self {
            count: 0,
            evidence: Vec::new(),
            first_line: line,
            last_line: line,
            stamp,
            ranks: BTreeSet::new(),
            nodes: BTreeSet::new(),
            peers: BTreeSet::new(),
            fields: BTreeMap::new(),
        }
    }
}

impl Member {
    fn touch(&mut self, stamp: Option<Stamp>) {
        if let Some(stamp) = stamp {
            self.first.get_or_insert(stamp);
            self.last = Some(stamp);
        }
    }
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
