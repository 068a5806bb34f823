//! Where the fields of `CPython`'s structures are.
//!
//! From 3.13 on the interpreter describes itself: `_Py_DebugOffsets` is at the start of `_PyRuntime`. For 3.9 to 3.12 the
//! offsets are facts of the public headers, taken with `offsetof` from those that an installation brings, for x86-64:
//! `internal/pycore_runtime.h` and `internal/pycore_interp.h` (`_PyRuntimeState`, `PyInterpreterState`), `cpython/pystate.h`
//! (`PyThreadState`, `_PyCFrame`), `cpython/frameobject.h` or `internal/pycore_frame.h` (frames), `cpython/code.h`
//! (`PyCodeObject`), `cpython/unicodeobject.h`. They hold for a whole minor version: checked for 3.9.6 and 3.9.18, 3.10.8
//! and 3.10.13, 3.11.2 and 3.11.7, 3.12.1. No field behind a `pthread` type is used, so the same offsets hold where
//! these have other sizes.

use crate::{lines::LineTable, memory::Window};

/// How many bytes at `_PyRuntime` are enough for [`Layout::described`].
pub const DESCRIPTION_SIZE: usize = 1024;
/// What the description of 3.13 and later begins with.
pub const COOKIE: &[u8] = b"xdebugpy";

/// Where the thread that holds the global interpreter lock is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gil {
    /// In the runtime: the last holder, and whether it is locked (3.9 to 3.11).
    Runtime {
        /// A thread state.
        holder: u64,
        /// A number of 4 bytes.
        locked: u64,
    },
    /// In each thread state: a bit of a number of 4 bytes (3.12).
    Thread {
        /// The number.
        status: u64,
        /// The bit.
        active: u32,
    },
    /// Behind a pointer in the interpreter: the last holder, and whether it is locked (3.13 and later).
    Interpreter {
        /// The pointer.
        lock: u64,
        /// A thread state, from the lock on.
        holder: u64,
        /// A number of 4 bytes, from the lock on.
        locked: u64,
    },
}

/// Where a thread state has its innermost frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Top {
    /// A pointer to it.
    Direct(u64),
    /// A pointer to a `_PyCFrame`, which has a pointer to it (3.11 and 3.12).
    Through(u64, u64),
}

/// Where a frame has its instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// A number of units of so many bytes (3.9 and 3.10).
    Index(u64, u64),
    /// An address in the code (3.11 and later).
    Address(u64),
}

/// All offsets of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each field is the offset of the CPython field of its name"
)]
pub struct Layout {
    pub version: (u8, u8),
    pub interpreters_head: u64,
    pub main_thread: Option<u64>,
    pub interpreter_next: u64,
    pub threads_head: u64,
    pub gil: Gil,
    pub thread_next: u64,
    pub thread_id: u64,
    pub native_thread_id: Option<u64>,
    pub top: Top,
    pub frame_previous: u64,
    pub frame_code: u64,
    pub instruction: Instruction,
    pub frame_owner: Option<u64>,
    /// From 3.11 on the owner of a frame says what this is read for.
    pub code_flags: Option<u64>,
    pub code_file: u64,
    pub code_name: u64,
    pub code_first_line: u64,
    pub code_lines: u64,
    pub code_start: u64,
    pub line_table: LineTable,
    pub text_length: u64,
    pub text_state: u64,
    pub ascii_size: u64,
    pub compact_size: u64,
    pub bytes_size: u64,
    pub bytes_start: u64,
}

/// From this owner on a frame is one of the interpreter itself and has no code of Python (3.12 and later).
pub const FIRST_HIDDEN_OWNER: u8 = 3;
/// The owner of the frame of a generator or coroutine (3.11 and later).
pub const GENERATOR_OWNER: u8 = 1;
/// The type of an object.
pub const OBJECT_TYPE: u64 = 8;

const PYTHON_3_9: Layout = Layout {
    version: (3, 9),
    interpreters_head: 32,
    main_thread: Some(72),
    interpreter_next: 0,
    threads_head: 8,
    gil: Gil::Runtime {
        holder: 360,
        locked: 368,
    },
    thread_next: 8,
    thread_id: 176,
    native_thread_id: None,
    top: Top::Direct(24),
    frame_previous: 24,
    frame_code: 32,
    instruction: Instruction::Index(104, 1),
    frame_owner: None,
    code_flags: Some(36),
    code_file: 104,
    code_name: 112,
    code_first_line: 40,
    code_lines: 120,
    code_start: 0,
    line_table: LineTable::Increments,
    text_length: 16,
    text_state: 32,
    ascii_size: 48,
    compact_size: 72,
    bytes_size: 16,
    bytes_start: 32,
};

const PYTHON_3_10: Layout = Layout {
    version: (3, 10),
    instruction: Instruction::Index(96, 2),
    line_table: LineTable::Ranges,
    ..PYTHON_3_9
};

const PYTHON_3_11: Layout = Layout {
    version: (3, 11),
    interpreters_head: 40,
    main_thread: Some(80),
    threads_head: 16,
    gil: Gil::Runtime {
        holder: 368,
        locked: 376,
    },
    thread_id: 152,
    native_thread_id: Some(160),
    top: Top::Through(56, 8),
    frame_previous: 48,
    frame_code: 32,
    instruction: Instruction::Address(56),
    frame_owner: Some(69),
    code_flags: None,
    code_file: 112,
    code_name: 128,
    code_first_line: 72,
    code_lines: 136,
    code_start: 184,
    line_table: LineTable::Locations,
    ..PYTHON_3_9
};

