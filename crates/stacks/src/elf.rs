//! The parts of an ELF file that say where a symbol is in memory: segments, sections, symbol tables.
//!
//! A reader of our own, because `object` is not in the lock file and 200 lines are enough: 64-bit little-endian files only,
//! which is every machine that trains. It reads the few tables it needs and never the whole file.
//!
//! Invariant: no table is larger than the bounds below; a file that claims more is refused, not cut.

use std::collections::BTreeMap;

use crate::memory::{Fault, Memory, Window};

/// Most program headers. An ordinary library has about a dozen.
const MOST_SEGMENTS: u16 = 128;
/// Most section headers. An ordinary library has about forty.
const MOST_SECTIONS: u16 = 1024;
/// Most symbols of one table; `libpython` has about 2,000 in the dynamic and 20,000 in the full table.
const MOST_SYMBOLS: u64 = 1 << 18;
/// The largest table of names.
const MOST_NAMES: u64 = 16 << 20;

const HEADER_SIZE: usize = 64;
const SEGMENT_SIZE: u16 = 56;
const SECTION_SIZE: u16 = 64;
const SYMBOL_SIZE: usize = 24;

const TYPE_LOAD: u32 = 1;
const TYPE_SYMBOLS: u32 = 2;
const TYPE_DYNAMIC_SYMBOLS: u32 = 11;

/// Why a file is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// It could not be read where its headers point.
    #[error("a table lies outside of the file")]
    Outside(#[source] Fault),
    /// It is something else.
    #[error("not a 64-bit little-endian ELF file")]
    Form,
    /// A table is larger than anything ordinary.
    #[error("a table is larger than the bound")]
    TooLarge,
}

/// The tables of one file.
#[derive(Debug, Clone)]
pub struct Elf {
    header: Vec<u8>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
}

#[derive(Debug, Clone)]
struct Section {
    name: String,
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
}

