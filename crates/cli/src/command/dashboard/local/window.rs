//! Lines of a log around a place, without the rest being read.
//!
//! Invariant: memory does not grow with the log or with its longest line, and time does not grow beyond [`SEARCH_TIME`], also where a line has no end.

use std::{
    collections::VecDeque,
    io,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use memchr::{memchr, memchr_iter, memmem::Finder, memrchr_iter};
use trainyard_host::store::LogView;

#[cfg(test)]
mod tests;

/// How long a log may be looked through. What tests count does not depend on the load of their machine.
const SEARCH_TIME: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 2 });
/// Bytes of a line that are shown.
pub(super) const LINE_BYTES: usize = 8 << 10;
/// Bytes of a line that are searched.
const SEARCHED_BYTES: usize = 1 << 20;
/// Bytes of an answer.
const ANSWER_BYTES: usize = 4 << 20;
/// How far back the begin of lines is looked for.
const BACK_BYTES: u64 = 64 << 20;
const BLOCK: usize = 256 << 10;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawLine {
    /// Where it begins in the whole output.
    pub(super) offset: u64,
    /// Where the next one begins.
    pub(super) end: u64,
    /// Its first bytes, without its end.
    pub(super) text: Vec<u8>,
    /// Whether bytes of it are missing: it is long, or lies at what was left out.
    pub(super) cut: bool,
}

/// How many lines were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    Exactly(u64),
    AtLeast(u64),
}

/// Which lines are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// From this byte on.
    From(u64),
    /// Those that end before this byte.
    Before(u64),
}

/// A log to be read at places.
pub(super) struct Window<'a> {
    view: &'a LogView,
    kept: Vec<(u64, u64)>,
    limit: Duration,
}

impl<'a> Window<'a> {
    pub(super) fn new(view: &'a LogView) -> Self {
        Self {
            view,
            kept: view.kept(),
            limit: SEARCH_TIME,
        }
    }

