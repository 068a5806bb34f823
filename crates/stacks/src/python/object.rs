//! Text, bytes and code objects in the memory of a process.
//!
//! Each is checked to be of its type where the type's address is known: a frame that changes while it is read points anywhere.

use super::layout::{Layout, OBJECT_TYPE};
use crate::{
    lines::LineTable,
    memory::{Fault, Memory, Reads},
    proc_file::printable,
};

/// The longest name or path, in characters; more is cut.
pub const MOST_TEXT: u64 = 1024;
/// How much of a table of lines is read: enough for about 10,000 statements of one function. Those behind it have no line.
pub const MOST_LINES: u64 = 1 << 16;

/// `CO_GENERATOR`, `CO_COROUTINE` and `CO_ASYNC_GENERATOR` of `cpython/code.h`.
const GENERATOR_FLAGS: u32 = 0x20 | 0x80 | 0x200;

/// Where the types of the objects are; zero where it is not known, and then not checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Types {
    /// `PyCode_Type`.
    pub code: u64,
    /// `PyUnicode_Type`.
    pub text: u64,
    /// `PyBytes_Type`.
    pub bytes: u64,
}

/// What is needed of a code object.
#[derive(Debug, Clone)]
pub struct Code {
    /// The file.
    pub file: String,
    /// The function.
    pub function: String,
    /// Whether it is that of a generator or coroutine; before 3.11 only.
    pub generator: bool,
    start: u64,
    first_line: u32,
    form: LineTable,
    lines: Vec<u8>,
}

impl Code {
    /// Reads the code object at `address`.
    pub fn read<M: Memory + ?Sized>(
        reads: &Reads<'_, M>,
        layout: &Layout,
        types: Types,
        address: u64,
    ) -> Result<Self, Fault> {
        let object = reads.window(address, layout.code_size())?;
        check_type(object.u64(OBJECT_TYPE), types.code)?;
        Ok(Self {
            file: text(reads, layout, types, object.u64(layout.code_file))?,
            function: text(reads, layout, types, object.u64(layout.code_name))?,
            generator: layout
                .code_flags
                .is_some_and(|at| object.u32(at) & GENERATOR_FLAGS != 0),
            start: address.wrapping_add(layout.code_start),
            first_line: object.u32(layout.code_first_line),
            form: layout.line_table,
            lines: bytes(reads, layout, types, object.u64(layout.code_lines))?,
        })
    }

    /// The line of the instruction at byte `offset`; that of the definition for one that has not begun.
    pub fn line_of_offset(&self, offset: Option<u64>) -> Option<u32> {
        match offset {
            Some(offset) => self.form.line(&self.lines, self.first_line, offset),
            None => Some(self.first_line),
        }
    }

    /// The line of the instruction at `address`.
    pub fn line_of_address(&self, address: u64) -> Option<u32> {
        // A frame that was just made points to the unit in front of its code.
        self.line_of_offset(address.checked_sub(self.start))
    }
}

fn check_type(found: u64, expected: u64) -> Result<(), Fault> {
    if expected == 0 || found == expected {
        Ok(())
    } else {
        Err(Fault::Unmapped)
    }
}

/// A `str`, cut after [`MOST_TEXT`] characters, without control characters.
pub fn text<M: Memory + ?Sized>(
    reads: &Reads<'_, M>,
    layout: &Layout,
    types: Types,
    address: u64,
) -> Result<String, Fault> {
    // The state is in front of the characters, whatever their size.
    let size = usize::try_from(layout.ascii_size.min(4096)).unwrap_or(4096);
    let object = reads.window(address, size)?;
    check_type(object.u64(OBJECT_TYPE), types.text)?;
    let length = object.u64(layout.text_length);
    let state = object.u8(layout.text_state);
    let (kind, compact, ascii) = ((state >> 2) & 7, state & 0x20 != 0, state & 0x40 != 0);
    if !compact || !matches!(kind, 1 | 2 | 4) {
        return Err(Fault::Unmapped);
    }
    let start = if ascii {
        layout.ascii_size
    } else {
        layout.compact_size
    };
    let kept = usize::try_from(length.min(MOST_TEXT)).unwrap_or(0);
    let width = usize::from(kind);
    let mut bytes = vec![0; kept * width];
    if kept > 0 {
        reads.read(address.wrapping_add(start), &mut bytes)?;
    }
    let characters = bytes.chunks_exact(width).map(|unit| {
        let code = unit
            .iter()
            .rev()
            .fold(0u32, |code, byte| (code << 8) | u32::from(*byte));
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    let mut text = printable(&characters.collect::<String>());
    if length > MOST_TEXT {
        text.push('…');
    }
    Ok(text)
}

/// A `bytes`, cut after [`MOST_LINES`].
fn bytes<M: Memory + ?Sized>(
    reads: &Reads<'_, M>,
    layout: &Layout,
    types: Types,
    address: u64,
) -> Result<Vec<u8>, Fault> {
    let head = reads.window(address, 24)?;
    check_type(head.u64(OBJECT_TYPE), types.bytes)?;
    let size = reads.word(address, layout.bytes_size)?.min(MOST_LINES);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    if !bytes.is_empty() {
        reads.read(address.wrapping_add(layout.bytes_start), &mut bytes)?;
    }
    Ok(bytes)
}
