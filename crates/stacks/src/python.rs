//! The Python stack of every thread of another process, read from its memory while it runs.
//!
//! Flow: find `_PyRuntime` in a mapped file (`locate`), know where its fields are ([`layout`]), follow interpreters, threads
//! and frames ([`walk`]), and take names and lines from code objects ([`object`]).
//!
//! Guarantees: the process is neither stopped nor changed. A stack is read three times and kept only if all agree; a
//! thread that changes during every attempt is marked as torn. At most [`MOST_READS`] reads are made for one call of [`Stacks::read`].
//!
//! Caveats: `CPython` 3.9 to 3.14 with a global interpreter lock, 64-bit little endian. Calls into C have no frame: a thread in
//! `time.sleep` shows the line that called it. A busy thread can show a stack that never was (3.11: one frame left off; 3.14:
//! none) without being marked as torn: 62 of 200,000 reads of busy loops on an overloaded machine did where each stack was read
//! twice, in three groups of equal stacks, and at least one of about 300,000 where it was read three times, as it is. Equal
//! stacks suggest a thread that was preempted while the interpreter pushed a frame, which more reads at once would not notice;
//! this was not proven. Compare reads that are some time apart.

mod chain;
pub mod layout;
mod locate;
pub mod object;
pub mod walk;

use std::{collections::BTreeMap, fs::File, path::Path};

pub use chain::MOST_FRAMES;
pub use walk::{MOST_READS, MOST_THREADS};

use crate::{
    Error, ThreadStack,
    memory::{Fault, FileMemory},
    proc_file, process,
};
use walk::Runtime;

/// A process whose Python was found; it can be read many times.
#[derive(Debug)]
pub struct Stacks {
    pid: u32,
    started_ticks: u64,
    memory: FileMemory,
    runtime: Runtime,
}

impl Stacks {
    /// The stacks of a process, oldest thread first.
    pub fn of(pid: u32) -> Result<Vec<ThreadStack>, Error> {
        Self::open(pid)?.read()
    }

    /// Finds the Python of a process.
    pub fn open(pid: u32) -> Result<Self, Error> {
        let started_ticks = process::started_ticks(pid)?;
        let memory = File::open(proc_file::path(pid, "mem"))
            .map_err(|source| Error::from_io(pid, "mem", source))?;
        let memory = FileMemory(memory);
        let runtime = locate::runtime(pid, &memory)?;
        process::same_process(pid, started_ticks)?;
        Ok(Self {
            pid,
            started_ticks,
            memory,
            runtime,
        })
    }

    /// The version of its Python, such as `(3, 11)`.
    pub fn version(&self) -> (u8, u8) {
        self.runtime.layout.version
    }

    /// The stacks of its threads now, oldest thread first.
    pub fn read(&self) -> Result<Vec<ThreadStack>, Error> {
        let pid = self.pid;
        let stacks = self.runtime.stacks(&self.memory);
        // The memory stays that of the process that was opened, so this only decides what a failure means.
        process::same_process(pid, self.started_ticks)?;
        let stacks = stacks.map_err(|fault| match fault {
            Fault::Gone => Error::Gone { pid },
            Fault::Unmapped | Fault::UsedUp => Error::Runtime {
                pid,
                what: "the list of its threads",
            },
        })?;
        if stacks.is_empty() {
            return Err(Error::NotStarted { pid });
        }
        let tasks = Tasks::read(pid)?;
        Ok(stacks.into_iter().map(|stack| tasks.name(stack)).collect())
    }
}

/// The threads of a process as the kernel knows them.
struct Tasks {
    pid: u32,
    /// From the number that a thread has for itself to the one that this process sees.
    ids: BTreeMap<u32, u32>,
}

impl Tasks {
    fn read(pid: u32) -> Result<Self, Error> {
        let ids = proc_file::tasks(pid, process::MOST_TASKS)?;
        let ids = ids.into_iter().map(|id| {
            let status = proc_file::path(pid, &format!("task/{id}/status"));
            (inner_id(&status).unwrap_or(id), id)
        });
        Ok(Self {
            pid,
            ids: ids.collect(),
        })
    }

    /// `stack` with the numbers that this process sees.
    fn name(&self, mut stack: ThreadStack) -> ThreadStack {
        let known = stack.task.and_then(|inner| self.ids.get(&inner).copied());
        stack.task = known.or_else(|| stack.main.then_some(self.pid));
        stack.main |= stack.task == Some(self.pid);
        stack.name = stack
            .task
            .and_then(|id| proc_file::word(&proc_file::path(self.pid, &format!("task/{id}/comm"))));
        stack
    }
}

/// The number of a thread in its own pid namespace: a pod of the local engine has one.
fn inner_id(status: &Path) -> Option<u32> {
    const MOST: u64 = 8192;
    let bytes = proc_file::read_path(status, MOST).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{sample, sample_described};
