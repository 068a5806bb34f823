//! The log of a container: bounded, the beginning and the end are kept.
//!
//! The first [`HEAD_BYTES`] go to `<container>.log`. What follows goes to the ring
//! `<container>.log.tail`, which becomes `<container>.log.<offset>` when the container has ended; the
//! offset is where in the whole output that part begins, so that a reader can say how much is left
//! out.
//!
//! Invariant: what is on disk is bounded by `HEAD_BYTES` and two rings, and the last `KEPT_BYTES`
//! written are always among it.

use std::{
    fs::{self, File},
    io::{self, Read, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

use jiff::Timestamp;

use super::{
    StoreError,
    files::{self, Durably},
    ring::{self, RingWriter},
    times::{self, TimesWriter},
};

/// How much of the beginning is kept.
pub(crate) const HEAD_BYTES: u64 = 32 << 20;

/// No line that is worth showing is longer than a share of this.
const WINDOW: u64 = 64 << 10;
/// Room for the lines about what is left out.
const GAP_BYTES: u64 = 256;

const SUFFIX: &str = "log";
const TAIL: &str = "tail";
pub(super) const TIMES: &str = "times";

/// Writes the log of one container.
#[derive(Debug)]
pub(crate) struct LogWriter {
    base: PathBuf,
    file: File,
    /// Bytes that the beginning still takes.
    room: u64,
    /// Made when the beginning is full.
    tail: Option<RingWriter>,
    /// When which part was written; a log without it is still a log.
    times: Option<TimesWriter>,
    written: u64,
}

impl LogWriter {
    pub(crate) fn create(folder: &Path, container: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let base = folder.join(format!("{container}.{SUFFIX}"));
        let file = files::create(&base)?;
        let times = TimesWriter::create(&part_path(&base, TIMES), Instant::now()).ok();
        Ok(Self {
            base,
            file,
            room: HEAD_BYTES,
            tail: None,
            times,
            written: 0,
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(times) = &mut self.times
            && times.note(self.written, Instant::now()).is_err()
        {
            self.times = None;
        }
        self.written += bytes.len() as u64;
        let room = usize::try_from(self.room).unwrap_or(usize::MAX);
        let (head, tail) = bytes.split_at(bytes.len().min(room));
        self.file.write_all(head)?;
        self.room -= head.len() as u64;
        if tail.is_empty() {
            return Ok(());
        }
        match &mut self.tail {
            Some(ring) => ring.write(tail),
            none => none
                .insert(RingWriter::create(
                    &part_path(&self.base, TAIL),
                    HEAD_BYTES,
                )?)
                .write(tail),
        }
    }

    /// Lays the end out as a plain file. Where that fails, the ring is still there to be read.
    pub(crate) fn finish(self) -> io::Result<()> {
        let Some(ring) = self.tail else { return Ok(()) };
        let kept = ring.kept()?;
        let plain = part_path(&self.base, &kept.offset.to_string());
        files::write_atomically(&plain, &kept.bytes, Durably::No)?;
        fs::remove_file(part_path(&self.base, TAIL))
    }
}

pub(super) fn part_path(base: &Path, part: &str) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(".");
    path.push(part);
    path.into()
}

/// The log of one container in one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The attempt.
    pub attempt: u32,
    /// The pod's name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// The file with its beginning; later parts lie beside it.
    pub path: PathBuf,
}

impl LogFile {
    pub(super) fn list(folder: &Path, attempt: u32, pod: &str) -> Result<Vec<Self>, StoreError> {
        let entries = fs::read_dir(folder).map_err(|error| StoreError::corrupt(folder, &error))?;
        let mut logs: Vec<Self> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let path = entry.file_type().ok()?.is_file().then(|| entry.path())?;
                let name = path.file_name()?.to_str()?;
                let container = name.strip_suffix(&format!(".{SUFFIX}"))?.to_owned();
                Some(Self {
                    attempt,
                    pod: pod.to_owned(),
                    container,
                    path,
                })
            })
            .collect();
        logs.sort_by(|a, b| a.container.cmp(&b.container));
        Ok(logs)
    }

    /// Reads it from the beginning, or from `offset` of the whole output.
    pub fn open(&self, offset: u64) -> Result<LogReader, StoreError> {
        LogReader::open(&self.path, offset).map_err(|error| StoreError::corrupt(&self.path, &error))
    }

    /// Where the part begins that was written at `at` or later, to a second; the end where nothing was. `None`
    /// where that is not known.
    pub fn offset_since(&self, at: Timestamp) -> Result<Option<u64>, StoreError> {
        let corrupt = |error| StoreError::corrupt(&self.path, &error);
        match times::offset_since(&part_path(&self.path, TIMES), at) {
            Ok(Some(offset)) => Ok(Some(offset)),
            Ok(None) => {
                let parts = parts(&self.path).map_err(corrupt)?;
                Ok(Some(parts.last().map_or(0, Part::end)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(corrupt(error)),
        }
    }

    /// Where the last `count` lines begin, as far as they lie in the last 64 KiB.
    pub fn last_offset(&self, count: usize) -> Result<u64, StoreError> {
        let (end, bytes) = self.read_window()?;
        if count == 0 {
            return Ok(end);
        }
        let whole = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let newlines = whole.iter().enumerate().rev();
        let mut newlines = newlines.filter(|(_, byte)| **byte == b'\n');
        let start = newlines.nth(count - 1).map_or(0, |(at, _)| at + 1);
        Ok(end.saturating_sub((bytes.len() - start) as u64))
    }

    /// The last `count` lines.
    pub fn last_lines(&self, count: usize) -> Result<Vec<String>, StoreError> {
        let (_, bytes) = self.read_window()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<String> = text.lines().rev().take(count).map(str::to_owned).collect();
        lines.reverse();
        Ok(lines)
    }

    /// Where the log ends, and its last [`WINDOW`] bytes. Of files that do not fit each other no more is read.
    fn read_window(&self) -> Result<(u64, Vec<u8>), StoreError> {
        let corrupt = |error| StoreError::corrupt(&self.path, &error);
        let parts = parts(&self.path).map_err(corrupt)?;
        let end = parts.last().map_or(0, Part::end);
        let mut bytes = Vec::new();
        LogReader::open(&self.path, end.saturating_sub(WINDOW))
            .and_then(|reader| reader.take(WINDOW + GAP_BYTES).read_to_end(&mut bytes))
            .map_err(corrupt)?;
        Ok((end, bytes))
    }
}

#[derive(Debug)]
struct Part {
    offset: u64,
    length: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl Part {
    /// Offsets are in the names of files, which may be anything.
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// A file with a part of a log.
#[derive(Debug)]
pub(super) enum Source {
    /// The part that begins at `offset`.
    Plain { offset: u64, path: PathBuf },
    /// The end, as long as it is written.
    Ring { path: PathBuf },
}

/// The files of a log that are there, the beginning first. A ring is met beside a plain end only where its writer was killed between the two.
pub(super) fn sources(base: &Path) -> io::Result<Vec<Source>> {
    let mut sources = vec![Source::Plain {
        offset: 0,
        path: base.to_owned(),
    }];
    let name = base.file_name().and_then(|name| name.to_str());
    let prefix = format!("{}.", name.unwrap_or_default());
    for entry in fs::read_dir(base.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name();
        let offset = name
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
        if let Some(offset) = offset
            && entry.file_type()?.is_file()
        {
            let path = entry.path();
            sources.push(Source::Plain { offset, path });
        }
    }
    if sources.len() == 1 {
        let path = part_path(base, TAIL);
        sources.push(Source::Ring { path });
    }
    Ok(sources)
}

/// The parts on disk, in order.
fn parts(base: &Path) -> io::Result<Vec<Part>> {
    let mut parts = vec![Part {
        offset: 0,
        length: files::open(base)?.metadata()?.len(),
        content: Content::File(base.to_owned()),
    }];
    let prefix = format!(
        "{}.",
        base.file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    );
    // Read before the folder is: a ring that becomes a plain file meanwhile is met as either.
    let tail = match ring::read(&part_path(base, TAIL)) {
        Ok(kept) => Some(kept),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    for entry in fs::read_dir(base.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name();
        let offset = name
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
        if let Some(offset) = offset
            && entry.file_type()?.is_file()
        {
            parts.push(Part {
                offset,
                length: entry.metadata()?.len(),
                content: Content::File(entry.path()),
            });
        }
    }
    if let Some(kept) = tail
        && parts.len() == 1
        && !kept.bytes.is_empty()
    {
        parts.push(Part {
            offset: kept.offset,
            length: kept.bytes.len() as u64,
            content: Content::Bytes(kept.bytes),
        });
    }
    parts.sort_by_key(|part| part.offset);
    Ok(parts)
}

/// The whole of a log as it is now, with one line in place of what is left out.
#[derive(Debug)]
pub struct LogReader {
    parts: std::vec::IntoIter<Part>,
    current: Box<dyn ReadDebug>,
    /// Where in the whole output the reader is.
    offset: u64,
}

trait ReadSeek: Read + io::Seek + std::fmt::Debug + Send {}
impl<T: Read + io::Seek + std::fmt::Debug + Send> ReadSeek for T {}

trait ReadDebug: Read + std::fmt::Debug + Send {}
impl<T: Read + std::fmt::Debug + Send> ReadDebug for T {}

impl LogReader {
    fn open(base: &Path, offset: u64) -> io::Result<Self> {
        let parts = parts(base)?;
        let parts: Vec<Part> = parts
            .into_iter()
            .filter(|part| part.end() > offset)
            .collect();
        Ok(Self {
            parts: parts.into_iter(),
            current: Box::new(io::empty()),
            offset,
        })
    }

    /// Where in the whole output the reader is: what to pass to [`LogFile::open`] to continue later.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Read for LogReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let count = self.current.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            let Some(part) = self.parts.next() else {
                return Ok(0);
            };
            let mut content: Box<dyn ReadSeek> = match part.content {
                Content::Bytes(bytes) => Box::new(io::Cursor::new(bytes)),
                Content::File(path) => match files::open(&path) {
                    Ok(file) => Box::new(file),
                    // What was dropped since the parts were listed is left out, too.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
            };
            let skipped = part.offset.saturating_sub(self.offset);
            content.seek(io::SeekFrom::Start(self.offset.saturating_sub(part.offset)))?;
            self.offset = part.offset.saturating_add(part.length);
            let marker = if skipped > 0 {
                format!("\n[{skipped} bytes left out]\n").into_bytes()
            } else {
                Vec::new()
            };
            let rest = content.take(part.length);
            self.current = Box::new(io::Cursor::new(marker).chain(rest));
        }
    }
}
