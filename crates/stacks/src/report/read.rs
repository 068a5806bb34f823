//! The stacks of all threads of all ranks, for a person who asks for them.
//!
//! Invariant: what is kept is bounded by [`MOST_TEXT`] and [`MOST_THREADS`], whatever programs do.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::{MOST_TEXT, MOST_THREADS, MissingRank, RankStacks, RunStacks, StackFrame, ThreadState};
use crate::{
    Error, Stacks, ThreadStack,
    process::{Process, State, Task},
    ranks::{MOST_PROCESSES, TICK, Tree},
    waits::{Wait, wait_of},
};

/// A pod whose ranks are read.
#[derive(Clone, Debug)]
pub struct PodToRead {
    /// Its name.
    pub name: String,
    /// Its first process, as the caller sees it.
    pub first: u32,
    /// The ranks that it holds, where that is known.
    pub ranks: Option<RangeInclusive<u32>>,
}

/// What is to be read.
#[derive(Debug)]
pub struct ToRead {
    /// The attempt that runs.
    pub attempt: u32,
    /// How many ranks the job has.
    pub rank_count: u32,
    /// The pods.
    pub pods: Vec<PodToRead>,
    /// Ranks whose pods do not run, and why they are missing.
    pub missing: Vec<MissingRank>,
    /// Only these; all where there are none.
    pub only: Vec<u32>,
    /// Whether threads without a Python stack are kept as well.
    pub native: bool,
}

/// Reads all that is to be read. May take some tenths of a second for each rank.
pub fn read(to_read: ToRead) -> RunStacks {
    let ToRead {
        attempt,
        rank_count,
        pods,
        mut missing,
        only,
        native,
    } = to_read;
    let is_wanted = |rank: u32| only.is_empty() || only.contains(&rank);
    let mut room = MOST_TEXT;
    let mut ranks = Vec::new();
    for pod in &pods {
        let held = pod.ranks.clone();
        let may_hold = |held: &RangeInclusive<u32>| held.clone().any(is_wanted);
        if !held.as_ref().is_none_or(may_hold) {
            continue;
        }
        let tree = Tree::below(pod.first, MOST_PROCESSES);
        let found = tree.ranks(held.as_ref());
        let unseen = held.into_iter().flatten();
        missing.extend(
            unseen
                .filter(|rank| !found.contains_key(rank))
                .map(|rank| MissingRank {
                    rank,
                    reason: format!("no process of pod `{}` has this rank", pod.name),
                }),
        );
        for (rank, at) in found.into_iter().filter(|(rank, _)| is_wanted(*rank)) {
            let (Some(process), Some(state)) = (tree.process(at), tree.state(at)) else {
                continue;
            };
            if state == State::Zombie {
                let reason = format!("process {} has ended", process.id);
                missing.push(MissingRank { rank, reason });
                continue;
            }
            let (ticks, _) = tree.used(at);
            let cpu = TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
            let mut seen = read_process(process, native, &mut room);
            // The state that the watch sees, too.
            seen.state = state_word(state);
            seen.rank = rank;
            seen.pod.clone_from(&pod.name);
            seen.cpu_seconds = cpu.as_secs_f64();
            ranks.push(seen);
        }
    }
    missing.retain(|missing| is_wanted(missing.rank));
    missing.sort_by_key(|missing| missing.rank);
    ranks.sort_by_key(|seen| seen.rank);
    RunStacks {
        attempt,
        rank_count,
        ranks,
        missing,
    }
}

