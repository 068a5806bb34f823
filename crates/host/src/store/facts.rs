//! `facts.jsonl`: what happened to a run, one fact a line, appended by its engine.
//!
//! Invariants: a fact is at most [`LINE_MAX`] bytes; once the file has [`FULL_BYTES`], only ends, failures and verdicts are added, and nothing beyond
//! [`FACTS_BYTES`]. A writer that was killed leaves a last line without its end: it is not a fact until its end is there, and no reader waits for it.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

use trainyard_core::chronicle::{Fact, LINE_MAX, What};

use super::{FACTS, RunFolder, StoreError, files};

/// From this size on only ends, failures and verdicts are written.
pub(crate) const FULL_BYTES: u64 = 64 << 20;
/// The most that is written and read.
pub(crate) const FACTS_BYTES: u64 = 72 << 20;

/// Appends the facts of a run.
#[derive(Debug)]
pub(crate) struct FactsWriter {
    file: File,
    bytes: u64,
    /// Lines that are not in the file yet.
    pending: Vec<u8>,
    /// The last write failed and may have left half a line.
    is_broken: bool,
}

impl FactsWriter {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: files::create(path)?,
            bytes: 0,
            pending: Vec::new(),
            is_broken: false,
        })
    }

    /// Adds a fact to what is written next, where there is room for it.
    pub(crate) fn add(&mut self, fact: &Fact) {
        let line = fact.line();
        let length = line.len() as u64 + 1;
        let is_full = self.bytes + length > FULL_BYTES && !is_needed(&fact.what);
        if line.is_empty() || line.len() > LINE_MAX || is_full || self.bytes + length > FACTS_BYTES
        {
            return;
        }
        self.bytes += length;
        self.pending.extend_from_slice(line.as_bytes());
        self.pending.push(b'\n');
    }

    /// Whether facts wait to be written.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes what was added. What a full disk did not take is dropped, and half a line is ended before the next one.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let end = if self.is_broken { &b"\n"[..] } else { b"" };
        let written = self.file.write_all(end);
        let written = written.and_then(|()| self.file.write_all(&self.pending));
        self.pending.clear();
        self.is_broken = written.is_err();
        // What was dropped takes no room.
        if let Ok(bytes) = self.file.stream_position() {
            self.bytes = bytes;
        }
        written
    }
}

/// Whether a fact is written although the file is full.
fn is_needed(what: &What) -> bool {
    matches!(
        what,
        What::Ended { .. }
            | What::Failed(_)
            | What::Failures { .. }
            | What::Verdict(_)
            | What::Attempt { .. }
    )
}

/// What was read of the facts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsRead {
    /// Where to continue: behind the last whole line.
    pub next: u64,
    /// Lines that are not facts, or too long.
    pub unread: u64,
    /// Bytes behind the most that is read.
    pub left_out: u64,
}

impl RunFolder {
    /// All facts of the run, and what was not read. Nothing where an older version wrote the run.
    pub fn facts(&self) -> Result<Option<(Vec<Fact>, FactsRead)>, StoreError> {
        let mut facts = Vec::new();
        let read = self.read_facts(0, |fact| facts.push(fact))?;
        Ok(read.map(|read| (facts, read)))
    }

    /// Hands the facts behind `offset`, which is 0 or what an earlier reading ended with, to `each`. Where the file has become shorter than that, it is
    /// another file and `next` is less than `offset`: nothing is read, and the caller begins again. Nothing where an older version wrote the run.
    pub fn read_facts(
        &self,
        offset: u64,
        each: impl FnMut(Fact),
    ) -> Result<Option<FactsRead>, StoreError> {
        let path = self.path.join(FACTS);
        match read(&path, offset, each) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::corrupt(&path, &error)),
        }
    }
}