impl Elf {
    /// Reads the headers of `file`, whose addresses are its offsets.
    pub fn read(file: &(impl Memory + ?Sized)) -> Result<Self, ElfError> {
        let header = window(file, 0, HEADER_SIZE)?;
        // Magic, 64 bits, little endian.
        if !header.bytes().starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]) {
            return Err(ElfError::Form);
        }
        let segments = (header.u64(32), header.u16(54), header.u16(56));
        let sections = (header.u64(40), header.u16(58), header.u16(60));
        let section_names = usize::from(header.u16(62));
        if segments.2 > MOST_SEGMENTS || sections.2 > MOST_SECTIONS {
            return Err(ElfError::TooLarge);
        }
        if (segments.2 > 0 && segments.1 != SEGMENT_SIZE)
            || (sections.2 > 0 && sections.1 != SECTION_SIZE)
        {
            return Err(ElfError::Form);
        }
        let segments = rows(file, segments.0, SEGMENT_SIZE, segments.2)?;
        let segments = segments.iter().map(|row| Segment {
            kind: row.u32(0),
            offset: row.u64(8),
            address: row.u64(16),
        });
        let rows = rows(file, sections.0, SECTION_SIZE, sections.2)?;
        let names = match rows.get(section_names) {
            Some(row) => table(file, row.u64(24), row.u64(32), MOST_NAMES)?,
            None => Vec::new(),
        };
        let sections = rows.iter().map(|row| Section {
            name: String::from_utf8_lossy(name_at(&names, row.u32(0))).into_owned(),
            kind: row.u32(4),
            address: row.u64(16),
            offset: row.u64(24),
            size: row.u64(32),
            link: row.u32(40),
        });
        Ok(Self {
            segments: segments.collect(),
            sections: sections.collect(),
            header: header.bytes().to_vec(),
        })
    }

    /// The first bytes of the file: a mapping of the same file begins with them.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// What is added to an address of the file where its first byte is mapped at `start`.
    ///
    /// Zero for a program that is not position independent. The sum wraps, as the linker's does.
    pub fn bias(&self, start: u64) -> Option<u64> {
        let mut loaded = self
            .segments
            .iter()
            .filter(|segment| segment.kind == TYPE_LOAD);
        let first = loaded.find(|segment| segment.offset == 0)?;
        Some(start.wrapping_sub(first.address))
    }

    /// The address of a section, before [`Elf::bias`].
    pub fn section(&self, name: &str) -> Option<u64> {
        let mut sections = self.sections.iter();
        sections
            .find(|section| section.name == name && section.address != 0)
            .map(|section| section.address)
    }

    /// The addresses of the symbols of `names` that the file defines, before [`Elf::bias`].
    ///
    /// The dynamic table is enough for what a library exports and survives `strip`; the full table is read only where a
    /// name is missing in it.
    pub fn symbols<'n>(
        &self,
        file: &(impl Memory + ?Sized),
        names: &[&'n str],
    ) -> Result<BTreeMap<&'n str, u64>, ElfError> {
        let mut found = BTreeMap::new();
        for kind in [TYPE_DYNAMIC_SYMBOLS, TYPE_SYMBOLS] {
            for section in self.sections.iter().filter(|section| section.kind == kind) {
                if names.first().is_some_and(|name| !found.contains_key(name)) {
                    self.scan(file, section, names, &mut found)?;
                }
            }
        }
        Ok(found)
    }

    fn scan<'n>(
        &self,
        file: &(impl Memory + ?Sized),
        section: &Section,
        wanted: &[&'n str],
        found: &mut BTreeMap<&'n str, u64>,
    ) -> Result<(), ElfError> {
        let strings = usize::try_from(section.link)
            .ok()
            .and_then(|link| self.sections.get(link));
        let Some(strings) = strings else {
            return Ok(());
        };
        let names = table(file, strings.offset, strings.size, MOST_NAMES)?;
        let most = MOST_SYMBOLS * SYMBOL_SIZE as u64;
        let symbols = table(file, section.offset, section.size, most)?;
        for row in symbols.chunks_exact(SYMBOL_SIZE) {
            let row = Window::new(row.to_vec());
            let (name, defined_in, address) = (row.u32(0), row.u16(6), row.u64(8));
            if defined_in == 0 || address == 0 {
                continue;
            }
            let name = name_at(&names, name);
            if let Some(name) = wanted.iter().find(|wanted| wanted.as_bytes() == name) {
                found.entry(*name).or_insert(address);
            }
        }
        Ok(())
    }
}

/// The text in a table of names, up to its end mark.
fn name_at(names: &[u8], start: u32) -> &[u8] {
    let rest = usize::try_from(start)
        .ok()
        .and_then(|start| names.get(start..))
        .unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn rows(
    file: &(impl Memory + ?Sized),
    offset: u64,
    size: u16,
    count: u16,
) -> Result<Vec<Window>, ElfError> {
    let bytes = table(file, offset, u64::from(size) * u64::from(count), MOST_NAMES)?;
    let rows = bytes.chunks_exact(usize::from(size).max(1));
    Ok(rows.map(|row| Window::new(row.to_vec())).collect())
}

/// The bytes of a table, in pieces: a file that only claims to be large costs no memory.
fn table(
    file: &(impl Memory + ?Sized),
    offset: u64,
    size: u64,
    most: u64,
) -> Result<Vec<u8>, ElfError> {
    const PIECE: usize = 1 << 16;
    if size > most {
        return Err(ElfError::TooLarge);
    }
    let mut left = usize::try_from(size).map_err(|_| ElfError::TooLarge)?;
    let (mut at, mut bytes) = (offset, Vec::new());
    while left > 0 {
        let piece = left.min(PIECE);
        bytes.extend_from_slice(window(file, at, piece)?.bytes());
        at = at
            .checked_add(piece as u64)
            .ok_or(ElfError::Outside(Fault::Unmapped))?;
        left -= piece;
    }
    Ok(bytes)
}

fn window(file: &(impl Memory + ?Sized), offset: u64, size: usize) -> Result<Window, ElfError> {
    let mut bytes = vec![0; size];
    file.read(offset, &mut bytes).map_err(ElfError::Outside)?;
    Ok(Window::new(bytes))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::sample;
