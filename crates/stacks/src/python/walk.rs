//! From the runtime to the frames of every thread, while the process runs.
//!
//! Nothing is locked in the other process, so any list may change under the reader: a frame is popped and its memory reused, a
//! thread ends. A walk that meets something impossible is begun again; a stack counts as read only when it is seen
//! several times in a row.
//!
//! Invariant: interpreters, threads, frames and reads are bounded, and a list that leads back to itself is noticed.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    chain::{Chain, RawFrame},
    layout::{Gil, Instruction, Layout},
    object::{Code, Types},
};
use crate::{
    Frame, ThreadStack,
    memory::{Fault, Memory, Reads, Window},
};

/// Most threads of a process that are reported.
pub const MOST_THREADS: usize = 256;
/// Most reads of the memory of a process for one value. Before 3.11 each frame may take one
/// for each of three sightings: 130 threads of 256 frames each fit.
pub const MOST_READS: u32 = 100_000;
/// Most interpreters; almost every program has one.
const MOST_INTERPRETERS: usize = 16;
/// How often a stack is read before it counts as that of one moment. Nothing is locked, so this makes a stack of two moments
/// unlikely and does not exclude it.
const SIGHTINGS: u32 = 3;
/// How often a list or a stack that changes is read before what there is counts.
const MOST_ATTEMPTS: u32 = 8;
/// Most code objects that are kept for one value, with their line tables: at most 16 MiB.
const MOST_CODE: usize = 256;

/// Where the runtime of a process is, and how it is laid out.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// The address of `_PyRuntime`.
    pub address: u64,
    /// The offsets of its version.
    pub layout: Layout,
    /// The addresses of the types.
    pub types: Types,
}

/// A thread state that was found in the lists of the runtime.
#[derive(Debug, Clone, Copy)]
struct RawThread {
    address: u64,
    interpreter: u64,
}

impl Runtime {
    /// Whether an interpreter is there: a library that is only mapped has none.
    pub(crate) fn started(&self, memory: &(impl Memory + ?Sized)) -> bool {
        let reads = Reads::new(memory, 1);
        reads
            .word(self.address, self.layout.interpreters_head)
            .is_ok_and(|head| head != 0)
    }

    /// The stacks of all threads, oldest first; empty where there is no interpreter.
    pub fn stacks(&self, memory: &(impl Memory + ?Sized)) -> Result<Vec<ThreadStack>, Fault> {
        self.stacks_within(memory, MOST_READS)
    }

    /// The same with another number of reads.
    pub(super) fn stacks_within(
        &self,
        memory: &(impl Memory + ?Sized),
        most_reads: u32,
    ) -> Result<Vec<ThreadStack>, Fault> {
        let reads = Reads::new(memory, most_reads);
        let mut reader = Reader {
            runtime: self,
            reads: &reads,
            code: BTreeMap::new(),
        };
        let mut threads = retried(|| reader.threads())?;
        // The lists begin with the newest.
        threads.reverse();
        let main = self
            .layout
            .main_thread
            .and_then(|main| reads.word(self.address, main).ok());
        let mut stacks = Vec::new();
        for thread in threads {
            match reader.stack(thread, main) {
                Ok(stack) => stacks.push(stack),
                Err(Fault::Gone) => return Err(Fault::Gone),
                // The thread ended after the list was read.
                Err(Fault::Unmapped) => {}
                Err(Fault::UsedUp) => stacks.push(unread()),
            }
        }
        Ok(stacks)
    }
}

/// What `read` returns, tried again while it meets something impossible.
fn retried<T>(mut read: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let mut result = read();
    for _ in 1..MOST_ATTEMPTS {
        if !matches!(result, Err(Fault::Unmapped)) {
            break;
        }
        result = read();
    }
    result
}

struct Reader<'a, M: ?Sized> {
    runtime: &'a Runtime,
    reads: &'a Reads<'a, M>,
    /// Code objects that were read already: most threads and ranks are in the same functions.
    code: BTreeMap<u64, Code>,
}