/// What is seen of one process. Takes what it keeps out of `room`.
fn read_process(process: &Process, native: bool, room: &mut usize) -> RankStacks {
    let opened = Stacks::open(process.id);
    let python = opened.as_ref().ok().map(Stacks::version);
    let read = opened.and_then(|stacks| stacks.read());
    let (stacks, mut reason) = match read {
        Ok(stacks) => (stacks, None),
        Err(error) => (Vec::new(), Some(sentence(&error))),
    };
    let mut threads = join(process, stacks);
    let all = threads.len();
    threads.retain(|thread| thread.main || native || !thread.frames.is_empty());
    let dropped = all - threads.len();
    threads.truncate(MOST_THREADS);
    let mut kept = Vec::new();
    for mut thread in threads {
        let size = size(&thread);
        if size <= *room {
            *room -= size;
        } else if thread.main {
            thread.frames.clear();
            reason = Some("the stacks of the ranks before it are too large".to_owned());
        } else {
            continue;
        }
        kept.push(thread);
    }
    let left_out = all - dropped - kept.len();
    RankStacks {
        pid: process.id,
        program: process.name.clone(),
        python: python.map(|(major, minor)| format!("{major}.{minor}")),
        reason,
        threads: kept,
        threads_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
        ..RankStacks::default()
    }
}

/// The threads as the kernel and Python know them, the main thread first.
fn join(process: &Process, stacks: Vec<ThreadStack>) -> Vec<ThreadState> {
    let (known, unknown): (Vec<_>, Vec<_>) =
        stacks.into_iter().partition(|stack| stack.task.is_some());
    let mut by_task: BTreeMap<u32, ThreadStack> = BTreeMap::new();
    for stack in known {
        // A thread that runs in several interpreters is listed once.
        by_task.entry(stack.task.unwrap_or(0)).or_insert(stack);
    }
    let mut threads: Vec<ThreadState> = process
        .tasks
        .iter()
        .map(|task| thread(process, Some(task), by_task.remove(&task.id)))
        .collect();
    let rest = by_task.into_values().chain(unknown);
    threads.extend(rest.map(|stack| thread(process, None, Some(stack))));
    threads.sort_by_key(|thread| (!thread.main, thread.tid));
    threads
}

fn thread(process: &Process, task: Option<&Task>, stack: Option<ThreadStack>) -> ThreadState {
    let is_first = task.is_some_and(|task| task.id == process.id);
    let mut seen = ThreadState {
        tid: task.map(|task| task.id),
        name: task.map(|task| task.name.clone()),
        main: is_first,
        state: task.map(|task| state_word(task.state)),
        wait_channel: task.and_then(|task| task.wait_channel.clone()),
        system_call: task.and_then(|task| task.system_call),
        ..ThreadState::default()
    };
    let frames = stack.as_ref().map_or(&[][..], |stack| &stack.frames);
    seen.waits_for = wait_words(wait_of(frames, task));
    if let Some(stack) = stack {
        seen.tid = seen.tid.or(stack.task);
        seen.name = seen.name.or(stack.name);
        seen.main |= stack.main;
        seen.holds_gil = stack.holds_gil;
        seen.truncated = stack.truncated;
        seen.torn = stack.torn;
        let frames = stack.frames.into_iter().map(|frame| StackFrame {
            function: frame.function,
            file: frame.file,
            line: frame.line,
        });
        seen.frames = frames.collect();
    }
    seen
}

/// About what a thread takes in memory and in the answer.
fn size(thread: &ThreadState) -> usize {
    let frames = thread.frames.iter();
    let frames = frames.map(|frame| frame.function.len() + frame.file.len() + 64);
    512 + frames.sum::<usize>()
}

fn state_word(state: State) -> String {
    match state {
        State::Running => "running",
        State::Sleeping => "sleeping",
        State::DiskWait => "disk wait",
        State::Stopped => "stopped",
        State::Traced => "traced",
        State::Zombie => "ended",
        State::Other(_) => "unknown",
    }
    .to_owned()
}

fn wait_words(wait: Wait) -> Option<String> {
    Some(match wait {
        Wait::Collective { library } => format!("other ranks ({library})"),
        Wait::Device { library } => format!("the device or other ranks ({library})"),
        Wait::DataLoader { library } => format!("data ({library})"),
        Wait::Io => "files, sockets or another process".to_owned(),
        Wait::Sleep => "a timer".to_owned(),
        Wait::Lock => "a lock, a queue or another thread".to_owned(),
        Wait::Stopped => "SIGCONT: a signal has stopped it".to_owned(),
        Wait::Running | Wait::Unknown => return None,
    })
}

