//! What the kernel says of a process: its state, what its threads wait in, and what it used so far.
//!
//! One value of one moment; what has changed since an earlier one is for the caller to compare. Reads `/proc/PID` and takes no
//! right that the parent of the process does not have.
//!
//! Caveats: the files are read one after another, so the value is of a moment of some microseconds. `wchan`, `syscall`, `io`
//! and `environ` need permission to trace the process; where one is refused, its field is `None` and the rest is there.

use std::{path::Path, str};

use crate::{Error, proc_file};

/// Most threads that are read; a trainer has some dozens.
pub const MOST_TASKS: usize = 256;
/// Most children that are reported.
pub const MOST_CHILDREN: usize = 256;
/// How much of the environment is searched: the kernel's bound for one variable is 128 KiB.
const MOST_ENVIRONMENT: u64 = 1 << 20;
/// A `stat` line has 52 numbers and a name of at most 64 bytes.
const MOST_STAT: u64 = 4096;

/// What a process or thread does, by the letter that the kernel gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs, or could.
    Running,
    /// It sleeps and a signal can wake it.
    Sleeping,
    /// It waits for a disk or a driver, and no signal reaches it.
    DiskWait,
    /// A signal stopped it.
    Stopped,
    /// A debugger stopped it.
    Traced,
    /// It has ended and its parent has not collected it.
    Zombie,
    /// Another letter.
    Other(char),
}

impl State {
    fn from_letter(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'S' | 'I' => Self::Sleeping,
            'D' => Self::DiskWait,
            'T' => Self::Stopped,
            't' => Self::Traced,
            'Z' | 'X' | 'x' => Self::Zombie,
            other => Self::Other(other),
        }
    }
}

/// The bytes that a process has moved since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoBytes {
    /// By system calls that read, from pipes and caches too.
    pub read_by_calls: u64,
    /// By system calls that write.
    pub written_by_calls: u64,
    /// Fetched from storage.
    pub read_from_storage: u64,
    /// Sent to storage.
    pub written_to_storage: u64,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: State,
    /// The processor time it used, in clock ticks.
    pub cpu_ticks: u64,
    /// The function of the kernel that it waits in.
    pub wait_channel: Option<String>,
    /// The number of the system call that it is in.
    pub system_call: Option<u32>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// When it began, in clock ticks since the machine started: with the number it identifies a process.
    pub started_ticks: u64,
    /// The name of its program.
    pub name: String,
    /// What its first thread does.
    pub state: State,
    /// Its parent.
    pub parent: u32,
    /// The processor time of all its threads, in clock ticks: `utime` and `stime`.
    pub cpu_ticks: u64,
    /// How many threads it has.
    pub thread_count: u32,
    /// The threads, the first [`MOST_TASKS`].
    pub tasks: Vec<Task>,
    /// Its children, the first [`MOST_CHILDREN`].
    pub children: Vec<u32>,
    /// The bytes it moved.
    pub io: Option<IoBytes>,
    /// The variable `RANK` that it was started with. No other variable but those of the next field is kept.
    pub rank: Option<u32>,
    /// The rank that a launcher gave it: of processes below one, since the launcher itself has none. torchrun is known by
    /// `LOCAL_RANK` beside `RANK`, launchers of MPI by variables of their own.
    pub launched_rank: Option<u32>,
}

impl Process {
    /// Reads a process.
    pub fn read(pid: u32) -> Result<Self, Error> {
        let stat = Stat::of(pid)?;
        let mut tasks = Vec::new();
        let mut children = Vec::new();
        for id in proc_file::tasks(pid, MOST_TASKS)? {
            let folder = proc_file::path(pid, &format!("task/{id}"));
            // A thread may end between the listing and this read.
            tasks.extend(task(id, &folder));
            children.extend(child_ids(&folder));
        }
        children.sort_unstable();
        children.truncate(MOST_CHILDREN);
        let io = proc_file::read(pid, "io", MOST_STAT).ok();
        let environment = proc_file::read(pid, "environ", MOST_ENVIRONMENT).unwrap_or_default();
        let environment = environment.as_slice();
        let process = Self {
            id: pid,
            started_ticks: stat.started_ticks,
            name: stat.name,
            state: stat.state,
            parent: stat.parent,
            cpu_ticks: stat.cpu_ticks,
            thread_count: stat.thread_count,
            tasks,
            children,
            io: io.and_then(|bytes| io_bytes(&bytes)),
            rank: variable(environment, "RANK"),
            launched_rank: launched_rank(environment),
        };
        // All of it is of one process only if the pid has not changed hands meanwhile.
        same_process(pid, process.started_ticks)?;
        Ok(process)
    }