fn read(path: &Path, offset: u64, mut each: impl FnMut(Fact)) -> io::Result<FactsRead> {
    let mut file = files::open(path)?;
    let length = file.metadata()?.len();
    let until = length.min(FACTS_BYTES);
    let mut read = FactsRead {
        next: offset.min(until),
        unread: 0,
        left_out: length - until,
    };
    if offset >= until {
        return Ok(read);
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = BufReader::with_capacity(256 << 10, file.take(until - offset));
    let mut line = Vec::new();
    loop {
        line.clear();
        let most = LINE_MAX as u64 + 2;
        let count = (&mut lines).take(most).read_until(b'\n', &mut line)? as u64;
        let is_whole = line.last() == Some(&b'\n');
        if !is_whole && count == most {
            let Some(rest) = skip_line(&mut lines)? else {
                return Ok(read);
            };
            read.next += count + rest;
            read.unread += 1;
            continue;
        }
        if !is_whole {
            return Ok(read);
        }
        read.next += count;
        line.pop();
        match Fact::read(&line) {
            Ok(fact) => each(fact),
            Err(_) => read.unread += 1,
        }
    }
}

/// Passes over the rest of a line; how long it was, and nothing where it has no end.
fn skip_line(lines: &mut impl io::BufRead) -> io::Result<Option<u64>> {
    let mut passed = 0;
    loop {
        let block = lines.fill_buf()?;
        if block.is_empty() {
            return Ok(None);
        }
        let end = block.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(block.len(), |end| end + 1);
        lines.consume(count);
        passed += count as u64;
        if end.is_some() {
            return Ok(Some(passed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use trainyard_core::{
        chronicle::{Outcome, VERSION},
        progress::Figure,
    };

    use super::*;

    fn fact(seq: u64, what: What) -> Fact {
        Fact {
            version: VERSION,
            seq,
            at: 1_000,
            what,
        }
    }

    fn folder(path: &Path) -> RunFolder {
        RunFolder {
            path: path.to_owned(),
            job: "j".to_owned(),
            id: "1".to_owned(),
        }
    }

    #[test]
    fn facts_are_read_again_from_where_one_was() {
        let temp = tempfile::tempdir().unwrap();
        let run = folder(temp.path());
        assert_eq!(run.facts().unwrap(), None, "a run of an older version");
        let path = temp.path().join(FACTS);
        let mut writer = FactsWriter::create(&path).unwrap();
        assert!(!writer.has_pending());
        writer.add(&fact(0, What::Began));
        assert!(writer.has_pending());
        assert_eq!(run.facts().unwrap().unwrap().0, [], "not flushed");
        writer.flush().unwrap();
        let (facts, first) = run.facts().unwrap().unwrap();
        assert_eq!(facts, [fact(0, What::Began)]);
        // What follows a killed writer: a line without its end.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"{\"v\":1,\"se"].concat()).unwrap();
        let read = |offset: u64| {
            let mut facts = Vec::new();
            let read = run.read_facts(offset, |fact| facts.push(fact));
            (facts, read.unwrap().unwrap())
        };
        assert_eq!(read(first.next), (Vec::new(), first));
        let long = format!("{{\"v\":\"{}\"}}\n", "x".repeat(3 * LINE_MAX));
        let next = fact(1, What::Attempt { attempt: 1 });
        let line = next.line() + "\n";
        let text = [&whole[..], b"\xff\xfe\n", long.as_bytes(), line.as_bytes()];
        fs::write(&path, text.concat()).unwrap();
        let (facts, again) = read(first.next);
        assert_eq!(facts, [next]);
        assert_eq!(again.unread, 2);
        assert_eq!(again.next, fs::metadata(&path).unwrap().len());
        fs::write(&path, &whole[..4]).unwrap();
        assert_eq!(read(again.next).1.next, 4, "another file");
    }

    #[test]
    fn facts_file_is_bounded_and_keeps_the_end() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(FACTS);
        let mut writer = FactsWriter::create(&path).unwrap();
        writer.bytes = FULL_BYTES - 40;
        let point = What::Point {
            name: "loss".to_owned(),
            value: Figure(1.0),
        };
        let outcome = Outcome::Failed;
        for (seq, what) in (0..).zip([point, What::Ended { outcome }]) {
            writer.add(&fact(seq, what));
        }
        writer.flush().unwrap();
        let (facts, read) = folder(temp.path()).facts().unwrap().unwrap();
        assert_eq!(facts, [fact(1, What::Ended { outcome })]);
        assert_eq!(read.left_out, 0);
        writer.bytes = FACTS_BYTES;
        writer.add(&fact(2, What::Ended { outcome }));
        assert!(!writer.has_pending());
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn facts_that_a_full_disk_refused_are_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(FACTS);
        let mut writer = FactsWriter::create(&path).unwrap();
        let writable = std::mem::replace(&mut writer.file, File::open(&path).unwrap());
        for seq in 0..3 {
            writer.add(&fact(seq, What::Began));
            writer.flush().unwrap_err();
            assert!(!writer.has_pending(), "{seq}");
            assert_eq!(writer.bytes, 0, "what is not there takes no room");
        }
        writer.file = writable;
        writer.add(&fact(3, What::Began));
        writer.flush().unwrap();
        let (facts, read) = folder(temp.path()).facts().unwrap().unwrap();
        assert_eq!(
            (facts, read.next),
            (vec![fact(3, What::Began)], writer.bytes)
        );
    }

    #[test]
    fn facts_are_not_read_through_a_link() {
        let temp = tempfile::tempdir().unwrap();
        let run = folder(temp.path());
        let path = temp.path().join(FACTS);
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        let error = run.facts().unwrap_err().to_string();
        assert!(error.contains("it is a symbolic link"), "{error}");
        assert!(FactsWriter::create(&path).is_err());
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(run.facts().is_err());
    }
}