/// Why there is no stack, without the process, which stands beside it.
fn sentence(error: &Error) -> String {
    match error {
        Error::NotPython { .. } => "not a Python process".to_owned(),
        Error::NotStarted { .. } => "its Python has no interpreter yet, or no more".to_owned(),
        Error::Version { found, .. } => {
            format!(
                "{found} cannot be read; expected CPython 3.9 to 3.14 with a global interpreter lock"
            )
        }
        Error::Refused { .. } => {
            "the kernel refused to read its memory: another user, or no permission to trace it"
                .to_owned()
        }
        Error::Gone { .. } | Error::Reused { .. } => "it ended while it was read".to_owned(),
        Error::Read { .. } | Error::Form { .. } | Error::Runtime { .. } => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: u32, state: State) -> Task {
        Task {
            id,
            name: format!("t{id}"),
            state,
            cpu_ticks: 0,
            wait_channel: Some("do_epoll_wait".to_owned()),
            system_call: Some(232),
        }
    }

    fn process() -> Process {
        Process {
            id: 10,
            started_ticks: 0,
            name: "python".to_owned(),
            state: State::Sleeping,
            parent: 1,
            cpu_ticks: 0,
            thread_count: 2,
            tasks: vec![task(9, State::Running), task(10, State::Stopped)],
            children: Vec::new(),
            io: None,
            rank: None,
            launched_rank: None,
        }
    }

    fn stack(task: Option<u32>, main: bool) -> ThreadStack {
        ThreadStack {
            thread_id: 1,
            task,
            name: None,
            main,
            holds_gil: Some(main),
            frames: vec![crate::Frame {
                file: "train.py".to_owned(),
                function: "step".to_owned(),
                line: Some(3),
            }],
            truncated: false,
            torn: false,
        }
    }

    #[test]
    fn threads_of_the_kernel_and_of_python_are_joined() {
        let stacks = vec![stack(None, false), stack(Some(10), true)];
        let threads = join(&process(), stacks);
        let seen: Vec<_> = threads
            .iter()
            .map(|thread| (thread.tid, thread.main, thread.frames.len()))
            .collect();
        assert_eq!(
            seen,
            [(Some(10), true, 1), (None, false, 1), (Some(9), false, 0)]
        );
        let main = &threads[0];
        assert_eq!(main.state.as_deref(), Some("stopped"));
        assert_eq!(
            main.waits_for.as_deref(),
            Some("SIGCONT: a signal has stopped it")
        );
        assert_eq!(main.wait_channel.as_deref(), Some("do_epoll_wait"));
    }

    #[test]
    fn an_answer_has_room_for_so_much() {
        let own = Process::read(std::process::id()).unwrap();
        let mut room = 600;
        let seen = read_process(&own, true, &mut room);
        assert_eq!(seen.threads.len(), 1, "one fits: {seen:?}");
        assert!(room < 600);
        assert_eq!(seen.reason.as_deref(), Some("not a Python process"));
        let mut none = 0;
        let seen = read_process(&own, false, &mut none);
        assert_eq!(seen.threads.len(), 1, "the main thread is always there");
        assert!(seen.reason.unwrap().contains("too large"));
    }

    #[test]
    fn ranks_without_a_process_are_missing() {
        let gone = PodToRead {
            name: "j-worker-0".to_owned(),
            // No process can have this number.
            first: u32::MAX,
            ranks: Some(1..=2),
        };
        let not_started = MissingRank {
            rank: 0,
            reason: "its pod is not running".to_owned(),
        };
        let to_read = |only: &[u32]| ToRead {
            attempt: 1,
            rank_count: 3,
            pods: vec![gone.clone()],
            missing: vec![not_started.clone()],
            only: only.to_vec(),
            native: false,
        };
        let ranks = |only: &[u32]| -> Vec<u32> {
            let read = read(to_read(only));
            assert!(read.ranks.is_empty());
            read.missing.iter().map(|missing| missing.rank).collect()
        };
        assert_eq!(ranks(&[]), [0, 1, 2]);
        assert_eq!(ranks(&[2]), [2]);
        assert_eq!(ranks(&[0]), [0]);
    }
}
