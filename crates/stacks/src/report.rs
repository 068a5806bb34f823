//! What the ranks of a job do right now, for a person who asks for it.
//!
//! Plain values that cross the socket of a run or of a supervisor and become JSON, and how they are read. How they are grouped and shown
//! is the caller's.

mod read;

use serde::{Deserialize, Serialize};

pub use self::read::{PodToRead, ToRead, read};

/// Threads that are kept of one rank, at most.
pub const MOST_THREADS: usize = 128;
/// Bytes of names that are kept of all ranks, at most.
pub const MOST_TEXT: usize = 32 << 20;

/// What was read of all ranks of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStacks {
    /// The attempt that runs.
    pub attempt: u32,
    /// How many ranks the job has.
    pub rank_count: u32,
    /// The ranks that were read, in ascending order.
    pub ranks: Vec<RankStacks>,
    /// The ranks of which no process was found.
    pub missing: Vec<MissingRank>,
}

/// What was read of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankStacks {
    /// The rank.
    pub rank: u32,
    /// The pod that it is in.
    pub pod: String,
    /// Its process, as this machine numbers it.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// What its main thread does: `running`, `sleeping`, `disk wait`, `stopped`, `traced`.
    pub state: String,
    /// Processor time of the process and of all below it.
    pub cpu_seconds: f64,
    /// The version of its Python, such as `3.11`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// Why it has no Python stack, where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its threads, the main thread first.
    pub threads: Vec<ThreadState>,
    /// How many threads were left out, because there were too many.
    #[serde(default)]
    pub threads_left_out: u32,
}

impl RankStacks {
    /// The thread that the program was started in.
    pub fn main(&self) -> Option<&ThreadState> {
        self.threads.iter().find(|thread| thread.main)
    }
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadState {
    /// Its number, as this machine counts; absent where it is not known (Python before 3.11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the program was started in it.
    pub main: bool,
    /// What it does, as in [`RankStacks::state`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The function of the kernel that it waits in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_channel: Option<String>,
    /// The number of the system call that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_call: Option<u32>,
    /// What it waits for, in words, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Whether it held the global interpreter lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_gil: Option<bool>,
    /// The Python calls, innermost first.
    pub frames: Vec<StackFrame>,
    /// Whether calls further out were not read.
    #[serde(default)]
    pub truncated: bool,
    /// Whether the stack changed while it was read, so that its calls may be of two moments.
    #[serde(default)]
    pub torn: bool,
}

/// One Python call.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackFrame {
    /// The function.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A rank of which no process was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingRank {
    /// The rank.
    pub rank: u32,
    /// Why, in one sentence.
    pub reason: String,
}
