//! When which part of a log was written: `<container>.log.times`, one line for at most every second.
//!
//! Invariant: the file grows with the logarithm of the time that a log is written for; a month takes less than
//! a megabyte.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::files;

/// Between two entries of a young log.
const EVERY: Duration = Duration::from_secs(1);
/// Entries until the time between two begins to grow.
const DENSE: u32 = 4096;
/// More than any log has.
const MAX_BYTES: u64 = 16 << 20;

/// Notes when a log was written.
#[derive(Debug)]
pub(super) struct TimesWriter {
    file: File,
    began: Instant,
    due: Instant,
}

impl TimesWriter {
    pub(super) fn create(path: &Path, now: Instant) -> io::Result<Self> {
        Ok(Self {
            file: files::create(path)?,
            began: now,
            due: now,
        })
    }

    /// What follows `offset` of the output is written now.
    pub(super) fn note(&mut self, offset: u64, now: Instant) -> io::Result<()> {
        if now < self.due {
            return Ok(());
        }
        self.due = now + EVERY.max(now.saturating_duration_since(self.began) / DENSE);
        let millis = Timestamp::now().as_millisecond();
        self.file
            .write_all(format!("{offset} {millis}\n").as_bytes())
    }
}

/// Where in the output the part begins that was written at `at` or later, to a second; `None` where nothing
/// was, and an error where that is not known.
pub(super) fn offset_since(path: &Path, at: Timestamp) -> io::Result<Option<u64>> {
    let text = files::read(path, MAX_BYTES)?;
    Ok(find(&String::from_utf8_lossy(&text), at.as_millisecond()))
}

/// All entries, in order of their offsets.
pub(super) fn entries(path: &Path) -> io::Result<Vec<(u64, i64)>> {
    let text = files::read(path, MAX_BYTES)?;
    let mut entries: Vec<(u64, i64)> = String::from_utf8_lossy(&text)
        .lines()
        .filter_map(entry)
        .collect();
    entries.sort_unstable();
    Ok(entries)
}

fn entry(line: &str) -> Option<(u64, i64)> {
    let (offset, millis) = line.split_once(' ')?;
    Some((offset.parse().ok()?, millis.parse().ok()?))
}

fn find(text: &str, at: i64) -> Option<u64> {
    let entries = || text.lines().filter_map(entry);
    let (_, first) = entries().next()?;
    let every = i64::try_from(EVERY.as_millis()).unwrap_or(i64::MAX);
    // What belongs to an entry was written until the next one was due.
    let until = |millis: i64| {
        millis.saturating_add(every.max(millis.saturating_sub(first) / i64::from(DENSE)))
    };
    let mut found = entries().filter(|(_, millis)| until(*millis) > at);
    found.next().map(|(offset, _)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_since_a_time_is_found() {
        let text = "0 10000\n500 11000\n900 60000\nhalf a li";
        let cases = [
            ("before all", 5_000, Some(0)),
            ("within the first second", 10_500, Some(0)),
            ("in the second", 11_200, Some(500)),
            ("in the pause", 30_000, Some(900)),
            ("at the last", 60_000, Some(900)),
            ("after all", 70_000, None),
        ];
        for (name, at, want) in cases {
            assert_eq!(find(text, at), want, "{name}");
        }
        assert_eq!(find("", 0), None);
    }

    #[test]
    fn entries_are_at_least_a_second_apart_and_grow_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log.times");
        let now = Instant::now();
        let mut times = TimesWriter::create(&path, now).unwrap();
        let entries = || std::fs::read_to_string(&path).unwrap().lines().count();
        for tenth in 0..100 {
            times
                .note(0, now + Duration::from_millis(tenth * 100))
                .unwrap();
        }
        assert_eq!(entries(), 10);
        for minute in 0..30 * 24 * 60 {
            times.note(0, now + Duration::from_mins(minute)).unwrap();
        }
        assert!(entries() < 40_000, "{}", entries());
    }
}
