//! The zip files that `torch.save` writes: entries that are stored as they are, found through the directory at the end.

use std::io;

use crate::{
    formats::{bytes_of, io_words},
    storage::Input,
};

/// The most bytes of a directory; torch writes about 100 for each storage of a tensor.
const MAX_DIRECTORY: u64 = 16 << 20;
/// The most entries.
const MAX_ENTRIES: u64 = 65_536;
const END: u64 = 22;

/// A part of a file: one item, or the whole.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The file.
    pub input: &'a dyn Input,
    /// Its first byte.
    pub start: u64,
    /// Its length.
    pub length: u64,
}

impl Window<'_> {
    /// Some of its bytes.
    pub fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, String> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.length) {
            return Err("the zip archive is truncated".into());
        }
        let mut bytes = vec![0; bytes_of(length)];
        self.input
            .read_at(self.start.saturating_add(offset), &mut bytes)
            .map_err(|error: io::Error| io_words(&error))?;
        Ok(bytes)
    }
}

/// An entry whose bytes are stored as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its first byte, counted from the beginning of the archive.
    pub start: u64,
    /// Its bytes.
    pub length: u64,
}

fn two(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..at + 2).and_then(|part| part.try_into().ok());
    part.map_or(0, u16::from_le_bytes).into()
}

fn four(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
    part.map_or(0, u32::from_le_bytes).into()
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..at + 8).and_then(|part| part.try_into().ok());
    part.map_or(0, u64::from_le_bytes)
}

/// The entries of an archive; what is wrong is a sentence.
pub fn entries(window: &Window<'_>) -> Result<Vec<Entry>, String> {
    let no_end = || "it is not a zip archive, or it is truncated".to_owned();
    let tail_length = window.length.min(END + 65_535 + 20);
    let tail_start = window.length - tail_length;
    // Torch writes no comment, so the end is the last 22 bytes; an archive with one is searched for it.
    let tail = window.bytes(tail_start, tail_length)?;
    let end = tail
        .windows(4)
        .rposition(|four| four == b"PK\x05\x06")
        .filter(|end| end + 22 <= tail.len())
        .ok_or_else(no_end)?;
    let (mut count, mut size, mut offset) = (
        two(&tail, end + 10),
        four(&tail, end + 12),
        four(&tail, end + 16),
    );
    if let Some(locator) = end
        .checked_sub(20)
        .filter(|at| tail[*at..].starts_with(b"PK\x06\x07"))
    {
        let record = window.bytes(eight(&tail, locator + 8), 56)?;
        if !record.starts_with(b"PK\x06\x06") {
            return Err(no_end());
        }
        (count, size, offset) = (eight(&record, 32), eight(&record, 40), eight(&record, 48));
    }
    if size > MAX_DIRECTORY || count > MAX_ENTRIES {
        return Err(format!(
            "the zip archive has a directory of {count} entries and {size} bytes; at most {MAX_ENTRIES} and {MAX_DIRECTORY} are read"
        ));
    }
    let directory = window.bytes(offset, size)?;
    let mut found = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let (entry, next) = entry(window, &directory, at)?;
        found.push(entry);
        at = next;
    }
    Ok(found)
}

/// The entry at a place of the directory, and the place of the next.
fn entry(window: &Window<'_>, directory: &[u8], at: usize) -> Result<(Entry, usize), String> {
    let bad = || "the directory of the zip archive is damaged".to_owned();
    let fixed = directory
        .get(at..at.saturating_add(46))
        .filter(|fixed| fixed.starts_with(b"PK\x01\x02"))
        .ok_or_else(bad)?;
    let [name_length, extra_length, comment_length] =
        [28, 30, 32].map(|place| bytes_of(two(fixed, place)));
    let name_end = at + 46 + name_length;
    let extra_end = name_end + extra_length;
    let name = directory.get(at + 46..name_end).ok_or_else(bad)?;
    let name = String::from_utf8(name.to_vec()).map_err(|_| bad())?;
    let extra = directory.get(name_end..extra_end).ok_or_else(bad)?;
    let shown: String = name.chars().take(80).collect();
    if two(fixed, 10) != 0 || two(fixed, 8) & 1 != 0 {
        return Err(format!(
            "`{shown}` in the zip archive is compressed or encrypted"
        ));
    }
    let (mut stored, mut length, mut header) = (four(fixed, 20), four(fixed, 24), four(fixed, 42));
    // What does not fit into 32 bits is in an extra field, in this order.
    let mut wide = zip64(extra).into_iter();
    for value in [&mut length, &mut stored, &mut header] {
        if *value == u64::from(u32::MAX) {
            *value = wide.next().ok_or_else(bad)?;
        }
    }
    if stored != length {
        return Err(format!("`{shown}` in the zip archive is compressed"));
    }
    let local = window.bytes(header, 30)?;
    if !local.starts_with(b"PK\x03\x04") {
        return Err(bad());
    }
    let start = header + 30 + two(&local, 26) + two(&local, 28);
    if start
        .checked_add(length)
        .is_none_or(|end| end > window.length)
    {
        return Err("the zip archive is truncated".into());
    }
    let entry = Entry {
        name,
        start,
        length,
    };
    Ok((entry, extra_end + comment_length))
}