    /// At most `most` lines at `place`. Where time runs out, those behind it so far, the last one cut; lines before it are whole or an error.
    pub(super) fn lines(&self, place: Place, most: usize) -> io::Result<Vec<RawLine>> {
        let (from, until) = match place {
            Place::From(at) => (self.line_at(at)?, u64::MAX),
            Place::Before(at) => (self.back(at, most)?, at),
        };
        let (mut lines, mut bytes) = (VecDeque::new(), 0);
        let is_done = self.scan(from, until, LINE_BYTES, &mut |line| {
            bytes += line.text.len();
            lines.push_back(line);
            let is_full = lines.len() == most || bytes > ANSWER_BYTES;
            match place {
                Place::From(_) if is_full => ControlFlow::Break(()),
                Place::From(_) => ControlFlow::Continue(()),
                Place::Before(_) => {
                    while lines.len() > most || (bytes > ANSWER_BYTES && lines.len() > 1) {
                        let dropped: Option<RawLine> = lines.pop_front();
                        bytes -= dropped.map_or(0, |line| line.text.len());
                    }
                    ControlFlow::Continue(())
                }
            }
        })?;
        if !is_done && matches!(place, Place::Before(_)) {
            let reason = format!(
                "the lines before byte {until} were not read within {:?}",
                self.limit
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        Ok(lines.into())
    }

    /// At most `most` lines at `place` that contain `text`, and how many of the whole log do.
    pub(super) fn search(
        &self,
        place: Place,
        most: usize,
        text: &str,
    ) -> io::Result<(Vec<RawLine>, Hits)> {
        let finder = Finder::new(text.as_bytes());
        let (mut found, mut hits, mut bytes, mut is_exact) = (VecDeque::new(), 0, 0, true);
        let is_done = self.scan(0, u64::MAX, SEARCHED_BYTES, &mut |mut line| {
            if finder.find(&line.text).is_none() {
                // The text may be behind what was searched of the line.
                is_exact &= !(line.cut && line.text.len() == SEARCHED_BYTES);
                return ControlFlow::Continue(());
            }
            hits += 1;
            line.cut |= line.text.len() > LINE_BYTES;
            line.text.truncate(LINE_BYTES);
            // The memory of what was searched is not kept with what is shown.
            line.text.shrink_to_fit();
            let has_room = found.len() < most && bytes < ANSWER_BYTES;
            match place {
                Place::From(at) if line.offset >= at && has_room => {
                    bytes += line.text.len();
                    found.push_back(line);
                }
                Place::Before(at) if line.end <= at => {
                    bytes += line.text.len();
                    found.push_back(line);
                    while found.len() > most || (bytes > ANSWER_BYTES && found.len() > 1) {
                        let dropped: Option<RawLine> = found.pop_front();
                        bytes -= dropped.map_or(0, |line| line.text.len());
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        let hits = if is_done && is_exact {
            Hits::Exactly(hits)
        } else {
            Hits::AtLeast(hits)
        };
        Ok((found.into(), hits))
    }

    /// Where line `number` begins, from 1; the end where there are fewer. What was left out counts as two lines: as many as `trainyard logs` and the
    /// doctor have in its place. Nothing where that takes too long.
    pub(super) fn offset_of_line(&self, number: u64) -> io::Result<Option<u64>> {
        let began = Instant::now();
        let mut left = number.saturating_sub(1);
        let mut buffer = vec![0; BLOCK];
        for (at, (begin, end)) in self.kept.iter().enumerate() {
            if at > 0 || *begin > 0 {
                left = left.saturating_sub(2);
            }
            if left == 0 {
                return Ok(Some(*begin));
            }
            let mut place = *begin;
            while place < *end {
                let count = self.view.read_at(place, &mut buffer)?;
                if count == 0 {
                    break;
                }
                let block = buffer.get(..count).unwrap_or_default();
                for newline in memchr_iter(b'\n', block) {
                    left -= 1;
                    if left == 0 {
                        return Ok(Some(place + newline as u64 + 1));
                    }
                }
                place += count as u64;
                if began.elapsed() > self.limit {
                    return Ok(None);
                }
            }
        }
        Ok(Some(self.view.size()))
    }

    /// Where the line begins that has the byte at `offset`.
    fn line_at(&self, offset: u64) -> io::Result<u64> {
        match self.byte_before(offset)? {
            // Nothing is kept before it: it is where what is kept begins, or lies in what was left out.
            Some(b'\n') | None => Ok(offset),
            Some(_) => self.back_from(offset, 0),
        }
    }

    fn byte_before(&self, offset: u64) -> io::Result<Option<u8>> {
        let Some(before) = offset.checked_sub(1) else {
            return Ok(Some(b'\n'));
        };
        let mut byte = [0];
        let count = self.view.read_at(before, &mut byte)?;
        Ok((count == 1).then_some(byte[0]))
    }

    /// Where the last `lines` lines before `offset` begin.
    fn back(&self, offset: u64, lines: usize) -> io::Result<u64> {
        let offset = offset.min(self.view.size());
        // The end of the last of them is not the begin of another.
        let ends = self.byte_before(offset)? == Some(b'\n');
        let wanted = lines.saturating_sub(usize::from(!ends));
        self.back_from(offset, wanted)
    }

    /// Goes back over `newlines` line ends and to the begin of the line before them, or to the begin of what is kept.
    fn back_from(&self, offset: u64, newlines: usize) -> io::Result<u64> {
        let mut buffer = vec![0; BLOCK];
        let (mut end, mut left) = (offset, newlines);
        let least = offset.saturating_sub(BACK_BYTES);
        while end > least {
            let inside = |(begin, until): &&(u64, u64)| *begin < end && end <= *until;
            let Some((begin, _)) = self.kept.iter().find(inside) else {
                // In what was left out, or behind the end.
                let before = self.kept.iter().rev().find(|(_, until)| *until < end);
                let Some((_, until)) = before else {
                    return Ok(end);
                };
                end = *until;
                continue;
            };
            let from = end.saturating_sub(BLOCK as u64).max(*begin).max(least);
            let length = usize::try_from(end - from).unwrap_or(BLOCK);
            let block = buffer.get_mut(..length).unwrap_or_default();
            let mut filled = 0;
            while let Some(room) = block.get_mut(filled..).filter(|room| !room.is_empty()) {
                let count = self.view.read_at(from + filled as u64, room)?;
                if count == 0 {
                    // A ring has gone on meanwhile.
                    return Ok(end);
                }
                filled += count;
            }
            for newline in memrchr_iter(b'\n', block) {
                if left == 0 {
                    return Ok(from + newline as u64 + 1);
                }
                left -= 1;
            }
            end = from;
            if from == *begin {
                // The line before what was left out ends there.
                if left == 0 || *begin == 0 {
                    return Ok(from);
                }
                left -= 1;
            }
        }
        Ok(end)
    }

    /// Hands every line from `from` on that ends at `until` or before to `each`, with at most `most` of its bytes. Whether there was time for it: where
    /// there was not, the last one ends where reading did.
    fn scan(
        &self,
        from: u64,
        until: u64,
        most: usize,
        each: &mut dyn FnMut(RawLine) -> ControlFlow<()>,
    ) -> io::Result<bool> {
        let began = Instant::now();
        let mut is_late = false;
        let mut buffer = vec![0; BLOCK];
        for (begin, end) in &self.kept {
            let end = (*end).min(until);
            let mut place = from.max(*begin);
            if place >= end {
                continue;
            }
            // What follows something that was left out may begin within a line.
            let mut line = RawLine {
                offset: place,
                end: place,
                text: Vec::new(),
                cut: place == *begin && *begin > 0,
            };
            while place < end {
                let length = usize::try_from(end - place).unwrap_or(BLOCK).min(BLOCK);
                let room = buffer.get_mut(..length).unwrap_or_default();
                let count = self.view.read_at(place, room)?;
                if count == 0 {
                    break;
                }
                let mut block = buffer.get(..count).unwrap_or_default();
                while !block.is_empty() {
                    let newline = memchr(b'\n', block);
                    let (text, rest) = match newline {
                        Some(at) => (&block[..at], &block[at + 1..]),
                        None => (block, &block[block.len()..]),
                    };
                    let room = most.saturating_sub(line.text.len());
                    line.cut |= text.len() > room;
                    line.text.extend_from_slice(&text[..text.len().min(room)]);
                    place += (block.len() - rest.len()) as u64;
                    block = rest;
                    if newline.is_some() {
                        line.end = place;
                        let next = RawLine {
                            offset: place,
                            end: place,
                            text: Vec::new(),
                            cut: false,
                        };
                        if each(std::mem::replace(&mut line, next)).is_break() {
                            return Ok(true);
                        }
                    }
                }
                is_late = place < end && began.elapsed() > self.limit;
                if is_late {
                    break;
                }
            }
            // The last line has no end yet, or lost it with what was left out.
            if place > line.offset {
                line.end = place;
                line.cut |= place < self.view.size();
                if each(line).is_break() {
                    return Ok(!is_late);
                }
            }
            if is_late {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
