//! Logs of many ranks as few rows: lines that differ only in numbers are one row, with the ranks that wrote them.
//!
//! A line is taken without its stamp and prefixes (`crate::line`); numbers, addresses and identifiers count as equal. Equal lines of the same severity
//! within two seconds of the first are one group; a line that comes again and again gets longer groups, so that a job of weeks fits. The lines of a
//! traceback are errors as its head is. The earliest line that reports an error is kept by itself and is never folded away.
//!
//! Invariant: memory and answer are bounded whatever is pushed; lines whose group was dropped are counted.

mod template;
#[cfg(test)]
mod tests;
mod traceback;

use std::{collections::BTreeMap, sync::LazyLock};

use aho_corasick::AhoCorasick;
use serde::Serialize;

use self::{
    template::Template,
    traceback::{Part, Tracebacks},
};
use super::VERSION;
use crate::{
    index_set::IndexSet,
    line::{self, stamp::Clock},
    progress::Reader,
};

/// Groups that are open at the same time.
pub const OPEN_MAX: usize = 4_096;
/// Groups of an answer.
pub const GROUPS_MAX: usize = 4_096;
/// Ranks that are kept apart.
pub const RANKS_MAX: u32 = 16_384;
/// Characters of a line that are kept.
pub const TEXT_CHARS: usize = 600;
/// Lines before the first failure that are kept with it.
pub const CONTEXT_MAX: usize = 12;
/// Equal lines within this time are one group, in milliseconds.
pub const WINDOW_MILLIS: i64 = 2_000;
/// After so many groups of equal lines, those that follow are twice as long.
const WINDOW_TURNS: u32 = 16;
/// How often they get longer: up to 68 minutes.
const WINDOW_DOUBLINGS: u32 = 11;

/// Words of lines that report an error.
const ERRORS: [&str; 14] = [
    "Traceback (most recent call last)",
    "Error",
    "ERROR",
    "error:",
    "FATAL",
    "Fatal",
    "Exception",
    "NVRM: Xid",
    "Segmentation fault",
    "Watchdog caught",
    "panicked at",
    "Out of memory",
    "Killed",
    "core dumped",
];
/// Words of lines with which launchers report that a rank ended.
const WRAPPERS: [&str; 5] = [
    "ChildFailedError",
    "failed (exitcode",
    "Sending process",
    "exited with non-zero status",
    "PRIMARY job",
];
const WARNINGS: [&str; 3] = ["WARN", "Warning", "warning:"];

/// How bad a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// It informs.
    Info,
    /// It warns.
    Warning,
    /// It reports an error.
    Error,
}

/// What a group is in the story of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Lines like the one that a verdict rests on.
    Cause,
    /// Another error.
    Symptom,
    /// A launcher reports that ranks ended.
    Wrapper,
    /// Steps of training.
    Progress,
    /// Anything else.
    Other,
}

/// Logs in rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Folded {
    /// The form of this document.
    pub version: u32,
    /// The earliest error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    /// The groups in order of their first line.
    pub groups: Vec<Group>,
    /// Lines that are in no group for want of room.
    pub left_out: u64,
}

/// The earliest line that reports an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstFailure {
    /// Whose it is, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// When it was written, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    /// The line.
    pub text: String,
    /// The lines before it, where the caller has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
}

/// Equal lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The line, with `#` for what differs.
    pub template: String,
    /// The first of them.
    pub example: String,
    /// How many.
    pub count: u64,
    /// The ranks that wrote them, such as `0-516,518-1023`.
    pub ranks: String,
    /// When the first was written, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at: Option<i64>,
    /// When the last was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<i64>,
    /// Who wrote the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_rank: Option<u32>,
    /// How bad.
    pub severity: Severity,
    /// What it is in the story.
    pub role: Role,
}

/// Folds lines as they come.
#[derive(Debug, Default)]
pub struct Folder {
    /// By the hash of the template, and by severity: a long line may report an error behind the end of its template.
    open: BTreeMap<(u64, Severity), Gathered>,
    closed: Vec<Gathered>,
    /// How many groups of equal lines are closed.
    turns: BTreeMap<(u64, Severity), u32>,
    tracebacks: Tracebacks,
    first_failure: Option<FirstFailure>,
    /// Whether the first failure is the head of a traceback, whose exception comes below.
    is_head: bool,
    scratch: Vec<u8>,
    template: Template,
    lines: u64,
    left_out: u64,
}