    /// The thread with this number.
    pub fn task(&self, id: u32) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

/// Fails where `pid` is not the process that began at `started_ticks`.
pub fn same_process(pid: u32, started_ticks: u64) -> Result<(), Error> {
    if Stat::of(pid)?.started_ticks == started_ticks {
        Ok(())
    } else {
        Err(Error::Reused { pid })
    }
}

/// When a process began, in clock ticks since the machine started.
pub fn started_ticks(pid: u32) -> Result<u64, Error> {
    Stat::of(pid).map(|stat| stat.started_ticks)
}

/// What one `stat` line holds.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    state: State,
    parent: u32,
    cpu_ticks: u64,
    thread_count: u32,
    started_ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> Result<Self, Error> {
        let bytes = proc_file::read(pid, "stat", MOST_STAT)?;
        Self::parse(&bytes).ok_or(Error::Form { pid, file: "stat" })
    }

    /// The name is in parentheses and may hold some itself, so the last one ends it.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, rest) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        // Field 3 of proc(5) is the first of the rest.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        Some(Self {
            name: proc_file::printable(name),
            state: State::from_letter(field(3)?.chars().next()?),
            parent: field(4)?.parse().ok()?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            thread_count: field(20)?.parse().ok()?,
            started_ticks: number(22)?,
        })
    }
}

fn task(id: u32, folder: &Path) -> Option<Task> {
    let stat = Stat::parse(&proc_file::read_path(&folder.join("stat"), MOST_STAT).ok()?)?;
    let wait_channel = proc_file::word(&folder.join("wchan"));
    let system_call = proc_file::word(&folder.join("syscall"));
    Some(Task {
        id,
        name: stat.name,
        state: stat.state,
        cpu_ticks: stat.cpu_ticks,
        // `0` is a thread that runs, or a kernel that hides the name.
        wait_channel: wait_channel.filter(|name| !name.is_empty() && name != "0"),
        // `running`, or `-1` outside of a system call.
        system_call: system_call
            .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()),
    })
}

/// The children that one thread has started.
fn child_ids(folder: &Path) -> Vec<u32> {
    const MOST: u64 = 11 * MOST_CHILDREN as u64;
    let bytes = proc_file::read_path(&folder.join("children"), MOST).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn io_bytes(bytes: &[u8]) -> Option<IoBytes> {
    let text = str::from_utf8(bytes).ok()?;
    let number = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")?.parse().ok())
    };
    Some(IoBytes {
        read_by_calls: number("rchar")?,
        written_by_calls: number("wchar")?,
        read_from_storage: number("read_bytes")?,
        written_to_storage: number("write_bytes")?,
    })
}

/// The number that a variable holds.
fn variable(environment: &[u8], name: &str) -> Option<u32> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        let value = variable.strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })?;
    str::from_utf8(value).ok()?.parse().ok()
}

fn launched_rank(environment: &[u8]) -> Option<u32> {
    let of_mpi = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    let mut of_mpi = of_mpi.iter().map(|name| variable(environment, name));
    of_mpi.find_map(|rank| rank).or_else(|| {
        variable(environment, "LOCAL_RANK")?;
        variable(environment, "RANK")
    })
}

/// Reads `bytes` as each file that is read of a process: see [`crate::feed`].
pub(crate) fn feed(bytes: &[u8]) {
    drop(Stat::parse(bytes));
    io_bytes(bytes);
    launched_rank(bytes);
}

#[cfg(test)]
mod tests;