fn zip64(mut extra: &[u8]) -> Vec<u64> {
    while extra.len() >= 4 {
        let length = bytes_of(two(extra, 2));
        let Some(body) = extra.get(4..4 + length) else {
            break;
        };
        if two(extra, 0) == 1 {
            return body.chunks_exact(8).map(|part| eight(part, 0)).collect();
        }
        extra = &extra[4 + length..];
    }
    Vec::new()
}

/// An archive that is being written: first the small entries, then at most one large one, whose bytes the caller writes.
#[derive(Debug, Default)]
pub struct Archive {
    directory: Vec<u8>,
    count: u16,
    /// Bytes written so far.
    at: u64,
}

/// Data of tensors begins at a multiple of this.
const ALIGNMENT: u64 = 64;

impl Archive {
    /// The bytes in front of an entry whose contents follow; `crc` is known for small ones only.
    fn local(&mut self, name: &str, length: u64, crc: Option<u32>) -> Vec<u8> {
        let header = 30 + name.len() as u64 + 4;
        let padding = (self.at + header).next_multiple_of(ALIGNMENT) - self.at - header;
        let flags: u16 = if crc.is_some() { 0x0800 } else { 0x0808 };
        let short = u32::try_from(length).unwrap_or(u32::MAX);
        let known = if crc.is_some() { short } else { 0 };
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.extend(0_u16.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(crc.unwrap_or(0).to_le_bytes());
        bytes.extend(known.to_le_bytes());
        bytes.extend(known.to_le_bytes());
        bytes.extend(u16::try_from(name.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(u16::try_from(padding + 4).unwrap_or(4).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(b"FB");
        bytes.extend(u16::try_from(padding).unwrap_or(0).to_le_bytes());
        bytes.resize(bytes.len() + bytes_of(padding), b'Z');
        bytes
    }

    fn list(&mut self, name: &str, start: u64, length: u64, crc: u32, flags: u16) {
        let is_wide = length >= u64::from(u32::MAX);
        let short = u32::try_from(length).unwrap_or(u32::MAX);
        let version: u16 = if is_wide { 45 } else { 0 };
        let out = &mut self.directory;
        out.extend(b"PK\x01\x02");
        out.extend(version.to_le_bytes());
        out.extend(version.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend([0; 6]);
        out.extend(crc.to_le_bytes());
        out.extend(short.to_le_bytes());
        out.extend(short.to_le_bytes());
        out.extend(u16::try_from(name.len()).unwrap_or(0).to_le_bytes());
        out.extend(if is_wide { 20_u16 } else { 0 }.to_le_bytes());
        out.extend([0; 10]);
        out.extend(u32::try_from(start).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(name.as_bytes());
        if is_wide {
            out.extend(1_u16.to_le_bytes());
            out.extend(16_u16.to_le_bytes());
            out.extend(length.to_le_bytes());
            out.extend(length.to_le_bytes());
        }
        self.count += 1;
    }

    /// A small entry, whole.
    pub fn small(&mut self, name: &str, contents: &[u8]) -> Vec<u8> {
        let crc = crc32fast::hash(contents);
        let start = self.at;
        let mut bytes = self.local(name, contents.len() as u64, Some(crc));
        bytes.extend(contents);
        self.list(name, start, contents.len() as u64, crc, 0x0800);
        self.at += bytes.len() as u64;
        bytes
    }

    /// What comes in front of the bytes of the large entry.
    pub fn before_large(&mut self, name: &str, length: u64) -> Vec<u8> {
        self.local(name, length, None)
    }

    /// What comes behind the bytes of the large entry, which began with `before` bytes.
    pub fn after_large(&mut self, name: &str, before: u64, length: u64, crc: u32) -> Vec<u8> {
        let start = self.at;
        self.list(name, start, length, crc, 0x0808);
        let mut bytes = b"PK\x07\x08".to_vec();
        bytes.extend(crc.to_le_bytes());
        if let Ok(short) = u32::try_from(length)
            && short < u32::MAX
        {
            bytes.extend(short.to_le_bytes());
            bytes.extend(short.to_le_bytes());
        } else {
            bytes.extend(length.to_le_bytes());
            bytes.extend(length.to_le_bytes());
        }
        self.at += before + length + bytes.len() as u64;
        bytes
    }

    /// The directory and the end.
    pub fn finish(self) -> Vec<u8> {
        let (offset, size) = (self.at, self.directory.len() as u64);
        let mut bytes = self.directory;
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        if short(offset) == u32::MAX {
            let record = offset + size;
            bytes.extend(b"PK\x06\x06");
            bytes.extend(44_u64.to_le_bytes());
            bytes.extend([45, 0, 45, 0]);
            bytes.extend([0; 8]);
            bytes.extend(u64::from(self.count).to_le_bytes());
            bytes.extend(u64::from(self.count).to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            bytes.extend(b"PK\x06\x07");
            bytes.extend([0; 4]);
            bytes.extend(record.to_le_bytes());
            bytes.extend(1_u32.to_le_bytes());
        }
        bytes.extend(b"PK\x05\x06");
        bytes.extend([0; 4]);
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(short(size).to_le_bytes());
        bytes.extend(short(offset).to_le_bytes());
        bytes.extend([0; 2]);
        bytes
    }
}