#[derive(Debug)]
struct Gathered {
    template: String,
    example: String,
    order: u64,
    count: u64,
    ranks: Ranks,
    first_at: Option<i64>,
    last_at: Option<i64>,
    first_rank: Option<u32>,
    severity: Severity,
}

impl Folder {
    /// Adds a line of a rank, where that is known. A stamp in front of the line counts over `at`, and so does a rank.
    pub fn push(&mut self, rank: Option<u32>, at: Option<i64>, raw: &[u8]) {
        let raw = raw.get(..raw.len().min(8 << 10)).unwrap_or_default();
        let mut scratch = std::mem::take(&mut self.scratch);
        let line = line::read(raw, &mut scratch);
        let stamp = line.stamp.filter(|stamp| stamp.clock == Clock::Epoch);
        let at = stamp.map(|stamp| stamp.millis).or(at);
        self.push_text(line.rank.or(rank), at, line.text);
        self.scratch = scratch;
    }

    /// The same without stamp and prefixes.
    fn push_text(&mut self, rank: Option<u32>, at: Option<i64>, text: &[u8]) {
        if text.trim_ascii().is_empty() {
            return;
        }
        self.lines += 1;
        let severity = self.judge(rank, at, text);
        let key = (self.template.set(text), severity);
        if let Some(known) = self.open.get_mut(&key) {
            let turns = self.turns.get(&key).copied().unwrap_or(0);
            if known.takes(at, window(turns)) {
                known.add(rank, at);
                return;
            }
            let known = self.open.remove(&key);
            self.closed.extend(known);
            self.turns.insert(key, turns.saturating_add(1));
            if self.turns.len() > OPEN_MAX {
                self.turns.clear();
            }
        }
        let mut gathered = Gathered {
            template: self.template.text(),
            example: shown(text),
            order: self.lines,
            count: 0,
            ranks: Ranks::default(),
            first_at: at,
            last_at: at,
            first_rank: rank,
            severity,
        };
        gathered.add(rank, at);
        self.open.insert(key, gathered);
        if self.open.len() > OPEN_MAX {
            let open = std::mem::take(&mut self.open);
            self.closed.extend(open.into_values());
        }
        if self.closed.len() > 2 * GROUPS_MAX {
            self.left_out += shorten(&mut self.closed);
        }
    }

    /// How bad a line is, with what came before it, and whether it is the first failure.
    fn judge(&mut self, rank: Option<u32>, at: Option<i64>, text: &[u8]) -> Severity {
        let part = self.tracebacks.part(rank, text);
        let found = severity(text);
        match part {
            Part::Frame => return Severity::Error,
            Part::Exception => {
                if let Some(first) = &mut self.first_failure
                    && self.is_head
                    && first.rank == rank
                {
                    // The head of a traceback says nothing; its last line does.
                    first.text = shown(text);
                    self.is_head = false;
                }
                return Severity::Error;
            }
            Part::Head | Part::None => {}
        }
        if found == Severity::Error && is_earlier(at, self.first_failure.as_ref()) {
            self.first_failure = Some(FirstFailure::of(rank, at, text));
            self.is_head = part == Part::Head;
        }
        found
    }

    /// The rows so far. `causes` are lines that a verdict rests on; `before` are the lines before the first failure, where they are known.
    pub fn finish(mut self, causes: &[&str], before: &[String]) -> Folded {
        self.closed
            .extend(std::mem::take(&mut self.open).into_values());
        self.left_out += shorten(&mut self.closed);
        let mut keys: Vec<String> = Vec::new();
        for cause in causes {
            self.template.set(cause.as_bytes());
            keys.push(self.template.text());
        }
        let mut reader = Reader::new();
        let first_failure = self.first_failure.map(|failure| FirstFailure {
            before: before
                .iter()
                .rev()
                .take(CONTEXT_MAX)
                .rev()
                .map(|line| shown(line.as_bytes()))
                .collect(),
            ..failure
        });
        let groups = self.closed.into_iter().map(|it| Group {
            role: role(&it, &keys, &mut reader),
            ranks: it.ranks.set().to_string(),
            template: it.template,
            example: it.example,
            count: it.count,
            first_at: it.first_at,
            last_at: it.last_at,
            first_rank: it.first_rank,
            severity: it.severity,
        });
        Folded {
            version: VERSION,
            first_failure,
            groups: groups.collect(),
            left_out: self.left_out,
        }
    }
}