const PYTHON_3_12: Layout = Layout {
    version: (3, 12),
    main_thread: Some(64),
    threads_head: 72,
    gil: Gil::Thread {
        status: 24,
        active: 4,
    },
    thread_id: 136,
    native_thread_id: Some(144),
    top: Top::Through(56, 0),
    frame_previous: 8,
    frame_code: 0,
    frame_owner: Some(70),
    code_first_line: 68,
    code_start: 192,
    ascii_size: 40,
    compact_size: 56,
    ..PYTHON_3_11
};

impl Layout {
    /// The layout of a version that does not describe itself.
    pub fn known(version: (u8, u8)) -> Option<Self> {
        [PYTHON_3_9, PYTHON_3_10, PYTHON_3_11, PYTHON_3_12]
            .into_iter()
            .find(|layout| layout.version == version)
    }

    /// The layout that the runtime of 3.13 or 3.14 describes, from the first [`DESCRIPTION_SIZE`] bytes of `_PyRuntime`;
    /// otherwise what was found.
    ///
    /// The order of the fields is that of `_Py_DebugOffsets` in `internal/pycore_runtime.h` (3.13) and
    /// `internal/pycore_debug_offsets.h` (3.14); it is fixed for a minor version.
    pub fn described(bytes: &Window) -> Result<Self, String> {
        // Larger than any structure: an offset that is no offset.
        const RUNTIME: u64 = 1 << 24;
        const SMALL: u64 = 4000;
        let number = bytes.u64(8);
        let version = version(number);
        let name = format!("CPython {}.{}", version.0, version.1);
        // How many numbers 3.14 has more than 3.13 in front of the threads, frames, code, objects and text.
        let more = match version {
            (3, 13) => [0, 0, 0, 0],
            (3, 14) => [3, 5, 6, 10],
            _ => return Err(name),
        };
        if bytes.u64(16) != 0 {
            return Err(format!("{name} without a global interpreter lock"));
        }
        let mut too_large = false;
        let mut at = |index: u64, most: u64| {
            let offset = bytes.u64(index * 8);
            too_large |= offset > most;
            offset
        };
        let threads = 19 + more[0];
        let frames = 28 + more[0];
        let code = 34 + more[1];
        let objects = 44 + more[2];
        let text = 67 + more[3];
        // In front of the numbers of the lock 3.14 has one more, for the main thread.
        let lock = 14 + u64::from(version.1 == 14);
        let gil_start = at(lock + 1, RUNTIME);
        let layout = Self {
            version,
            interpreters_head: at(5, RUNTIME),
            main_thread: None,
            interpreter_next: at(8, RUNTIME),
            threads_head: at(9, RUNTIME),
            gil: Gil::Interpreter {
                lock: at(lock, RUNTIME),
                locked: at(lock + 3, RUNTIME).wrapping_sub(gil_start),
                holder: at(lock + 4, RUNTIME).wrapping_sub(gil_start),
            },
            thread_next: at(threads + 2, SMALL),
            thread_id: at(threads + 5, SMALL),
            native_thread_id: Some(at(threads + 6, SMALL)),
            top: Top::Direct(at(threads + 4, SMALL)),
            frame_previous: at(frames + 1, SMALL),
            frame_code: at(frames + 2, SMALL),
            instruction: Instruction::Address(at(frames + 3, SMALL)),
            frame_owner: Some(at(frames + 5, SMALL)),
            code_flags: None,
            code_file: at(code + 1, SMALL),
            code_name: at(code + 3, SMALL),
            code_lines: at(code + 4, SMALL),
            code_first_line: at(code + 5, SMALL),
            code_start: at(code + 9, SMALL),
            line_table: LineTable::Locations,
            bytes_size: at(text - 2, SMALL),
            bytes_start: at(text - 1, SMALL),
            text_state: at(text + 1, SMALL),
            text_length: at(text + 2, SMALL),
            ascii_size: at(text + 3, SMALL),
            // `PyCompactUnicodeObject` adds a length and a pointer to `PyASCIIObject`.
            compact_size: at(text + 3, SMALL).saturating_add(16),
        };
        let object_type = at(objects + 1, SMALL);
        if too_large || object_type != OBJECT_TYPE {
            return Err(format!("{name} with an unknown description of itself"));
        }
        Ok(layout)
    }

    /// How many bytes of a thread state hold all fields that are read.
    pub(crate) fn thread_size(&self) -> usize {
        let status = match self.gil {
            Gil::Thread { status, .. } => status,
            Gil::Runtime { .. } | Gil::Interpreter { .. } => 0,
        };
        let (Top::Direct(top) | Top::Through(top, _)) = self.top;
        let native = self.native_thread_id.unwrap_or(0);
        window_size(&[self.thread_next, self.thread_id, native, top, status])
    }

    /// The same for a frame.
    pub(crate) fn frame_size(&self) -> usize {
        let (Instruction::Index(instruction, _) | Instruction::Address(instruction)) =
            self.instruction;
        let owner = self.frame_owner.unwrap_or(0);
        window_size(&[self.frame_previous, self.frame_code, instruction, owner])
    }

    /// The same for a code object.
    pub(crate) fn code_size(&self) -> usize {
        let lines = [self.code_lines, self.code_first_line];
        window_size(&[self.code_file, self.code_name, lines[0], lines[1]])
    }
}

/// A structure that holds 8 bytes at each of these offsets, none of which is larger than a page.
fn window_size(offsets: &[u64]) -> usize {
    let last = offsets.iter().copied().max().unwrap_or(0);
    usize::try_from(last.min(4096)).unwrap_or(4096) + 8
}

/// Major and minor of a number such as `0x030b07f0`.
pub fn version(number: u64) -> (u8, u8) {
    let bytes = number.to_be_bytes();
    (bytes[4], bytes[5])
}