impl<M: Memory + ?Sized> Reader<'_, M> {
    /// The thread states of all interpreters, newest first.
    fn threads(&self) -> Result<Vec<RawThread>, Fault> {
        let layout = &self.runtime.layout;
        let mut seen = BTreeSet::new();
        let mut threads = Vec::new();
        let mut interpreter = self
            .reads
            .word(self.runtime.address, layout.interpreters_head)?;
        for _ in 0..MOST_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut thread = self.reads.word(interpreter, layout.threads_head)?;
            while thread != 0 && threads.len() < MOST_THREADS {
                if !seen.insert(thread) {
                    return Err(Fault::Unmapped);
                }
                threads.push(RawThread {
                    address: thread,
                    interpreter,
                });
                thread = self.reads.word(thread, layout.thread_next)?;
            }
            interpreter = self.reads.word(interpreter, layout.interpreter_next)?;
        }
        Ok(threads)
    }

    /// The stack of one thread, of one moment if that can be had.
    fn stack(&mut self, thread: RawThread, main: Option<u64>) -> Result<ThreadStack, Fault> {
        let mut last = Err(Fault::Unmapped);
        for _ in 0..MOST_ATTEMPTS {
            match self.attempt(thread, main) {
                Ok(stack) if !stack.torn => return Ok(stack),
                Ok(stack) => last = Ok(stack),
                Err(Fault::Gone) => return Err(Fault::Gone),
                Err(Fault::Unmapped) => {}
                Err(Fault::UsedUp) => {
                    let stack = last.map_err(|_| Fault::UsedUp)?;
                    return Ok(ThreadStack {
                        truncated: true,
                        ..stack
                    });
                }
            }
        }
        last
    }

    /// Reads the stack, and then again to see whether it was that of one moment.
    fn attempt(&mut self, thread: RawThread, main: Option<u64>) -> Result<ThreadStack, Fault> {
        let layout = &self.runtime.layout;
        let chain = Chain::read(self.reads, layout, thread.address)?;
        let (frames, whole) = self.frames(&chain)?;
        let thread_id = chain.state.u64(layout.thread_id);
        let native = layout
            .native_thread_id
            .map(|offset| chain.state.u64(offset));
        let mut stack = ThreadStack {
            thread_id,
            task: native
                .and_then(|id| u32::try_from(id).ok())
                .filter(|id| *id != 0),
            main: main == Some(thread_id),
            holds_gil: self.holds_gil(thread, &chain.state),
            frames,
            truncated: chain.truncated,
            ..unread()
        };
        if self.reads.left() == 0 {
            stack.truncated = true;
            return Ok(stack);
        }
        stack.torn = !whole;
        for _ in 1..SIGHTINGS {
            stack.torn =
                stack.torn || !chain.agrees(&Chain::read(self.reads, layout, thread.address)?);
        }
        Ok(stack)
    }

    /// The frames with their names and lines, and whether all of them could be read and can be of one moment.
    fn frames(&mut self, chain: &Chain) -> Result<(Vec<Frame>, bool), Fault> {
        let runtime = self.runtime;
        let mut frames = Vec::new();
        let mut ends_in_generator = false;
        for raw in &chain.frames {
            if !self.code.contains_key(&raw.code) {
                let code = Code::read(self.reads, &runtime.layout, runtime.types, raw.code);
                match code {
                    Ok(code) => {
                        if self.code.len() == MOST_CODE {
                            self.code.clear();
                        }
                        self.code.insert(raw.code, code);
                    }
                    Err(Fault::Gone) => return Err(Fault::Gone),
                    Err(Fault::Unmapped | Fault::UsedUp) => return Ok((frames, false)),
                }
            }
            let Some(code) = self.code.get(&raw.code) else {
                break;
            };
            ends_in_generator = raw.generator || code.generator;
            let line = match runtime.layout.instruction {
                Instruction::Address(_) => code.line_of_address(raw.instruction),
                Instruction::Index(..) => code.line_of_offset(
                    (raw.instruction != RawFrame::NOT_BEGUN).then_some(raw.instruction),
                ),
            };
            frames.push(Frame {
                file: code.file.clone(),
                function: code.function.clone(),
                line,
            });
        }
        // A generator has no caller only while it is suspended, and then it is on no stack.
        Ok((frames, chain.truncated || !ends_in_generator))
    }

    fn holds_gil(&self, thread: RawThread, state: &Window) -> Option<bool> {
        let (base, holder, locked) = match self.runtime.layout.gil {
            Gil::Thread { status, active } => return Some((state.u32(status) >> active) & 1 == 1),
            Gil::Runtime { holder, locked } => (self.runtime.address, holder, locked),
            Gil::Interpreter {
                lock,
                holder,
                locked,
            } => (
                self.reads.word(thread.interpreter, lock).ok()?,
                holder,
                locked,
            ),
        };
        let mut flag = [0; 4];
        self.reads.read(base.checked_add(locked)?, &mut flag).ok()?;
        let holder = self.reads.word(base, holder).ok()?;
        // −1 is a lock that was not made yet.
        Some(i32::from_le_bytes(flag) == 1 && holder == thread.address)
    }
}

/// A thread that was not read.
fn unread() -> ThreadStack {
    ThreadStack {
        thread_id: 0,
        task: None,
        name: None,
        main: false,
        holds_gil: None,
        frames: Vec::new(),
        truncated: true,
        torn: true,
    }
}