impl FirstFailure {
    fn of(rank: Option<u32>, at: Option<i64>, text: &[u8]) -> Self {
        Self {
            rank,
            at,
            text: shown(text),
            before: Vec::new(),
        }
    }
}

impl Gathered {
    /// Whether a line of that time belongs to it. Lines without times are one group.
    fn takes(&self, at: Option<i64>, window: u64) -> bool {
        match (self.first_at, at) {
            (Some(first), Some(at)) => at.abs_diff(first) <= window,
            _ => true,
        }
    }

    fn add(&mut self, rank: Option<u32>, at: Option<i64>) {
        self.count += 1;
        if let Some(rank) = rank {
            self.ranks.insert(rank);
        }
        self.first_at = self.first_at.min(at).or(self.first_at).or(at);
        self.last_at = self.last_at.max(at);
    }
}

/// How long a group of equal lines is after so many of them, in milliseconds.
fn window(turns: u32) -> u64 {
    WINDOW_MILLIS.unsigned_abs() << (turns / WINDOW_TURNS).min(WINDOW_DOUBLINGS)
}

/// Whether an error at `at` came before the one that is known. Without a time the order of arrival counts.
fn is_earlier(at: Option<i64>, known: Option<&FirstFailure>) -> bool {
    let Some(known) = known else {
        return true;
    };
    matches!((at, known.at), (Some(at), Some(known)) if at < known)
}

/// Keeps the errors and the newest of the rest; says how many lines were dropped.
fn shorten(closed: &mut Vec<Gathered>) -> u64 {
    let mut dropped = 0;
    if closed.len() > GROUPS_MAX {
        closed.sort_by_key(|it| std::cmp::Reverse((it.severity == Severity::Error, it.order)));
        dropped = closed.drain(GROUPS_MAX..).map(|it| it.count).sum();
    }
    closed.sort_by_key(|it| (it.first_at.is_none(), it.first_at, it.order));
    dropped
}

fn role(it: &Gathered, causes: &[String], reader: &mut Reader) -> Role {
    static LAUNCHERS: LazyLock<AhoCorasick> = LazyLock::new(|| words(&WRAPPERS));
    if causes.contains(&it.template) {
        return Role::Cause;
    }
    if LAUNCHERS.is_match(&it.example) {
        return Role::Wrapper;
    }
    if it.severity == Severity::Error {
        return Role::Symptom;
    }
    let reading = reader.line(it.example.as_bytes());
    if reading.is_some_and(|reading| reading.step.is_some()) {
        Role::Progress
    } else {
        Role::Other
    }
}

/// How bad a line is that is without its stamp and prefixes.
pub(super) fn severity(text: &[u8]) -> Severity {
    static BAD: LazyLock<AhoCorasick> = LazyLock::new(|| words(&ERRORS));
    static ODD: LazyLock<AhoCorasick> = LazyLock::new(|| words(&WARNINGS));
    if BAD.is_match(text) {
        Severity::Error
    } else if ODD.is_match(text) {
        Severity::Warning
    } else {
        Severity::Info
    }
}

fn words(words: &[&str]) -> AhoCorasick {
    AhoCorasick::new(words).expect("a few short words")
}

/// The beginning of a line, as text.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .take(TEXT_CHARS)
        .collect()
}

/// A set of ranks that takes one bit for each.
#[derive(Debug, Default)]
pub(super) struct Ranks(Vec<u64>);

impl Ranks {
    fn insert(&mut self, rank: u32) {
        if rank >= RANKS_MAX {
            return;
        }
        let (word, bit) = ((rank / 64) as usize, rank % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    fn remove(&mut self, rank: u32) {
        if let Some(word) = self.0.get_mut((rank / 64) as usize) {
            *word &= !(1 << (rank % 64));
        }
    }

    fn contains(&self, rank: u32) -> bool {
        let word = self.0.get((rank / 64) as usize);
        word.is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    fn set(&self) -> IndexSet {
        let words = (0_u32..).zip(&self.0);
        let ranks = words.flat_map(|(at, word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| at * 64 + bit)
        });
        ranks.collect()
    }
}
