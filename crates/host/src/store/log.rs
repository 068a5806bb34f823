//! The log of a container: bounded, the beginning and the end are kept.
//!
//! The first [`HEAD_BYTES`] go to `<container>.log`. What follows goes to segments
//! `<container>.log.<offset>`, of which the last two are kept; the offset is where in the whole
//! output the segment begins, so that a reader can say how much is left out.
//!
//! Invariant: at most `HEAD_BYTES + 2 * SEGMENT_BYTES` are on disk, and the last `SEGMENT_BYTES`
//! written are always among them.

use std::{
    fs::{self, File},
    io::{self, Read, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use super::StoreError;

/// How much of the beginning is kept.
pub(crate) const HEAD_BYTES: u64 = 32 << 20;
/// How much of the end is always kept.
pub(crate) const SEGMENT_BYTES: u64 = 8 << 20;

const SUFFIX: &str = "log";

/// Writes the log of one container.
#[derive(Debug)]
pub(crate) struct LogWriter {
    base: PathBuf,
    file: File,
    /// Bytes of the whole output so far.
    offset: u64,
    /// Where the open file is full.
    full_at: u64,
    /// Segments on disk, oldest first.
    segments: Vec<PathBuf>,
}

impl LogWriter {
    pub(crate) fn create(folder: &Path, container: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let base = folder.join(format!("{container}.{SUFFIX}"));
        let file = File::create(&base)?;
        Ok(Self {
            base,
            file,
            offset: 0,
            full_at: HEAD_BYTES,
            segments: Vec::new(),
        })
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.offset >= self.full_at {
                self.next_segment()?;
            }
            let room = usize::try_from(self.full_at - self.offset).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.file.write_all(now)?;
            self.offset += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    fn next_segment(&mut self) -> io::Result<()> {
        let path = segment_path(&self.base, self.offset);
        // The oldest goes first, so that the bound holds at every moment.
        if self.segments.len() == 2 {
            fs::remove_file(self.segments.remove(0))?;
        }
        self.file = File::create(&path)?;
        self.full_at = self.offset + SEGMENT_BYTES;
        self.segments.push(path);
        Ok(())
    }
}

fn segment_path(base: &Path, offset: u64) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(format!(".{offset}"));
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
                let path = entry.ok()?.path();
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

    /// The last `count` lines.
    pub fn last_lines(&self, count: usize) -> Result<Vec<String>, StoreError> {
        /// No line that is worth showing is longer than a share of this.
        const WINDOW: u64 = 64 << 10;
        let corrupt = |error| StoreError::corrupt(&self.path, &error);
        let parts = parts(&self.path).map_err(corrupt)?;
        let end = parts.last().map_or(0, |part| part.offset + part.length);
        let mut bytes = Vec::new();
        LogReader::open(&self.path, end.saturating_sub(WINDOW))
            .and_then(|mut reader| reader.read_to_end(&mut bytes))
            .map_err(corrupt)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<String> = text.lines().rev().take(count).map(str::to_owned).collect();
        lines.reverse();
        Ok(lines)
    }
}

#[derive(Debug)]
struct Part {
    offset: u64,
    length: u64,
    path: PathBuf,
}

/// The parts on disk, in order.
fn parts(base: &Path) -> io::Result<Vec<Part>> {
    let mut parts = vec![Part {
        offset: 0,
        length: fs::metadata(base)?.len(),
        path: base.to_owned(),
    }];
    let prefix = format!(
        "{}.",
        base.file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    );
    for entry in fs::read_dir(base.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name();
        let offset = name
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
        if let Some(offset) = offset {
            parts.push(Part {
                offset,
                length: entry.metadata()?.len(),
                path: entry.path(),
            });
        }
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

trait ReadDebug: Read + std::fmt::Debug + Send {}
impl<T: Read + std::fmt::Debug + Send> ReadDebug for T {}

impl LogReader {
    fn open(base: &Path, offset: u64) -> io::Result<Self> {
        let parts = parts(base)?;
        let parts: Vec<Part> = parts
            .into_iter()
            .filter(|part| part.offset + part.length > offset)
            .collect();
        Ok(Self {
            parts: parts.into_iter(),
            current: Box::new(io::empty()),
            offset,
        })
    }

    /// Where in the whole output the reader is: what to give to [`LogFile::open`] to go on later.
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
            let mut file = match File::open(&part.path) {
                Ok(file) => file,
                // A segment that was dropped since the parts were listed is left out, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let skipped = part.offset.saturating_sub(self.offset);
            file.seek(io::SeekFrom::Start(self.offset.saturating_sub(part.offset)))?;
            self.offset = part.offset + part.length;
            let marker = if skipped > 0 {
                format!("\n[{skipped} bytes left out]\n").into_bytes()
            } else {
                Vec::new()
            };
            let rest = file.take(part.length);
            self.current = Box::new(io::Cursor::new(marker).chain(rest));
        }
    }
}
