//! The ranks of a pod: which of its processes they are, and what each of them does.
//!
//! Owns what is read of a rank. What follows from it is for others to say, who know of jobs and of time.
//!
//! Invariant: what is read of a pod is bounded by 1,024 processes.

mod tree;

use std::{ops::RangeInclusive, time::Duration};

pub use self::tree::Tree;
use crate::{
    Stacks,
    digest::{Digest, own_frame},
    process::{Process, State},
    waits::{Wait, wait_of},
};

/// Most processes of one pod that are looked at.
pub const MOST_PROCESSES: usize = 1_024;
/// A clock tick of `/proc`: 100 in a second wherever Linux runs ranks.
pub const TICK: Duration = Duration::from_millis(10);

/// The state of a rank's main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankState {
    /// On a processor, or ready (`R`).
    Running,
    /// Waits and can be interrupted (`S`).
    Sleeping,
    /// Waits for a disk, a network file system or a driver and cannot be interrupted (`D`).
    DiskWait,
    /// Stopped by a signal or a debugger (`T`).
    Stopped,
}

/// What was seen of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLook {
    /// Which.
    pub rank: u32,
    /// CPU time since its start, with its workers.
    pub cpu: Duration,
    /// Bytes that it read and wrote, with its workers, page cache included.
    pub io_bytes: u64,
    /// The state of its main thread.
    pub state: RankState,
    /// What its main thread waits in, as the kernel names it.
    pub wait_channel: Option<String>,
    /// Where its main thread is, where that was asked for and it runs a Python that can be read.
    pub stack: Option<RankStack>,
}

/// Where the main thread of a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankStack {
    /// A digest of the frames, equal where files and lines are equal.
    pub digest: u64,
    /// The innermost frame of the user's program, as `file:line`.
    pub place: Option<String>,
    /// Whether it waits for other ranks.
    pub in_collective: bool,
}

/// What the ranks of a pod do, whose first process is `first` and which should hold the ranks `held`.
pub fn look(first: u32, held: Option<&RangeInclusive<u32>>, stacks: bool) -> Vec<RankLook> {
    let tree = Tree::below(first, MOST_PROCESSES);
    let ranks = tree.ranks(held).into_iter();
    let seen = ranks.filter_map(|(rank, at)| {
        let process = tree.process(at)?;
        let mut look = usage(&tree, at, process, rank)?;
        look.stack = stacks.then(|| stack(process)).flatten();
        Some(look)
    });
    seen.collect()
}

/// What a rank used, with its workers; nothing where it has ended.
fn usage(tree: &Tree, at: usize, process: &Process, rank: u32) -> Option<RankLook> {
    let state = match tree.state(at)? {
        State::Running => RankState::Running,
        State::DiskWait => RankState::DiskWait,
        State::Stopped | State::Traced => RankState::Stopped,
        State::Zombie => return None,
        State::Sleeping | State::Other(_) => RankState::Sleeping,
    };
    let (ticks, io_bytes) = tree.used(at);
    let main = process.task(process.id);
    Some(RankLook {
        rank,
        cpu: TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)),
        io_bytes,
        state,
        wait_channel: main.and_then(|main| main.wait_channel.clone()),
        stack: None,
    })
}

/// Where the main thread of a rank is, where it runs a Python that can be read.
fn stack(process: &Process) -> Option<RankStack> {
    let stacks = Stacks::of(process.id).ok()?;
    let main = stacks.into_iter().find(|stack| stack.main)?;
    let place = own_frame(&main.frames).map(|frame| match frame.line {
        Some(line) => format!("{}:{line}", frame.file),
        None => frame.file.clone(),
    });
    let wait = wait_of(&main.frames, process.task(process.id));
    Some(RankStack {
        digest: Digest::of(&main.frames).0,
        place,
        in_collective: matches!(wait, Wait::Collective { .. } | Wait::Device { .. }),
    })
}
