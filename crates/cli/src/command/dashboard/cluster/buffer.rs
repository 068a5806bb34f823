//! The ends of logs, kept in memory while pages look at them, so that a place in a log stays the same place.
//!
//! The API server serves no part of a log by its place: what is new is asked for by time, to a second, and lines that are known are left out by their times.
//! Places are bytes behind the first line that was read.
//!
//! Invariant: at most [`BUFFERS`] logs of at most [`BYTES`] bytes are kept.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use jiff::{SignedDuration, Timestamp};
use trainyard_kube::look::{Tail, TailAsk, TailLine};

use super::lock;

/// Logs that are kept.
const BUFFERS: usize = 8;
/// Bytes of one that are kept, at its end.
pub(super) const BYTES: usize = 8 << 20;
/// Lines that are asked for at first.
pub(super) const LINES: u64 = 10_000;
/// A log is not asked for again within this time.
const FRESH: SignedDuration = SignedDuration::from_secs(2);

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) offset: u64,
    pub(super) at: Option<i64>,
    pub(super) text: Vec<u8>,
}

impl Line {
    /// Where the next one begins.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(length(&self.text))
    }
}

fn length(text: &[u8]) -> u64 {
    u64::try_from(text.len())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// The end of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) lines: VecDeque<Line>,
    /// Where the next line begins.
    pub(super) end: u64,
    /// Whether lines before these, or between them, were left out.
    pub(super) is_cut: bool,
    /// The newest time, and how many lines have it.
    last: Option<(Timestamp, usize)>,
    bytes: usize,
    /// When it was read last.
    read_at: Option<Timestamp>,
    /// Whether nothing more is written to it.
    has_ended: bool,
}

impl Buffer {
    /// One that is complete.
    pub(super) fn of_text(text: &str) -> Self {
        let lines = text.lines().map(|text| TailLine {
            at: None,
            text: text.as_bytes().to_vec(),
        });
        let tail = Tail {
            lines: lines.collect(),
            is_cut: true,
        };
        let mut buffer = Self::default();
        buffer.add(tail, Timestamp::UNIX_EPOCH, true);
        buffer
    }

    /// What to ask for next; nothing where what is kept is new enough.
    pub(super) fn ask(&self, now: Timestamp) -> Option<TailAsk> {
        let is_fresh = |at: Timestamp| now.duration_since(at) < FRESH;
        if self.has_ended || self.read_at.is_some_and(is_fresh) {
            return None;
        }
        Some(TailAsk {
            lines: LINES,
            bytes: BYTES,
            since: self.last.map(|(at, _)| at),
        })
    }

    /// Adds what is new in `tail`, which was asked for as [`Buffer::ask`] says. `has_ended` says that nothing more will be written.
    pub(super) fn add(&mut self, tail: Tail, now: Timestamp, has_ended: bool) {
        let mut known = self.last.map_or(0, |(_, count)| count);
        let is_first = self.read_at.is_none();
        for line in tail.lines {
            if let (Some((last, _)), Some(at)) = (self.last, line.at) {
                if at < last {
                    continue;
                }
                if at == last && known > 0 {
                    known -= 1;
                    continue;
                }
            }
            // Without a time nobody knows whether it is new.
            if line.at.is_some() || is_first {
                self.push(line);
            }
        }
        // Of what came since the last read only the end was asked for.
        self.is_cut |= tail.is_cut;
        self.read_at = Some(now);
        self.has_ended = has_ended;
    }

    fn push(&mut self, line: TailLine) {
        if let Some(at) = line.at {
            self.last = match self.last {
                Some((last, count)) if last == at => Some((last, count + 1)),
                Some((last, count)) if last > at => Some((last, count)),
                _ => Some((at, 1)),
            };
        }
        let text = line.text;
        let offset = self.end;
        self.end = offset.saturating_add(length(&text));
        self.bytes += text.len();
        self.lines.push_back(Line {
            offset,
            at: line.at.map(Timestamp::as_millisecond),
            text,
        });
        while self.bytes > BYTES
            && let Some(first) = self.lines.pop_front()
        {
            self.bytes -= first.text.len();
            self.is_cut = true;
        }
    }

    /// At most `most` lines from the place on, or before it.
    pub(super) fn window(
        &self,
        place: Place,
        most: usize,
        text: Option<&str>,
    ) -> (Vec<&Line>, usize) {
        let has = |line: &&Line| text.is_none_or(|text| contains(&line.text, text));
        let begin = |at: u64| self.lines.partition_point(|line| line.offset < at);
        let hits = match text {
            Some(_) => self.lines.iter().filter(has).count(),
            None => 0,
        };
        let shown = match place {
            Place::From(at) => {
                let lines = self.lines.iter().skip(begin(at));
                lines.filter(has).take(most).collect()
            }
            Place::Before(at) => {
                let lines = self.lines.iter().take(begin(at)).rev();
                let mut lines: Vec<&Line> = lines.filter(has).take(most).collect();
                lines.reverse();
                lines
            }
        };
        (shown, hits)
    }

    /// The place of a line, counted from 1.
    pub(super) fn place_of(&self, line: u64) -> u64 {
        let at = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        self.lines.get(at).map_or(self.end, |line| line.offset)
    }
}

/// Where lines are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    From(u64),
    Before(u64),
}

fn contains(line: &[u8], text: &str) -> bool {
    memchr::memmem::find(line, text.as_bytes()).is_some()
}

/// Which log: the identity of its pod and its container.
type Key = (String, String);

/// The logs that pages looked at last.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    kept: Mutex<VecDeque<(Key, Arc<Mutex<Buffer>>)>>,
}

impl Buffers {
    /// The log of a container, empty where it was not kept.
    pub(super) fn of(&self, uid: &str, container: &str) -> Arc<Mutex<Buffer>> {
        let key = (uid.to_owned(), container.to_owned());
        let mut kept = lock(&self.kept);
        let known = kept.iter().position(|(of, _)| *of == key);
        let buffer = known.and_then(|place| kept.remove(place));
        let buffer = buffer.map_or_else(Arc::default, |(_, buffer)| buffer);
        kept.push_front((key, Arc::clone(&buffer)));
        kept.truncate(BUFFERS);
        buffer
    }
}
