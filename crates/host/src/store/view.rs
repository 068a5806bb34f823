//! A log read at any place, without its beginning or its middle being read.
//!
//! Invariant: a read returns bytes of the output as it was written, or nothing; what a live ring overwrites meanwhile is not returned.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use super::{
    StoreError, files,
    log::{self, LogFile, Source},
    ring, times,
};

/// A log as it is now.
#[derive(Debug)]
pub struct LogView {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    begin: u64,
    end: u64,
    file: File,
    is_ring: bool,
}

impl LogFile {
    /// Opens it for reading at any place.
    pub fn view(&self) -> Result<LogView, StoreError> {
        LogView::open(self).map_err(|error| StoreError::corrupt(&self.path, &error))
    }

    /// When which part was written: offsets with Unix milliseconds, in order. Empty where that is not known.
    pub fn times(&self) -> Vec<(u64, i64)> {
        // A log without its times is still a log.
        times::entries(&log::part_path(&self.path, log::TIMES)).unwrap_or_default()
    }
}

impl LogView {
    fn open(log: &LogFile) -> io::Result<Self> {
        let mut parts = Vec::new();
        for source in log::sources(&log.path)? {
            let (begin, path, is_ring) = match source {
                Source::Plain { offset, path } => (offset, path, false),
                Source::Ring { path } => (0, path, true),
            };
            let file = match files::open(&path) {
                Ok(file) => file,
                // It was laid out as a plain file meanwhile, or dropped.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let (begin, end) = if is_ring {
                match ring::kept_range(&file)? {
                    Some(range) => range,
                    None => continue,
                }
            } else {
                (begin, begin.saturating_add(file.metadata()?.len()))
            };
            parts.push(Part {
                begin,
                end,
                file,
                is_ring,
            });
        }
        parts.sort_by_key(|part| part.begin);
        Ok(Self { parts })
    }

    /// How long the whole output is, with what is left out.
    pub fn size(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.end)
    }

    /// The parts that are kept, as offsets of the whole output.
    pub fn kept(&self) -> Vec<(u64, u64)> {
        let mut kept: Vec<(u64, u64)> = Vec::new();
        for part in self.parts.iter().filter(|part| part.begin < part.end) {
            match kept.last_mut().filter(|last| last.1 >= part.begin) {
                Some(last) => last.1 = last.1.max(part.end),
                None => kept.push((part.begin, part.end)),
            }
        }
        kept
    }

    /// Reads what lies at `offset`; 0 where nothing does, at the end and in what is left out.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let inside = |part: &&Part| part.begin <= offset && offset < part.end;
        let Some(part) = self.parts.iter().rev().find(inside) else {
            return Ok(0);
        };
        let room = usize::try_from(part.end - offset).unwrap_or(usize::MAX);
        let most = buffer.len().min(room);
        let Some(buffer) = buffer.get_mut(..most) else {
            return Ok(0);
        };
        if part.is_ring {
            ring::read_at(&part.file, offset, buffer)
        } else {
            part.file.read_at(buffer, offset - part.begin)
        }
    }
}
